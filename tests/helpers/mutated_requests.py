"""Requests that no client should send, sent over sockets: each gets an answer, or an error with a message."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.torture.mutations import change_bytes, change_json

WAIT = 20.0  # seconds; a server that needs longer hangs
JSON = {"Content-Type": "application/json"}
DEPTHS = (3, 200, 30_000)
NUMBERS = (
    b"1e999",
    b"-1e999",
    b"1e-999",
    b"9" * 400,
    b"18446744073709551616",
    b"-9223372036854775809",
    b"0.1e",
    b"NaN",
)
INVALID_UTF8 = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\0", b"\\ud800", b"\\u12")
LENGTHS = ("-1", "0", "1", "17", "999999", "9" * 19, "9" * 400, "abc", "1.5", "0x10", "", "١")
CHUNKS = (b'5\r\n{"row\r\n0\r\n\r\n', b"zz\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffff\r\n{}\r\n0\r\n\r\n", b"2\r\n{}\r\n")
PATHS = (
    "/v1/models/shpo/predict",
    "/v1/models/shop/versions/9/predict",
    "/v1/models/../../etc/passwd",
    "/v2/models/%00",
)


@dataclass(frozen=True)
class Sent:
    """A request; ``is_framed`` is False if its length is wrong, so that its connection cannot be used again."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    mutation: str = "none"
    is_framed: bool = True
    length: str | None = None  # of the body, if it is not the true one

    def to_bytes(self) -> bytes:
        """Return the request as it is sent."""
        headers = {"Host": "localhost", **self.headers}
        if "Transfer-Encoding" not in headers:
            headers["Content-Length"] = str(len(self.body)) if self.length is None else self.length
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def truncate(sent: Sent, random: random.Random) -> Sent:
    """Cut the body off."""
    return replace(sent, body=sent.body[: random.randrange(len(sent.body) + 1)])


def change_some_bytes(sent: Sent, random: random.Random) -> Sent:
    """Change bytes anywhere in the body."""
    return replace(sent, body=change_bytes(sent.body, random))


def change_a_value(sent: Sent, random: random.Random) -> Sent:
    """Replace a value of the JSON, or remove or rename a key."""
    size = int(sent.headers.get("Inference-Header-Content-Length", len(sent.body)))
    head = json.dumps(change_json(json.loads(sent.body[:size] or b"{}"), random)).encode()
    headers = sent.headers
    if size != len(sent.body):
        headers = {**headers, "Inference-Header-Content-Length": str(len(head))}
    return replace(sent, body=head + sent.body[size:], headers=headers)


def _insert(sent: Sent, random: random.Random, piece: bytes) -> Sent:
    """Insert bytes after a character that starts a value."""
    places = [index + 1 for index, byte in enumerate(sent.body) if byte in b':[,"'] or [0]
    at = random.choice(places)
    return replace(sent, body=sent.body[:at] + piece + sent.body[at + random.choice((0, 1, 4)) :])


def nest(sent: Sent, random: random.Random) -> Sent:
    """Insert deeply nested lists or objects."""
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    depth = random.choices(DEPTHS, (5, 5, 1))[0]
    return _insert(sent, random, opening * depth + closing * random.choice((0, depth)))


def insert_a_number(sent: Sent, random: random.Random) -> Sent:
    """Insert a number that no machine type holds."""
    return _insert(sent, random, random.choice(NUMBERS))


def break_utf8(sent: Sent, random: random.Random) -> Sent:
    """Insert bytes that are not UTF-8, or half an escape."""
    return _insert(sent, random, random.choice(INVALID_UTF8))


def lie_about_length(sent: Sent, random: random.Random) -> Sent:
    """Send a wrong Content-Length."""
    wrong = str(max(len(sent.body) + random.choice((-20, -1, 1, 1000)), 0))
    return replace(sent, length=random.choice((*LENGTHS, *[wrong] * 12)), is_framed=False)


def lie_about_header_length(sent: Sent, random: random.Random) -> Sent:
    """Send a wrong Inference-Header-Content-Length."""
    length = random.choice((*LENGTHS[:-1], str(random.randrange(len(sent.body) + 10))))
    return replace(sent, headers={**sent.headers, "Inference-Header-Content-Length": length})


