"""Trainings side by side, a processor for each, and what came of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fm2
from fm2.evaluation import metrics
from fm2.training.train import train


@dataclass(frozen=True)
class Trial:
    """A model to train with some settings beside its defaults."""

    data: Path
    model: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What the best state of a training reached, after how many epochs, and how long all of it took."""

    trial: Trial
    validation: dict[str, float]
    test: dict[str, float]
    best_epoch: float
    seconds: float


def run_all(trials: Sequence[Trial]) -> Iterator[Outcome]:
    """Run trials, as many at a time as there are processors, each with one thread; give outcomes in their order."""
    workers = min(len(trials), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_run_alone, trials)


def _run_alone(trial: Trial) -> Outcome:
    return run(trial, threads=1)


def run(trial: Trial, threads: int = 0) -> Outcome:
    """Train, and measure the best state on test."""
    dataset = fm2.Dataset.open(trial.data)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = train(trial.model, dataset, f"{folder}/run", threads=threads, **trial.settings)
        lines = Path(folder, "run", "history.jsonl").read_text().splitlines()
    seconds = time.perf_counter() - begin
    test = metrics.evaluate(dataset.test.labels, result.probabilities(dataset.test.ids))
    best = [entry["epoch"] for entry in map(json.loads, lines) if entry["best"]]
    return Outcome(trial, result.metrics, test, best[-1], seconds)
