"""Sends requests that no client should send over sockets, and says what is wrong with the answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from typing import Any

from tests.helpers.mutated_requests import Sent

WAIT = 20.0  # seconds; a server that needs longer hangs
INVALID_HTTP = (400, 414, 431)  # the answers of the HTTP parser, which have no body
MESSAGE, EMPTY, CLOSED = "4xx with a message", "4xx without a message, not HTTP", "closed before the head was complete"


class Client:
    """A connection that is opened again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, sent: Sent) -> tuple[int, bytes, dict[str, str]] | None:
        """Return status, body and headers of the answer; None if the server closed the connection without one."""
        if sent.is_alone:
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=WAIT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered already
                self._socket.sendall(sent.to_bytes())
                if not sent.is_complete:
                    self._socket.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(self._socket, method=sent.method)
            response.begin()
            answer = response.status, response.read(), {k.lower(): v for k, v in response.getheaders()}
        except (http.client.RemoteDisconnected, ConnectionResetError):
            self.close()
            return None
        if sent.is_alone or response.will_close:
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def judge(sent: Sent, answer: tuple[int, bytes, dict[str, str]] | None) -> tuple[str, str | None]:
    """Return how a request was answered, and what is wrong with that.

    Only a request that is not HTTP may be refused without a message: fm2 does not see it.
    """
    if answer is None:
        return "no answer", "no answer"
    status, body, _ = answer
    if status == 200 and sent.is_http:
        return "200", None if body else "an empty answer"
    if not 400 <= status < 500:
        return str(status), f"status {status}: {body[:200]!r}"
    if not sent.is_http:
        return EMPTY, None if status in INVALID_HTTP and not body else f"status {status} instead of an empty 400"
    if not has_message(body):
        return EMPTY, f"status {status} without a message: {body[:200]!r}"
    return MESSAGE, None


def has_message(body: bytes) -> bool:
    """Return whether the body of an error has a message."""
    try:
        message: Any = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(message, str) and bool(message)


class Stalled:
    """A request of which only a part is sent, while the connection stays open."""

    def __init__(self, port: int, sent: Sent, share: float) -> None:
        data = sent.to_bytes()
        part = data[: max(int(len(data) * share), 1)]
        self._has_head = b"\r\n\r\n" in part
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        self._socket.sendall(part)

    def end(self, seconds: float) -> tuple[str, str | None]:
        """Wait for the answer; return how it was answered, and what is wrong with that."""
        began = time.monotonic()
        self._socket.settimeout(seconds)
        try:
            response = http.client.HTTPResponse(self._socket)
            response.begin()
            status, body = response.status, response.read()
        except http.client.RemoteDisconnected:
            return CLOSED, "a slow sender got no answer" if self._has_head else None
        except TimeoutError:
            return "open", f"the connection of a slow sender is open after {time.monotonic() - began:.0f} s"
        finally:
            self._socket.close()
        return MESSAGE, None if status == 408 and has_message(body) else f"a slow sender got {status} {body[:200]!r}"
