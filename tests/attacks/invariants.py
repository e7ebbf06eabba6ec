"""What users and browsers make of proofs: invariants at /validate and in the running check, views that nobody awaits."""

import json
import socket
import struct
import time
import urllib.parse

from gateway import free_port
from users import ask

RBAC = "rbac.authorization.k8s.io"

INVARIANT = {
    "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationInvariant", "metadata": {"name": "prod"},
    "spec": {"only": [{"kind": "Group", "name": "vault"}], "enforcement": "Refuse", "resourceRules": [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["*"], "namespaces": ["prod"]}]},
}
DENY = {
    "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "not-ops"},
    "spec": {"effect": "Deny", "subjects": [{"kind": "Group", "name": "ops"}], "resourceRules": [
        {"verbs": ["*"], "apiGroups": [""], "resources": ["*"]}]},
}


def role(name, namespace, rules):
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name, "namespace": namespace},
            "rules": [{"verbs": ["get"], "apiGroups": [""], **rule} for rule in rules]}


def binding(name, namespace, of, groups):
    return {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": of},
            "subjects": [{"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups]}


def judged(gateway, operation, written, old=None, name=None, user="jane"):
    """Whether the write is refused, and why."""
    about = written or old
    group, version = about["apiVersion"].split("/")
    plural = {"AuthorizationPolicy": "authorizationpolicies"}.get(about["kind"], about["kind"].lower() + "s")
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "name": about["metadata"]["name"] if name is None else name,
        "namespace": about["metadata"].get("namespace", ""), "object": written, "oldObject": old, "dryRun": True,
        "kind": {"group": group, "version": version, "kind": about["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "userInfo": {"username": user, "groups": ["system:serviceaccounts:kube-system"] * user.startswith("system:")}}})
    status, review = ask(gateway, "/validate?timeout=10s", body.encode())
    if status != 200:
        return f"HTTP {status}"
    response = review["response"]
    return "" if response["allowed"] else response["status"]["message"]


def in_force(gateway, *objects):
    (gateway.set_up / "policies" / "invariants.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    gateway.reload_and_wait()


def slipped_writes(gateway):
    """a Deny goes by deletecollection, the garbage collector, its last finalizer; a binding comes with its role"""
    in_force(gateway, INVARIANT, DENY, role("all", "prod", [{"resources": ["*"]}]), binding("ops", "prod", "all", ["ops"]))
    ending = {**DENY, "metadata": {"name": "not-ops", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    writes = {
        "deleted": judged(gateway, "DELETE", None, DENY),
        "deletecollection": judged(gateway, "DELETE", None, DENY, name=""),
        "collected": judged(gateway, "DELETE", None, DENY, user=collector),
        "last finalizer": judged(gateway, "UPDATE", ending, ending),
        "role unknown": judged(gateway, "CREATE", binding("b", "prod", "new", ["dev"])),
    }
    return {"broken": [f"{how}: admitted" for how, why in writes.items() if "AuthorizationInvariant" not in why]}


def products(gateway):
    """a Role of 9,000 names and subresources in force; 3,000 groups are bound to 1,500 rules, 20 times"""
    names = [f"n{number:x}" for number in range(9000)]
    wide = role("wide", "dev", [{"resources": [f"a/{name}" for name in names], "resourceNames": names}])
    long = role("long", "prod", [{"resources": ["pods"], "resourceNames": [name]} for name in names[:1500]])
    in_force(gateway, INVARIANT, wide, binding("wide", "dev", "wide", ["dev"]), long)
    told = {judged(gateway, "CREATE", binding("b", "prod", "long", names[:3000])) for _ in range(20)}
    time.sleep(5)
    broken = [] if told and all("AuthorizationInvariant" in why for why in told) else [f"not refused: {told}"]
    return {"told": len(told), "broken": broken}


CONSOLE = free_port()


def abandoned_views(gateway):
    """for 20 s browsers ask the console what a costly policy would change, and reset the connection"""
    product = "true"
    for name in "abcd":
        product = f"[0,1,2,3,4,5,6,7,8,9].all({name}, {product})"
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "x"},
              "spec": {"matchConstraints": {"resourceRules": [{
                  "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
                  "validations": [{"expression": product}] * 30}}
    bound = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
             "metadata": {"name": "x"}, "spec": {"policyName": "x", "validationActions": ["Deny"]}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
    form = urllib.parse.urlencode({
        "operation": "CREATE", "policy": "\n---\n".join(map(json.dumps, [policy, bound])),
        "manifest": "\n---\n".join([json.dumps(pod)] * 50), "old": "x" * 900_000}).encode()
    head = (f"POST /what-if HTTP/1.1\r\nHost: 127.0.0.1:{CONSOLE}\r\nContent-Length: {len(form)}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n\r\n").encode()
    asked, end = 0, time.monotonic() + 20
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", CONSOLE)) as stream:
            stream.sendall(head + form)
            time.sleep(0.02)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asked += 1
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", CONSOLE), timeout=30) as stream:
        stream.sendall(f"GET /policies HTTP/1.1\r\nHost: 127.0.0.1:{CONSOLE}\r\nConnection: close\r\n\r\n".encode())
        try:
            status = stream.recv(12).decode()
        except TimeoutError:
            status = "nothing"
    broken = [] if status.endswith("200") else [f"a browser is answered {status}"]
    return {"abandoned": asked, "a browser waited": f"{time.monotonic() - began:.1f} s", "broken": broken}


abandoned_views.gateway = {"more": {"console": {"address": f"127.0.0.1:{CONSOLE}"}}}

ATTACKS = [slipped_writes, products, abandoned_views]
