"""Honest callers, in a process of their own: what they are answered, and how soon, during an attack."""

import json
import multiprocessing
import statistics
import time

from gateway import DEFAULT_TOKEN
from wire import access, answer, pod, request


def watch(gateway, stop, out):
    """Asks both endpoints, over a kept connection and over a new one, until told to stop."""
    took, failed = {"kept": [], "new": []}, []
    questions = [
        ("/authorize?timeout=3s", access(), lambda review: review["status"].get("allowed") is True),
        ("/authorize?timeout=3s", access("joe"), lambda review: not review["status"].get("allowed")),
        ("/validate?timeout=10s", pod(), lambda review: review["response"]["allowed"] is True),
        ("/validate?timeout=10s", pod(name="bad"), lambda review: review["response"]["allowed"] is False),
    ]
    context, kept, turn = gateway.tls(), None, 0
    while not stop.is_set():
        path, body, holds = questions[turn % len(questions)]
        how = "new" if turn % 8 == 7 else "kept"
        turn += 1
        start = time.monotonic()
        try:
            if how == "new" or kept is None:
                stream = gateway.connect(context)
                if how == "kept":
                    kept = stream
            else:
                stream = kept
            stream.sendall(request(path, body, DEFAULT_TOKEN))
            status, reply = answer(stream)
            if status != 200 or not holds(json.loads(reply)):
                failed.append(f"{path} {status} {reply[:200]!r}")
            if how == "new":
                stream.close()
        except (OSError, EOFError) as error:
            failed.append(f"{path} over a {how} connection: {error!r}")
            if how == "kept":
                kept = None
        took[how].append(time.monotonic() - start)
        time.sleep(0.005)
    out.put((took, failed))


class Callers:
    """They ask as long as this is entered."""

    def __init__(self, gateway):
        context = multiprocessing.get_context("fork")
        self.stop, self.out = context.Event(), context.Queue()
        self.process = context.Process(target=watch, args=(gateway, self.stop, self.out))

    def __enter__(self):
        self.process.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.stop.set()
        took, self.failed = self.out.get()
        self.process.join()
        everything = sorted(took["kept"] + took["new"])
        self.count = len(everything)
        self.median = statistics.median(everything)
        self.slowest_of_hundred = everything[int(len(everything) * 0.99)]
        self.slowest = everything[-1]