def change_tensor_bytes(sent: Sent, random: random.Random) -> Sent:
    """Write a huge length somewhere into the body."""
    at = random.randrange(max(len(sent.body) - 4, 1))
    size = struct.pack("<I", random.choice((2**32 - 1, 2**31, 2**16, 0, 5)))
    return replace(sent, body=sent.body[:at] + size + sent.body[at + 4 :])


def break_chunks(sent: Sent, random: random.Random) -> Sent:
    """Send damaged chunks."""
    return replace(
        sent, headers={**sent.headers, "Transfer-Encoding": "chunked"}, body=random.choice(CHUNKS), is_framed=False
    )


def lie_about_encoding(sent: Sent, random: random.Random) -> Sent:
    """Announce a compression that was not used."""
    return replace(sent, headers={**sent.headers, "Content-Encoding": random.choice(("gzip", "deflate", "br", "?"))})


def change_path(sent: Sent, random: random.Random) -> Sent:
    """Ask for what does not exist, or with another method."""
    method = random.choice(("POST", "GET", "PATCH", "BREW"))
    return replace(sent, method=method, path=random.choice(PATHS), is_framed=False)


MUTATIONS: dict[Callable[[Sent, random.Random], Sent], float] = {
    change_some_bytes: 6,
    change_a_value: 6,
    truncate: 3,
    insert_a_number: 3,
    break_utf8: 3,
    change_tensor_bytes: 2,
    nest: 1.5,
    lie_about_header_length: 1,
    lie_about_length: 1,
    lie_about_encoding: 0.5,
    break_chunks: 0.5,
    change_path: 0.5,
}


def mutate(sent: Sent, generator: random.Random) -> Sent:
    """Return a request with a random mutation."""
    mutation = generator.choices(list(MUTATIONS), list(MUTATIONS.values()))[0]
    return replace(mutation(sent, generator), mutation=mutation.__name__)


class Client:
    """A connection that is opened again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, sent: Sent) -> tuple[int, bytes, dict[str, str]] | None:
        """Return status, body and headers of the answer; None if the server closed the connection without one."""
        if not sent.is_framed:
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=WAIT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered already
                self._socket.sendall(sent.to_bytes())
                if not sent.is_framed:
                    self._socket.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(self._socket, method=sent.method)
            response.begin()
            answer = response.status, response.read(), {k.lower(): v for k, v in response.getheaders()}
        except (http.client.RemoteDisconnected, ConnectionResetError):
            self.close()
            return None
        if not sent.is_framed or response.will_close:
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def fault_of(sent: Sent, answer: tuple[int, bytes, dict[str, str]] | None) -> str | None:
    """Return what is wrong with the answer to a request.

    A request whose length is wrong may be refused by the HTTP parser, which sends no message, or find the connection
    closed if it has not arrived as a whole.
    """
    if answer is None:
        return "no answer" if sent.is_framed else None
    status, body, _ = answer
    if status == 200:
        return None if body else "an empty answer"
    if not 400 <= status < 500:
        return f"status {status}: {body[:200]!r}"
    if not sent.is_framed and not body:
        return None
    try:
        message: Any = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        message = None
    if not (isinstance(message, str) and message):
        return f"status {status} without a message: {body[:200]!r}"
    return None


def stall(port: int, sent: Sent, share: float) -> socket.socket:
    """Send a part of a request and keep the connection open."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
    data = sent.to_bytes()
    opened.sendall(data[: max(int(len(data) * share), 1)])
    return opened


def end_of_stalled(opened: socket.socket, seconds: float) -> str | None:
    """Wait for the answer to a request that never arrives as a whole; return what is wrong with it."""
    began = time.monotonic()
    opened.settimeout(seconds)
    try:
        received = opened.recv(65536)
    except TimeoutError:
        return f"the connection of a slow sender is open after {time.monotonic() - began:.0f} s"
    finally:
        opened.close()
    if received and b" 408 " not in received.splitlines()[0]:
        return f"a slow sender got {received[:200]!r}"
    return None
