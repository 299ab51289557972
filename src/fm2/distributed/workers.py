"""The workers of a training, and what they send each other. Each of them runs the same program."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.distributed_c10d import _get_default_store

from fm2.distributed.heartbeat import Heartbeat
from fm2.distributed.local import Channel, Finish, connect
from fm2.distributed.meeting import meet
from fm2.errors import Fm2Error

Array = NDArray[Any]
NOW, AHEAD, SUMS = range(3)  # the channels of workers that share memory


class WorkerError(Fm2Error):
    """Another worker failed or does not respond."""


class AgreedError(Fm2Error):
    """An error of another worker, which reports it."""


@contextmanager
def joined(seconds: float, shares_memory: bool = True) -> Iterator[Workers]:
    """Join the workers that torchrun or Ray started with this process, unless it has joined them already.

    A worker that does not respond within so many seconds has failed. Workers of one machine exchange rows through
    shared memory, unless ``shares_memory`` is False.
    """
    begun = not dist.is_initialized()
    if begun:
        try:
            store, index, count = meet(seconds)
            limit = datetime.timedelta(seconds=seconds)
            dist.init_process_group("gloo", timeout=limit, store=store, rank=index, world_size=count)
        except (RuntimeError, ValueError) as error:
            raise WorkerError(f"train: the workers did not find each other: {error}") from error
    workers = Workers(seconds, shares_memory)
    try:
        yield workers
    finally:
        workers.close()
        if begun:
            dist.destroy_process_group()


class Workers:
    """A group of ``count`` workers, of which this process is number ``index``.

    Messages that are sent ``ahead``, for the next step, have connections of their own, so that they can be sent by
    another thread.
    """

    def __init__(self, seconds: float = 300.0, shares_memory: bool = True) -> None:
        self.index, self.count = dist.get_rank(), dist.get_world_size()
        self.others = [worker for worker in range(self.count) if worker != self.index]
        self._ahead = dist.new_group(timeout=datetime.timedelta(seconds=seconds), backend="gloo")
        self._seconds = seconds
        self._calls = 0
        self.bytes_sent = 0
        store = _get_default_store()
        self.heartbeat = Heartbeat(store, self.index, self.count, seconds, lambda: self._calls)
        self._local: list[Channel] = []
        if shares_memory:
            with self._communication():
                self._local = connect(self.index, self.count, len((NOW, AHEAD, SUMS)), seconds, self.collect)

    def close(self) -> None:
        """Stop the heartbeat and close the connections within this machine."""
        self.heartbeat.stop()
        for channel in self._local:
            channel.close()

    @property
    def is_first(self) -> bool:
        """Whether this worker writes the files."""
        return self.index == 0

    def exchange(
        self,
        values: Array,
        send: Sequence[int],
        receive: Sequence[int],
        ahead: bool = False,
        out: Array | None = None,
    ) -> Array:
        """Send ``send[w]`` of the values to worker w, one after the other; return what workers sent, in ``out``.

        ``receive[w]`` is the number of values that worker w sends.
        """
        if out is None:
            out = np.empty(sum(receive), values.dtype)
        self.wait(self.start_exchange(values, send, receive, ahead, out))
        return out

    def start_exchange(
        self, values: Array, send: Sequence[int], receive: Sequence[int], ahead: bool, out: Array
    ) -> Finish:
        """Start an :meth:`exchange`; :meth:`wait` ends it. Until then, both arrays must not be changed."""
        self.bytes_sent += values.nbytes - int(send[self.index]) * values.itemsize
        with self._communication():
            if self._local:
                return self._local[AHEAD if ahead else NOW].start_exchange(values, send, receive, out)
            group = self._ahead if ahead else None
            tensors = torch.from_numpy(out), torch.from_numpy(values)
            work = dist.all_to_all_single(*tensors, list(receive), list(send), group=group, async_op=True)
            return _finish(work)

    def start_sum(self, values: torch.Tensor) -> Finish:
        """Start to replace values by their sums over all workers; :meth:`wait` ends it."""
        self.bytes_sent += 2 * values.nbytes * (self.count - 1) // self.count
        with self._communication():
            if self._local:
                return self._local[SUMS].start_sum(values.numpy())
            return _finish(dist.all_reduce(values, async_op=True))

    def wait(self, finish: Finish | None) -> None:
        """Wait until a sum or an exchange is complete."""
        with self._communication():
            if finish is not None:
                finish()

    def sum(self, values: Array) -> Array:
        """Return the sums of values over all workers."""
        total = torch.from_numpy(values.copy())
        self.wait(self.start_sum(total))
        return total.numpy()

    def share(self, value: Any, source: int = 0) -> Any:
        """Return the value of one worker to all."""
        box = [value]
        with self._communication():
            dist.broadcast_object_list(box, src=source)
        return box[0]

    def collect(self, value: Any) -> list[Any]:
        """Return the values of all workers to all."""
        values: list[Any] = [None] * self.count
        with self._communication():
            dist.all_gather_object(values, value)
        return values

    def send(self, values: Array, to: int) -> None:
        """Send values to one worker, which calls :meth:`receive`."""
        with self._communication():
            dist.send(torch.from_numpy(values), to)

    def receive(self, count: int, source: int) -> NDArray[np.float32]:
        """Return the float32 values that a worker sends."""
        out = np.empty(count, np.float32)
        with self._communication():
            dist.recv(torch.from_numpy(out), source)
        return out

    def agree(self, error: Fm2Error | None = None) -> None:
        """Raise the first error that any worker passes, on all workers."""
        errors = [each for each in self.collect(None if error is None else str(error)) if each is not None]
        if error is not None:
            raise error
        if errors:
            raise AgreedError(errors[0])

    @contextmanager
    def _communication(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        except (RuntimeError, ConnectionError, TimeoutError) as error:
            reason = f"worker {self.index} lost its connection to the others: {error}"
            if isinstance(error, TimeoutError) or "Timed out" in str(error):
                suspects = ", ".join(self.heartbeat.suspects()) or "another worker"
                reason = f"{suspects} did not respond within {self._seconds:g} seconds"
            raise WorkerError(f"train: {reason}") from error


def _finish(work: dist.Work | None) -> Finish:
    assert work is not None
    return work.wait
