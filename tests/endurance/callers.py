"""Callers that know every answer beforehand, and what each must say of the version in force."""

import base64
import json
import multiprocessing
import re
import time

from gateway import DEFAULT_TOKEN
from wire import access, answer, pod, request

NUMBER = re.compile(r"(?:readers|jane|no-secrets|says)[- ](\d+)")


def secret():
    review = access()
    review["spec"]["resourceAttributes"]["resource"] = "secrets"
    return review


def numbers(text):
    return set(map(int, NUMBER.findall(text)))


def allowed(review):
    status = review["status"]
    return status.get("allowed") is True and not status.get("denied"), numbers(status.get("reason", ""))


def denied(review):
    status = review["status"]
    return status.get("denied") is True and not status.get("allowed"), numbers(status.get("reason", ""))


def no_opinion(review):
    return not review["status"].get("allowed") and not review["status"].get("denied"), None


def admitted(review):
    return review["response"]["allowed"] is True, None


def refused(review):
    response = review["response"]
    return response["allowed"] is False, numbers(response["status"]["message"])


def never_admitted(review):
    """By a policy, or by a webhook that is right now no help."""
    return review["response"]["allowed"] is False, None


def stamped(review):
    response = review["response"]
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    labels = {}
    for operation in patch:
        if operation["path"] == "/metadata/labels":
            labels.update(operation["value"])
        elif operation["path"].startswith("/metadata/labels/"):
            labels[operation["path"].rsplit("/", 1)[1]] = operation["value"]
    return response["allowed"] is True and set(labels) == {"first", "second"}, set(map(int, labels.values()))


HOOKED = {"labels": {"hooked": "ignore"}}
GUARDED = {"labels": {"hooked": "fail"}}

# Path, body, what it must be answered; in turns.
QUESTIONS = [
    ("/authorize?timeout=3s", access(), allowed),
    ("/authorize?timeout=3s", access("joe"), no_opinion),
    ("/authorize?timeout=3s", secret(), denied),
    ("/validate?timeout=10s", pod(), admitted),
    ("/validate?timeout=10s", pod(name="bad"), refused),
    ("/mutate?timeout=10s", pod(), stamped),
]
# Asked where there are webhooks, which fail now and then.
WITH_WEBHOOKS = [
    ("/validate?timeout=10s", pod(metadata=HOOKED), admitted),
    ("/validate?timeout=10s", pod(name="evil", metadata=GUARDED), never_admitted),
]


class Asker:
    """One caller with one connection, which it replaces when it breaks or has been used often."""

    def __init__(self, gateway, questions, *, patient=False, fresh_after=500, token=lambda: DEFAULT_TOKEN):
        self.gateway, self.questions, self.patient, self.fresh_after = gateway, questions, patient, fresh_after
        self.token = token
        self.stream, self.turn, self.newest, self.broken = None, 0, 0, []
        self.context = gateway.tls()
        self.count, self.refused = 0, 0

    def ask(self):
        """One question. How long it took; None where no answer came and `patient` allows for that."""
        path, body, judge = self.questions[self.turn % len(self.questions)]
        self.turn += 1
        start = time.monotonic()
        try:
            if self.stream is None or self.turn % self.fresh_after == 0:
                self.close()
                self.stream = self.gateway.connect(self.context)
            self.stream.sendall(request(path, body, self.token()))
            status, reply = answer(self.stream)
        except (OSError, EOFError) as error:
            self.close()
            if not self.patient:
                self.broken.append(f"{path}: {error!r}")
            return None
        took = time.monotonic() - start
        self.judge(path, status, reply, judge)
        return took

    def judge(self, path, status, reply, judge):
        self.count += 1
        if status == 429:
            self.refused += 1
            return
        if status != 200:
            self.broken.append(f"{path}: {status} {reply[:200]!r}")
            return
        right, said = judge(json.loads(reply))
        if not right:
            self.broken.append(f"{path}: wrong: {reply[:400]!r}")
        if said is None:
            return
        if len(said) != 1:
            self.broken.append(f"{path}: of {len(said)} versions: {reply[:400]!r}")
            return
        number = said.pop()
        if number < self.newest:
            self.broken.append(f"{path}: version {number} after {self.newest}")
        self.newest = max(self.newest, number)

    def close(self):
        if self.stream is not None:
            self.stream.close()
            self.stream = None


def run(asker, begin, stop, out, pause):
    took = []
    begin.wait()
    while not stop.is_set():
        seconds = asker.ask()
        if seconds is not None:
            took.append((time.monotonic(), seconds))
        if pause or seconds is None:
            time.sleep(pause or 0.01)
    asker.close()
    out.put((took, asker.broken[:20], len(asker.broken), asker.count, asker.refused, asker.newest))


class Callers:
    """Processes that ask as long as this is entered. Made before a webhook has threads: a process that is
    forked while another thread holds a lock may wait for it for ever."""

    def __init__(self, askers, pause=0.0):
        context = multiprocessing.get_context("fork")
        self.begin, self.stop, self.out = context.Event(), context.Event(), context.Queue()
        self.processes = [context.Process(target=run, args=(asker, self.begin, self.stop, self.out, pause), daemon=True)
                          for asker in askers]
        for process in self.processes:
            process.start()

    def __enter__(self):
        self.begin.set()
        return self

    def __exit__(self, *_):
        self.stop.set()
        results = [self.out.get() for _ in self.processes]
        for process in self.processes:
            process.join()
        self.took = sorted(one for result in results for one in result[0])
        self.broken = [text for result in results for text in result[1]]
        self.wrong = sum(result[2] for result in results)
        self.count = sum(result[3] for result in results)
        self.refused = sum(result[4] for result in results)
        self.newest = max(result[5] for result in results)


def percentile(seconds, share):
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
