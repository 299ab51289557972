"""Requests that get an error."""

from __future__ import annotations

Headers = list[tuple[str, str]]
JSON: Headers = [("content-type", "application/json")]
CLOSE = ("connection", "close")


class Refused(Exception):
    """A request that gets an error: its status, a message, and the reason under which it is counted."""

    def __init__(self, status: int, message: str, reason: str, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.headers = headers or []
