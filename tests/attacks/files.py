"""What may stand where manifests should: a reload reads nothing without end, and names it."""

import json
import os
import time

from apiserver import ApiServer
from gateway import EAST_TOKEN
from strangers import at_once
from tenants import status_of, within
from users import ask
from wire import access, pod


def files(gateway):
    """a FIFO among the manifests, /dev/zero behind a link, a link to itself, 2 GiB of nothing"""
    folder = gateway.set_up / "policies"
    failures = lambda: gateway.metric('portcullis_reloads_total{result="failure"}') or 0
    broken = []
    hostile = {
        "fifo.yaml": lambda path: os.mkfifo(path),
        "zero.yaml": lambda path: os.symlink("/dev/zero", path),
        "loop.yaml": lambda path: os.symlink(path, path),
        "sparse.yaml": lambda path: path.touch() or os.truncate(path, 2 << 30),
    }
    for name, make in hostile.items():
        before = failures()
        make(folder / name)
        gateway.reload()
        deadline = time.monotonic() + 20
        while failures() <= before and time.monotonic() < deadline:
            time.sleep(0.1)
        if failures() <= before:
            broken.append(f"{name}: no reload has failed within 20 s")
        os.unlink(folder / name)
    (folder / "sound.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: sound}\n")
    successes = gateway.metric('portcullis_reloads_total{result="success"}') or 0
    gateway.reload()
    deadline = time.monotonic() + 20
    while (gateway.metric('portcullis_reloads_total{result="success"}') or 0) <= successes:
        if time.monotonic() > deadline:
            broken.append("a sound file is not taken up afterwards")
            break
        time.sleep(0.1)
    return {"broken": broken}


def of_east(gateway, name, text):
    """Has the gateway take a file of the cluster east too."""
    folder = gateway.set_up / "east"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    path = gateway.set_up / "gateway.yaml"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "manifests": ["policies", {"path": "east", "cluster": "east"}]}))


def many_faults(gateway):
    """a file of one cluster with two million faulty documents"""
    of_east(gateway, "sound.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")
    gateway.reload_and_wait()
    (gateway.set_up / "east" / "faulty.yaml").write_text("---\n{}\n" * 2_000_000)
    gateway.reload()
    failures = lambda: gateway.metric('portcullis_reloads_total{result="failure"}') or 0
    ended = within(40, lambda: failures() > 0 or not gateway.is_alive() or "last good" in gateway.log.read_text())
    lines = gateway.log_lines()
    broken = [] if ended else ["the fault is not noticed within 40 s"]
    return {"lines of log": lines, "broken": broken + ([f"{lines} lines"] if lines > 2_000 else [])}


def manifest_values(gateway):
    """files of one cluster with 8,000,000 values in one document, and in four of a million each"""
    of_east(gateway, "sound.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")
    gateway.reload_and_wait()
    values = lambda name, count: ("---\napiVersion: example.com/v1\nkind: Limit\nmetadata: {name: %s}\nvalues: [%s]\n"
                                  % (name, ",".join("1" * count)))
    faults = lambda: gateway.metric('portcullis_cluster_file_faults{cluster="east"}') or 0
    reloads = lambda: gateway.metric('portcullis_reloads_total{result="success"}') or 0
    file, result = gateway.set_up / "east" / "values.yaml", {}
    for name, text in (("in one document", values("one", 8_000_000)),
                       ("in four", "".join(values(f"v{number}", 1_000_000) for number in range(4)))):
        before = reloads()
        file.write_text(text)
        gateway.reload()
        read = within(60, lambda: reloads() > before or not gateway.is_alive())
        result[name] = ("refused" if faults() else "taken") if read else "not read within 60 s"
    broken = [] if result["in one document"] == "refused" else ["8,000,000 values in one document are taken"]
    return {**result, "broken": broken + [name for name, became in result.items() if became.startswith("not")]}


def many_entries(gateway):
    """3,000 entries in one tenant's folder below `clusters`, while the operator takes a caller away"""
    path = gateway.set_up / "gateway.yaml"
    config = json.loads(path.read_text())
    folder = gateway.set_up / "clusters.d" / "east"
    folder.mkdir(parents=True)
    (folder / "api.kubeconfig").write_text(ApiServer(gateway).kubeconfig())
    for number in range(3_000):
        (folder / f"e{number}.yaml").write_text(f"name: x{number}\nkubeconfig: api.kubeconfig\n")
    callers = [one for one in config["callers"] if one.get("kubeconfig") != "east.kubeconfig"]
    path.write_text(json.dumps({**config, "callers": callers, "clusters": "clusters.d"}))
    gateway.reload()
    revoked = within(20, lambda: status_of(gateway, EAST_TOKEN, access("jane", "get")) == 401)
    return {"broken": [] if revoked else ["the caller is still answered after 20 s"]}


def audit_annotations(gateway):
    """100 policies of one cluster that each write 200 kB into the audit log, sixteen reviews at once"""
    large = "'%s'.replace('a','%s')" % ("a" * 100, "b" * 100)
    version, objects = "admissionregistration.k8s.io/v1", []
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    for number in range(100):
        name = {"name": f"p{number}"}
        objects.append({"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": {
            "validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": [rule]},
            "auditAnnotations": [{"key": f"k{key}", "valueExpression": large} for key in range(20)]}})
        objects.append({"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name,
                        "spec": {"policyName": f"p{number}", "validationActions": ["Audit"]}})
    of_east(gateway, "policies.yaml", "\n---\n".join(map(json.dumps, objects)))
    gateway.reload_and_wait()
    code, review = ask(gateway, "/validate?timeout=10s", pod(), EAST_TOKEN)
    size = len(json.dumps(review))
    at_once(16, lambda _: ask(gateway, "/validate?timeout=10s", pod(), EAST_TOKEN))
    return {"one answer": f"{code}, {size // 1000} kB", "broken": [f"{size} bytes"] if size > 2_500_000 else []}


ATTACKS = [files, many_faults, manifest_values, many_entries, audit_annotations]
