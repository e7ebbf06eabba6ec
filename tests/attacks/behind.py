"""What many webhooks of one cluster, and what they reply, make of others."""

import base64
import gzip
import json
import socket
import ssl
import struct
import threading
import time

from gateway import EAST_TOKEN, free_port
from strangers import at_once, summary
from tenants import reconfigure, within
from users import ask
from watched import SELECTED, WEST_TOKEN, deny, says, watching
from webhook import Webhook, answer
from wire import CONTINUATION, DATA, END_HEADERS, HEADERS, PING, SETTINGS, WINDOW_UPDATE, frame, pod

PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
SLICES = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
          "resources": ["resourceslices"]}


class Replies(Webhook):
    """Replies what `reply` makes of the path and the request."""

    def __init__(self, reply):
        super().__init__()
        self.reply = reply


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKS = HEAD + b"transfer-encoding: chunked\r\n"
FIELD = b"x: " + b"y" * 1000 + b"\r\n"
NOTHING = gzip.compress(b"") * 400

# How replies begin, and what then comes without end.
ENDLESS = [
    (CHUNKS + b"\r\n", b"1\r\n \r\n" * 1000),
    (CHUNKS + b"content-encoding: gzip\r\n\r\n", b"%x\r\n" % len(NOTHING) + NOTHING + b"\r\n"),
    (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
    (HEAD, FIELD),
    (CHUNKS + b"\r\n0\r\n", FIELD),
    (CHUNKS + b"\r\n1;", b"x" * 1000),
    (b"HTTP/1.1 200 ", b"x" * 1000),
    (HEAD + b"\r\n", b" " * 10000),
]

# `:status 200` and `:status 103`, and the same over HTTP/2.
OK, EARLY_HINTS = b"\x88", b"\x08\x03103"
ENDLESS_FRAMES = [
    (b"", frame(HEADERS, END_HEADERS, 1, EARLY_HINTS) * 100),
    (b"", frame(PING, 0, 0, b"x" * 8) * 100),
    (b"", frame(SETTINGS) * 100),
    (b"", frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 100),
    (b"", frame(99, 0, 0, b"z" * 1000) * 20),
    (frame(HEADERS, 0, 1, OK), frame(CONTINUATION, 0, 1, b"\x00\x01x\x7f\x00" + b"y" * 127) * 50),
    (frame(HEADERS, END_HEADERS, 1, OK), frame(DATA, 0, 1) * 100),
    (frame(HEADERS, END_HEADERS, 1, OK), frame(DATA, 0, 1, b" " * 1000) * 10),
]


class Endless(Webhook):
    """Begins the reply that the path names, and does not end it."""

    sent = 0

    def is_answering(self, handler, _):
        begin, more = ENDLESS[int(handler.path.split("?")[0].strip("/")) % len(ENDLESS)]
        handler.close_connection = True
        try:
            handler.wfile.write(begin)
            while True:
                self.sent += handler.wfile.write(more)
        except OSError:
            return False


class EndlessFrames:
    """The same over HTTP/2: each connection another reply."""

    def __init__(self, gateway):
        self.port, self.sent, self.context = free_port(), 0, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(gateway.file("pki/server.crt"), gateway.file("pki/server.key"))
        self.context.set_alpn_protocols(["h2"])
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        number = 0
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=self.reply, args=(stream, *ENDLESS_FRAMES[number % len(ENDLESS_FRAMES)]),
                             daemon=True).start()
            number += 1

    def reply(self, stream, begin, more):
        try:
            stream = self.context.wrap_socket(stream, server_side=True)
            stream.sendall(frame(SETTINGS))
            threading.Thread(target=self.drain, args=(stream,), daemon=True).start()
            # A reply to a request that was not sent is none.
            time.sleep(0.3)
            stream.sendall(begin)
            while True:
                stream.sendall(more)
                self.sent += len(more)
        except OSError:
            pass

    @staticmethod
    def drain(stream):
        try:
            while stream.recv(1 << 16):
                pass
        except OSError:
            pass


def endless_replies(gateway):
    """80 webhooks of one cluster whose replies have no end, over HTTP/1.1 and HTTP/2"""
    result = {}
    for version, webhook in (("HTTP/1.1", Endless()), ("HTTP/2", EndlessFrames(gateway))):
        if version == "HTTP/1.1":
            webhook.serve(gateway)
        of_east(gateway, 80, port=webhook.port)
        begin = time.monotonic()
        found = at_once(2, lambda number: asked(gateway, "/validate", pod(f"mallory-{number}")))
        result[version] = (f"{summary(found)} after {time.monotonic() - begin:.1f} s, "
                           f"{webhook.sent >> 20} MiB sent")
        broken = [] if time.monotonic() - begin < 13 else [f"no answer over {version} by the deadline"]
        result["broken"] = result.get("broken", []) + broken
    return result


def configuration(gateway, port, count, *, kind="Validating", rule=PODS, bundle=True):
    bundle = {"caBundle": gateway.authority()} if bundle else {}
    return [{"name": f"w{number}.example.com", "failurePolicy": "Ignore", "sideEffects": "None", "rules": [rule],
             "clientConfig": {"url": f"https://localhost:{port}/{number}", **bundle},
             "timeoutSeconds": 10, "admissionReviewVersions": ["v1"]} for number in range(count)]


