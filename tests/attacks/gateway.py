"""A gateway of its own for each attack or fault: its files, its process, what it says and holds."""

import base64
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

DEFAULT_TOKEN, EAST_TOKEN = "default-token", "east-token"

POLICIES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules: [{apiGroups: [''], resources: [pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: jane-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-bad-names}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  validations:
  - {expression: "object.metadata.name != 'bad'", message: bad}
  - {expression: "!has(object.metadata.annotations) || !has(object.spec.patterns) || object.spec.patterns.all(p, !object.metadata.annotations['text'].matches(p))"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-bad-names}
spec: {policyName: no-bad-names, validationActions: [Deny]}
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def kubeconfig(token):
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://localhost"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    })


def control_group(limit):
    """A control group with so many bytes of memory, below the own one; None where none can be made."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, file = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, file = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")
        for parent in (own, *(above for above in own.parents if root in (above, *above.parents))):
            group = parent / f"portcullis-{os.getpid()}-{time.monotonic_ns()}"
            try:
                group.mkdir()
            except OSError:
                continue
            # Only the kernel makes this file: elsewhere, no memory is limited.
            if (group / file).exists():
                (group / file).write_text(str(limit))
                return group
            group.rmdir()
    return None


class Gateway:
    """`portcullis serve`, until it is left."""

    def __init__(self, program, *, connections=None, descriptors=None, unread_log=False, more=None, environment=None,
                 memory_limit=None):
        """`more`: sections of the configuration in place of the usual ones. `memory_limit`: bytes that
        the process may have, where `control_group` can see to that."""
        self.group = control_group(memory_limit) if memory_limit else None
        self.environment = environment or {}
        self.folder = Path(tempfile.mkdtemp(prefix="portcullis-"))
        self.port, self.admin = free_port(), free_port()
        self.program = str(Path(program).resolve())
        subprocess.run([self.program, "init", "set-up", "--host", "localhost"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.set_up = self.folder / "set-up"
        (self.set_up / "policies" / "all.yaml").write_text(POLICIES)
        for name, token in (("default", DEFAULT_TOKEN), ("east", EAST_TOKEN)):
            (self.set_up / f"{name}.kubeconfig").write_text(kubeconfig(token))
        config = {
            "apiVersion": "config.portcullis.dev/v1alpha1", "kind": "GatewayConfiguration",
            "server": {"address": f"127.0.0.1:{self.port}", "tls": {
                "certificate": "pki/server.crt", "privateKey": "pki/server.key", "clientCA": "pki/ca.crt"},
                "connections": connections or {}},
            "admin": {"address": f"127.0.0.1:{self.admin}"},
            "callers": [
                {"kubeconfig": "default.kubeconfig"},
                {"kubeconfig": "east.kubeconfig", "cluster": "east"},
                {"clientCertificate": {"commonNames": ["kube-apiserver-authorization"]}, "endpoints": ["authorize"]},
                {"clientCertificate": {"commonNames": ["kube-apiserver-admission"]}, "endpoints": ["validate", "mutate"]},
            ],
            "manifests": ["policies"],
            "decisionLog": {"path": "decisions.log"},
            **(more or {}),
        }
        (self.set_up / "gateway.yaml").write_text(json.dumps(config))
        self.descriptors, self.unread_log, self.process = descriptors, unread_log, None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        """Returns as soon as it is ready."""
        def limit():
            if self.group:
                (self.group / "cgroup.procs").write_text("0")
            if self.descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))
        environment = {**os.environ, **self.environment}
        if self.unread_log:
            environment["PORTCULLIS_LOG"] = "trace"
        self.log = self.folder / "stderr.log"
        errors = subprocess.PIPE if self.unread_log else self.log.open("ab")
        self.process = subprocess.Popen(
            [self.program, "serve", "--config", "gateway.yaml"], cwd=self.set_up, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.probe("/readyz") == 200:
                    break
            except OSError:
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"the gateway does not serve; see {self.log}")
            time.sleep(0.05)

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.group:
            self.group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def probe(self, path, timeout=10):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=timeout) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def readiness(self):
        """What is said of it in detail."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz?verbose", timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def metric(self, series):
        values = [line.rsplit(" ", 1)[1] for line in self.metrics().splitlines() if line.startswith(series + " ")]
        return float(values[0]) if values else None

    def memory(self, field):
        """Of /proc/PID/status, in MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise KeyError(field)

    def descriptors_open(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def log_lines(self):
        return 0 if self.unread_log else self.log.read_bytes().count(b"\n")

    def is_alive(self):
        panicked = not self.unread_log and b"panicked" in self.log.read_bytes()
        return self.process.poll() is None and not panicked

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def reload_and_wait(self):
        """Returns once what the files say is in force."""
        succeeded = 'portcullis_reloads_total{result="success"}'
        before = self.metric(succeeded) or 0
        self.reload()
        deadline = time.monotonic() + 60
        while (self.metric(succeeded) or 0) <= before:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the files are not in force; see {self.log}")
            time.sleep(0.05)

    def file(self, name):
        return str(self.set_up / name)

    def tls(self, identity=None, http2=False, version=None):
        """What connects to it: as a stranger, or by the certificate of this caller."""
        context = ssl.create_default_context(cafile=self.file("ca/ca.crt"))
        if identity:
            context.load_cert_chain(self.file(f"pki/{identity}.crt"), self.file(f"pki/{identity}.key"))
        context.set_alpn_protocols(["h2"] if http2 else ["http/1.1"])
        if version:
            context.maximum_version = version
        return context

    def connect(self, context=None, timeout=30):
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return (context or self.tls()).wrap_socket(stream, server_hostname="localhost")

    def authority(self):
        return base64.b64encode(Path(self.file("ca/ca.crt")).read_bytes()).decode()
