"""HTTP/1.1 and the frames of HTTP/2, by hand: for what no sound client sends."""

import json
import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ROOM = bytes([0, 4, 0, 0, 0, 0])
# The last field that was remembered.
REMEMBERED = bytes([0x80 | 62])


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def post(path=b"/authorize", *more):
    """The compressed head of a POST."""
    block = b"\x83\x87" + bytes([4, len(path)]) + path + b"\x01\x09localhost"
    return block + b"".join(more)


def field(name, value=b""):
    name = name.encode() if isinstance(name, str) else name
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def remember():
    """A field of 4,000 bytes that one byte stands for from then on."""
    return b"\x40\x01x\x7f\xa1\x1e" + b"v" * 4000


class Http2:
    """A connection whose preface and SETTINGS are sent."""

    def __init__(self, gateway, context, settings=b""):
        self.stream = gateway.connect(context)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data):
        self.stream.sendall(data)

    def receive(self):
        head = self.exactly(9)
        return head[3], head[4], struct.unpack(">I", head[5:9])[0], self.exactly(int.from_bytes(head[:3], "big"))

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.stream.recv(length - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def reason(self):
        """Why the server closes the connection; None if it does not say so, `open` if it does not close."""
        told = None
        try:
            while True:
                kind, _, _, payload = self.receive()
                if kind == GOAWAY:
                    told = payload[7]
        except TimeoutError:
            return "open"
        except (EOFError, OSError):
            return told


def request(path, body, token=None, more=""):
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{authorization}{more}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def answer(stream):
    """Status and body of one answer of HTTP/1.1."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = stream.recv(65536)
        if not more:
            raise EOFError
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = stream.recv(65536)
        if not more:
            raise EOFError
        body += more
    return int(head.split(b" ")[1]), body


def access(user="jane", verb="get"):
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": user, "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}}


def pod(user="jane", name="good", metadata=None, spec=None):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u-1", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": name, "namespace": "default", "operation": "CREATE", "dryRun": False, "userInfo": {"username": user},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})}, "spec": spec or {}}}}


def reset(stream):
    """Ends a connection without a word."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
