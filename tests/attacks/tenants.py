"""What one tenant, or one server behind the gateway, makes of what others get."""

import json
import socket
import ssl
import threading
import time

from gateway import DEFAULT_TOKEN, EAST_TOKEN, kubeconfig as caller, free_port
from users import ask
from wire import access, pod


class OneBehind:
    """Serves TLS and replies over each connection to the question before, but to the first to that.

    `reply` makes the body of a reply to a question; the first reply on each connection is sent
    twice, where `twice`.
    """

    def __init__(self, gateway, reply, twice=False):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(gateway.file("pki/server.crt"), gateway.file("pki/server.key"))
        self.reply, self.twice, self.connections = reply, twice, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            stream, _ = self.listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.answer, args=[stream], daemon=True).start()

    def answer(self, stream):
        try:
            stream = self.context.wrap_socket(stream, server_side=True)
            self.connections += 1
            before, data = None, b""
            while True:
                while b"\r\n\r\n" not in data:
                    data += self.more(stream)
                head, _, data = data.partition(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                while len(data) < length:
                    data += self.more(stream)
                question, data = json.loads(data[:length]), data[length:]
                body = json.dumps(self.reply(before or question)).encode()
                reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                stream.sendall(reply * (2 if self.twice and before is None else 1))
                before = None if self.twice else question
        except OSError:
            pass

    @staticmethod
    def more(stream):
        data = stream.recv(65536)
        if not data:
            raise OSError("closed")
        return data


def kubeconfig(gateway, port):
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {
            "server": f"https://localhost:{port}/", "certificate-authority-data": gateway.authority()}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    })


def reconfigure(gateway, **sections):
    """Has the gateway serve by a configuration with these sections too."""
    path = gateway.set_up / "gateway.yaml"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **sections}))
    gateway.reload_and_wait()


