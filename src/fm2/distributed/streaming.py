"""Writing a sharded model to one file: the first worker requests pieces of all shards, and never has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import ChunkedArray
from fm2.distributed.rows import Buffers
from fm2.distributed.shards import TableShard
from fm2.distributed.workers import AgreedError, Workers
from fm2.errors import Fm2Error

PIECE = 1 << 20  # floats of one worker at a time


class TableStream:
    """The weights of all tables, in the order in which a model file stores them."""

    def __init__(self, workers: Workers, shards: dict[str, TableShard], buffers: Buffers) -> None:
        self._workers, self._shards = workers, shards
        self._views = {name: shard.views(buffers[name][1]) for name, shard in shards.items()}

    def save(self, write: Callable[[dict[str, ChunkedArray]], None]) -> None:
        """Call ``write`` with the tables' weights on the first worker; the others send it what it reads.

        An error of the first worker is raised on all workers.
        """
        if not self._workers.is_first:
            self._serve()
            return
        message = None
        try:
            write({f"{name}.weight": self._array(name) for name in self._shards})
        except Fm2Error as error:
            message = str(error)
            raise
        finally:
            self._workers.share((None, message))

    def _array(self, name: str) -> ChunkedArray:
        shard = self._shards[name]
        dims = [int(shard.dims[group]) for group in shard.groups]
        length = sum(rows * dim for rows, dim in zip(shard.rows, dims, strict=True))
        return ChunkedArray(length, lambda: self._pieces(name))

    def _pieces(self, name: str) -> Iterator[NDArray[np.float32]]:
        """Yield the rows of a table in order; those of feature id come from worker id % workers."""
        shard, count = self._shards[name], self._workers.count
        for group, rows in enumerate(shard.rows):
            dim = self._views[name][group].shape[1]
            size = max(PIECE // dim, 1)
            for begin in range(0, -(-rows // count), size):
                self._workers.share(((name, group, begin, begin + size), None))
                whole = np.empty((min(size * count, rows - begin * count), dim), np.float32)
                for worker in range(count):
                    own = whole[worker::count]
                    if worker == 0:
                        own[:] = self._part(name, group, begin, begin + size)
                    elif len(own):
                        own[:] = self._workers.receive(own.size, worker).reshape(own.shape)
                yield whole

    def _part(self, name: str, group: int, begin: int, end: int) -> NDArray[np.float32]:
        """Return this worker's rows of a piece."""
        shard = self._shards[name]
        rows = shard.count(shard.rows[group])
        return self._views[name][group][begin : min(end, rows)]

    def _serve(self) -> None:
        while True:
            request, message = self._workers.share(None)
            if message is not None:
                raise AgreedError(message)
            if request is None:
                return
            part = self._part(*request)
            if len(part):
                self._workers.send(np.ascontiguousarray(part).reshape(-1), 0)
