"""What API servers that are watched, what stands before them, and who writes to them, make of others."""

import json
import socket
import threading
import time

from apiserver import ApiServer, event, list_of, status
from gateway import EAST_TOKEN, kubeconfig as caller
from strangers import at_once, summary
from tenants import reconfigure, within
from users import ask
from webhook import Webhook
from wire import DATA, END_HEADERS, HEADERS, PING, SETTINGS, WINDOW_UPDATE, access, frame, pod

WEST_TOKEN = "west-token"
TEXT, JSON = "text/plain; charset=utf-8", "application/json"
READS = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads"}
SELECTED = {"labels": {"run-by": "gateway"}}


def user(name):
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def deny(server, name, user_name, conditions=()):
    server.put("authorizationpolicies", name, spec={
        "effect": "Deny", "subjects": [{"kind": "User", "name": user_name}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        **({"conditions": list(conditions)} if conditions else {})})


def grant(server, name, user_name):
    server.put("clusterrolebindings", name, roleRef=READS, subjects=[user(user_name)])


def watching(gateway):
    """Has the gateway watch east, which is attacked, and west, which is not."""
    path = gateway.set_up / "gateway.yaml"
    config = json.loads(path.read_text())
    (gateway.set_up / "west.kubeconfig").write_text(caller(WEST_TOKEN))
    gateway.servers = {name: ApiServer(gateway) for name in ("east", "west")}
    for name, server in gateway.servers.items():
        (gateway.set_up / f"api-{name}.kubeconfig").write_text(server.kubeconfig())
        for namespace in ("default", "team"):
            server.put("namespaces", namespace)
        server.put("clusterroles", "reads", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
        grant(server, "somebody", "somebody")
        grant(server, "mallory", "mallory")
        deny(server, "no-mallory", "mallory")
    path.write_text(json.dumps({
        **config, "callers": [*config["callers"], {"kubeconfig": "west.kubeconfig", "cluster": "west"}],
        "clusters": [{"name": name, "kubeconfig": f"api-{name}.kubeconfig", "cacheFile": f"{name}.cache",
                      "selector": {"matchLabels": SELECTED["labels"]}} for name in gateway.servers]}))
    gateway.reload_and_wait()
    if not within(30, lambda: all(is_whole(gateway, token) for token in (EAST_TOKEN, WEST_TOKEN))):
        raise RuntimeError(f"the clusters are not followed; see {gateway.log}")


def says(gateway, user_name, token=EAST_TOKEN):
    """What is said to a user who wants to get pods."""
    code, review = ask(gateway, "/authorize?timeout=10s", access(user_name), token)
    if code != 200:
        return f"HTTP {code}"
    found = review["status"]
    return "allowed" if found.get("allowed") else "denied" if found.get("denied") else "no opinion"


def is_whole(gateway, token):
    """Whether the first objects of a cluster are in force."""
    return says(gateway, "mallory", token) == "denied" and says(gateway, "somebody", token) == "allowed"


def figure(gateway, family, cluster="east"):
    return gateway.metric(f'portcullis_cluster_{family}{{cluster="{cluster}"}}')


def left_out(gateway, purpose, cluster="east"):
    return gateway.metric(f'portcullis_cluster_left_out_objects{{cluster="{cluster}",purpose="{purpose}"}}')


class Neighbour:
    """A user of west whose grant comes and goes, as long as this is entered: each change is to be seen."""

    def __init__(self, gateway):
        self.gateway, self.stop, self.took, self.broken = gateway, threading.Event(), [0.0], []

    def __enter__(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        server, turn = self.gateway.servers["west"], 0
        while not self.stop.is_set():
            turn += 1
            if turn % 2:
                deny(server, "comes-and-goes", "somebody")
            else:
                server.delete("authorizationpolicies", "comes-and-goes")
            start, wanted = time.monotonic(), ("allowed", "denied")[turn % 2]
            if not within(20, lambda: says(self.gateway, "somebody", WEST_TOKEN) == wanted):
                self.broken.append(f"west: somebody is not {wanted} after 20 s")
            self.took.append(time.monotonic() - start)

    def result(self, broken, **more):
        return {**more, "a Deny of west": f"{len(self.took) - 1} changes, the slowest seen after {max(self.took):.1f} s",
                "broken": (broken + self.broken)[:5]}


def everywhere(code, media_type, body):
    return lambda path, parameters: (code, media_type, [body])


def without_policies(path, parameters):
    """As an API server that was asked by a wrong route: the group is there, the resource is not."""
    if path == "/apis/portcullis.dev/v1alpha1":
        return 200, JSON, [json.dumps({"kind": "APIResourceList", "apiVersion": "v1", "resources": [],
                                       "groupVersion": "portcullis.dev/v1alpha1"}).encode()]
    if path.startswith("/apis/portcullis.dev/"):
        return 404, TEXT, [b"404 page not found\n"]
    return None


def empty(version, groups=True):
    """Lists are empty and of this version; watches have expired."""
    def instead(path, parameters):
        plural = path.rsplit("/", 1)[-1]
        if not groups and path in ("/api", "/apis"):
            return 404, TEXT, [b"default backend - 404"]
        if path.count("/") < 3 or not plural.islower() or plural in ("v1", "v1alpha1"):
            return None
        if parameters.get("watch") == "true":
            return 200, JSON, [event("ERROR", status(410, "Expired", "too old resource version"))]
        return 200, JSON, list_of(plural, version)
    return instead


def absence(gateway):
    """404 as text and as JSON, 200 without the resource, empty lists and another etcd in place of an API server"""
    east, broken, result = gateway.servers["east"], [], {}
    hostile = {
        "404 as text": everywhere(404, TEXT, b"404 page not found\n"),
        "404 as JSON": everywhere(404, JSON, status(404, "NotFound", "the server could not find the requested resource")),
        "no policies": without_policies,
        "empty lists without groups": empty(east.version, groups=False),
        "another etcd": empty(1),
    }
    for name, instead in hostile.items():
        east.behave(instead)
        start = time.monotonic()
        if not within(30, lambda: figure(gateway, "unconfirmed_absences") > 0):
            broken.append(f"{name}: no absence is doubted")
        result[name] = f"doubted after {time.monotonic() - start:.1f} s"
        time.sleep(3)
        if not is_whole(gateway, EAST_TOKEN):
            broken.append(f"{name}: mallory {says(gateway, 'mallory')}, somebody {says(gateway, 'somebody')}")
        if "--accept-absence east" not in gateway.readiness():
            broken.append(f"{name}: /readyz says nothing")
        if figure(gateway, "unconfirmed_absences", "west"):
            broken.append(f"{name}: west is doubted")
        if name == "another etcd":
            break
        east.behave()
        if not within(30, lambda: figure(gateway, "unconfirmed_absences") == 0):
            broken.append(f"{name}: still doubted 30 s after the API server is back")
    return {**result, "broken": broken}


def absence_at_start(gateway):
    """a gateway is killed and started while 404 and empty lists stand in place of an API server"""
    east, broken = gateway.servers["east"], []
    if not within(20, lambda: (gateway.set_up / "east.cache").exists()):
        broken.append("nothing was saved")
    time.sleep(3)
    for name, instead in (("404", everywhere(404, TEXT, b"404 page not found\n")), ("another etcd", empty(1))):
        east.behave(instead)
        for _ in range(2):
            gateway.process.kill()
            gateway.process.wait()
            gateway.start()
            for _ in range(20):
                if says(gateway, "mallory") != "denied":
                    broken.append(f"{name}: mallory {says(gateway, 'mallory')}")
                time.sleep(0.2)
    for path in gateway.set_up.glob("east.cache*"):
        path.unlink()
    gateway.process.kill()
    gateway.process.wait()
    gateway.start()
    first = says(gateway, "mallory")
    broken += [f"without a saved set: {first}"] * (first != "HTTP 503")
    return {"without a saved set": first, "broken": broken}


def endless(gateway):
    """lists of ever more pages, lists and objects that never end, and events as fast as they are taken, of one cluster"""
    east, broken = gateway.servers["east"], []
    padding = "x" * 10_000

    def invented(number, version=None):
        return json.dumps({"metadata": {"name": f"invented-{number}", "namespace": "invented", "resourceVersion":
                           str(version or 10_000 + number), "annotations": {"padding": padding}}}).encode()

    def forever(make):
        number = 0
        while True:
            number += 1
            yield make(number)

    def instead(path, parameters):
        plural, watch = path.rsplit("/", 1)[-1], parameters.get("watch") == "true"
        if watch and plural in ("roles", "clusterrolebindings", "clusterroles", "authorizationpolicies"):
            return 200, JSON, [event("ERROR", status(410, "Expired", "too old resource version"))]
        if plural in ("roles", "clusterrolebindings") and not watch:
            before = int(parameters.get("continue", 0))
            items = (invented(number) for number in range(before, before + 100))
            return 200, JSON, list_of(plural, 10_000, items, str(before + 100))
        if plural == "clusterroles" and not watch:
            return 200, JSON, list_of(plural, 10_000, forever(lambda number: invented(0)))
        if plural == "authorizationpolicies" and not watch:
            return 200, JSON, list_of(plural, 10_000, forever(lambda number: b'{"metadata":{"name":"a","x":"' + b"x" * 60_000))
        if plural == "rolebindings" and watch:
            return 200, JSON, forever(lambda number: event("ADDED", invented(number, 20_000 + number)))
        return None
    with Neighbour(gateway) as neighbour:
        east.behave(instead)
        if not within(90, lambda: figure(gateway, "outdated_kinds") >= 4):
            broken.append(f"only {figure(gateway, 'outdated_kinds')} kinds are said to be outdated")
        if not is_whole(gateway, EAST_TOKEN):
            broken.append(f"mallory {says(gateway, 'mallory')}, somebody {says(gateway, 'somebody')}")
        outdated = figure(gateway, "outdated_kinds")
    return neighbour.result(broken, outdated=outdated)


def old_events(gateway):
    """a watch of a replica that lags brings back a revoked grant, and deletes a Deny"""
    east, broken = gateway.servers["east"], []
    grant(east, "mallory-again", "revoked")
    if not within(10, lambda: says(gateway, "revoked") == "allowed"):
        broken.append("the grant does not hold")
    revoked = east.objects["clusterrolebindings", "", "mallory-again"]
    known = east.objects["authorizationpolicies", "", "no-mallory"]
    east.delete("clusterrolebindings", "mallory-again")
    if not within(10, lambda: says(gateway, "revoked") != "allowed"):
        broken.append("the grant is not revoked")
    grant(east, "news", "news")
    deny(east, "news", "news")
    within(10, lambda: says(gateway, "news") == "denied")
    asked = []

    def instead(path, parameters):
        plural = path.rsplit("/", 1)[-1]
        if parameters.get("watch") != "true":
            return None
        if plural == "clusterrolebindings":
            asked.append(plural)
            return 200, JSON, [event("ADDED", revoked)]
        if plural == "authorizationpolicies":
            asked.append(plural)
            return 200, JSON, [event("DELETED", known)]
        return None
    east.behave(instead)
    if not within(30, lambda: len(set(asked)) == 2 and len(asked) > 5):
        broken.append(f"only {len(asked)} watches")
    for _ in range(20):
        if says(gateway, "revoked") == "allowed" or says(gateway, "mallory") != "denied":
            broken.append(f"the revoked {says(gateway, 'revoked')}, mallory {says(gateway, 'mallory')}")
        time.sleep(0.1)
    return {"watches": len(asked), "broken": broken[:3]}


def read_request(stream, received):
    """The number of the next stream that a client opens, from what it sends after its preface."""
    while True:
        while len(received) < 9 or len(received) < 9 + int.from_bytes(received[:3], "big"):
            more = stream.recv(1 << 16)
            if not more:
                raise EOFError
            received += more
        length, kind = int.from_bytes(received[:3], "big"), received[3]
        number = int.from_bytes(received[5:9], "big")
        del received[:9 + length]
        if kind == SETTINGS and length:
            stream.sendall(frame(SETTINGS, 1))
        if kind == HEADERS:
            return number


def flooded_frames(gateway):
    """an API server over HTTP/2 floods interim replies, then empty DATA, PING, SETTINGS, WINDOW_UPDATE and unknown frames"""
    east, broken, sent, ends = gateway.servers["east"], [], [0], [0]
    status = {code: b"\x08\x03" + code.encode() for code in ("103", "200")}
    turns = threading.Lock()
    kinds = [
        ("103", lambda number: frame(HEADERS, END_HEADERS, number, status["103"])),
        ("200", lambda number: frame(DATA, 0, number)),
        ("200", lambda number: frame(PING, 0, 0, bytes(8))),
        ("200", lambda number: frame(SETTINGS)),
        ("200", lambda number: frame(WINDOW_UPDATE, 0, 0, bytes([0, 0, 0, 1]))),
        ("200", lambda number: frame(0xEE, 0, number)),
    ]

    def flood(stream):
        with turns:
            code, make = kinds[ends[0] % len(kinds)]
            ends[0] += 1
        received = bytearray()
        while len(received) < 24:
            received += stream.recv(1 << 16) or b"\0" * 24
        del received[:24]
        stream.sendall(frame(SETTINGS))
        number = read_request(stream, received)
        if code == "200":
            stream.sendall(frame(HEADERS, END_HEADERS, number, status["200"]))
        stream.settimeout(2)
        frames = make(number) * 1000
        while True:
            stream.sendall(frames)
            sent[0] += len(frames)
            try:
                stream.settimeout(0.001)
                stream.recv(1 << 16)
            except TimeoutError:
                pass
            stream.settimeout(2)

    with Neighbour(gateway) as neighbour:
        east.flood_by(flood)
        if not within(30, lambda: ends[0] >= 3 and sent[0] > 1 << 20):
            broken.append(f"only {ends[0]} connections")
        if not is_whole(gateway, EAST_TOKEN):
            broken.append(f"mallory {says(gateway, 'mallory')}, somebody {says(gateway, 'somebody')}")
        east.flood_by(None)
    return neighbour.result(broken, connections=ends[0], sent=f"{sent[0] / (1 << 20):.0f} MiB")


def large_bindings(gateway):
    """270 RoleBindings of 1 MB and 270 of 4,000 subjects by the admin of one namespace"""
    east, broken = gateway.servers["east"], []
    grant(east, "elsewhere", "elsewhere")
    if not within(10, lambda: says(gateway, "elsewhere") == "allowed"):
        broken.append("the grant does not hold")
    padding = "x" * 1_000_000
    with Neighbour(gateway) as neighbour:
        for number in range(270):
            east.put("rolebindings", f"large-{number}", "team", metadata={"annotations": {"x": padding}}, roleRef=READS,
                     subjects=[user(f"large-{number}")])
            east.put("rolebindings", f"many-{number}", "team", roleRef=READS,
                     subjects=[user(f"u-{number}-{subject}") for subject in range(4_000)])
        deny(east, "new", "somebody")
        east.delete("clusterrolebindings", "elsewhere")
        start = time.monotonic()
        for what, holds in (("a deletion", lambda: says(gateway, "elsewhere") != "allowed"),
                            ("a new Deny", lambda: says(gateway, "somebody") == "denied"),
                            ("an earlier Deny", lambda: says(gateway, "mallory") == "denied")):
            if not within(60, holds):
                broken.append(f"{what} does not take effect within 60 s")
        took = time.monotonic() - start
        if not within(60, lambda: left_out(gateway, "rbac")):
            broken.append("nothing is said to be left out")
    return neighbour.result(broken, **{"deleted and denied after": f"{took:.1f} s", "left out": left_out(gateway, "rbac")})


def policy(server, name, validations, parameter=None):
    """A policy of pods that the gateway runs, and its binding, with the ConfigMap (namespace, name) as its parameter."""
    kind, reference = {}, {}
    if parameter:
        kind = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
        reference = {"paramRef": {"namespace": parameter[0], "name": parameter[1], "parameterNotFoundAction": "Allow"}}
    server.put("validatingadmissionpolicies", name, metadata=SELECTED, spec={
        **kind, "validations": [{"expression": text} for text in validations],
        "matchConstraints": {"resourceRules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}})
    server.put("validatingadmissionpolicybindings", name, metadata=SELECTED, spec={
        **reference, "policyName": name, "validationActions": ["Deny"]})


def admits(gateway, body, token=EAST_TOKEN):
    code, review = ask(gateway, "/validate?timeout=10s", body, token)
    if code != 200:
        return f"HTTP {code}"
    return "admitted" if review["response"]["allowed"] else "refused"


def parameters(gateway):
    """270 ConfigMaps of 1 MB and 270 of 45,000 keys of a user, where a policy has ConfigMaps as parameters"""
    east, broken = gateway.servers["east"], []
    east.put("configmaps", "limits", "default", data={"name": "bad"})
    policy(east, "by-parameter", ["object.metadata.name != params.data.name"], ("default", "limits"))
    policy(east, "by-large", ["params.data.x != object.metadata.name"], ("team", "large-269"))
    if not within(30, lambda: admits(gateway, pod(name="bad")) == "refused" and admits(gateway, pod()) == "admitted"):
        broken.append("the policy does not hold")
    text, keys = "x" * 1_000_000, {f"k{number}": "" for number in range(45_000)}
    with Neighbour(gateway) as neighbour:
        for number in range(270):
            east.put("configmaps", f"keys-{number}", "team", data=keys)
            east.put("configmaps", f"large-{number}", "team", data={"x": text})
        deny(east, "new", "somebody")
        start = time.monotonic()
        for what, holds in (
                ("a new Deny", lambda: says(gateway, "somebody") == "denied"),
                ("a parameter without room", lambda: admits(gateway, pod()) == "refused"),
                ("what is left out", lambda: left_out(gateway, "parameters"))):
            if not within(60, holds):
                broken.append(f"{what} does not take effect within 60 s")
        took = time.monotonic() - start
        east.put("configmaps", "limits", "default", data={"name": "worse"})
        east.delete("validatingadmissionpolicybindings", "by-large")
        if not within(60, lambda: admits(gateway, pod(name="worse")) == "refused" and admits(gateway, pod()) == "admitted"):
            broken.append("a parameter of another namespace stays as it was")
    return neighbour.result(broken, **{"denied after": f"{took:.1f} s", "left out": left_out(gateway, "parameters")})


def unknown_fields(gateway):
    """events of 12 MB of unknown fields, for each kind, one after the other"""
    east, broken = gateway.servers["east"], []
    nothing = b",".join([b"{}"] * 4_000_000)
    deep = b"[" * 5_000_000 + b"]" * 5_000_000
    with Neighbour(gateway) as neighbour:
        for what in (nothing, deep):
            for plural in ("namespaces", "clusterroles", "clusterrolebindings", "authorizationpolicies",
                           "customresourcedefinitions", "validatingadmissionpolicies", "validatingwebhookconfigurations"):
                east.put_text(plural, "hostile", b'{"metadata":{"name":"hostile","labels":{"run-by":"gateway"},'
                              b'"resourceVersion":"VERSION"},"unknown":[' + what + b"]}")
        deny(east, "new", "somebody")
        start = time.monotonic()
        if not within(60, lambda: says(gateway, "somebody") == "denied"):
            broken.append("a new Deny does not take effect within 60 s")
        took = time.monotonic() - start
    return neighbour.result(broken, **{"denied after": f"{took:.1f} s"})


def watched_types(gateway):
    """policies of one cluster whose expressions have types of 2^30 parts, take seconds, or allocate"""
    east, broken = gateway.servers["east"], []
    doubled = "[0]" + "".join(f".map(a{number},{{a{number}:a{number}}})" for number in range(30)) + ".size() == 0"
    texts = {"types": doubled, "steps": "||".join(["[]==[]"] * 11_000),
             "patterns": "object.metadata.name.matches('\\\\pL{900}\\\\pN{900}')"}
    with Neighbour(gateway) as neighbour:
        for turn in range(4):
            for name, text in texts.items():
                for number in range(6):
                    many = [text] if name == "types" else [text] * 8
                    policy(east, f"{name}-{number}", many)
                    deny(east, f"{name}-{number}", "joe", [{"name": f"c{at}", "expression": one.replace(
                        "object.metadata.name", "request.user")} for at, one in enumerate(many)])
            time.sleep(2)
        deny(east, "new", "somebody")
        start = time.monotonic()
        if not within(120, lambda: says(gateway, "somebody") == "denied"):
            broken.append("a new Deny does not take effect within 120 s")
        took = time.monotonic() - start
    return neighbour.result(broken, **{"denied after": f"{took:.1f} s", "faulty": figure(gateway, "invalid_objects")})


def watched_webhooks(gateway):
    """webhooks of a watched cluster at loopback, link-local and the gateway's own addresses, and with another's credentials"""
    east, broken, reached = gateway.servers["east"], [], []

    def near(name, url):
        return {"name": f"{name}.example.com", "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 2,
                "clientConfig": {"url": url, "caBundle": gateway.authority()}, "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
    port = listener.getsockname()[1]

    def listen():
        while True:
            stream, address = listener.accept()
            reached.append(address[0])
            stream.close()
    threading.Thread(target=listen, daemon=True).start()
    hosts = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]",
             "127.0.0.1.", "localhost.", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"]
    urls = [f"https://{host}:{port}/" for host in hosts]
    urls += [f"https://localhost:{gateway.port}/validate", f"https://127.0.0.1:{gateway.admin}/metrics",
             "https://169.254.169.254/latest/meta-data", "https://[fe80::1]/", "https://[::ffff:a9fe:a9fe]/"]
    for number, url in enumerate(urls):
        name = f"near-{number}"
        east.put("validatingwebhookconfigurations", name, metadata=SELECTED, webhooks=[near(name, url)])
    shown = Webhook()
    shown.serve(gateway)
    named = f"localhost:{shown.port}"
    (gateway.set_up / "upstreams.kubeconfig").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config",
        "users": [{"name": name, "user": {"token": "of-others"}} for name in ("*", named)]}))
    clusters = json.loads((gateway.set_up / "gateway.yaml").read_text())["clusters"]
    clusters[0]["upstreams"] = {"addresses": {named: f"127.0.0.1:{shown.port}"}}
    reconfigure(gateway, clusters=clusters, upstreams={"kubeconfig": "upstreams.kubeconfig"})
    east.put("validatingwebhookconfigurations", "shown", metadata=SELECTED, webhooks=[near("shown", f"https://{named}/")])
    if not within(20, lambda: judged_by(gateway, "shown") == "admitted"):
        broken.append("a webhook that the cluster's entry names is not called")
    broken += [f"it was shown {credential}" for credential in set(shown.credentials) if credential]
    shown.stop()
    asked = {url: at_once(1, lambda _, number=number: judged_by(gateway, f"near-{number}"))[0]
             for number, url in enumerate(urls)}
    broken += [f"{url}: {found}" for url, found in asked.items() if found == "admitted"]
    broken += [f"{len(reached)} connections to this host"] * bool(reached)
    return {"webhooks": len(urls), "verdicts": summary(list(asked.values())), "calls to one that is named": len(shown.calls),
            "broken": broken[:5]}


def judged_by(gateway, name):
    code, review = ask(gateway, f"/validate/{name}?timeout=5s", pod(), EAST_TOKEN)
    return f"HTTP {code}" if code != 200 else "admitted" if review["response"]["allowed"] else "refused"


absence_at_start.callers = False

ATTACKS = [absence, absence_at_start, endless, old_events, flooded_frames, large_bindings, parameters, unknown_fields,
           watched_types, watched_webhooks]
for act in ATTACKS:
    act.prepare = watching
