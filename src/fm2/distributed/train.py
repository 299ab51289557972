"""``fm2.distributed.train``: train a model as one of several workers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fm2 import _native
from fm2.artifacts.model_file import open_model
from fm2.artifacts.run_directory import LAUNCH, SETTINGS, check_run_output
from fm2.artifacts.settings import check_names
from fm2.data.dataset import Dataset
from fm2.distributed.checkpoints import agreed
from fm2.distributed.construction import check_distributed, make_distributed_backend
from fm2.distributed.launch import is_launched, use_own_cores
from fm2.distributed.loop import DistributedLoop
from fm2.distributed.workers import Workers, joined
from fm2.errors import Fm2Error
from fm2.remote.urls import as_path, is_remote
from fm2.training import inputs
from fm2.training.construction import count_torch_threads
from fm2.training.loop import TrainingProgress
from fm2.training.race import resumed_race
from fm2.training.resolve import resolve_settings
from fm2.training.scorer import torch_threads
from fm2.training.tracking import Tracker, Tracking
from fm2.training.train import training_directory
from fm2.training.without_effect import warn_without_effect


def train(
    model: str,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    verify: bool = True,
    callback: Callable[[TrainingProgress], None] = lambda progress: None,
    trackers: Sequence[Tracker] = (),
    time_limit: float = 300.0,
    launch: str | None = None,
    **settings: Any,
) -> dict[str, float]:
    """Train a model together with other workers, and return the validation scores of its best state.

    Every worker calls this function with the same arguments, in a process that torchrun or Ray Train started. The
    arguments are those of :func:`fm2.train`. All workers need to read the same ``data`` and to write to the same
    ``out``. A batch is divided among the workers, and the result is that of a single process, apart from rounding.

    A worker that was restarted resumes the training of the same ``launch``, by default that of torchrun. If a worker
    does not respond within ``time_limit`` seconds, the others raise an error that names it.
    """
    check_names(settings)
    if is_remote(out):
        raise Fm2Error(f"train: cannot write to {out}: workers write to one directory; use a path that they share")
    path = as_path(out)
    dataset = Dataset.of(data)
    with joined(time_limit) as workers:
        launches = _launches(workers, launch)
        resume, overwrite = workers.share((True, False) if _is_restarted(path, launches) else (resume, overwrite))
        with agreed(workers.agree):
            if workers.is_first:
                check_run_output("train", path, resume, overwrite)
                if resume:
                    _check_race(path, model)
                if verify:
                    dataset.verify_once()
        settings = {**settings, "threads": settings.get("threads") or _threads_per_worker()}
        if is_launched():  # torchrun and Ray have their own ways to assign cores
            use_own_cores(workers.index, workers.count, settings["threads"])
        resolved = resolve_settings(model, dataset, settings, resumed=path if resume else None)
        check_distributed(resolved)
        if workers.is_first:
            warn_without_effect("train", dataset, (settings, resolved))
        weights = None if row_weights is None else inputs.read_row_weights(row_weights, dataset)
        backend = make_distributed_backend(resolved, dataset, workers, weights)
        tracking = Tracking(trackers if workers.is_first else (), callback if workers.is_first else _ignore)
        source = backend, dataset, dataset.vocabularies, path
        loop = DistributedLoop(*source, tracking, weights, inputs.fingerprint(dataset, weights))
        with _directory(loop, path, resume, overwrite, workers, launches), backend:
            if resume:
                loop.resume()
            with tracking.following(resolved, path, resume):
                loop.run()
        return _read_scores(path, workers)


def _ignore(_: TrainingProgress) -> None:
    """Only the first worker reports progress."""


def _threads_per_worker() -> int:
    """Return this worker's share of the processors."""
    return max(_native.default_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)


def _check_race(path: Path, model: str) -> None:
    """Raise an error if one process has begun to compare candidates in ``path``."""
    race = resumed_race(path, model, 1, {})
    if race and race.winner is None:
        raise Fm2Error(
            f"train: one process compares {len(race.candidates)} candidates in {path}; resume it without workers, "
            "or use overwrite=True to replace it"
        )


@dataclass(frozen=True)
class _Launches:
    """Who started the workers, one name per machine or Ray job, and whether any of them was started again."""

    names: frozenset[str]
    again: bool


def _launches(workers: Workers, launch: str | None) -> _Launches:
    """Collect who started each worker. Ray does not say that it started one again."""
    again = launch is not None or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    every = workers.collect((launch or _torchrun(), again))
    return _Launches(frozenset(name for name, _ in every), any(again for _, again in every))


def _is_restarted(path: Path, launches: _Launches) -> bool:
    """Return whether these workers were started again after they had begun the run in ``path``.

    If a worker is killed, torchrun starts all workers on all machines again, but counts that on its own machine only,
    and the worker that is the first one may then be on another machine.
    """
    with contextlib.suppress(OSError, ValueError):
        *before, settings = (path / LAUNCH).read_text().splitlines()
        begun = hashlib.sha256((path / SETTINGS).read_bytes()).hexdigest() == settings
        return launches.again and begun and not launches.names.isdisjoint(before)
    return False


def _torchrun() -> str:
    """Return what identifies the process that starts and restarts the workers of this machine."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {socket.gethostname()} {os.getppid()}"


@contextlib.contextmanager
def _directory(
    loop: DistributedLoop, path: Path, resume: bool, overwrite: bool, workers: Workers, launches: _Launches
) -> Iterator[None]:
    """Prepare and lock the run directory on the first worker, and set the number of torch's threads on all."""
    with contextlib.ExitStack() as stack:
        with agreed(workers.agree):
            if workers.is_first:
                launch = "\n".join(sorted(launches.names))
                stack.enter_context(training_directory(path, loop.settings, resume, overwrite, launch=launch))
        stack.enter_context(torch_threads(count_torch_threads(loop.model, loop.settings)))
        yield


def _read_scores(path: Path, workers: Workers) -> dict[str, float]:
    """Return the scores in the model file to all workers."""
    scores = None
    with agreed(workers.agree):
        if workers.is_first:
            with open_model(path) as file:
                scores = file.metrics
    shared: dict[str, float] = workers.share(scores)
    return shared
