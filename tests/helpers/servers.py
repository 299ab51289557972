"""Servers that tests start as users do, with ``fm2 serve``, and requests to them."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT = 30.0  # seconds; nothing here takes so long unless it hangs


class Server:
    """A running server; a context manager."""

    def __init__(self, directory: Path, *arguments: object, tls: bool = False) -> None:
        self.log_path = directory / f"server-{time.monotonic_ns()}.log"
        self._tls = tls
        command = [sys.executable, "-m", "fm2", "serve", *map(str, arguments), "--port", "0", "--log-format", "json"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        wait_for(lambda: self.process.poll() is not None or self.events("listening"))
        assert self.process.poll() is None, self.log_path.read_text()
        self.port = int(self.events("listening")[0]["url"].rpartition(":")[2])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        lines = self.log_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def events(self, text: str) -> list[dict[str, Any]]:
        """Return the lines of the log whose event contains a text."""
        return [line for line in self.log() if text in line["event"]]

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection."""
        if self._tls:
            context = ssl._create_unverified_context()
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=WAIT, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request on a new connection; return status, JSON or text, and headers."""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            text = response.read()
            is_json = "json" in response.headers.get("content-type", "")
            content = json.loads(text) if is_json and text else text.decode()
            return response.status, content, {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        """Return the answer to a GET request, which must succeed."""
        status, content, _ = self.send("GET", path, None, headers)
        assert status == 200, content
        return content

    def post(self, path: str, body: Any = None, method: str = "POST", **headers: str) -> Any:
        """Return the answer to a POST request, which must succeed."""
        status, content, _ = self.send(method, path, body, headers)
        assert status == 200, content
        return content

    def error(self, status: int, method: str, path: str, body: Any = None, **headers: str) -> str:
        """Return the message of an error, which must have this status."""
        actual, content, _ = self.send(method, path, body, headers)
        assert actual == status, content
        assert isinstance(content, dict), content
        message: str = content["error"]
        return message

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels."""
        found = 0.0
        for line in self.get("/metrics").splitlines():
            sample, _, value = line.rpartition(" ")
            wanted = [f'{key}="{label}"' for key, label in labels.items()]
            if sample.partition("{")[0] == name and all(label in sample for label in wanted):
                found += float(value)
        return found

    def children(self) -> list[int]:
        """Return the process ids of the keeper, which is the first one, and the workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def stop(self) -> int:
        """Stop the server with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT)


def wait_for(condition: Callable[[], Any], seconds: float = WAIT) -> Any:
    """Wait until a condition holds, and return it."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return result
