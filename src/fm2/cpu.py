"""Instruction sets and threads of this machine."""

from __future__ import annotations

from fm2 import _native
from fm2.errors import Fm2Error

MAX_THREADS = 1024


def cpu_info() -> dict[str, object]:
    """Return the instruction-set levels of this machine, the level in use, and the number of threads.

    The environment variables FM2_SIMD and FM2_THREADS force a level and a number of threads.

    >>> sorted(cpu_info())
    ['level', 'levels', 'threads']
    """
    try:
        return {"level": _native.cpu_level(), "levels": _native.cpu_levels(), "threads": _native.default_threads()}
    except RuntimeError as error:  # an invalid environment variable
        raise Fm2Error(str(error)) from error


def check_threads(operation: str, threads: int) -> None:
    """Raise an error if the number of threads, or one of the environment variables, is invalid."""
    cpu_info()
    if not 0 <= threads <= MAX_THREADS:
        raise Fm2Error(f"{operation}: threads must be between 1 and {MAX_THREADS}, or 0 for all, got {threads}")
