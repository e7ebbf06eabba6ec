"""A webhook behind the gateway: judges names, and treats users as their names say."""

import base64
import http.server
import json
import socketserver
import ssl
import threading
import time

from gateway import free_port
from wire import reset


# What an injector of sidecars adds.
INJECTED = base64.b64encode(b'[{"op":"add","path":"/spec/volumes/-","value":{"name":"more"}}]').decode()

# The same in 10 MB.
LARGE = base64.b64encode(b'[{"op":"add","path":"/spec/volumes","value":[' + b",".join([b"{}"] * 3_300_000) + b"]}]").decode()


def answer(request, response):
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                       "response": {"uid": request["uid"], **response}}).encode()


class Webhook:
    """Serves until it is left. `slow` is answered late, `dropper` not at all, `large` with a large patch."""

    def __init__(self, slow=20):
        self.port, self.slow, self.calls, self.credentials = free_port(), slow, [], []

    def serve(self, gateway):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(gateway.file("pki/server.crt"), gateway.file("pki/server.key"))
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                user, name = review["request"]["userInfo"]["username"], review["request"]["name"]
                outer.calls.append((user, name))
                outer.credentials.append(self.headers["Authorization"])
                if not outer.is_answering(self, user):
                    return
                reply = outer.reply(self.path, review["request"])
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                if reply.startswith(b"\x1f\x8b"):
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, path, request):
        """The body of the reply to a request, compressed or not."""
        user, response = request["userInfo"]["username"], {"allowed": request["name"] not in ("bad", "evil")}
        if path.startswith("/inject?"):
            response |= {"patchType": "JSONPatch", "patch": LARGE if user.startswith("large") else INJECTED}
        return answer(request, response)

    def is_answering(self, handler, user):
        """Whether a request is answered as its name deserves, after what its user gets instead or before."""
        if user == "dropper":
            handler.close_connection = True
            reset(handler.request)
            return False
        if user.startswith("slow"):
            time.sleep(self.slow)
        return True

    def stop(self):
        self.server.shutdown()

    def manifests(self, gateway, timeout=10):
        """One webhook of each failurePolicy, each a configuration of its own."""
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": [{
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": policy.lower()},
            "webhooks": [{
                "name": f"{policy.lower()}.example.com", "failurePolicy": policy, "sideEffects": "None",
                "clientConfig": {"url": f"https://localhost:{self.port}/", "caBundle": gateway.authority()},
                "timeoutSeconds": timeout, "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }],
        } for policy in ("Ignore", "Fail")]})

    def injector(self, gateway):
        """A mutating webhook that appends to the volumes of pods."""
        return json.dumps({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "inject"},
            "webhooks": [{
                "name": "inject.example.com", "failurePolicy": "Ignore", "sideEffects": "None",
                "clientConfig": {"url": f"https://localhost:{self.port}/inject", "caBundle": gateway.authority()},
                "timeoutSeconds": 20, "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }],
        })
