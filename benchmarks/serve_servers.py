"""The servers that benchmarks/serve.py compares: fm2, granian's hello world, and MLServer."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serve_load import processes_of, wait_until

FOLDER = Path(__file__).parent
MLSERVER = FOLDER.parent / ".peers/mlserver/bin/mlserver"
START_SECONDS = 120.0


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.pid = process.pid
        self.port = port

    def answers(self, path: str) -> bool:
        """Whether a GET request gets the status 200."""
        try:
            return self.call("GET", path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send one request on a new connection; return status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            sent = json.dumps(body).encode() if body is not None else None
            connection.request(method, path, sent, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()

    def workers(self) -> list[int]:
        """Return the processes of fm2 serve that answer requests; its first child watches the files."""
        return processes_of(self.pid)[2:]


@contextlib.contextmanager
def running(command: list[str], port: int, path: str, **environment: str) -> Iterator[Server]:
    """Start a server, wait until it answers, and stop it at the end."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            server = Server(process, port)
            wait_until(lambda: server.answers(path) or process.poll() is not None, START_SECONDS, command[1])
            if process.poll() is not None:
                log.seek(0)
                raise SystemExit(f"{' '.join(command)} ended:\n{log.read().decode()}")
            yield server
        finally:
            process.terminate()
            process.wait()


def serve_fm2(models: Path, *options: str, workers: int = 1) -> contextlib.AbstractContextManager[Server]:
    """Start ``fm2 serve``."""
    port = free_port()
    command = [sys.executable, "-m", "fm2", "serve", str(models), "--port", str(port), "--workers", str(workers)]
    return running([*command, *options], port, "/v2/health/ready")


def serve_hello() -> contextlib.AbstractContextManager[Server]:
    """Start granian's hello world."""
    port = free_port()
    return running([sys.executable, str(FOLDER / "serve_hello.py"), str(port)], port, "/")


def serve_mlserver(model: Path, folder: Path, workers: int) -> contextlib.AbstractContextManager[Server]:
    """Start MLServer with the model in a runtime; without workers, it runs in the server's own process."""
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / "mlserver_runtime.py", folder)
    ports = {name: free_port() for name in ("http_port", "grpc_port", "metrics_port")}
    (folder / "metrics").mkdir()
    settings = {**ports, "host": "127.0.0.1", "parallel_workers": workers, "debug": False}
    (folder / "settings.json").write_text(json.dumps({**settings, "metrics_dir": str(folder / "metrics")}))
    implementation = "mlserver_runtime.CompiledModel"
    (folder / "model-settings.json").write_text(json.dumps({"name": "model", "implementation": implementation}))
    environment = {"FM2_MODEL": str(model), "FM2_SITE": sysconfig.get_path("purelib")}
    command = [str(MLSERVER), "start", str(folder)]
    return running(command, ports["http_port"], "/v2/models/model/ready", **environment)


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
