"""``fm2 train`` on several workers: ``--workers`` starts them, and torchrun or ``--workers`` runs each of them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.cli import shared
from fm2.cli.exit_codes import FAILED, INTERRUPTED, TERMINATED
from fm2.errors import Fm2Error, Terminated

if TYPE_CHECKING:
    from fm2.artifacts.settings import Settings

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


def is_worker() -> bool:
    """Return whether torchrun, or ``--workers``, started this process."""
    return all(name in os.environ for name in TORCHRUN)


def check_options(options: argparse.Namespace) -> None:
    """Raise an error if several workers cannot do what the options ask for."""
    if options.workers is not None and not 1 <= options.workers <= 1024:
        raise Fm2Error(f"train: --workers must be between 1 and 1024, got {options.workers}")
    if options.start:
        raise Fm2Error("train: several workers cannot start from a trained model (--from)")
    if options.effort != 1 or options.model == "auto":
        raise Fm2Error("train: several workers train one model with one set of settings, without --effort or auto")


def launch(options: argparse.Namespace, settings: Settings | None) -> None:
    """Train with workers on this machine; ``settings`` are known unless a run is resumed."""
    from fm2.distributed.construction import check_distributed
    from fm2.distributed.launch import run_local_workers

    if settings is not None:
        check_distributed(settings)
    run_local_workers(options.workers, options.words)


def train_worker(options: argparse.Namespace, changes: dict[str, Any]) -> dict[str, float] | None:
    """Train as one of several workers; return the scores on the first one, which reports them."""
    from fm2.distributed.launch import is_hopeless, is_launched, report_failure
    from fm2.distributed.train import train
    from fm2.distributed.workers import AgreedError, WorkerError
    from fm2.training.progress import TrainingDisplay
    from fm2.training.trackers import tracker

    if is_hopeless():
        return None
    first = os.environ["RANK"] == "0"
    limit = {} if options.time_limit is None else {"time_limit": options.time_limit}
    try:
        with TrainingDisplay(None if first else False) as watch:
            scores = train(
                options.model,
                options.data,
                Path(options.out),
                callback=watch,
                trackers=[tracker(text) for text in options.track] if first else [],
                verify=not options.no_verify,
                **limit,
                **shared.pick(options, "resume", "overwrite", "row_weights"),
                **changes,
            )
    except KeyboardInterrupt as stop:
        if first and not is_launched():
            raise
        sys.exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED)  # the first process says so
    except WorkerError:
        raise
    except AgreedError:
        sys.exit(FAILED)  # another worker reports the error
    except Fm2Error:
        report_failure(FAILED)
        raise
    if not first:
        return None
    shared.warn(watch.summary())
    return scores
