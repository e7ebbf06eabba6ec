"""Who has no credential, or one and no manners: connections, TLS, HTTP/1.1 and HTTP/2."""

import os
import socket
import ssl
import subprocess
import threading
import time

from gateway import DEFAULT_TOKEN
from wire import (CONTINUATION, END_HEADERS, END_STREAM, HEADERS, NO_ROOM, PING, REMEMBERED, RST_STREAM, SETTINGS,
                  WINDOW_UPDATE, Http2, access, answer, field, frame, post, remember, request)

WHOLE = END_HEADERS | END_STREAM


def at_once(times, act):
    """Runs `act(number)` in so many threads; what it returned, or the error that ended it."""
    results = [None] * times

    def run(number):
        try:
            results[number] = act(number)
        except (OSError, EOFError) as error:
            results[number] = error
    threads = [threading.Thread(target=run, args=(number,)) for number in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def for_seconds(seconds, act):
    """Does it again and again; how often it was done."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            act()
            count += 1
        except (OSError, EOFError):
            pass
    return count


def open_http2(gateway, settings=b""):
    return Http2(gateway, gateway.tls(http2=True), settings)


def indexed_fields(gateway):
    """15 connections x 6.6 MB of indexed header fields"""
    def attack(_):
        frames = open_http2(gateway)
        for number in range(400):
            block = post(b"/authorize", remember(), REMEMBERED * 12_000)
            frames.send(frame(HEADERS, WHOLE, 2 * number + 1, block))
        return frames.reason()
    return {"ends": summary(at_once(15, attack))}


def endless_heads(gateway):
    """200 header blocks that never end"""
    def attack(_):
        frames = open_http2(gateway)
        frames.send(frame(HEADERS, END_STREAM, 1, post(b"/authorize", field("a") * 3000)))
        for _ in range(4):
            frames.send(frame(CONTINUATION, 0, 1, field("b") * 3000))
        start = time.monotonic()
        reason = frames.reason()
        return "open" if reason == "open" else f"closed within {5 * (1 + int(time.monotonic() - start) // 5)} s"
    return {"ends": summary(at_once(200, attack))}


def streams_without_room(gateway):
    """100,000 streams behind window 0"""
    def attack(_):
        frames = open_http2(gateway, NO_ROOM)
        frames.send(b"".join(frame(HEADERS, WHOLE, 2 * number + 1, post()) for number in range(1000)))
        return frames.reason()
    return {"ends": summary(at_once(100, attack))}


def header_names(gateway):
    """33,000 header names"""
    def attack(_):
        frames = open_http2(gateway)
        block, kind = post() + b"".join(field(f"n{number}") for number in range(33_000)), HEADERS
        for start in range(0, len(block), 16_000):
            frames.send(frame(kind, 0, 1, block[start:start + 16_000]))
            kind = CONTINUATION
        frames.send(frame(CONTINUATION, END_HEADERS, 1))
        return frames.reason()
    return {"ends": summary(at_once(4, attack))}


def rapid_reset(gateway):
    """rapid reset, 10 connections for 10 s"""
    burst = lambda first: b"".join(
        frame(HEADERS, END_HEADERS, 2 * number + 1, post()) + frame(RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08")
        for number in range(first, first + 500))

    def attack(_):
        def once():
            frames = open_http2(gateway)
            for first in range(0, 1_000_000, 500):
                frames.send(burst(first))
        return for_seconds(10, once)
    at_once(10, attack)
    return {}


def provoked_reset(gateway):
    """streams that the server is made to reset, 10 connections for 10 s"""
    def attack(_):
        def once():
            frames = open_http2(gateway)
            for number in range(1_000_000):
                stream = 2 * number + 1
                frames.send(frame(HEADERS, END_HEADERS, stream, post())
                            + frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\0"))
        return for_seconds(10, once)
    at_once(10, attack)
    return {}


def continuations(gateway):
    """CONTINUATION flood, 10 connections for 10 s"""
    flood = b"".join([frame(CONTINUATION, 0, 1)] * 1000)

    def attack(_):
        def once():
            frames = open_http2(gateway)
            frames.send(frame(HEADERS, END_STREAM, 1, post()))
            while True:
                frames.send(flood)
        return for_seconds(10, once)
    at_once(10, attack)
    return {}


def settings_and_pings(gateway):
    """SETTINGS and PING flood, nothing read, 10 connections for 10 s"""
    flood = (frame(SETTINGS, 0, 0, NO_ROOM) + frame(PING, 0, 0, b"12345678")) * 500

    def attack(_):
        def once():
            frames = open_http2(gateway)
            frames.stream.settimeout(5)
            while True:
                frames.send(flood)
        return for_seconds(10, once)
    at_once(10, attack)
    return {}


def idle_connections(gateway):
    """476 idle connections, 512 descriptors"""
    streams = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(476)]
    time.sleep(3)
    probes = [gateway.probe("/readyz") for _ in range(5)]
    time.sleep(5)
    for stream in streams:
        stream.close()
    return {"probes": probes}


idle_connections.gateway = {"descriptors": 512}


def slow_heads(gateway):
    """200 heads of a byte every 3 s, 100 of them the second of their connection"""
    def attack(number):
        stream = gateway.connect()
        if number % 2:
            stream.sendall(request("/authorize", access(), DEFAULT_TOKEN))
            answer(stream)
        start = time.monotonic()
        try:
            for byte in b"POST /authorize HTTP/1.1":
                stream.sendall(bytes([byte]))
                stream.settimeout(3)
                try:
                    if not stream.recv(1):
                        break
                except TimeoutError:
                    pass
        except OSError:
            pass
        seconds = time.monotonic() - start
        return "closed within 15 s" if seconds < 15 else f"open after {seconds:.0f} s"
    return {"ends": summary(at_once(200, attack))}


def handshakes_that_never_end(gateway):
    """300 TLS handshakes that never end"""
    def attack(_):
        stream = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
        stream.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(20))
        start = time.monotonic()
        try:
            closed = stream.recv(1) == b""
        except OSError:
            closed = True
        return "closed within 10 s" if closed and time.monotonic() - start < 10 else "open"
    return {"ends": summary(at_once(300, attack))}


def handshakes(gateway):
    """handshakes as fast as they go, 20 threads for 10 s"""
    context = gateway.tls()
    done = at_once(20, lambda _: for_seconds(10, lambda: gateway.connect(context).close()))
    return {"handshakes": sum(count for count in done if isinstance(count, int))}


def renegotiation(gateway):
    """renegotiation of TLS 1.2"""
    refused = 0
    for _ in range(5):
        client = subprocess.Popen(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{gateway.port}", "-tls1_2", "-legacy_renegotiation"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(0.5)
        try:
            output, _ = client.communicate(b"R\nQ\n", timeout=15)
        except subprocess.TimeoutExpired:
            client.kill()
            output, _ = client.communicate()
        refused += b"no renegotiation" in output.lower()
    return {"refused": f"{refused} of 5", "broken": [] if refused == 5 else [output[-300:].decode(errors="replace")]}


def admin_held(gateway):
    """300 idle connections on the admin listener"""
    streams = [socket.create_connection(("127.0.0.1", gateway.admin)) for _ in range(300)]
    for stream in streams[::2]:
        try:
            stream.sendall(b"GET /livez HTTP/1.1\r\n")
        except OSError:
            pass
    took = []
    for _ in range(20):
        start = time.monotonic()
        assert gateway.probe("/livez") == 200 and gateway.probe("/readyz") == 200
        took.append(time.monotonic() - start)
    for stream in streams:
        stream.close()
    return {"two probes within": f"{max(took) * 1000:.0f} ms"}


def malformed(gateway):
    """malformed requests and credentials, 20 threads for 10 s"""
    def attack(number):
        def once():
            stream = gateway.connect()
            stream.sendall(b"\0\1\2\r\n\r\n" if number % 2 else request("/authorize", access(), "x" * 5000))
            answer(stream)
            stream.close()
        return for_seconds(10, once)
    count = sum(one for one in at_once(20, attack) if isinstance(one, int))
    lines = gateway.log_lines()
    return {"requests": count, "lines of log": lines,
            "broken": [f"{lines} lines"] if lines > 40 else []}


def summary(results):
    """How often each thing came of it."""
    counts = {}
    for result in results:
        if isinstance(result, (ssl.SSLError, OSError, EOFError)):
            result = "refused"
        counts[result] = counts.get(result, 0) + 1
    return ", ".join(f"{count} x {result}" for result, count in sorted(counts.items(), key=str))


ATTACKS = [indexed_fields, endless_heads, streams_without_room, header_names, rapid_reset, provoked_reset,
           continuations, settings_and_pings, idle_connections, slow_heads, handshakes_that_never_end, handshakes,
           renegotiation, admin_held, malformed]
