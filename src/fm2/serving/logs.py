"""Log lines on standard error: text, or JSON with one object per line."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import traceback
from typing import Any

from fm2.errors import printable
from fm2.serving.table import Target


class Log:
    """Writes events. One write per line, so that the lines of several processes are not mixed."""

    def __init__(self, format: str) -> None:
        self._json = format == "json"

    def __call__(self, level: str, event: str, **details: Any) -> None:
        """Write an event with its details."""
        now = time.time()
        if self._json:
            record = {"time": round(now, 6), "level": level, "event": event, "pid": os.getpid(), **details}
            line = json.dumps(record, default=str)
        else:
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            parts = " ".join(f"{name}={printable(str(value))}" for name, value in details.items())
            line = f"{clock} {level} {printable(event)} {parts}".rstrip()
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except OSError:
            pass  # the reader of the log is gone; answering requests matters more


class RequestLog:
    """Logs a sample of the requests, and all errors of the server."""

    def __init__(self, log: Log, sample: float) -> None:
        self._log = log
        self._every = round(1 / sample) if sample > 0 else 0
        self._left = self._every

    def is_next(self) -> bool:
        """Return whether to log this request: one of so many."""
        if not self._every:
            return False
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._every
        return True

    def write(
        self,
        scope: Any,
        status: int,
        total_ns: int,
        target: Target | None = None,
        reply: Any = None,
        error: Exception | None = None,
    ) -> str:
        """Log a request and return its id."""
        id: str = scope.headers.get("x-request-id") or secrets.token_hex(8)
        details: dict[str, Any] = {"id": id, "method": scope.method, "path": scope.path, "status": status}
        details["milliseconds"] = round(total_ns * 1e-6, 3)
        if target is not None:
            details |= {"model": target.served.name, "version": target.served.version}
        if reply is not None:
            details |= {"rows": reply.rows, "reason": reply.reason} if reply.reason else {"rows": reply.rows}
        if error is not None:
            details["reason"] = str(error) or type(error).__name__
        if status == 500 and error is not None:
            details["traceback"] = "".join(traceback.format_exception(error)[-3:]).strip()
            self._log("error", "request failed", **details)
        elif error is None or self._every:
            self._log("info", "request", **details)
        return id
