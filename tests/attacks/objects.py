"""What becomes of users' objects: by webhooks and policies, in recordings."""

import json
import threading
import time

from strangers import at_once, summary
from tenants import within
from users import ask, verdict
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


def doubled(start, by):
    """An expression that doubles what it starts with forty times."""
    steps = "".join(f".map(a{number}, {by.replace('IT', f'a{number}')})" for number in range(40))
    return f"{start}{steps}[0].size() == 0"


# What grows that way; each is 600 characters or so.
EXPRESSIONS = {
    "lists": doubled("[[object.metadata.name]]", "IT + IT"),
    "texts": doubled("[object.metadata.name]", "IT + IT"),
    "maps": doubled("[[{'a': object.metadata.name}]]", "IT + IT"),
    "replaced": doubled("[object.metadata.name]", "IT.replace('', IT)"),
}

CONCATENATIONS = {
    "apiVersion": "v1", "kind": "List", "items": [{
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"concatenates-{name}"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "matchConditions": [{"name": "its", "expression": f"request.userInfo.username == 'concatenates-{name}'"}],
            "validations": [{"expression": expression}]},
    } for name, expression in EXPRESSIONS.items()] + [{
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"concatenates-{name}"},
        "spec": {"policyName": f"concatenates-{name}", "validationActions": ["Deny"]},
    } for name in EXPRESSIONS]}


def with_manifests(gateway, name, text):
    (gateway.set_up / "policies" / name).write_text(text)
    gateway.reload_and_wait()


def review_of(user, volumes):
    return json.dumps(pod(user, spec={"volumes": "VOLUMES"}), separators=(",", ":")).replace('"VOLUMES"', volumes)


def mutated(gateway, body):
    status, review = ask(gateway, "/mutate?timeout=30s", body)
    if status != 200:
        return f"HTTP {status}"
    response = review["response"]
    if not response["allowed"]:
        return f"refused {response['status']['code']}"
    return "patched" if response.get("patch") else "admitted as it is"


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
    broken = [f"jane: {other}" for other in set(others) if other != "patched"]
    broken += [f"mallory: {result}" for result in set(results) if result.startswith("HTTP")]
    if "patched" not in results:
        broken.append("none of the pods was admitted")
    return {"pods": summary(results), "of jane meanwhile": summary(others), "broken": broken}


def large_patch(gateway):
    """a dozen Pods at once, which a webhook changes by a patch of 10 MB, Ignore"""
    webhook = Webhook()
    webhook.serve(gateway)
    with_manifests(gateway, "injector.json", webhook.injector(gateway))
    body, results, others = review_of("large-mallory", '[{"name":"v"}]'), [], []
    flood = threading.Thread(target=lambda: results.extend(at_once(12, lambda _: mutated(gateway, body))), daemon=True)
    flood.start()
    while flood.is_alive():
        others.append(mutated(gateway, review_of("jane", '[{"name":"v"}]')))
        time.sleep(0.2)
    webhook.stop()
    broken = [f"jane: {other}" for other in set(others) if other != "patched"]
    broken += [f"mallory: {result}" for result in set(results) if not str(result).startswith("refused")]
    return {"pods": summary(results), "of jane meanwhile": summary(others), "broken": broken}


def concatenated(gateway):
    """a dozen reviews at once for each of four policies that double lists, texts and maps forty times"""
    with_manifests(gateway, "concatenates.json", json.dumps(CONCATENATIONS))
    found, broken = {}, []
    for name in EXPRESSIONS:
        results = at_once(12, lambda _: verdict(gateway, "", pod(f"concatenates-{name}"), timeout=10))
        found[name] = summary(results)
        broken += [f"{name}: {result}" for result in set(results) if not str(result).startswith("refused")]
    return {**found, "broken": broken}


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
        status, review = ask(gateway, "/validate?timeout=10s", review_of("recorded", object))
        assert status == 200 and review["response"]["allowed"], review

    def lines():
        return sum(path.read_bytes().count(b'"username":"recorded"') for path in (gateway.set_up / "recordings").iterdir())
    within(20, lambda: lines() + (gateway.metric(dropped) or 0) >= 20)
    broken = [] if lines() >= 10 else [f"{lines()} lines"]
    return {"lines": lines(), "dropped": gateway.metric(dropped) or 0, "broken": broken}


recorded.gateway = {"more": {"recording": {"folder": "recordings"}}}

ATTACKS = [volumes, large_patch, multiplied, concatenated, recorded]
