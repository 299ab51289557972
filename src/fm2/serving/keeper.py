"""The keeper: a process that watches the files, verifies new ones and tells the workers what to serve.

Workers connect to it through a Unix socket. It sends them the state, which they apply and confirm. Management calls
arrive on connections of their own and are answered once every worker has confirmed the change.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.serving import channel
from fm2.serving.keys import read_keys
from fm2.serving.logs import Log
from fm2.serving.management import Management
from fm2.serving.settings import Settings
from fm2.serving.sources import Signature, signature

CONNECT_SECONDS = 3.0  # within which all workers connect to a new keeper


class Keeper:
    """Serves workers and management calls, one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._log = Log(settings.log_format)
        self._management = Management(settings, self._log)
        self._state = self._management.state
        self._keys_signature: Signature | None = None
        if settings.keys is not None:
            self._read_keys(settings.keys)  # or fail: without them, everyone would have all rights
        self._complete = time.monotonic() + CONNECT_SECONDS
        self._workers: dict[socket.socket, int] = {}  # and the generation that each has applied
        self._waiting: list[tuple[socket.socket, int, Any]] = []  # calls to be answered
        self._retired: list[tuple[int, Callable[[], None]]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(settings.runtime / channel.SOCKET))
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def run(self, parent: int) -> None:
        """Serve until the server's main process ends."""
        next_look = time.monotonic() + self._settings.poll
        while os.getppid() == parent:
            for key, _ in self._selector.select(max(next_look - time.monotonic(), 0)):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is self._listener:
                    self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)
                else:
                    self._read(connection)
            if time.monotonic() >= next_look:
                self._look()
                self._answer()
                next_look = time.monotonic() + self._settings.poll

    def _look(self) -> None:
        try:
            changed = self._management.look()
        except Exception as error:  # a fault in one file must not end the keeper
            self._log("error", "internal error", call="look", reason=f"{type(error).__name__}: {error}")
            changed = True
        try:
            changed |= self._keys_changed()
        except Fm2Error as error:
            self._log("error", "refused the keys; the previous ones stay valid", reason=error)
        if changed:
            self._publish()

    def _keys_changed(self) -> bool:
        """Read the keys if their file has changed."""
        path = self._settings.keys
        if path is None or signature(path) == self._keys_signature:
            return False
        self._read_keys(path)
        return True

    def _read_keys(self, path: Path) -> None:
        self._keys_signature = signature(path)
        self._state.keys = [(key.right, key.name, key.digest.hex()) for key in read_keys(path)]

    def _read(self, connection: socket.socket) -> None:
        try:
            message = channel.receive(connection)
        except (EOFError, OSError, ValueError):
            self._close(connection)
            return
        if "worker" in message:
            self._workers[connection] = -1
            self._send(connection, self._state.to_message())
        elif "applied" in message:
            self._workers[connection] = message["applied"]
            self._answer()
        else:
            self._call(connection, message)

    def _call(self, connection: socket.socket, message: dict[str, Any]) -> None:
        self._selector.unregister(connection)
        try:
            changed, result = self._management.call(message)
        except Fm2Error as error:
            self._send(connection, {"error": str(error)})
            connection.close()
            return
        except Exception as error:  # a fault in one call must not end the keeper
            self._log("error", "internal error", call=message.get("call"), reason=f"{type(error).__name__}: {error}")
            self._send(connection, {"error": "internal error; the log has the reason"})
            connection.close()
            return
        if changed:
            self._publish()
        self._waiting.append((connection, self._state.generation if changed else -1, result))
        self._answer()

    def _publish(self) -> None:
        """Send the state to all workers."""
        self._state.generation += 1
        self._management.save()
        retired = self._management.take_retired()
        self._retired += [(self._state.generation, close) for close in retired]
        for worker in list(self._workers):
            self._send(worker, self._state.to_message())
        self._answer()

    def _answer(self) -> None:
        """Answer calls and close files whose changes all workers have applied."""
        applied = min(self._workers.values(), default=self._state.generation)
        if len(self._workers) < self._settings.workers and time.monotonic() < self._complete:
            applied = -2  # the workers of a previous keeper have not connected yet
        for connection, _, result in [entry for entry in self._waiting if entry[1] <= applied]:
            self._send(connection, {"result": result})
            connection.close()
        self._waiting = [entry for entry in self._waiting if entry[1] > applied]
        for generation, close in self._retired:
            if generation <= applied:
                with contextlib.suppress(OSError):
                    close()
        self._retired = [entry for entry in self._retired if entry[0] > applied]

    def _send(self, connection: socket.socket, message: Any) -> None:
        connection.settimeout(channel.SECONDS)
        try:
            channel.send(connection, message)
        except OSError:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._workers.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
        self._answer()


def run_keeper(settings: Settings, report: Callable[[str | None], None]) -> None:
    """Run the keeper in this process; ``report`` receives None once the models are loaded, or an error."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):  # the main process ends it, after the workers
        signal.signal(number, signal.SIG_IGN)
    os.nice(5)  # verifying a model must not slow down the answers
    try:
        keeper = Keeper(settings)
    except Fm2Error as error:
        report(str(error))
        return
    report(None)
    keeper.run(parent)
