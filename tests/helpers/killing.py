"""Python processes that are killed in the middle of their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def run_and_kill(script: str, *arguments: object) -> None:
    """Run a script until it says that it is far enough, and kill it then."""
    words = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"far enough\n"
        finally:
            os.kill(child.pid, signal.SIGKILL)
