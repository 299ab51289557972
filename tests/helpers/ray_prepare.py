"""What a task of Ray does in the tests: read a part of a log, and be killed in the first attempt."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from fm2.data import part_tasks

read_part = part_tasks.read_part


def killed_once(reading: Any, shards: int, files: Any, directory: Path) -> Any:
    """Read the part of the second file; the first attempt ends without a result."""
    part = read_part(reading, shards, files, directory)
    killed = directory.parent.parent.parent / "killed"
    if directory.name == "1" and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def killed_always(reading: Any, shards: int, files: Any, directory: Path) -> Any:
    """Kill every process that reads the second file."""
    if directory.name == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return read_part(reading, shards, files, directory)
