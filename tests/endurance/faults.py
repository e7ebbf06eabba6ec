"""Faults of the machine and of those who run it, under load."""

import base64
import json
import os
import signal
import subprocess
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import versions
from callers import QUESTIONS, Asker, Callers
from gateway import DEFAULT_TOKEN, EAST_TOKEN, Gateway
from wire import access, answer, pod, request
from soak import FailingWebhook

VERSIONED = {"manifests": ["versions"]}


def serving(program, **more):
    """A gateway with the first version of the policies, not yet started."""
    gateway = Gateway(program, more={**VERSIONED, **more})
    versions.put(gateway.set_up / "versions", 1)
    return gateway


def killed(program):
    """`kill -9` and restart, five times"""
    with serving(program) as gateway:
        callers = Callers([Asker(gateway, QUESTIONS, patient=True) for _ in range(2)])
        away = []
        with callers:
            for _ in range(5):
                time.sleep(1)
                gateway.process.kill()
                gateway.process.wait()
                start = time.monotonic()
                gateway.start()
                away.append(time.monotonic() - start)
            time.sleep(1)
    result = f"{callers.count:,} answers, {callers.wrong} wrong; ready again after at most {max(away) * 1000:.0f} ms"
    return result, callers.broken


def ended(program):
    """SIGTERM, five times"""
    lost, broken, count, codes = 0, [], 0, []
    for _ in range(5):
        with serving(program) as gateway:
            askers = [Asker(gateway, QUESTIONS, patient=True, fresh_after=10**9) for _ in range(2)]
            callers = Callers(askers)
            with callers:
                time.sleep(1)
                gateway.process.send_signal(signal.SIGTERM)
                codes.append(gateway.process.wait(timeout=40))
            count += callers.count
            broken += callers.broken
            answered = logged(gateway)
            # A line is written for each decision before the process ends, and each was answered.
            lost += max(0, answered - callers.count)
    if set(codes) != {0}:
        broken.append(f"exit codes {codes}")
    if lost:
        broken.append(f"{lost} decisions were not answered")
    return f"{count:,} answers, {lost} decisions without one; exit code 0", broken


def logged(gateway):
    return (gateway.set_up / "decisions.log").read_bytes().count(b"\n")


def full_disk(program):
    """a full disk for the decision log"""
    with serving(program, decisionLog={"path": "/dev/full"}) as gateway:
        callers = Callers([Asker(gateway, QUESTIONS)])
        with callers:
            time.sleep(3)
        dropped = gateway.metric("portcullis_decision_log_dropped_total") or 0
    broken = callers.broken
    if not dropped:
        broken.append("no line counts as dropped")
    return f"{callers.count:,} answers, {callers.wrong} wrong; {dropped:,.0f} lines dropped", broken


def full_recordings(program):
    """a full disk for the recordings (needs root)"""
    if os.geteuid() != 0:
        return "not run: only root can mount a small file system", []
    with serving(program, recording={"folder": "recordings"}) as gateway:
        gateway.process.kill()
        gateway.process.wait()
        recordings = gateway.set_up / "recordings"
        recordings.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(recordings)], check=True)
        try:
            gateway.start()
            callers = Callers([Asker(gateway, QUESTIONS)])
            with callers:
                time.sleep(3)
            dropped = gateway.metric("portcullis_recording_dropped_total") or 0
            gateway.process.kill()
            gateway.process.wait()
        finally:
            subprocess.run(["umount", "--lazy", str(recordings)], check=True)
    broken = callers.broken
    if not dropped:
        broken.append("no review counts as dropped")
    return f"{callers.count:,} answers, {callers.wrong} wrong; {dropped:,.0f} reviews not recorded", broken


def thousand_reloads(program):
    """1,000 reloads as fast as they go"""
    with serving(program) as gateway:
        callers = Callers([Asker(gateway, QUESTIONS) for _ in range(2)])
        slow = []
        with callers:
            for number in range(2, 1002):
                versions.put(gateway.set_up / "versions", number)
                gateway.reload()
                deadline = time.monotonic() + 20
                while f"no-secrets-{number}\"" not in gateway.metrics():
                    if time.monotonic() > deadline:
                        slow.append(f"version {number} did not take effect within 20 s")
                        break
                    time.sleep(0.01)
                if slow:
                    break
    result = f"{callers.count:,} answers, {callers.wrong} wrong, none of two versions, none older than the one before"
    return result, callers.broken + slow


TEMPORARY = """
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: temporary}}
spec:
  effect: Allow
  notAfter: "{until}"
  subjects: [{{kind: User, name: temporary}}]
  resourceRules: [{{verbs: [get], apiGroups: [""], resources: [pods]}}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: later}}
spec:
  effect: Deny
  notBefore: "{since}"
  subjects: [{{kind: User, name: later}}]
  resourceRules: [{{verbs: [get], apiGroups: [""], resources: [pods]}}]
"""
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
# How far the clock is off, and then: is `temporary` allowed, `later` denied, a certificate accepted, a JWT that
# begins with the certificate and ends after an hour, and one that begins after two?
CLOCKS = [("+0", (True, False, True, True, False)), ("+90m", (False, False, True, False, False)),
          ("+3h", (False, True, True, False, True)), ("-2h", (True, False, False, False, False)),
          ("+20y", (False, True, False, False, False)), ("+0", (True, False, True, True, False))]


