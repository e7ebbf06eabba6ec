"""Whose requests an API server passes on: what they do to webhooks, policies, bodies and neighbours."""

import json
import threading
import time

from gateway import DEFAULT_TOKEN, EAST_TOKEN
from strangers import at_once, summary
from webhook import Webhook
from wire import END_HEADERS, HEADERS, Http2, access, answer, field, frame, pod, post, request


def ask(gateway, path, body, token=DEFAULT_TOKEN, timeout=40):
    stream = gateway.connect(timeout=timeout)
    stream.sendall(request(path, body, token))
    status, reply = answer(stream)
    stream.close()
    return status, json.loads(reply)


def verdict(gateway, name, body, timeout=30):
    status, review = ask(gateway, f"/validate{'/' * bool(name)}{name}?timeout={timeout}s", body)
    if status != 200:
        return f"HTTP {status}"
    response = review["response"]
    return "passes" if response["allowed"] else f"refused {response['status'].get('code')}"


def judged(gateway):
    """What is wrong with how a good and a bad object of others are judged."""
    broken = []
    for name in ("ignore", "fail"):
        for user, expected in (("jane", "passes"), ("joe", "passes")):
            found = verdict(gateway, name, pod(user))
            broken += [f"{name}: a good object of {user} {found}"] * (found != expected)
        found = verdict(gateway, name, pod("joe", "bad"))
        broken += [f"{name}: a bad object {found}"] * (not found.startswith("refused"))
    return broken


def with_webhook(act, **how):
    def attack(gateway):
        webhook = Webhook(**how)
        webhook.serve(gateway)
        (gateway.set_up / "policies" / "webhooks.json").write_text(webhook.manifests(gateway))
        gateway.reload_and_wait()
        try:
            return act(gateway, webhook)
        finally:
            webhook.stop()
    attack.__name__, attack.__doc__ = act.__name__, act.__doc__
    attack.callers = False
    return attack


def dropped(gateway, webhook):
    """a webhook drops the connections of five requests, Ignore and Fail"""
    for name in ("ignore", "fail"):
        for _ in range(5):
            verdict(gateway, name, pod("dropper"))
    return {"broken": judged(gateway), "calls": len(webhook.calls)}


def slow(gateway, webhook):
    """70 slow requests of one user, Ignore and Fail"""
    results, threads = [], []
    for name in ("ignore", "fail"):
        for _ in range(70):
            act = lambda name=name: results.append(verdict(gateway, name, pod("slow")))
            threads.append(threading.Thread(target=act, daemon=True))
            threads[-1].start()
    time.sleep(3)
    broken = judged(gateway)
    told = ask(gateway, "/validate/fail?timeout=10s", pod("slow"))[1]["response"]["status"]["message"]
    for thread in threads:
        thread.join()
    return {"broken": broken, "of the user's": summary(results), "told": told}


def under_load(gateway, webhook):
    """400 bad objects of 100 users at once, a webhook of Ignore that is slow"""
    results = at_once(400, lambda number: verdict(gateway, "ignore", pod(f"slow-{number % 100}", "bad"), timeout=3))
    passed = [result for result in results if result == "passes"]
    return {"broken": passed, "verdicts": summary(results)}


def neighbour(gateway):
    """256 streams without bodies of cluster east, then 3,000 more over 12 connections"""
    held = []
    for count in [256] + [250] * 12:
        frames = Http2(gateway, gateway.tls(http2=True))
        token = field("authorization", f"Bearer {EAST_TOKEN}".encode())
        kind = field("content-type", b"application/json")
        # The first proves the connection, so that more than a stranger's streams may be open.
        frames.send(frame(HEADERS, END_HEADERS, 1, post(b"/authorize?timeout=30s", token, kind)))
        time.sleep(0.1)
        frames.send(b"".join(frame(HEADERS, END_HEADERS, 2 * number + 1, post(b"/authorize?timeout=30s", token, kind))
                             for number in range(1, count)))
        held.append(frames)
    time.sleep(1)
    in_flight = gateway.metric('portcullis_in_flight_requests{endpoint="authorize"}')
    time.sleep(6)
    left = gateway.metric('portcullis_in_flight_requests{endpoint="authorize"}')
    broken = [f"{left} are in flight after 6 s"] if left > 10 else []
    return {"in flight at most": in_flight, "after 7 s": left, "broken": broken}


def neighbour_connections(gateway):
    """as many connections of cluster east as there may be, kept open"""
    held = []
    for _ in range(300):
        try:
            stream = gateway.connect()
            stream.sendall(request("/authorize", access(), EAST_TOKEN))
            answer(stream)
            held.append(stream)
        except (OSError, EOFError):
            pass
    time.sleep(5)
    return {"held": len(held)}


neighbour_connections.gateway = {"connections": {"max": 200}}


def patterns(gateway):
    """reviews with 3,000 patterns each beside innocent ones of 100 KB"""
    costly = pod("mallory", metadata={"annotations": {"text": "a" * 2000}},
                 spec={"patterns": [f"(a+a+)+b{number}[a-z]{{1,50}}$" for number in range(3000)]})
    innocent = pod("jane", metadata={"annotations": {"filler": "x" * 100_000}})
    end, took, broken, answers = time.monotonic() + 12, [], [], []

    def attack(number):
        while time.monotonic() < end:
            if number < 8:
                answers.append(ask(gateway, "/validate?timeout=10s", costly)[0])
                continue
            start = time.monotonic()
            status, review = ask(gateway, "/validate?timeout=10s", innocent)
            took.append(time.monotonic() - start)
            if status != 200 or not review["response"]["allowed"]:
                broken.append(f"HTTP {status} {str(review)[:200]}")
            time.sleep(0.02)
    at_once(10, attack)
    return {"costly": summary(answers), "innocent": len(took), "slowest innocent": f"{max(took) * 1000:.0f} ms",
            "broken": broken}


