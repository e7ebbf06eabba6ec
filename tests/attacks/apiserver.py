"""Stands in for the API server of a cluster: what it stores is discovered, listed and watched."""

import http.server
import json
import socket
import socketserver
import ssl
import threading
from urllib.parse import parse_qs, urlsplit

from gateway import free_port

RBAC, ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"

# Group and version, kind, and whether it is namespaced.
KINDS = {
    "namespaces": ("v1", "Namespace", False),
    "configmaps": ("v1", "ConfigMap", True),
    "roles": (RBAC, "Role", True),
    "clusterroles": (RBAC, "ClusterRole", False),
    "rolebindings": (RBAC, "RoleBinding", True),
    "clusterrolebindings": (RBAC, "ClusterRoleBinding", False),
    "authorizationpolicies": ("portcullis.dev/v1alpha1", "AuthorizationPolicy", False),
    "customresourcedefinitions": ("apiextensions.k8s.io/v1", "CustomResourceDefinition", False),
    "validatingadmissionpolicies": (ADMISSION, "ValidatingAdmissionPolicy", False),
    "validatingadmissionpolicybindings": (ADMISSION, "ValidatingAdmissionPolicyBinding", False),
    "mutatingadmissionpolicies": (ADMISSION, "MutatingAdmissionPolicy", False),
    "mutatingadmissionpolicybindings": (ADMISSION, "MutatingAdmissionPolicyBinding", False),
    "validatingwebhookconfigurations": (ADMISSION, "ValidatingWebhookConfiguration", False),
    "mutatingwebhookconfigurations": (ADMISSION, "MutatingWebhookConfiguration", False),
}

# Served by every API server, with nothing in it that is watched.
GROUPS = ["apps/v1"]


def list_path(plural):
    version = KINDS[plural][0]
    return f"/{'apis' if '/' in version else 'api'}/{version}/{plural}"


def list_of(plural, version, items=(), more=None):
    """The chunks of a list."""
    group_version, kind, _ = KINDS[plural]
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    yield (f'{{"kind":"{kind}List","apiVersion":"{group_version}","metadata":{json.dumps(metadata)},"items":[').encode()
    separator = b""
    for item in items:
        yield separator + item
        separator = b","
    yield b"]}"


def event(sort, item):
    return b'{"type":"' + sort.encode() + b'","object":' + item + b"}\n"


def status(code, reason, message):
    return json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
                       "message": message, "code": code}).encode()


def discovery(path):
    """What is served at a path of groups or of one group's resources, if it is one."""
    versions = {version for version, _, _ in KINDS.values()} | set(GROUPS)
    if path in ("/api", "/apis"):
        items = []
        for group_version in sorted(one for one in versions if ("/" in one) == (path == "/apis")):
            group, _, version = group_version.rpartition("/")
            resources = [{"resource": plural, "responseKind": {"group": group, "version": version, "kind": kind},
                          "scope": "Namespaced" if namespaced else "Cluster", "verbs": ["get", "list", "watch"]}
                         for plural, (its, kind, namespaced) in KINDS.items() if its == group_version]
            items.append({"metadata": {"name": group}, "versions": [{"version": version, "resources": resources}]})
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    group_version = path.removeprefix("/apis/").removeprefix("/api/")
    if group_version not in versions:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": [
        {"name": plural, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list", "watch"]}
        for plural, (its, kind, namespaced) in KINDS.items() if its == group_version]}


