"""A process that trains runs for another one, which sends it tasks: ``python -m fm2.studies.execution.worker FD``."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from fm2.errors import Fm2Error, Fm2Warning, Terminated, printable
from fm2.studies.execution.jobs import Watch, Work
from fm2.training.loop import TrainingProgress

REPORT_SECONDS = 0.5
Send = Callable[[str, Any], None]


def throttled(send: Callable[[TrainingProgress], None]) -> Watch:
    """Return a callback that passes on a few reports per second."""
    last = 0.0

    def watch(report: TrainingProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= REPORT_SECONDS:
            last = time.monotonic()
            send(report)

    return watch


def portable(error: Exception) -> Exception:
    """Return an exception that can be pickled, with its traceback as a note."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = Fm2Error(f"{type(error).__name__}: {printable(str(error))}")
    error.add_note(f"in another process:\n{text}")
    return error


def _serve(connection: Connection) -> None:
    """Run the tasks that arrive, one after the other, until the other process closes the connection or ends."""
    tasks: queue.SimpleQueue[tuple[Work, Any]] = queue.SimpleQueue()
    lock = threading.Lock()

    def receive() -> NoReturn:
        with contextlib.suppress(EOFError, OSError):
            while True:
                tasks.put(connection.recv())
        os._exit(0)  # no one waits for a result any more; checkpoints are complete or absent

    def send(kind: str, value: Any) -> None:
        with lock:
            connection.send((kind, value))

    def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, Fm2Warning):
            send("warning", str(message))

    warnings.showwarning = show_warning
    threading.Thread(target=receive, daemon=True, name="fm2-tasks").start()
    while True:
        work, task = tasks.get()
        _run(work, task, send)


def _run(work: Work, task: Any, send: Send) -> None:
    try:
        kind, value = "result", work(task, throttled(lambda report: send("progress", report)))
    except KeyboardInterrupt:
        kind, value = "interrupted", None
    except Exception as error:
        kind, value = "error", portable(error)
    send(kind, value)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that sends the tasks decides what Ctrl-C means
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        _serve(Connection(int(sys.argv[1])))
