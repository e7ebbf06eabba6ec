"""What one tenant, or one server behind the gateway, makes of what others get."""

import json
import socket
import ssl
import threading

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


# What it does to the webhook, it does to everybody whom the webhook judges.
webhook_one_behind.callers = False

ATTACKS = [one_behind, webhook_one_behind]
