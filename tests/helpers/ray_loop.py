"""What a worker of Ray does in the tests: train, with a checkpoint ten times a second."""

from __future__ import annotations

from typing import Any

from fm2.distributed import train_loop_per_worker
from fm2.training import loop as loop_module


def with_checkpoints(config: dict[str, Any]) -> None:
    """Train as a worker of Ray Train."""
    loop_module.CHECKPOINT_SECONDS = 0.1
    train_loop_per_worker(config)
