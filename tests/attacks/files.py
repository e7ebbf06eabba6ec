"""What may stand where manifests should: a reload reads nothing without end, and names it."""

import os
import time


def files(gateway):
    """a FIFO among the manifests, /dev/zero behind a link, a link to itself, 2 GiB of nothing"""
    folder = gateway.set_up / "policies"
    failures = lambda: gateway.metric('portcullis_reloads_total{result="failure"}') or 0
    broken = []
    hostile = {
        "fifo.yaml": lambda path: os.mkfifo(path),
        "zero.yaml": lambda path: os.symlink("/dev/zero", path),
        "loop.yaml": lambda path: os.symlink(path, path),
        "sparse.yaml": lambda path: path.touch() or os.truncate(path, 2 << 30),
    }
    for name, make in hostile.items():
        before = failures()
        make(folder / name)
        gateway.reload()
        deadline = time.monotonic() + 20
        while failures() <= before and time.monotonic() < deadline:
            time.sleep(0.1)
        if failures() <= before:
            broken.append(f"{name}: no reload has failed within 20 s")
        os.unlink(folder / name)
    (folder / "sound.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: sound}\n")
    successes = gateway.metric('portcullis_reloads_total{result="success"}') or 0
    gateway.reload()
    deadline = time.monotonic() + 20
    while (gateway.metric('portcullis_reloads_total{result="success"}') or 0) <= successes:
        if time.monotonic() > deadline:
            broken.append("a sound file is not taken up afterwards")
            break
        time.sleep(0.1)
    return {"broken": broken}


ATTACKS = [files]