def of_east(gateway, count, **more):
    """Has the files of east name so many webhooks."""
    kind = more.pop("kind", "Validating")
    webhooks = configuration(gateway, more.pop("port"), count, **more)
    (gateway.set_up / "east").mkdir(exist_ok=True)
    (gateway.set_up / "east" / "webhooks.json").write_text(json.dumps({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "many"}, "webhooks": webhooks}))
    config = json.loads((gateway.set_up / "gateway.yaml").read_text())
    if len(config["manifests"]) == 1:
        reconfigure(gateway, manifests=["policies", {"path": "east", "cluster": "east"}])
    else:
        gateway.reload_and_wait()


def asked(gateway, path, review):
    """What becomes of a review of east."""
    try:
        status, answered = ask(gateway, f"{path}?timeout=10s", review, EAST_TOKEN, timeout=20)
    except (EOFError, OSError) as error:
        return f"{type(error).__name__}"
    if status != 200:
        return f"HTTP {status}"
    response = answered["response"]
    return "admitted" if response["allowed"] else f"refused {response['status'].get('code')}"


def slice_of(user):
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceSlice"}
    resource = {"group": "resource.k8s.io", "version": "v1", "resource": "resourceslices"}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": f"u-{time.monotonic_ns()}", "kind": kind, "resource": resource, "requestKind": kind,
        "requestResource": resource, "name": "s", "operation": "CREATE", "userInfo": {"username": user},
        "object": {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
                   "spec": {"driver": "d", "nodeName": "n",
                            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}}}


def unknown_paths(gateway):
    """a patch of one cluster's webhook with 1,000 unknown fields below a key of 2.9 MB"""
    device = {"name": "d", "attributes": {"k" * 2_900_000: {f"u{number}": 0 for number in range(1000)}}}
    patch = json.dumps([{"op": "add", "path": "/spec/devices", "value": [device]}]).encode()
    response = {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    webhook = Replies(lambda _, request: answer(request, response))
    webhook.serve(gateway)
    of_east(gateway, 1, port=webhook.port, kind="Mutating", rule=SLICES)
    found = asked(gateway, "/mutate", slice_of("mallory"))
    webhook.stop()
    return {"slice": found, "broken": [found] * (not found.startswith(("admitted", "refused")))}


def many_webhooks(gateway):
    """1,500 webhooks without caBundle in one watched cluster"""
    east, west, broken = gateway.servers["east"], gateway.servers["west"], []
    east.put("validatingwebhookconfigurations", "many", metadata=SELECTED,
             webhooks=configuration(gateway, 1, 1500, bundle=False))
    start = time.monotonic()
    deny(west, "no-somebody", "somebody")
    if not within(20, lambda: says(gateway, "somebody", WEST_TOKEN) == "denied"):
        broken.append("a Deny of the other cluster is not in force")
    took = time.monotonic() - start
    left_out = 'portcullis_cluster_left_out_objects{cluster="east",purpose="webhooks"}'
    if not within(20, lambda: gateway.metric(left_out) == 1300):
        broken.append(f"{gateway.metric(left_out)} are left out")
    if "1300 webhooks are not called" not in gateway.readiness():
        broken.append("/readyz does not say so")
    return {"called": 200, "a Deny of the other cluster in force after": f"{took:.1f} s", "broken": broken}


def large_replies(gateway):
    """200 webhooks of one cluster that answer one request with 8 MB each, as 8 kB of gzip"""
    text = gzip.compress(b'{"kind":"AdmissionReview","pad":"' + b"a" * 8_000_000 + b'"}')
    webhook = Replies(lambda *_: text)
    webhook.serve(gateway)
    of_east(gateway, 200, port=webhook.port)
    found = asked(gateway, "/validate", pod("mallory"))
    webhook.stop()
    broken = [found] * (not found.startswith(("admitted", "refused", "HTTP 504")))
    return {"pod": found, "replies": len(webhook.calls), "broken": broken}


def connections_to_webhooks(gateway):
    """six requests at once to 200 webhooks of one cluster, where 1,024 files may be open"""
    def reply(path, request):
        value = "ab"[int(path.split("?")[0].strip("/")) % 2] * 100
        patch = json.dumps([{"op": "add", "path": "/metadata/annotations", "value": {"k": value}}]).encode()
        return answer(request, {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()})
    webhook = Replies(reply)
    webhook.serve(gateway)
    of_east(gateway, 200, port=webhook.port, kind="Mutating")
    found = at_once(6, lambda number: asked(gateway, "/mutate", pod(f"mallory-{number}")))
    files, broken = gateway.descriptors_open(), []
    if files > 512:
        broken.append(f"{files} open files")
    if gateway.probe("/livez") != 200:
        broken.append("/livez fails")
    webhook.stop()
    return {"pods": summary(found), "calls": len(webhook.calls), "open files afterwards": files, "broken": broken}


many_webhooks.prepare = watching
connections_to_webhooks.gateway = {"descriptors": 1024}
endless_replies.gateway = {"more": {"upstreams": {"http2": True}}}

ATTACKS = [unknown_paths, many_webhooks, large_replies, connections_to_webhooks, endless_replies]
