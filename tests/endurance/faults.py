"""Faults of the machine and of those who run it, under load."""

import signal
import time

import versions
from callers import QUESTIONS, Asker, Callers
from gateway import EAST_TOKEN, Gateway
from wire import pod
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


FAULTS = [killed, ended, full_disk, overload]
