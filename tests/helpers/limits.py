"""Processes with little memory."""

from __future__ import annotations

import resource
from pathlib import Path

MEGABYTE = 1 << 20


def limit_memory(megabytes: float) -> None:
    """Let this process allocate so much more memory than it has now; files that are mapped do not count."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
    limit = int(line.split()[1]) * 1024 + int(megabytes * MEGABYTE)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
