"""What the native part found on this machine."""

from __future__ import annotations

from fm2 import _native


def cpu_info() -> dict[str, object]:
    """Tell which instruction-set levels this machine has, which is in use, and on how many threads.

    The environment variables FM2_SIMD and FM2_THREADS force a level and a number of threads.

    >>> sorted(cpu_info())
    ['level', 'levels', 'threads']
    """
    return {"level": _native.cpu_level(), "levels": _native.cpu_levels(), "threads": _native.default_threads()}
