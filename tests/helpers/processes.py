"""Python processes that tests start, and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter, with additional environment variables."""
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def run_and_kill(script: str, *arguments: object) -> None:
    """Run a script until it prints "ready to be killed", then kill it."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready to be killed\n"
        finally:
            os.kill(child.pid, signal.SIGKILL)
