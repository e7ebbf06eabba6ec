"""Mixed load for minutes, while policies, tokens and certificates change and webhooks fail."""

import itertools
import json
import statistics
import subprocess
import threading
import time

import versions
from callers import QUESTIONS, WITH_WEBHOOKS, Asker, Callers, percentile
from gateway import DEFAULT_TOKEN, Gateway, kubeconfig
from webhook import Webhook
from wire import reset

CALLERS = 3
ROTATION = 20.0
# What a process may hold more in the last third of the time than in the first.
MEMORY_SLACK, DESCRIPTOR_SLACK, LATENCY_FACTOR = 12.0, 16, 3.0


class FailingWebhook(Webhook):
    """Refuses what is evil, but for the times in which it fails in one way or another."""

    MODES = ["sound", "reset", "sound", "unavailable", "sound", "late"]

    def __init__(self):
        super().__init__()
        self.mode = "sound"

    def is_answering(self, handler, user):
        if self.mode == "reset":
            handler.close_connection = True
            reset(handler.request)
        elif self.mode == "unavailable":
            handler.send_response(503)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        elif self.mode == "late":
            time.sleep(1.5)
        return self.mode in ("sound", "late")

    def manifests(self, gateway, timeout=1):
        found = json.loads(super().manifests(gateway, timeout))
        for item in found["items"]:
            item["webhooks"][0]["objectSelector"] = {"matchLabels": {"hooked": item["metadata"]["name"]}}
        return json.dumps(found)


def replace(path, text):
    """At once: nobody reads half of it."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.rename(path)


class Changes:
    """What happens to the gateway meanwhile: a version after another, as fast as they take effect."""

    def __init__(self, gateway, webhook, until):
        self.gateway, self.webhook, self.until = gateway, webhook, until
        self.reloads, self.rotations, self.broken = 0, 0, []
        self.thread = threading.Thread(target=self.run)

    def run(self):
        manifests = self.webhook.manifests(self.gateway)
        rotated = time.monotonic()
        for number, mode in zip(itertools.count(2), itertools.cycle(FailingWebhook.MODES)):
            if time.monotonic() > self.until:
                return
            self.webhook.mode = mode
            before = self.successes()
            versions.put(self.gateway.set_up / "versions", number, manifests)
            if not self.wait(before):
                self.broken.append(f"version {number} did not take effect within 20 s")
                return
            self.reloads += 1
            if time.monotonic() - rotated > ROTATION:
                rotated = time.monotonic()
                self.rotate(number)

    def rotate(self, number):
        """A new token for the caller, and a new certificate of the listener."""
        token = f"token-{number}"
        replace(self.gateway.set_up / "default.kubeconfig", kubeconfig(token))
        asker = Asker(self.gateway, QUESTIONS[:1], token=lambda: token, patient=True)
        deadline = time.monotonic() + 20
        while asker.ask() is None or asker.broken:
            asker.broken.clear()
            if time.monotonic() > deadline:
                self.broken.append("a new token did not take effect within 20 s")
                return
        asker.close()
        replace(self.gateway.folder / "token", token)
        subprocess.run([self.gateway.program, "init", "set-up", "--renew"], cwd=self.gateway.folder,
                       check=True, stdout=subprocess.DEVNULL)
        self.rotations += 1

    def successes(self):
        return self.gateway.metric('portcullis_reloads_total{result="success"}') or 0

    def wait(self, before):
        deadline = time.monotonic() + 20
        while self.successes() <= before:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def thirds(samples):
    """Medians of the first and of the last third."""
    length = max(1, len(samples) // 3)
    return statistics.median(samples[:length]), statistics.median(samples[-length:])


def latencies(took, share, pieces=9):
    """A percentile for each of so many equal times."""
    start, end = took[0][0], took[-1][0]
    width = (end - start) / pieces or 1.0
    groups = [[] for _ in range(pieces)]
    for at, seconds in took:
        groups[min(pieces - 1, int((at - start) / width))].append(seconds)
    return [percentile(group, share) for group in groups if group]


def soak(program, seconds):
    """Prints what came of it; whether everything held."""
    webhook = FailingWebhook()
    gateway = Gateway(program, more={"manifests": ["versions"], "reload": {"lastGood": "state/last-good"}})
    versions.put(gateway.set_up / "versions", 1, webhook.manifests(gateway))
    with gateway:
        return judge(gateway, webhook, seconds)


def judge(gateway, webhook, seconds):
    token = gateway.folder / "token"
    token.write_text(DEFAULT_TOKEN)
    questions = QUESTIONS + WITH_WEBHOOKS
    askers = [Asker(gateway, questions, token=token.read_text) for _ in range(CALLERS)]
    callers = Callers(askers, pause=0.001)
    webhook.serve(gateway)
    changes = Changes(gateway, webhook, time.monotonic() + seconds)
    memory, descriptors = [], []
    with callers:
        changes.thread.start()
        while changes.thread.is_alive():
            memory.append(gateway.memory("VmRSS"))
            descriptors.append(gateway.descriptors_open())
            time.sleep(min(1.0, seconds / 30))
        changes.thread.join()
    webhook.stop()
    return report(gateway, callers, changes, memory, descriptors)


def report(gateway, callers, changes, memory, descriptors):
    broken = changes.broken + callers.broken
    first, last = thirds(memory)
    if last > first + MEMORY_SLACK:
        broken.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
    fewer, more = thirds(descriptors)
    if more > fewer + DESCRIPTOR_SLACK:
        broken.append(f"descriptors grew from {fewer} to {more}")
    middle = latencies(callers.took, 0.5)
    sooner, later = thirds(middle)
    if later > sooner * LATENCY_FACTOR:
        broken.append(f"the median answer went from {sooner * 1000:.1f} to {later * 1000:.1f} ms")
    if not gateway.is_alive():
        broken.append("the gateway has ended or panicked")
    high = latencies(callers.took, 0.99)
    print(f"| answers, wrong ones | {callers.count:,}, {callers.wrong} |")
    print(f"| reloads, rotations of token and certificate | {changes.reloads:,}, {changes.rotations} |")
    print(f"| memory, first and last third | {first:.0f}, {last:.0f} MiB |")
    print(f"| descriptors, first and last third | {fewer:.0f}, {more:.0f} |")
    print(f"| p50, first and last third | {sooner * 1000:.1f}, {later * 1000:.1f} ms |")
    print(f"| p99, first and last third | {thirds(high)[0] * 1000:.1f}, {thirds(high)[1] * 1000:.1f} ms |")
    for text in broken:
        print(f"**broken**: {text}")
    return not broken
