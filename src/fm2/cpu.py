"""What the native part found on this machine."""

from __future__ import annotations

from fm2 import _native
from fm2.errors import Fm2Error

MOST_THREADS = 1024


def cpu_info() -> dict[str, object]:
    """Tell which instruction-set levels this machine has, which is in use, and on how many threads.

    The environment variables FM2_SIMD and FM2_THREADS force a level and a number of threads.

    >>> sorted(cpu_info())
    ['level', 'levels', 'threads']
    """
    try:
        return {"level": _native.cpu_level(), "levels": _native.cpu_levels(), "threads": _native.default_threads()}
    except RuntimeError as wrong:  # an environment variable that makes no sense
        raise Fm2Error(str(wrong)) from wrong


def check_threads(operation: str, threads: int) -> None:
    """Refuse a number of threads that cannot be meant, and environment variables that make no sense.

    >>> check_threads("prepare", 2)
    """
    cpu_info()
    if not 0 <= threads <= MOST_THREADS:
        raise Fm2Error(f"{operation}: threads is {threads}; it is a number from 1 to {MOST_THREADS}, or 0 for all")
