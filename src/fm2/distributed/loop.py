"""The training loop of a worker: all workers take the same decisions, and the first one writes the files."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.model_file import MODEL, save_model
from fm2.artifacts.run_directory import HISTORY, append_history, write_history
from fm2.distributed.backend import DistributedBackend
from fm2.distributed.checkpoints import agreed, load_checkpoint, read_manifest, save_checkpoint
from fm2.distributed.streaming import TableStream
from fm2.distributed.workers import AgreedError
from fm2.errors import Terminated
from fm2.training.loop import DivergedError, TrainingLoop

MANY = 1024.0  # more than there are workers that vote


class DistributedLoop(TrainingLoop):
    """A training loop on several workers.

    Clocks and signals differ between workers, so they vote: with the sums of every step, each learns whether any of
    them was interrupted or finds that a checkpoint is due.
    """

    _backend: DistributedBackend
    _due = False
    _agreed: type[KeyboardInterrupt] | None = None

    def _step(self, order: NDArray[np.int64]) -> None:
        interrupted = {None: 0.0, KeyboardInterrupt: 1.0, Terminated: MANY}[self._interrupt]
        self._backend.votes = [float(super()._checkpoint_is_due()), interrupted]
        self._due, self._agreed = False, None
        steps = self._backend.steps
        try:
            super()._step(order)
        except DivergedError as error:  # on all workers; the first one reports it
            raise (error if self._backend.workers.is_first else AgreedError(str(error))) from error
        if self._backend.steps > steps:
            due, interrupts = self._backend.votes
            self._due = due > 0
            if interrupts:
                self._agreed = Terminated if interrupts >= MANY else KeyboardInterrupt

    def _interruption(self) -> type[KeyboardInterrupt] | None:
        return self._agreed

    def _checkpoint_is_due(self) -> bool:
        return self._due

    def resume(self) -> None:
        manifest = read_manifest(self._path)
        history = []
        if manifest is not None:
            self._restore_position(manifest)
            with agreed(self._backend.workers.agree):
                load_checkpoint(manifest, self._backend, self._at.steps)
            history = self._restore_history()
        self._backend.workers.agree()  # all have read the history
        if self._backend.workers.is_first:
            write_history(self._path / HISTORY, history)

    def _measure(self) -> dict[str, Any]:
        logits = self._score_validation()
        with agreed(self._backend.workers.agree):
            measured = self._evaluate_validation(logits) if self._backend.workers.is_first else None
        result: dict[str, Any] = self._backend.workers.share(measured)
        return result

    def _save_model(self, measured: dict[str, Any]) -> None:
        stream = TableStream(self._backend.workers, self._backend.shards, self._backend.averages())
        dense = self._backend.dense_weights()
        write = functools.partial(save_model, self._path / MODEL, self.model)
        rate = self._dataset.negative_rate
        stream.save(lambda tables: write(self._finish({**dense, **tables}), *self._encoder, measured, rate))

    def _record(self, evaluation: dict[str, Any]) -> None:
        with agreed(self._backend.workers.agree):
            if self._backend.workers.is_first:
                append_history(self._path / HISTORY, evaluation)

    def _write_checkpoint(self, values: dict[str, Any]) -> None:
        save_checkpoint(self._path, self._backend, values)
