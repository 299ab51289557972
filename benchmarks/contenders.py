"""What the training benchmarks time: fm2 epochs, plain torch batches, bare matrix products and xLearn fits."""

from __future__ import annotations

import itertools
import tempfile
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from datasets import open_first_rows
from fm2.models.registry import get_spec
from fm2.training.loop import TrainingLoop, TrainingProgress
from fm2.training.train import train
from processes import NOTHING, Memory, in_fresh_process
from xlearn_peer import fit_xlearn

BATCH_ROWS = 4096
LEARNING_RATE = 0.05


@dataclass(frozen=True)
class Timed:
    """A measurement: rows, seconds, peak memory, and the number of parameters of an fm2 model."""

    rows: int
    seconds: float
    memory: Memory = NOTHING
    parameters: int = 0

    @property
    def speed(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    def best(self, other: Timed) -> Timed:
        """Combine two measurements: the shorter time, and the larger peaks."""
        return replace(self, seconds=min(self.seconds, other.seconds), memory=self.memory | other.memory)

    def minus(self, other: Timed) -> Timed:
        """Subtract a shorter measurement, and with it the work that both did, such as reading."""
        rows, seconds = self.rows - other.rows, self.seconds - other.seconds
        return replace(self, rows=rows, seconds=seconds, memory=self.memory | other.memory)


class Contender(ABC):
    """Something to time in a fresh process."""

    def measure(self) -> Timed:
        """Time it in a fresh process, and measure the memory of the process."""
        timed, memory = in_fresh_process(self.time)
        return replace(timed, memory=memory)

    @abstractmethod
    def time(self) -> Timed:
        """Time it in this process."""


@dataclass(frozen=True)
class Fm2(Contender):
    """Epochs of fm2's trainer with Adagrad for the tables, and without L2, dropout or weight averaging.

    The first epoch does not count, because it also maps the files and first touches the memory of the tables.
    """

    data: Path
    rows: int
    threads: int
    model: str
    dim: int = 0
    batch_rows: int = BATCH_ROWS
    epochs: int = 3

    def time(self) -> Timed:
        """Train, and return the fastest epoch after the first, without evaluations."""
        dataset = open_first_rows(self.data, self.rows)
        starts: list[float] = []
        seconds: list[float] = []
        run_epoch = TrainingLoop._run_epoch

        def run_timed_epoch(loop: TrainingLoop) -> None:
            starts.append(time.perf_counter())
            run_epoch(loop)

        def watch(report: TrainingProgress) -> None:
            if report.rows == self.rows * len(starts):
                seconds.append(time.perf_counter() - starts[-1])

        # Reports arrive after steps, but an epoch starts earlier, when its rows are shuffled.
        with (
            tempfile.TemporaryDirectory(dir=self.data.parent) as out,
            mock.patch.object(TrainingLoop, "_run_epoch", run_timed_epoch),
        ):
            run = train(self.model, dataset, out, callback=watch, **self.settings())
        return Timed(self.rows, min(seconds[1:]), parameters=run.model.n_parameters)

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "optimizer": "adagrad",
            "learning_rate": LEARNING_RATE,
            "batch_size": self.batch_rows,
            "epochs": self.epochs,
            "evaluations_per_epoch": 1,
            "patience": self.epochs,
            "threads": self.threads,
        }
        settings |= dict.fromkeys(("l2", "l2_power", "ema_decay"), 0.0)
        if get_spec(self.model).has_field_matrices:
            settings["field_dropout"] = 0.0
        if self.dim:
            settings["dim"] = self.dim
        if self.model == "fm":
            settings["linear"] = "features"  # like xLearn
        elif get_spec(self.model).has_field_matrices:
            settings["linear"] = "fields"  # like the paper; plain torch has no linear part
        return settings


@dataclass(frozen=True)
class PlainTorch(Contender):
    """Shuffled batches of 1/2 vᵀ S v, without a linear part, with autograd and torch's Adagrad."""

    data: Path
    rows: int
    threads: int
    dim: int
    batches: int

    def time(self) -> Timed:
        """Time the batches after the first few. Global ids are in memory; shuffling does not count."""
        torch.set_num_threads(self.threads)
        # This is the default; setting it explicitly avoids a warning.
        torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]
        dataset = open_first_rows(self.data, self.rows)
        starts = np.cumsum([0, *dataset.field_sizes[:-1]])
        ids = torch.from_numpy(dataset.train.ids + starts)
        labels = torch.from_numpy(dataset.train.labels.astype(np.float32))
        table = nn.Embedding(sum(dataset.field_sizes), self.dim, sparse=True)
        nn.init.normal_(table.weight, 0, 0.01)
        width = ids.shape[1] * self.dim
        matrix = nn.Parameter(torch.randn(width, width) / 100)
        optimizer = torch.optim.Adagrad([table.weight, matrix], lr=LEARNING_RATE)

        def step(rows: Tensor) -> None:
            v = table(ids[rows]).view(len(rows), -1)
            logits = ((v @ matrix) * v).sum(1) / 2
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(logits, labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        order = torch.randperm(self.rows)
        batches = (order[begin : begin + BATCH_ROWS] for begin in range(0, self.rows, BATCH_ROWS))
        for rows in itertools.islice(batches, 1 + self.batches // 8):
            step(rows)
        begin = time.perf_counter()
        for rows in itertools.islice(batches, self.batches):
            step(rows)
        return Timed(self.batches * BATCH_ROWS, time.perf_counter() - begin)


@dataclass(frozen=True)
class BareProducts(Contender):
    """The two matrix products of an FmFM, V S and Vᵀ diag(g) V: an upper bound for its speed."""

    threads: int
    width: int
    batches: int

    def time(self) -> Timed:
        torch.set_num_threads(self.threads)
        v, weighted, u = (torch.randn(BATCH_ROWS, self.width) for _ in range(3))
        matrix, gradient = (torch.randn(self.width, self.width) for _ in range(2))

        def multiply(batches: int) -> None:
            for _ in range(batches):
                torch.mm(v, matrix, out=u)
                torch.mm(weighted.T, v, out=gradient)

        multiply(1 + self.batches // 8)
        begin = time.perf_counter()
        multiply(self.batches)
        return Timed(self.batches * BATCH_ROWS, time.perf_counter() - begin)


@dataclass(frozen=True)
class Xlearn(Contender):
    """A fit of xLearn with Adagrad, without L2, including its overhead besides the epochs."""

    text: Path
    rows: int
    threads: int
    model: str
    dim: int
    epochs: int

    def measure(self) -> Timed:
        """Fit in xLearn's environment, which is a separate process anyway."""
        return self.time()

    def time(self) -> Timed:
        settings = {"opt": "adagrad", "lr": LEARNING_RATE, "lambda": 0.0, "k": self.dim}
        fit = fit_xlearn(self.model, self.text, settings | {"epoch": self.epochs, "nthread": self.threads})
        return Timed(self.epochs * self.rows, fit.seconds, memory=fit.memory)
