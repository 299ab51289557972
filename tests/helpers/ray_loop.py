"""What a worker of Ray does in the tests: train, and be killed in the first attempt."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from fm2.distributed import backend as backend_module
from fm2.distributed import train_loop_per_worker
from fm2.training import loop as loop_module


def killed_once(config: dict[str, Any]) -> None:
    """Train; the second worker kills itself at a step, unless a file says that it has done so."""
    killed = Path(config.pop("killed"))
    step = backend_module.DistributedBackend.step
    loop_module.CHECKPOINT_SECONDS = 0.0

    def disturbed(self: Any, *arguments: Any) -> float:
        if self.steps == 27 and self.workers.index == 1 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments)

    backend_module.DistributedBackend.step = disturbed  # type: ignore[method-assign]
    train_loop_per_worker(config)
