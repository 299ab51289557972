"""The connection of a worker to the keeper: new states are prepared in the background, then replace the table."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from fm2.serving import channel
from fm2.serving.keys import Key
from fm2.serving.served import Served
from fm2.serving.state import State, VersionState
from fm2.serving.table import ServedModel, Table

if TYPE_CHECKING:
    from fm2.serving.app import App

RETRY_SECONDS, START_SECONDS = 0.2, 10.0


class Worker:
    """Keeps the table of a worker up to date."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._path = app.settings.runtime / channel.SOCKET

    def start(self) -> None:
        """Load the models, then follow changes on another thread."""
        connection = self._connect_at_start()
        self._apply(connection, warm=False)
        threading.Thread(target=self._follow, args=(connection,), name="fm2-models", daemon=True).start()

    def _connect_at_start(self) -> socket.socket:
        """Connect; wait for a keeper that is just being restarted."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._connect()
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _connect(self) -> socket.socket:
        connection = channel.connect(self._path)
        channel.send(connection, {"worker": os.getpid()})
        return connection

    def _follow(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # of this thread: requests come first
        self._prefault()
        while True:
            try:
                connection.settimeout(None)
                while True:
                    self._apply(connection, warm=True)
            except (OSError, EOFError):
                connection.close()
            time.sleep(RETRY_SECONDS)
            with contextlib.suppress(OSError):  # the keeper is being restarted; the models stay available
                connection = self._connect()

    def _prefault(self) -> None:
        """Read the first models into memory. A function of its own: its variables must not keep them alive."""
        for model in self._app.table.models.values():
            for served in model.versions.values():
                served.scorer.native.prefault()

    def _apply(self, connection: socket.socket, warm: bool) -> None:
        """Receive a state, prepare its models, replace the table, and confirm it."""
        state = State.from_message(channel.receive(connection))
        try:
            table = self._prepare(state, warm)
            replaced = self._app.table
            self._app.use(table)
            _forget(replaced, table)
        except Exception as error:  # e.g. the files were replaced again: the next state is on its way
            self._app.log("warning", "skipped a state", generation=state.generation, reason=error)
            if not warm:
                self._apply(connection, warm)
                return
        channel.send(connection, {"applied": state.generation})

    def _prepare(self, state: State, warm: bool) -> Table:
        current = self._app.table
        keys = [Key(right, name, bytes.fromhex(digest)) for right, name, digest in state.keys]
        table = Table(state.generation, keys=keys, draining=state.draining)
        for name, model in state.models.items():
            known = current.models[name].versions if name in current.models else {}
            for version in known.keys() & model.rejected.keys() - model.versions.keys():
                model.versions[version] = known[version].state  # a new keeper cannot open what this worker still has
            versions = {
                version: self._open(name, version, version_state, known, warm)
                for version, version_state in model.versions.items()
            }
            table.add(ServedModel(name, model, versions))
        return table

    def _open(self, name: str, version: str, state: VersionState, known: dict[str, Served], warm: bool) -> Served:
        """Return the served version, the present one if its file has not changed."""
        served = known.get(version)
        if served is not None and (served.state.path, served.state.loaded) == (state.path, state.loaded):
            served.replace_catalogs(state)
            return served
        opened = Served(name, version, state, self._app.counters, self._app.settings.limits)
        opened.replace_catalogs(state)
        if warm:
            recent = served or next((other for other in known.values() if other.bodies), None)
            opened.warm_up(recent.bodies if recent else [], self._app.settings.limits)
        return opened


def _forget(replaced: Table, table: Table) -> None:
    """Drop the pages of models that are not served any more.

    Otherwise, unmapping a large file would take tens of milliseconds, during which all requests wait.
    """
    kept = {id(served) for model in table.models.values() for served in model.versions.values()}
    for model in replaced.models.values():
        for served in model.versions.values():
            if id(served) not in kept:
                served.scorer.native.forget()
