"""What is timed: epochs of fm2's trainer, batches of plain torch, bare matrix products, fits of xLearn."""

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

from fm2.models.registry import get_spec
from fm2.training.loop import TrainingLoop, TrainingProgress
from fm2.training.train import train
from generated import open_shortened
from peers import fit_xlearn
from processes import NOTHING, Memory, in_fresh_process

BATCH_ROWS = 4096
LEARNING_RATE = 0.05


@dataclass(frozen=True)
class Timed:
    """So many rows in so many seconds, the peaks of memory, and how many parameters a model of ours has."""

    rows: int
    seconds: float
    memory: Memory = NOTHING
    parameters: int = 0

    @property
    def speed(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    def best(self, other: Timed) -> Timed:
        """Take the quicker of two measurements of the same, and the larger peaks."""
        return replace(self, seconds=min(self.seconds, other.seconds), memory=self.memory | other.memory)

    def less(self, other: Timed) -> Timed:
        """Take away what both had to do, such as reading."""
        rows, seconds = self.rows - other.rows, self.seconds - other.seconds
        return replace(self, rows=rows, seconds=seconds, memory=self.memory | other.memory)


class Contender(ABC):
    """Something to be timed, in a process of its own."""

    def measure(self) -> Timed:
        """Time it in a fresh process, and watch that one's memory."""
        timed, memory = in_fresh_process(self.time)
        return replace(timed, memory=memory)

    @abstractmethod
    def time(self) -> Timed:
        """Time it here."""


@dataclass(frozen=True)
class Fm2(Contender):
    """Epochs of fm2's own trainer: tables moved by Adagrad, no L2, no dropout, no averaging.

    The first epoch also maps the files and touches the memory of the tables for the first time; it does not count.
    """

    data: Path
    rows: int
    threads: int
    model: str
    dim: int = 0
    batch_rows: int = BATCH_ROWS
    epochs: int = 3

    def time(self) -> Timed:
        """Train, and take the best of the epochs after the first; the evaluations between them do not count."""
        dataset = open_shortened(self.data, self.rows)
        begun: list[float] = []
        seconds: list[float] = []
        run_epoch = TrainingLoop._run_epoch

        def begin_and_run(loop: TrainingLoop) -> None:
            begun.append(time.perf_counter())
            run_epoch(loop)

        def watch(report: TrainingProgress) -> None:
            if report.rows == self.rows * len(begun):
                seconds.append(time.perf_counter() - begun[-1])

        # The trainer tells a watcher when a step has ended, not when an epoch begins, before the rows are shuffled.
        with (
            tempfile.TemporaryDirectory(dir=self.data.parent) as out,
            mock.patch.object(TrainingLoop, "_run_epoch", begin_and_run),
        ):
            run = train(self.model, dataset, out, callback=watch, **self.settings())
        return Timed(self.rows, min(seconds[1:]), parameters=run.model.n_parameters)

    def settings(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {
            "optimizer": "adagrad",
            "learning_rate": LEARNING_RATE,
            "batch_size": self.batch_rows,
            "epochs": self.epochs,
            "evaluations_per_epoch": 1,
            "patience": self.epochs,
            "threads": self.threads,
        }
        chosen |= dict.fromkeys(("l2", "l2_power", "ema_decay"), 0.0)
        if get_spec(self.model).has_field_matrices:
            chosen["field_dropout"] = 0.0
        if self.dim:
            chosen["dim"] = self.dim
        if self.model == "fm":
            chosen["linear"] = "features"  # as xLearn's has
        elif get_spec(self.model).has_field_matrices:
            chosen["linear"] = "fields"  # the paper's; plain torch has no linear part at all
        return chosen


@dataclass(frozen=True)
class PlainTorch(Contender):
    """Some batches of a shuffled epoch of 1/2 vᵀ S v alone, by autograd and torch's own Adagrad."""

    data: Path
    rows: int
    threads: int
    dim: int
    batches: int

    def time(self) -> Timed:
        """Time the batches after the first few. Ids are global numbers, in memory; drawing the order is not counted."""
        torch.set_num_threads(self.threads)
        # It is off anyway; saying so saves a warning.
        torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]
        dataset = open_shortened(self.data, self.rows)
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
    """The two matrix products of an FmFM, V S and Vᵀ diag(g) V: what its speed is limited by."""

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
    """A fit of xLearn's of so many epochs, by Adagrad without L2; what it takes beside the epochs is in it."""

    text: Path
    rows: int
    threads: int
    model: str
    dim: int
    epochs: int

    def measure(self) -> Timed:
        """Fit in xLearn's own environment, which is a process of its own anyway."""
        return self.time()

    def time(self) -> Timed:
        settings = {"opt": "adagrad", "lr": LEARNING_RATE, "lambda": 0.0, "k": self.dim}
        fit = fit_xlearn(self.model, self.text, settings | {"epoch": self.epochs, "nthread": self.threads})
        return Timed(self.epochs * self.rows, fit.seconds, memory=fit.memory)
