"""What an authenticated API server of one cluster sends that asks for nothing, or can be read in two ways."""

import json
import threading
import time

from gateway import EAST_TOKEN
from strangers import at_once
from wire import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, NO_ROOM, PING, SETTINGS, WINDOW_UPDATE, Http2,
                  access, field, frame, post, request)

AUTHORIZATION = b"\x40\x0dauthorization" + bytes([7 + len(EAST_TOKEN)]) + b"Bearer " + EAST_TOKEN.encode()


def http2(gateway):
    """A connection that has asked something sound, whose replies are read and dropped."""
    context = gateway.tls()
    context.set_alpn_protocols(["h2"])
    connection = Http2(gateway, context)
    body = json.dumps(access()).encode()
    connection.send(frame(HEADERS, END_HEADERS, 1, post(b"/authorize", AUTHORIZATION)) + frame(DATA, END_STREAM, 1, body))
    read_on(connection.stream)
    return connection


def read_on(stream):
    def read():
        try:
            while stream.recv(65536):
                pass
        except OSError:
            pass
    threading.Thread(target=read, daemon=True).start()


# What is sent after the head of a stream that stays open, again and again.
FRAMES = {
    "pings": frame(PING, 0, 0, b"12345678") * 1000,
    "settings": frame(SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff") * 500,
    "windows": frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 1000,
    "empty data": frame(DATA, 0, 3) * 1000,
    "padded data": frame(DATA, 8, 3, b"\xff" + b"\0" * 255) * 100,
    "unknown frames": frame(0xfa, 0, 0, b"x" * 16000) * 10,
    "empty continuations": frame(CONTINUATION, 0, 3) * 1000,
}


def empty_frames(gateway):
    """an API server sends frames that ask for nothing, four connections of each sort for 3 s"""
    ended = {}
    for name, frames in FRAMES.items():
        flags = 0 if name == "empty continuations" else END_HEADERS

        def attack(_, flags=flags, frames=frames):
            connection = http2(gateway)
            connection.send(frame(HEADERS, flags, 3, post(b"/authorize")))
            end = time.monotonic() + 3
            while time.monotonic() < end:
                connection.send(frames)
            return "open"
        ended[name] = sum(result != "open" for result in at_once(4, attack))
    return {"ended of four": ", ".join(f"{count} by {name}" for name, count in ended.items()),
            "broken": [f"{name} go on for 3 s" for name, count in ended.items() if count < 4]}


def head(*lines):
    return "".join(f"{line}\r\n" for line in (
        "POST /authorize HTTP/1.1", "Host: localhost", f"Authorization: Bearer {EAST_TOKEN}",
        "Content-Type: application/json", *lines, "")).encode()


def answers(gateway, sent):
    """The status of each answer to what is sent at once."""
    stream = gateway.connect(timeout=5)
    found = b""
    try:
        stream.sendall(sent)
        stream.settimeout(1)
        while more := stream.recv(65536):
            found += more
    except OSError:
        pass
    stream.close()
    return [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]


def framing(gateway):
    """requests whose end can be read in two ways, each with a second one hidden behind it; bodies of one-byte chunks"""
    body = json.dumps(access()).encode()
    length = f"Content-Length: {len(body)}"
    chunked = "Transfer-Encoding: chunked"
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    hidden = request("/authorize", access("hidden"), EAST_TOKEN)
    refused = {
        "length and chunks": head(length, chunked) + chunk,
        "chunks and length": head(chunked, length) + chunk,
        "two lengths": head(length, "Content-Length: 5") + body,
        "one length twice": head(length, length) + body,
        "a list of lengths": head(f"{length}, {len(body)}") + body,
        "a signed length": head(f"Content-Length: +{len(body)}") + body,
        "a space before the colon": head(f"Content-Length : {len(body)}") + body,
        "identity": head("Transfer-Encoding: identity", length) + body,
        "gzip": head("Transfer-Encoding: gzip, chunked") + chunk,
        "chunked twice": head(chunked, chunked) + chunk,
        "an unknown coding": head("Transfer-Encoding: xchunked", length) + body,
        "chunks of HTTP/1.0": head(chunked).replace(b"HTTP/1.1", b"HTTP/1.0") + chunk,
        "a folded field": head(length, "X: a", " b") + body,
        "a second host": head(length, "Host: other") + body,
    }
    broken = []
    for name, sent in refused.items():
        found = answers(gateway, sent + hidden)
        if found not in ([400], []):
            broken.append(f"{name}: {found}")
    for name, start in {"a negative chunk": b"-1", "a chunk beyond all": b"f" * 18}.items():
        if found := answers(gateway, head(chunked) + start + b"\r\n" + body + b"\r\n0\r\n\r\n" + hidden):
            broken.append(f"{name}: {found}")
    if (found := answers(gateway, head(chunked) + chunk + hidden)) != [200, 200]:
        broken.append(f"sound requests in a row: {found}")
    tiny = head(chunked) + b"1\r\n \r\n" * 1_000_000 + chunk
    sizes = at_once(4, lambda _: answers(gateway, tiny))
    return {"tiny chunks": f"{sum(found == [200] for found in sizes)} of 4 answered", "broken": broken}


def unread_answers(gateway):
    """an API server reads none of 43,200 answers, on 48 connections without room"""
    body = json.dumps(access("mallory")).encode()
    head = post(b"/authorize?timeout=10s", AUTHORIZATION, field("content-type", b"application/json"))

    def attack(_):
        context = gateway.tls()
        context.set_alpn_protocols(["h2"])
        connection = Http2(gateway, context, NO_ROOM)
        read_on(connection.stream)
        for stream in range(1, 1801, 2):
            connection.send(frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, END_STREAM, stream, body))
            time.sleep(0.02)
        return "not read"
    at_once(48, attack)
    refused = int(gateway.metric('portcullis_http_requests_total{code="429",endpoint="authorize"}') or 0)
    return {"refused with 429": refused, "broken": [] if refused else ["none is refused"]}


ATTACKS = [empty_frames, framing, unread_answers]