class ApiServer:
    """Serves until the process ends.

    `instead`, where it is set, answers first: it gets the path and the parameters of a request,
    and returns status, media type and an iterable of chunks, or None to have it answered as usual.
    `flood`, where it is set, has each new connection instead, which speaks HTTP/2.
    """

    def __init__(self, gateway):
        self.gateway, self.port = gateway, free_port()
        self.objects, self.events, self.version = {}, [], 100
        self.instead, self.flood, self.generation = None, None, 0
        self.changed = threading.Condition()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(gateway.file("pki/server.crt"), gateway.file("pki/server.key"))
        self.context, outer = context, self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def handle(self):
                if self.request.selected_alpn_protocol() == "h2":
                    outer.flood(self.request)
                else:
                    super().handle()

            def finish(self):
                super().finish()
                try:
                    # The process of the callers has this connection, too.
                    self.request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                self.request.close()

            def do_GET(self):
                if outer.flood:
                    self.close_connection = True
                    return
                url = urlsplit(self.path)
                code, media_type, chunks = outer.answer(url.path, {k: v[0] for k, v in parse_qs(url.query).items()})
                self.send_response(code)
                self.send_header("Content-Type", media_type)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in chunks:
                    if chunk:
                        self.wfile.write(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kubeconfig(self):
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": f"https://localhost:{self.port}",
                                                   "certificate-authority-data": self.gateway.authority()}}],
            "users": [{"name": "u", "user": {"token": "gateway"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        })

    def put(self, plural, name, namespace="", **fields):
        """Creates or changes an object; `fields` are what it has besides its name."""
        group_version, kind, _ = KINDS[plural]
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
        with self.changed:
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            item = json.dumps({"apiVersion": group_version, "kind": kind, "metadata": metadata, **fields}).encode()
            sort = "MODIFIED" if (plural, namespace, name) in self.objects else "ADDED"
            self.note(sort, plural, namespace, name, item)

    def put_text(self, plural, name, item):
        """Has an event of an object as it is written; `VERSION` within it becomes its version."""
        with self.changed:
            self.version += 1
            self.note("ADDED", plural, "", name, item.replace(b"VERSION", str(self.version).encode(), 1))

    def delete(self, plural, name, namespace=""):
        with self.changed:
            self.version += 1
            item = json.loads(self.objects.pop((plural, namespace, name)))
            item["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((self.version, plural, event("DELETED", json.dumps(item).encode())))
            self.changed.notify_all()

    def note(self, sort, plural, namespace, name, item):
        self.objects[plural, namespace, name] = item
        self.events.append((self.version, plural, event(sort, item)))
        self.changed.notify_all()

    def behave(self, instead=None):
        """Answers by `instead` from now on. Watches end."""
        with self.changed:
            self.instead = instead
            self.generation += 1
            self.changed.notify_all()

    def flood_by(self, flood):
        """Has `flood` serve new connections, over HTTP/2. All others end; without it they speak HTTP/1.1 again."""
        self.flood = flood
        self.context.set_alpn_protocols(["h2"] if flood else ["http/1.1"])
        self.behave()

    def answer(self, path, parameters):
        other = self.instead and self.instead(path, parameters)
        if other:
            return other
        found = {"major": "1", "minor": "37", "gitVersion": "v1.37.0"} if path == "/version" else discovery(path)
        if found:
            return 200, "application/json", [json.dumps(found).encode()]
        plural = path.rsplit("/", 1)[-1]
        if plural not in KINDS or path != list_path(plural):
            return 404, "application/json", [status(404, "NotFound", "the server could not find the requested resource")]
        if parameters.get("watch") == "true":
            return 200, "application/json", self.follow(plural, int(parameters.get("resourceVersion") or 0),
                                                        float(parameters.get("timeoutSeconds", 1800)))
        with self.changed:
            items = [item for (its, _, _), item in sorted(self.objects.items()) if its == plural]
            return 200, "application/json", list_of(plural, self.version, items)

    def follow(self, plural, version, seconds):
        with self.changed:
            generation = self.generation
        while True:
            with self.changed:
                lines = [line for at, its, line in self.events if at > version and its == plural]
                version = max(version, self.version)
                if not lines:
                    if not self.changed.wait(timeout=min(seconds, 1800)) or self.generation != generation:
                        return
                    continue
            yield from lines
            if self.generation != generation:
                return
