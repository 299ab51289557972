"""Fitted models of the panel, and the training of fm2's."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fm2
from fm2.artifacts.run_directory import HISTORY, SETTINGS, read_history
from fm2.artifacts.settings import read_settings
from fm2.training.train import train
from processes import in_fresh_process


@dataclass(frozen=True)
class Fitted:
    """A fitted model: its probabilities for the validation and test rows, and the time of its training.

    ``at_last_epoch`` says that the best evaluation was in the last epoch that the settings allow.
    """

    name: str
    validation: NDArray[np.floating]
    test: NDArray[np.floating]
    seconds: float
    cpu_seconds: float
    threads: int
    note: str = ""
    at_last_epoch: bool = False


def fit_fm2(model: str, data: Path, seed: int, threads: int) -> Fitted:
    """Train a model of fm2 with its defaults in a fresh process."""
    fitted, _ = in_fresh_process(partial(_fit, model, data, seed, threads))
    return fitted


def _fit(model: str, data: Path, seed: int, threads: int) -> Fitted:
    dataset = fm2.Dataset.open(data)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = train(model, dataset, f"{folder}/run", seed=seed, threads=threads, progress=False)
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        epochs = read_settings(Path(folder, "run", SETTINGS))["epochs"]
        best = [entry["epoch"] for entry in read_history(Path(folder, "run", HISTORY)) if entry["best"]][-1]
    validation, test = (run.probabilities(split.encoded) for split in (dataset.validation, dataset.test))
    note = f"epoch {best:.1f} of {epochs}"
    return Fitted(model, validation, test, seconds, cpu_seconds, threads, note, at_last_epoch=best > epochs - 1)
