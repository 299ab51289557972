"""Requests that no client should send."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.torture.mutations import change_bytes, change_json

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
CHUNKS = {  # and whether they end
    b'5\r\n{"row\r\n0\r\n\r\n': True,
    b"zz\r\n{}\r\n0\r\n\r\n": True,
    b"2\r\n{}zz\r\n0\r\n\r\n": True,
    b"ffffffffffffffff\r\n{}\r\n0\r\n\r\n": False,
    b"2\r\n{}\r\n": False,
}
LAST_LENGTH = 2**64 - 1  # that an HTTP parser reads
INVALID_HEADS: tuple[tuple[bytes, bytes], ...] = (  # a part of a valid head, and what replaces it
    (b"POST ", b"PO ST "),
    (b"POST ", b"\xff "),
    (b"POST ", b""),
    (b" HTTP/1.1", b" HTTP/3.0"),
    (b" HTTP/1.1", b""),
    (b" HTTP/1.1", b" of /v1 HTTP/1.1"),
    (b" HTTP/1.1", b"?" + b"x" * 70_000 + b" HTTP/1.1"),
    (b"Host: ", b"Host "),
    (b"Host: ", b"Ho st: "),
    (b"Host: ", b"\x00: "),
    (b"Host: ", b"Host: \x01"),
    (b"Host: ", b"Content-Length: 1\r\nHost: "),
    (b"Host: ", b"Transfer-Encoding: gzip\r\nHost: "),
    (b"Host: ", b"X: 1\r\n" * 200 + b"Host: "),
)
PATHS = (
    "/v1/models/shpo/predict",
    "/v1/models/shop/versions/9/predict",
    "/v1/models/../../etc/passwd",
    "/v2/models/%00",
)


@dataclass(frozen=True)
class Sent:
    """A request.

    ``is_alone`` if its connection cannot be used again. ``is_complete`` is False if the server has to wait for more of
    it. ``is_http`` is False if the head, i.e. the first line and the headers, is not valid HTTP.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    mutation: str = "none"
    is_alone: bool = False
    is_complete: bool = True
    is_http: bool = True
    length: str | None = None  # of the body, if it is not the true one
    replaced: tuple[bytes, bytes] = (b"", b"")  # a part of the head, and what replaces it

    def to_bytes(self) -> bytes:
        """Return the request as it is sent."""
        headers = {"Host": "localhost", **self.headers}
        if "Transfer-Encoding" not in headers:
            headers["Content-Length"] = str(len(self.body)) if self.length is None else self.length
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode().replace(*self.replaced, 1) + self.body


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
    length = random.choice((*LENGTHS, *[wrong] * 12))
    is_http = length.isascii() and length.isdigit() and int(length) <= LAST_LENGTH
    is_complete = not is_http or int(length) <= len(sent.body)
    return replace(sent, length=length, is_http=is_http, is_complete=is_complete, is_alone=True)


def break_head(sent: Sent, random: random.Random) -> Sent:
    """Send a head that is not HTTP."""
    part, other = random.choice(INVALID_HEADS)
    method = part.decode() if part == b"POST " else f"{sent.method} "
    return replace(sent, method=method.strip(), replaced=(part, other), is_http=False, is_alone=True)


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
    body = random.choice(list(CHUNKS))
    headers = {**sent.headers, "Transfer-Encoding": "chunked"}
    return replace(sent, headers=headers, body=body, is_complete=CHUNKS[body], is_alone=True)


def lie_about_encoding(sent: Sent, random: random.Random) -> Sent:
    """Announce a compression that was not used."""
    return replace(sent, headers={**sent.headers, "Content-Encoding": random.choice(("gzip", "deflate", "br", "?"))})


def change_path(sent: Sent, random: random.Random) -> Sent:
    """Ask for what does not exist, or with another method."""
    method = random.choice(("POST", "GET", "PATCH", "BREW"))
    return replace(sent, method=method, path=random.choice(PATHS), is_alone=True)


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
    break_head: 0.5,
    change_path: 0.5,
}


def mutate(sent: Sent, generator: random.Random) -> Sent:
    """Return a request with a random mutation."""
    mutation = generator.choices(list(MUTATIONS), list(MUTATIONS.values()))[0]
    return replace(mutation(sent, generator), mutation=mutation.__name__)
