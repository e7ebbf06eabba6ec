"""What becomes of users' objects: by webhooks and policies, in recordings."""

import json
import threading
import time

from strangers import at_once, summary
from users import ask
from webhook import Webhook
from wire import pod

# As many empty volumes as a request to an API server may have.
VOLUMES = '[' + ','.join(['{}'] * 970_000) + ']'

MUTATIONS = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: multiplies}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  matchConditions: [{name: its, expression: "request.userInfo.username.startsWith('many')"}]
  reinvocationPolicy: IfNeeded
  failurePolicy: Ignore
  mutations:
""" + "".join(f"""
  - patchType: JSONPatch
    jsonPatch: {{expression: "[JSONPatch{{op: 'copy', from: '/metadata/annotations/t', path: '/metadata/annotations/x{number}'}}]"}}
""" for number in range(20)) + """
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: multiplies}
spec: {policyName: multiplies}
"""


def with_manifests(gateway, name, text):
    (gateway.set_up / "policies" / name).write_text(text)
    successes = 'portcullis_reloads_total{result="success"}'
    before = gateway.metric(successes) or 0
    gateway.reload()
    while (gateway.metric(successes) or 0) <= before:
        time.sleep(0.1)


def review_of(user, volumes):
    return json.dumps(pod(user, spec={"volumes": "VOLUMES"}), separators=(",", ":")).replace('"VOLUMES"', volumes)


def mutated(gateway, body):
    status, review = ask(gateway, "/mutate?timeout=30s", body)
    if status != 200:
        return f"HTTP {status}"
    response = review["response"]
    if not response["allowed"]:
        return f"refused {response['status']['code']}"
    return f"patched, {len(response.get('patch', '')) // 1024} KiB"


def volumes(gateway):
    """24 Pods of one user at once with 970,000 volumes, to which a sidecar injector of 2 s appends, Ignore"""
    webhook = Webhook(slow=2)
    webhook.serve(gateway)
    with_manifests(gateway, "injector.json", webhook.injector(gateway))
    body, results, others = review_of("slow-mallory", VOLUMES), [], []
    flood = threading.Thread(target=lambda: results.extend(at_once(24, lambda _: mutated(gateway, body))), daemon=True)
    flood.start()
    while flood.is_alive():
        others.append(mutated(gateway, review_of("jane", '[{"name":"v"}]')))
        time.sleep(0.2)
    webhook.stop()
    broken = [f"jane: {other}" for other in set(others) if not other.startswith("patched")]
    broken += [f"mallory: {result}" for result in set(results) if result.startswith("HTTP")]
    if not any(result.startswith("patched") for result in results):
        broken.append("none of the pods was admitted")
    return {"pods": summary(results), "of jane meanwhile": summary(others), "broken": broken}


def multiplied(gateway):
    """a policy of 2.9 kB whose twenty mutations copy 1 MB, for ten reviews at once"""
    with_manifests(gateway, "multiplies.yaml", MUTATIONS)
    body = json.dumps(pod("many", metadata={"annotations": {"t": "t" * 1_000_000}}))
    results = at_once(10, lambda _: mutated(gateway, body))
    return {"verdicts": summary(results), "broken": [] if set(results) == {"refused 413"} else ["it was multiplied"]}


def recorded(gateway):
    """twenty custom resources of 370 kB of Secrets within Secrets, recorded"""
    nested = '{"kind":"Secret","data":' * 9_900 + '"' + "x" * 120_000 + '"' + "}" * 9_900
    wide = "[" + ",".join(['{"kind":"Secret","data":0}'] * 13_000) + "]"
    dropped = "portcullis_recording_dropped_total"
    for object in (nested, wide) * 10:
        status, review = ask(gateway, "/validate?timeout=10s", review_of("jane", object))
        assert status == 200 and review["response"]["allowed"], review
    lines = lambda: sum(path.read_bytes().count(b"\n") - 1 for path in (gateway.set_up / "recordings").iterdir())
    deadline = time.monotonic() + 20
    while lines() + (gateway.metric(dropped) or 0) < 20 and time.monotonic() < deadline:
        time.sleep(0.1)
    broken = [] if lines() >= 10 else [f"{lines()} lines"]
    return {"lines": lines(), "dropped": gateway.metric(dropped) or 0, "broken": broken}


recorded.gateway = {"more": {"recording": {"folder": "recordings"}}}

ATTACKS = [volumes, multiplied, recorded]
