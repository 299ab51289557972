"""What a worker does in the tests of runs: train, and be killed or hang at a step."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.helpers.limits import limit_memory

from fm2.distributed import backend as backend_module
from fm2.distributed.train import train
from fm2.distributed.workers import joined
from fm2.training import loop as loop_module


def disturb(at_step: int, worker: int, how: signal.Signals) -> None:
    """Send a signal to this process at a step, if it is this worker and has not been restarted."""
    step = backend_module.DistributedBackend.step
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"

    def disturbed(self: Any, *arguments: Any) -> float:
        if self.steps == at_step and self.workers.index == worker and not restarted:
            os.kill(os.getpid(), how)
        return step(self, *arguments)

    backend_module.DistributedBackend.step = disturbed  # type: ignore[method-assign]


def main(path: str) -> None:
    """Train the runs that a JSON file describes, one after the other."""
    plan = json.loads(Path(path).read_text())
    loop_module.CHECKPOINT_SECONDS = plan.get("checkpoint_seconds", loop_module.CHECKPOINT_SECONDS)
    if "disturb" in plan:
        at_step, worker, how = plan["disturb"]
        disturb(at_step, worker, signal.Signals[how])
    limit = plan.get("time_limit", 60)
    with joined(limit):
        if "memory" in plan:
            limit_memory(plan["memory"])
        for run in plan["runs"]:
            train(**run, time_limit=limit)


if __name__ == "__main__":
    main(sys.argv[1])
