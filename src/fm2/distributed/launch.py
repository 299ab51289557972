"""Starting workers on this machine: torchrun's agent starts, watches and restarts them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from fm2.errors import Fm2Error, Terminated

FAILURE = "FM2_WORKER_FAILURE"  # the file in which a worker reports an error that a restart would not solve
RESTARTS = 3


def run_local_workers(count: int, words: Sequence[str], restarts: int = RESTARTS) -> None:
    """Run ``fm2`` with these arguments in several processes of this machine; restart all if one of them is killed."""
    with tempfile.TemporaryDirectory() as directory:
        failure = Path(directory, "failure")
        os.environ[FAILURE] = str(failure)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=restarts,
            monitor_interval=0.2,
        )
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("torch.distributed.elastic"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are reported below, in one line
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # each worker sets its own number of threads
        try:
            elastic_launch(config, sys.executable)("-m", "fm2", *words)
        except SignalException as stop:
            raise (Terminated if stop.sigval == signal.SIGTERM else KeyboardInterrupt) from stop
        except ChildFailedError as error:
            if not failure.exists():
                _, first = error.get_first_failure()
                reason = f"signal {-first.exitcode}" if first.exitcode < 0 else f"exit code {first.exitcode}"
                raise Fm2Error(
                    f"train: worker {_rank(error)} failed ({reason}) and {restarts} restarts did not help; "
                    "resume=True continues from the last checkpoint"
                ) from error
        finally:
            del os.environ[FAILURE]
        if failure.exists():
            raise SystemExit(int(failure.read_text()))


def _rank(error: ChildFailedError) -> int:
    rank, _ = error.get_first_failure()
    return int(rank)


def report_failure(code: int) -> None:
    """Prevent restarts after an error of the user's data or arguments, if this process was started by the launcher."""
    if is_launched():
        Path(os.environ[FAILURE]).write_text(str(code))


def is_launched() -> bool:
    """Return whether :func:`run_local_workers` started this process."""
    return FAILURE in os.environ


def use_own_cores(worker: int, workers: int, threads: int) -> None:
    """Bind this thread, and those that it starts, to a worker's share of the cores, if it has enough for ``threads``.

    Without this, the thread that fetches rows often runs on the core of another worker, for which all then wait.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    own = cores[len(cores) * worker // workers : len(cores) * (worker + 1) // workers]
    if len(cores) // workers >= threads:
        with contextlib.suppress(OSError):  # some sandboxes do not allow it
            os.sched_setaffinity(0, own)


def is_hopeless() -> bool:
    """Return whether a worker of this launch has reported an error that a restart would not solve."""
    return is_launched() and Path(os.environ[FAILURE]).exists()
