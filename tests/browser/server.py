"""A server of the tests: ``fm2 serve`` in a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 60


class Server:
    """Serves models until the end of a with statement."""

    def __init__(self, models: Path, *options: str) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._process = subprocess.Popen(serve_command(models, self.port, options))

    def __enter__(self) -> Server:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self.url, timeout=5):
                    return self
            except OSError:
                time.sleep(0.2)
        self._process.kill()
        raise RuntimeError(f"the server did not start within {SECONDS} seconds")

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)

    def post(self, path: str, body: Any) -> Any:
        """Send a request of the API and return its answer."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


def serve_command(models: Path, port: int, options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "fm2", "serve", str(models), "--port", str(port), *options]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
