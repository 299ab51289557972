"""Trainings in parallel, one per processor."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import fm2
from fm2.evaluation import metrics
from fm2.training.train import train

Result = TypeVar("Result")


@dataclass(frozen=True)
class Trial:
    """A model to train, and the settings that differ from its defaults."""

    data: Path
    model: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The metrics of a training's best evaluation, its epoch, and the time of the whole training."""

    trial: Trial
    validation: dict[str, float]
    test: dict[str, float]
    best_epoch: float
    seconds: float


def run_all(trials: Sequence[Trial]) -> Iterator[Outcome]:
    """Run trials in parallel, one single-threaded process per processor; return the outcomes in order."""
    yield from in_processes(partial(run, threads=1), trials)


def in_processes(job: Callable[[Trial], Result], trials: Sequence[Trial]) -> Iterator[Result]:
    """Run a job with each trial, one process per processor; return the results in order."""
    workers = min(len(trials), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(job, trials)


def run(trial: Trial, threads: int = 0) -> Outcome:
    """Train, and evaluate the best model on test rows."""
    dataset = fm2.Dataset.open(trial.data)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = train(trial.model, dataset, f"{folder}/run", threads=threads, progress=False, **trial.settings)
        lines = Path(folder, "run", "history.jsonl").read_text().splitlines()
    seconds = time.perf_counter() - start
    test = metrics.evaluate(dataset.test.labels, result.probabilities(dataset.test.ids))
    best = [entry["epoch"] for entry in map(json.loads, lines) if entry["best"]]
    return Outcome(trial, result.metrics, test, best[-1], seconds)