def one_behind(gateway):
    """an authorizer replies to the question before, or twice; one repeats the question, one does not"""
    allows = lambda spec: {"allowed": spec.get("user") == "alice"}
    replies = {
        "silent": lambda review: {"status": allows(review["spec"])},
        "repeats": lambda review: {**review, "status": allows(review["spec"])},
    }
    result, broken = {}, []
    for name, reply in replies.items():
        for twice in (False, True):
            server = OneBehind(gateway, reply, twice)
            (gateway.set_up / "other.kubeconfig").write_text(kubeconfig(gateway, server.port))
            reconfigure(gateway, authorization={"webhooks": [{"type": "Webhook", "name": "other", "webhook": {
                "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "other.kubeconfig"}}}]})
            for number in range(40):
                user = ("alice", "mallory")[number % 2]
                status = ask(gateway, "/authorize", access(user, f"verb-{number}"))[1]["status"]
                if status["allowed"] and user != "alice":
                    broken.append(f"{name}: mallory is allowed what alice is")
                if user == "alice" and not status["allowed"] and not status.get("evaluationError"):
                    broken.append(f"{name}: alice gets the reply to mallory")
            result[f"connections of {name}{', twice' * twice}"] = server.connections
    return {**result, "broken": broken[:3]}


def webhook_one_behind(gateway):
    """a webhook replies to the question before, or twice"""
    def reply(review):
        request = review["request"]
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": request["uid"], "allowed": request["name"] != "evil"}}
    result, broken = {}, []
    for twice in (False, True):
        server = OneBehind(gateway, reply, twice)
        (gateway.set_up / "policies" / "webhooks.json").write_text(json.dumps({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "behind"}, "webhooks": [{
                "name": "behind.example.com", "failurePolicy": "Fail", "sideEffects": "None",
                "clientConfig": {"url": f"https://localhost:{server.port}/", "caBundle": gateway.authority()},
                "timeoutSeconds": 10, "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]}))
        gateway.reload_and_wait()
        passed = 0
        for number in range(40):
            name = ("good", "evil")[number % 2]
            response = ask(gateway, "/validate/behind?timeout=10s", pod(name=name))[1]["response"]
            passed += response["allowed"]
            if response["allowed"] and name == "evil":
                broken.append("an evil object passes by the reply to a good one")
        if passed < 20:
            broken.append(f"{passed} of 20 good objects pass")
        result["good ones" + ", twice" * twice] = passed
    return {**result, "broken": broken[:3]}


DENY = """
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: %s}
spec:
  effect: Deny
  subjects: [{kind: User, name: %s}]
  resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]
---
"""


def status_of(gateway, token, review):
    """The status of the answer to who shows this token."""
    stream = gateway.connect()
    with stream:
        body = json.dumps(review).encode()
        stream.sendall(b"POST /authorize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       b"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                       % (token.encode(), len(body)) + body)
        return int(stream.recv(4096).split(b" ")[1])


def within(seconds, happens):
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def faulty_files(gateway):
    """one cluster's manifests and entry are faulty, and links there lead to files of others"""
    (gateway.set_up / "stolen.kubeconfig").write_text(caller("stolen"))
    (gateway.set_up / "clusters.d" / "east").mkdir(parents=True)
    (gateway.set_up / "tenants" / "east").mkdir(parents=True)
    manifests, entry = gateway.set_up / "tenants" / "east", gateway.set_up / "clusters.d" / "east"
    (manifests / "deny.yaml").write_text(DENY % ("east-denies", "mallory"))
    callers = json.loads((gateway.set_up / "gateway.yaml").read_text())["callers"]
    reconfigure(gateway, callers=[*callers, {"kubeconfig": "stolen.kubeconfig"}],
                manifests=["policies", {"path": "tenants/east", "cluster": "east"}], clusters="clusters.d")
    broken = []
    if status_of(gateway, "stolen", access("jane", "get")) != 200:
        broken.append("the caller was not accepted before")
    (gateway.set_up / "secret.yaml").write_text(DENY % ("of-another", "jane"))
    faults = {
        "no YAML": lambda: (manifests / "more.yaml").write_text("kind: ["),
        "a link to another's file": lambda: (manifests / "more.yaml").symlink_to("../../secret.yaml"),
        "a link to a folder above": lambda: (manifests / "more").symlink_to("../.."),
        "an endless file": lambda: (manifests / "more.yaml").symlink_to("/dev/zero"),
        "an entry without a name": lambda: (entry / "entry.yaml").write_text("kubeconfig: x\n"),
        "an entry with another's files": lambda: (entry / "entry.yaml").write_text(
            "name: east\nkubeconfig: ../../default.kubeconfig\ncacheFile: ../../policies/all.yaml\n"),
        "an entry that overwrites itself": lambda: (entry / "entry.yaml").write_text(
            "name: east\nkubeconfig: east.kubeconfig\ncacheFile: east.kubeconfig\n"),
        "an entry without end": lambda: (entry / "entry.yaml").write_text("# " + "x" * (80 << 20)),
        "many entries": lambda: [(entry / f"{n}.yaml").write_text(f"name: n{n}\n") for n in range(2000)],
    }
    result = {}
    for name, make in faults.items():
        make()
        wanted = [*callers, {"kubeconfig": "stolen.kubeconfig"}]
        for step in ("revoked", "accepted"):
            path = gateway.set_up / "gateway.yaml"
            config = json.loads(path.read_text())
            path.write_text(json.dumps({**config, "callers": callers if step == "revoked" else wanted}))
            gateway.reload()
            status = 401 if step == "revoked" else 200
            start = time.monotonic()
            if not within(15, lambda: status_of(gateway, "stolen", access("jane", "get")) == status):
                broken.append(f"{name}: a caller is not {step}")
            result[name] = f"{time.monotonic() - start:.1f} s"
        if (gateway.set_up / "policies" / "all.yaml").read_text().startswith("{"):
            broken.append(f"{name}: the gateway's own files are overwritten")
        for path in [manifests / "more.yaml", manifests / "more", *entry.iterdir()]:
            path.unlink(missing_ok=True)
    return {**result, "broken": broken[:5]}


def faulty_start(gateway):
    """a gateway starts beside faulty manifests and a faulty entry of two clusters, without `lastGood`"""
    for path, text in (("tenants/east/deny.yaml", "kind: ["), ("clusters.d/west/west.yaml", "name: west\nkubeconfig: [\n")):
        file = gateway.set_up / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (gateway.set_up / "west.kubeconfig").write_text(caller("of-west"))
    callers = json.loads((gateway.set_up / "gateway.yaml").read_text())["callers"]
    reconfigure(gateway, callers=[*callers, {"kubeconfig": "west.kubeconfig", "cluster": "west"}])
    path = gateway.set_up / "gateway.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "clusters": "clusters.d",
                                "manifests": ["policies", {"path": "tenants/east", "cluster": "east"}]}))
    gateway.process.kill()
    gateway.process.wait()
    gateway.start()
    found = {cluster: status_of(gateway, token, access("jane", "get"))
             for cluster, token in (("default", DEFAULT_TOKEN), ("east", EAST_TOKEN), ("west", "of-west"))}
    (gateway.set_up / "tenants" / "east" / "deny.yaml").write_text(DENY % ("east-denies", "mallory"))
    gateway.reload()
    mended = within(20, lambda: status_of(gateway, EAST_TOKEN, access("jane", "get")) == 200)
    broken = [] if found == {"default": 200, "east": 503, "west": 503} else ["others were expected"]
    return {**found, "broken": broken + ([] if mended else ["what is mended is not in force after 20 s"])}


faulty_start.callers = False


def emptied_files(gateway):
    """files of Denies are emptied and cut"""
    folder = gateway.set_up / "denies"
    folder.mkdir()
    names = [f"deny-{number}" for number in range(20)]
    whole = "".join(DENY % (name, "mallory" if number else "eve") for number, name in enumerate(names))
    path = folder / "all.yaml"
    path.write_text(whole)
    reconfigure(gateway, manifests=["policies", "denies"], reload={"maxRemoved": 3})
    failures = lambda: gateway.metric('portcullis_reloads_total{result="failure"}') or 0
    broken = []
    for name, text in (("emptied", ""), ("cut at ---", whole[:whole.index("---")]), ("nothing but a comment", "# \n")):
        before = failures()
        path.write_text(text)
        gateway.reload()
        if not within(15, lambda: failures() > before):
            broken.append(f"{name}: nobody is told")
        if not ask(gateway, "/authorize", access("mallory", "get"))[1]["status"].get("denied"):
            broken.append(f"{name}: mallory is no longer denied")
    path.write_text("".join(DENY % (name, "mallory") for name in names[:17]))
    gateway.reload_and_wait()
    removed = gateway.metric('portcullis_restrictions_removed_total{kind="AuthorizationPolicy"}')
    log = gateway.log.read_text()
    unnamed = [name for name in names[17:] if name not in log]
    if removed != 3 or unnamed:
        broken.append(f"{removed} are counted, {unnamed} not named")
    return {"broken": broken}


def console_of_one_cluster(gateway):
    """somebody who may see one cluster on the console asks for another in every way"""
    port = free_port()
    (gateway.set_up / "viewer.kubeconfig").write_text(caller("viewer"))
    config = json.loads((gateway.set_up / "gateway.yaml").read_text())
    for cluster in ("east", "west"):
        (gateway.set_up / cluster).mkdir()
        (gateway.set_up / cluster / "deny.yaml").write_text(DENY % (f"{cluster}-denies", f"{cluster}-user"))
    (gateway.set_up / "gateway.yaml").write_text(json.dumps({
        **config, "console": {"address": f"127.0.0.1:{port}", "tls": {
            "certificate": "pki/server.crt", "privateKey": "pki/server.key"}},
        "manifests": ["policies", {"path": "east", "cluster": "east"}, {"path": "west", "cluster": "default"}],
        "callers": [*config["callers"], {"kubeconfig": "viewer.kubeconfig", "cluster": "east", "endpoints": ["console"]}]}))
    gateway.process.terminate()
    gateway.process.wait()
    gateway.start()
    for number in range(200):
        ask(gateway, "/authorize", access("west-user", f"west-{number}"))
    status_of(gateway, EAST_TOKEN, access("east-user", "get"))

    def view(path, accept):
        with socket.create_connection(("127.0.0.1", port), timeout=15) as plain, \
                gateway.tls().wrap_socket(plain, server_hostname="localhost") as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\nAccept: {accept}\r\n"
                           "Authorization: Bearer viewer\r\n\r\n".encode())
            data = b""
            while more := stream.recv(65536):
                data += more
            return data.decode()

    paths = ["/", "/live", *(f"/live/{n}" for n in (1, 2, 100, 201)), "/who-can?verb=get&resource=pods",
             "/what-can?user=jane", "/what-if?user=jane&verb=get&resource=pods", "/policies", "/webhooks", "/clusters"]
    broken = []
    for path in paths:
        for accept in ("text/html", "application/json"):
            if "west" in view(path, accept).replace("newest", "new"):
                broken.append(f"{path} as {accept} names another cluster")
    for path in ("/policies/AuthorizationPolicy/-/west-denies", "/policies?cluster=default",
                 "/who-can?verb=get&resource=pods&cluster=default", "/what-can?user=west-user&cluster=default"):
        if " 200 " in view(path, "text/html").split("\r\n", 1)[0]:
            broken.append(f"{path} is answered")
    newest = view("/live", "application/json").partition('"newest":')[2].partition(",")[0].strip()
    if newest != "1" or "east-user" not in view("/live", "text/html"):
        broken.append(f"of one decision of the own cluster the number is {newest}")
    return {"broken": broken[:5]}


# What it does to the webhook, it does to everybody whom the webhook judges.
webhook_one_behind.callers = False
# The gateway is started a second time.
console_of_one_cluster.callers = False

ATTACKS = [one_behind, webhook_one_behind, faulty_files, faulty_start, emptied_files, console_of_one_cluster]
