"""Messages between workers of one machine: their data is in memory that all map, and sockets announce it."""

from __future__ import annotations

import mmap
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Finish = Callable[[], object]  # waits until an exchange is complete
LINUX = sys.platform == "linux"
TOKEN = 16  # bytes
HELLO = struct.Struct(f"={TOKEN}sii")  # token of the listener, worker, channel
HELLO_SECONDS = 5.0  # that a process which connects has to send it
NOTICE = struct.Struct("=qq")  # where a message begins and ends in the sender's memory


class Channel:
    """Connections of worker ``index`` to the others.

    A worker writes its messages to one half of its memory, and receivers copy them from there. Every exchange ends
    before the next one starts, and ends on no worker before it has started on all. When a half is written again, its
    last messages have therefore been received.
    """

    def __init__(self, index: int, sockets: dict[int, socket.socket]) -> None:
        self._index, self._sockets = index, sockets
        self._memory = dict.fromkeys([*sockets, index], np.empty(0, np.uint8))
        self._half = 0

    def start_exchange(self, values: Array, send: Sequence[int], receive: Sequence[int], out: Array) -> Finish:
        """Start to send ``send[w]`` of the values to worker w, and to write those that workers send to ``out``."""
        sent, received = _parts(send), _parts(receive)
        self._send(values, sent)
        out[received[self._index]] = values[sent[self._index]]

        def finish() -> None:
            for worker in self._sockets:
                out[received[worker]] = self._receive(worker).view(out.dtype)

        return finish

    def start_sum(self, values: Array) -> Finish:
        """Start to replace values by their sums over all workers, in the same order on all of them."""
        own = self._send(values, [slice(0, len(values))] * (len(self._sockets) + 1))

        def finish() -> None:
            first, *others = (
                (own if worker == self._index else self._receive(worker)).view(values.dtype)
                for worker in sorted(self._memory)
            )
            values[:] = first
            for other in others:
                np.add(values, other, out=values)

        return finish

    def _send(self, values: Array, parts: Sequence[slice]) -> Bytes:
        """Send each worker a part of the values; return the memory that has all of them."""
        capacity = len(self._memory[self._index]) // 2
        handles: list[int] = []
        if capacity < values.nbytes:
            capacity = (values.nbytes + values.nbytes // 4 + 63) // 64 * 64
            handles = [os.memfd_create("fm2")]  # in no directory: nothing is left behind if a worker is killed
            os.ftruncate(handles[0], 2 * capacity)
            self._memory[self._index] = _map(handles[0])
        begin, self._half = self._half * capacity, 1 - self._half
        written = self._memory[self._index][begin : begin + values.nbytes]
        written[:] = values.view(np.uint8)
        for worker, connection in self._sockets.items():
            first, last = parts[worker].start * values.itemsize, parts[worker].stop * values.itemsize
            socket.send_fds(connection, [NOTICE.pack(begin + first, begin + last)], handles)
        for handle in handles:
            os.close(handle)
        return written

    def _receive(self, worker: int) -> Bytes:
        """Return the next message of a worker. It must be read before the next exchange starts."""
        notice, handles, _, _ = socket.recv_fds(self._sockets[worker], NOTICE.size, 1)
        if not notice:
            raise ConnectionError(f"worker {worker} closed it")
        for handle in handles:  # of new memory, because the message is larger than earlier ones
            self._memory[worker] = _map(handle)
            os.close(handle)
        begin, end = NOTICE.unpack(notice)
        return self._memory[worker][begin:end]

    def close(self) -> None:
        """Close the connections."""
        for each in self._sockets.values():
            each.close()


def _parts(sizes: Sequence[int]) -> list[slice]:
    """Return where parts of some sizes are that follow each other."""
    ends = list(accumulate(sizes))
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _map(handle: int) -> Bytes:
    return np.frombuffer(mmap.mmap(handle, 0), np.uint8)


def connect(
    index: int, count: int, channels: int, seconds: float, collect: Callable[[Any], Sequence[Any]]
) -> list[Channel]:
    """Return channels to all workers, or none if they are on several machines.

    ``collect`` returns what every worker passes to it.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) if LINUX else None
        address, token = None, secrets.token_bytes(TOKEN)
        if listener is not None:
            listener.bind("")  # the system chooses a name, which is in no directory
            listener.listen(count * channels)
            address = listener.getsockname()
        machines, addresses, tokens = zip(*collect((_machine(), address, token)), strict=True)
        if listener is None or len(set(machines)) > 1:
            return []
        found: list[dict[int, socket.socket]] = [{} for _ in range(channels)]
        for worker in range(index):
            for channel in range(channels):
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.settimeout(seconds)
                connection.connect(addresses[worker])
                connection.send(HELLO.pack(tokens[worker], index, channel))
                found[channel][worker] = connection
        listener.settimeout(seconds)
        while any(len(each) < count - 1 for each in found):
            connection, _ = listener.accept()
            connection.settimeout(HELLO_SECONDS)
            hello = b""
            with suppress(OSError):
                hello = connection.recv(HELLO.size)
            if len(hello) == HELLO.size and hello[:TOKEN] == token:
                _, worker, channel = HELLO.unpack(hello)
                connection.settimeout(seconds)
                found[channel][worker] = connection
            else:  # not a worker: any process of the machine can connect
                connection.close()
    return [Channel(index, each) for each in found]


def _machine() -> Any:
    """Return what only processes that can reach each other's sockets have in common."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(), Path("/proc/self/ns/net").readlink()
    return secrets.token_bytes(TOKEN)  # nothing
