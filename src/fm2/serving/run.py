"""``fm2 serve``: start the keeper and granian's workers, and stop them in order."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import multiprocessing.connection
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error, require
from fm2.serving.channel import SOCKET
from fm2.serving.keeper import run_keeper
from fm2.serving.logs import Log
from fm2.serving.settings import Settings
from fm2.serving.sources import check_exist, empty_directories
from fm2.serving.tracing import TracedApp, check_traces

PREFIX = "fm2-serve-"
RESTART_SECONDS = 0.2
START_SECONDS = 600.0  # to verify all models


def serve(settings: Settings) -> None:
    """Serve models until SIGTERM or Ctrl-C."""
    require("granian", "serve", "fm2 serve")
    if settings.traces:
        check_traces(settings.traces)
    from fm2.serving.granian_server import check_port, create_server
    from fm2.serving.granian_worker import run_worker

    check_exist(settings.sources)
    check_port(settings)
    multiprocessing.set_start_method("fork", force=True)  # workers share the memory of imported modules
    with _runtime_directory() as runtime:
        settings = settings.replace(runtime=runtime)
        log = Log(settings.log_format)
        for directory in empty_directories(settings.sources):
            expected = "NAME.fm2 or NAME/VERSION.fm2"
            log("warning", "no compiled model yet; waiting for one", directory=directory, expected=expected)
        keeper = KeeperProcess(settings, log)
        try:
            server = create_server(settings)
            scheme = "https" if settings.certificate else "http"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            server.on_startup(lambda: log("info", "listening", url=f"{scheme}://{host}:{server.bind_port}"))
            server.on_startup(gc.freeze)  # collecting garbage would copy shared pages
            keeper.watch()
            server.serve(
                spawn_target=None if settings.traces else run_worker,
                target_loader=functools.partial(_load_app, settings),
                wrap_loader=False,
            )
        finally:
            keeper.stop()
        log("info", "stopped")


def _load_app(settings: Settings) -> Any:
    from fm2.serving.app import App

    return TracedApp(App(settings), settings.traces) if settings.traces else App(settings)


@contextlib.contextmanager
def _runtime_directory() -> Iterator[Path]:
    """Yield a directory that only this user can read, in memory if possible."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for abandoned in parent.glob(f"{PREFIX}*"):
        if not Path(f"/proc/{abandoned.name.removeprefix(PREFIX).partition('-')[0]}").exists():
            shutil.rmtree(abandoned, ignore_errors=True)  # of a server that was killed
    path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class KeeperProcess:
    """The process of the keeper; it is started again if it ends unexpectedly."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._stopping = threading.Event()
        error = self._start()
        if error is not None:
            raise Fm2Error(error)

    def watch(self) -> None:
        """Restart the keeper when it ends, on a thread of its own."""
        threading.Thread(target=self._watch, name="fm2-keeper", daemon=True).start()

    def stop(self) -> None:
        """End the keeper."""
        self._stopping.set()
        self._process.kill()
        self._process.join()

    def _start(self) -> str | None:
        """Start the keeper and wait until the models are loaded; return an error, if any."""
        receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.Process(target=_run, args=(self._settings, sender), name="fm2-keeper")
        self._process.start()
        sender.close()
        try:
            if not receiver.poll(START_SECONDS):
                return "serve: loading the models took too long"
            error: str | None = receiver.recv()
            return error
        except EOFError:
            return "serve: the process that loads the models ended unexpectedly"
        finally:
            receiver.close()

    def _watch(self) -> None:
        while True:
            self._process.join()
            if self._stopping.wait(RESTART_SECONDS):
                return
            self._log("error", "restarting the keeper", code=self._process.exitcode)
            (self._settings.runtime / SOCKET).unlink(missing_ok=True)
            error = self._start()
            if error:
                self._log("error", "the keeper cannot start", reason=error)


def _run(settings: Settings, sender: multiprocessing.connection.Connection) -> None:
    def report(error: str | None) -> None:
        sender.send(error)
        sender.close()

    run_keeper(settings, report)
