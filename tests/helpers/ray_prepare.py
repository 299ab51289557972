"""What a task of Ray does in the tests: read a part of a log, and warn or be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from fm2.data import part_tasks
from fm2.errors import warn

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


def warned(reading: Any, shards: int, files: Any, directory: Path) -> Any:
    """Read a part and warn; all parts issue the same warning."""
    warn("prepare: the storage is slow")
    return read_part(reading, shards, files, directory)