def clocks(program):
    """the clock jumps forth and back (needs libfaketime)"""
    if not FAKETIME:
        return "not run: libfaketime is not installed", []
    clock = Path(tempfile.mkdtemp(prefix="portcullis-clock-")) / "clock"
    clock.write_text("+0")
    environment = {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
                   "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    gateway = Gateway(program, more={"manifests": ["versions", "temporary"]}, environment=environment)
    versions.put(gateway.set_up / "versions", 1)
    issuer = Issuer(gateway.set_up)
    now = datetime.now(timezone.utc)
    hour = lambda hours: int(now.timestamp() + 3600 * hours)
    tokens = [issuer.token(nbf=hour(-1), exp=hour(1)), issuer.token(nbf=hour(2), exp=hour(4))]
    at = lambda hours: (now + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (gateway.set_up / "temporary").mkdir()
    text = TEMPORARY.format(until=at(1), since=at(2))
    (gateway.set_up / "temporary" / "policies.yaml").write_text(text)
    wrong = []
    with gateway:
        callers = Callers([Asker(gateway, QUESTIONS)])
        with callers:
            for offset, expected in CLOCKS:
                clock.write_text(offset)
                time.sleep(0.5)
                found = (status(gateway, "temporary").get("allowed") is True,
                         status(gateway, "later").get("denied") is True, accepts_certificate(gateway),
                         *(accepts_token(gateway, token) for token in tokens))
                if found != expected:
                    wrong.append(f"at {offset}: {found} where {expected} is right")
        # Each line has the time of the clock as it was then.
        lines = (gateway.set_up / "decisions.log").read_text().splitlines()
        years = {json.loads(line)["time"][:4] for line in lines}
    if years != {str(now.year), str(now.year + 20)} and now.month < 12:
        wrong.append(f"lines of the log are of {sorted(years)}")
    result = f"{callers.count:,} answers, {callers.wrong} wrong; {len(CLOCKS)} jumps, each in force at the next request"
    return result, callers.broken + wrong


def status(gateway, user):
    with gateway.connect() as stream:
        stream.sendall(request("/authorize?timeout=3s", access(user), DEFAULT_TOKEN))
        return json.loads(answer(stream)[1])["status"]


def accepts_certificate(gateway):
    """Whether a caller is known by its certificate, which begins now and ends within 20 years."""
    try:
        with gateway.connect(gateway.tls("authorization")) as stream:
            stream.sendall(request("/authorize?timeout=3s", access(), None))
            return answer(stream)[0] == 200
    except (OSError, EOFError):
        return False


def accepts_token(gateway, token):
    with gateway.connect() as stream:
        stream.sendall(request("/authorize?timeout=3s", access(), token))
        return answer(stream)[0] == 200


class Issuer:
    """Signs JWTs, which the gateway in the folder `set_up` takes."""

    def __init__(self, set_up):
        self.key = set_up / "issuer.key"
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, stderr=subprocess.DEVNULL)
        modulus = self.openssl("rsa", "-noout", "-modulus", "-in", self.key).decode().strip().split("=")[1]
        keys = {"keys": [{"kty": "RSA", "kid": "one", "alg": "RS256", "e": "AQAB", "n": encoded(bytes.fromhex(modulus))}]}
        (set_up / "jwks.json").write_text(json.dumps(keys))
        config = json.loads((set_up / "gateway.yaml").read_text())
        config["callers"].append({"jwt": {"issuer": "endurance", "audiences": ["gateway"], "jwks": "jwks.json"}})
        (set_up / "gateway.yaml").write_text(json.dumps(config))

    @staticmethod
    def openssl(*arguments, given=None):
        return subprocess.run(["openssl", *arguments], input=given, check=True, capture_output=True).stdout

    def token(self, **claims):
        claims = {"iss": "endurance", "aud": "gateway", "sub": "api-server", **claims}
        parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "one"}, claims)]
        signed = ".".join(parts)
        signature = self.openssl("dgst", "-sha256", "-sign", self.key, given=signed.encode())
        return f"{signed}.{encoded(signature)}"


def encoded(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def overload(program):
    """ten times the in-flight limit of slow admission reviews of another cluster"""
    webhook = FailingWebhook()
    limits = {"inFlight": 8}
    with serving(program, limits=limits) as gateway:
        slow = [("/validate?timeout=10s", pod(user=f"user-{n}", metadata={"labels": {"hooked": "ignore"}}),
                 lambda review: (True, None)) for n in range(80)]
        crowd = [Asker(gateway, [question], token=lambda: EAST_TOKEN) for question in slow]
        honest = Callers([Asker(gateway, QUESTIONS)])
        flood = Callers(crowd, pause=0.1)
        webhook.serve(gateway)
        webhook.mode = "late"
        versions.put(gateway.set_up / "versions", 2, webhook.manifests(gateway, timeout=5))
        gateway.reload()
        time.sleep(1)
        with honest:
            with flood:
                time.sleep(6)
    webhook.stop()
    broken = honest.broken + flood.broken
    if honest.refused:
        broken.append(f"{honest.refused} honest requests were refused")
    if not flood.refused:
        broken.append("nothing was refused")
    return (f"{honest.count:,} answers to the other cluster, {honest.wrong} wrong, {honest.refused} refused; "
            f"429 for {flood.refused:,} of {flood.count:,} in excess"), broken


FAULTS = [killed, ended, full_disk, full_recordings, thousand_reloads, clocks, overload]