def bodies(gateway):
    """bodies of invalid UTF-8, and of 10,000 levels"""
    text = json.dumps(pod("jane", "bad", metadata={"annotations": {"a": "BYTES", "b": "DEEP"}}))
    invalid = text.encode().replace(b"BYTES", b"\xff\xfe\xc3")
    deep = text.encode().replace(b'"DEEP"', b"[" * 9_980 + b"]" * 9_980)
    broken = []
    for name, body in (("invalid", invalid), ("deep", deep)):
        status, review = ask(gateway, "/validate?timeout=10s", body)
        if status != 200 or review["response"]["allowed"]:
            broken.append(f"{name}: HTTP {status} {str(review)[:200]}")
    for name, body in (("arrays", b"[" * 5_000_000), ("objects", b'{"a":' * 1_000_000)):
        stream = gateway.connect()
        stream.sendall(request("/authorize", body, DEFAULT_TOKEN))
        status, _ = answer(stream)
        broken += [f"{name}: HTTP {status}"] * (status != 400)
    return {"broken": broken}


def trickle(gateway):
    """100 bodies that trickle, a byte every 0.2 s"""
    def attack(_):
        stream = gateway.connect()
        stream.sendall(request("/authorize?timeout=30s", b"x" * 1000, DEFAULT_TOKEN)[:-1000])
        start = time.monotonic()
        stream.settimeout(0.2)
        for _ in range(1000):
            try:
                stream.sendall(b" ")
                status, _ = answer(stream)
                seconds = time.monotonic() - start
                return f"{status} after {seconds:.0f} s"
            except TimeoutError:
                pass
    return {"ends": summary(at_once(100, attack))}


def unread_log(gateway):
    """standard error into a pipe that nobody reads, everything logged"""
    for _ in range(2000):
        status, _ = ask(gateway, "/authorize?timeout=3s", access())
        assert status == 200
    return {"requests": 2000}


unread_log.gateway = {"unread_log": True}


def own_policy(expressions, name="p"):
    """A dry run of an AuthorizationPolicy with these conditions."""
    kind = {"group": "portcullis.dev", "version": "v1alpha1", "kind": "AuthorizationPolicy"}
    resource = {"group": "portcullis.dev", "version": "v1alpha1", "resource": "authorizationpolicies"}
    conditions = [{"name": f"c{number}", "expression": text} for number, text in enumerate(expressions)]
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u-1", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": name, "operation": "CREATE", "dryRun": True, "userInfo": {"username": "mallory"},
        "object": {"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": name},
                   "spec": {"effect": "Deny", "subjects": [{"kind": "User", "name": "joe"}], "conditions": conditions,
                            "nonResourceRules": [{"verbs": ["get"], "paths": ["/x"]}]}}}}


def types(gateway):
    """dry runs of policies whose expressions have types of 2^30 parts, and regular expressions of 32 MiB"""
    doubled = "[0]" + "".join(f".map(a{number},{{a{number}:a{number}}})" for number in range(30)) + ".size() == 0"
    pattern = [f"request.user.matches('\\\\pL{{{900 + number}}}')" for number in range(60)]
    reviews = [own_policy([doubled]), own_policy(pattern)]
    verdicts = at_once(8, lambda number: verdict_of(gateway, reviews[number % 2]))
    return {"verdicts": summary(verdicts), "broken": [str(found) for found in verdicts if found != "refused"][:3]}


def compiling(gateway):
    """16 dry runs of cluster east at once, each of a policy with 0.7 MB of expressions"""
    review = own_policy(["||".join(["[]==[]"] * 10000)] * 8)
    verdicts = at_once(16, lambda number: verdict_of(gateway, review, EAST_TOKEN))
    return {"verdicts": summary(verdicts), "broken": [str(found) for found in verdicts if found != "refused"][:3]}


def verdict_of(gateway, review, token=DEFAULT_TOKEN):
    status, answered = ask(gateway, "/validate?timeout=10s", review, token)
    if status != 200:
        return f"HTTP {status}"
    return "passes" if answered["response"]["allowed"] else "refused"


def conditions(gateway):
    """12 SubjectAccessReviews of cluster east, under a Deny whose conditions compare 2^40 values"""
    doubled = "[dyn(request.user)]" + "".join(f".map(a{n}, dyn([a{n}, a{n}]))" for n in range(40))
    policy = own_policy([f"{doubled} != {doubled}"] * 8, "costly")["request"]["object"]
    policy["spec"]["subjects"][0]["name"] = "mallory"
    (gateway.set_up / "policies" / "costly.json").write_text(json.dumps(policy))
    gateway.reload_and_wait()
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "mallory", "nonResourceAttributes": {"path": "/x", "verb": "get"}}}

    def act(number):
        status, answered = ask(gateway, "/authorize?timeout=5s", review, EAST_TOKEN)
        return f"HTTP {status}" if status != 200 else "denied" if answered["status"].get("denied") else "passes"
    verdicts = at_once(12, act)
    return {"verdicts": summary(verdicts), "broken": [found for found in verdicts if found == "passes"]}


ATTACKS = [with_webhook(dropped), with_webhook(slow), with_webhook(under_load, slow=5), neighbour,
           neighbour_connections, patterns, bodies, trickle, unread_log, types, compiling, conditions]
