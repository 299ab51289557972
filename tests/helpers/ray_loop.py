"""What a worker of Ray does in the tests: train, with a checkpoint ten times a second."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fm2.distributed import train_loop_per_worker
from fm2.training import loop as loop_module


def with_checkpoints(config: dict[str, Any]) -> None:
    """Train as a worker of Ray Train."""
    loop_module.CHECKPOINT_SECONDS = 0.1
    train_loop_per_worker(config)


class KilledOnce:
    """A function like :func:`with_checkpoints`, which kills the first process that loads it, and creates a file."""

    def __init__(self, killed: Path) -> None:
        self.killed = killed

    def __call__(self, config: dict[str, Any]) -> None:
        with_checkpoints(config)

    def __reduce__(self) -> tuple[Callable[[Path], KilledOnce], tuple[Path]]:
        return _load, (self.killed,)


def _load(killed: Path) -> KilledOnce:
    try:
        killed.touch(exist_ok=False)
    except FileExistsError:
        return KilledOnce(killed)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
