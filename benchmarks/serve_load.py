"""Load on an HTTP server from wrk and h2load, and what it costs the server's processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("serve_load.lua")
CONNECTIONS = 16
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """What a load has measured; ``cpu`` are the CPU seconds of all processes of the server per request.

    ``broken`` counts connections that were lost or timed out, ``refused`` answers other than 2xx and 3xx.
    """

    requests: int
    seconds: float
    broken: int
    refused: int
    p50: float
    p99: float
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def check_tools() -> None:
    """End with advice if wrk or h2load is missing."""
    packages = {"wrk": "wrk", "h2load": "nghttp2-client"}
    if missing := [package for tool, package in packages.items() if shutil.which(tool) is None]:
        raise SystemExit(f"wrk and h2load send the load: apt-get install {' '.join(missing)}")


def raw_request(path: str, body: bytes | None = None, **headers: str) -> bytes:
    """Return the bytes of a GET request, or of a POST request if it has a body."""
    method = "GET" if body is None else "POST"
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def write_requests(folder: Path, requests: Sequence[bytes]) -> Path:
    """Write requests as wrk's script reads them; return their directory."""
    folder.mkdir(parents=True)
    for index, request in enumerate(requests, start=1):
        (folder / str(index)).write_bytes(request)
    return folder


class Wrk:
    """A load in the background: as many requests as the server answers, from 16 connections."""

    def __init__(self, port: int, requests: Path, seconds: float, connections: int = CONNECTIONS) -> None:
        count = len(list(requests.iterdir()))
        options = [f"-t1 -c{connections} -d{max(round(seconds), 1)}s --timeout 5s -s".split(), str(SCRIPT)]
        target = [f"http://127.0.0.1:{port}", "--", str(requests), str(count)]
        command = ["wrk", *options[0], str(options[1]), *target]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> Load:
        """Wait for the end; return what was measured."""
        output, _ = self._process.communicate()
        return Load(**json.loads(output.strip().splitlines()[-1]))


def run_wrk(pid: int, port: int, requests: Path, seconds: float, connections: int = CONNECTIONS) -> Load:
    """Load a server; measure the CPU time of its processes as well."""
    began = cpu_seconds(pid)
    load = Wrk(port, requests, seconds, connections).wait()
    used = cpu_seconds(pid) - began
    return Load(**{**vars(load), "cpu": used / max(load.requests, 1)})


class H2load:
    """A load in the background with a constant rate: the time and status of each request are written to a file."""

    def __init__(self, url: str, body: Path, log: Path, seconds: float, clients: int, rate: float) -> None:
        self._log = log
        per_client = max(round(rate / clients), 1)
        options = f"--h1 -t1 -c{clients} -D{max(round(seconds), 1)} --rps={per_client} --log-file={log} -d {body}"
        command = ["h2load", *options.split(), "-H", "content-type: application/json", url]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def is_running(self) -> bool:
        """Whether requests are still sent."""
        return self._process.poll() is None

    def wait(self) -> list[tuple[int, float]]:
        """Wait for the end; return the status of each request (-1 if its connection was lost) and its seconds."""
        self._process.wait()
        lines = [line.split("\t") for line in self._log.read_text().splitlines()]
        return [(int(status), int(microseconds) / 1e6) for _, status, microseconds, *_ in lines]


def processes_of(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants."""
    total = 0
    for process in processes_of(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])  # utime, stime
    return total / TICKS


def memory_of(pid: int) -> float:
    """Return the memory of a process and its descendants in MB; what they share is counted once."""
    kilobytes = 0
    for process in processes_of(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1e3


def wait_until(condition: object, seconds: float, what: str) -> float:
    """Wait until a function returns a true value; return the seconds it took."""
    assert callable(condition)
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{what}: not within {seconds:g} seconds")
        time.sleep(0.01)
    return time.monotonic() - began
