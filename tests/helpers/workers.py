"""Worker processes that tests start on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start_workers(count: int, command: list[str], **environment: str) -> list[subprocess.Popen[str]]:
    """Start a Python command in several processes with the environment that torchrun sets."""
    port = str(free_port())
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env={
                **os.environ,
                **common,
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                **environment,
            },
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]


def run_workers(count: int, command: list[str], seconds: float = 60, **environment: str) -> list[tuple[int, str]]:
    """Run workers to their end; return their exit codes and what they printed."""
    workers = start_workers(count, command, **environment)
    try:
        outputs = [worker.communicate(timeout=seconds)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return [(worker.returncode, output) for worker, output in zip(workers, outputs, strict=True)]
