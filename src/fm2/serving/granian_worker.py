"""A granian worker that answers small requests where they arrive.

granian hands a request to asyncio's thread, and its body once more: two switches of threads, which cost more than
scoring a row. Here, :meth:`App.start` sees a request first, on granian's own thread, and may answer it there; all
others take the usual way. This uses parts of granian that are not documented, so that the version is pinned.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from granian._futures import _future_watcher_wrapper
from granian._granian import CallbackScheduler, RSGIWorker, WorkerSignal
from granian.server.common import WORKERS_METHODS
from granian.server.mp import WorkerProcess

from fm2.serving.direct import CONTEXT, Answer

ALONE_SECONDS = 3.0  # after a signal, if the main process does not stop the worker


def answer_directly(loop: asyncio.AbstractEventLoop) -> None:
    """Let direct answers be computed on the thread that schedules them, which is granian's."""
    schedule = loop.call_soon_threadsafe

    def call_soon_threadsafe(call: Any, *arguments: Any, context: Any = None) -> Any:
        return call(*arguments) if type(call) is Answer else schedule(call, *arguments, context=context)

    loop.call_soon_threadsafe = call_soon_threadsafe  # type: ignore[assignment, method-assign]


def stop_on_signals(loop: asyncio.AbstractEventLoop, app: Any) -> WorkerSignal:
    """Return what a signal sets, once the main process has let clients know.

    A terminal and systemd send signals to all processes at once; the main process sends another one.
    """
    stop = WorkerSignal()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: loop.call_later(0 if app.table.draining else ALONE_SECONDS, stop.set))
    return stop


class Scheduler(CallbackScheduler):
    """Starts requests; granian's class takes five arguments."""

    def __init__(self, loop: Any, schedule: Callable[[Any], None], *_: None) -> None:
        super().__init__()
        self._schedule_fn = schedule


def _scheduler(
    loop: asyncio.AbstractEventLoop, start: Callable[[Any], bool], run: Callable[[Any], Any]
) -> Callable[[Any], None]:
    def create_task(watcher: Any) -> None:
        watcher.taskref(loop.create_task(run(watcher)))

    def schedule(watcher: Any) -> None:
        if not start(watcher):
            loop.call_soon_threadsafe(create_task, watcher, context=CONTEXT)

    return schedule


@WorkerProcess.wrap_target  # type: ignore[untyped-decorator]
def run_worker(
    worker_id: int,
    app: Any,
    sock: Any,
    ipc: Any,
    loop: asyncio.AbstractEventLoop,
    runtime_mode: Any,
    runtime_threads: int,
    runtime_blocking_threads: int | None,
    blocking_threads: int,
    blocking_threads_idle_timeout: int,
    backpressure: int,
    task_impl: Any,
    http_mode: Any,
    http1_settings: Any,
    http2_settings: Any,
    websockets: bool,
    static_path: Any,
    log_access_fmt: str | None,
    ssl_ctx: Any,
    scope_opts: dict[str, Any],
    metrics: Any,
) -> None:
    """Run a worker, as granian does for RSGI, with our scheduler."""
    stop = stop_on_signals(loop, app)
    answer_directly(loop)
    stopped = asyncio.Event()
    stop.add_cb(lambda: loop.call_soon_threadsafe(stopped.set))
    app.__rsgi_init__(loop)
    create: Any = RSGIWorker  # its stub is out of date
    worker = create(
        worker_id,
        sock,
        ipc,
        runtime_threads,
        runtime_blocking_threads,
        blocking_threads,
        blocking_threads_idle_timeout,
        backpressure,
        http_mode,
        http1_settings,
        http2_settings,
        websockets,
        static_path,
        *ssl_ctx,
        metrics,
    )
    serve = getattr(worker, WORKERS_METHODS[runtime_mode][(sock[0] or sock[1]).is_uds()])
    run = _future_watcher_wrapper(app.__rsgi__)  # type: ignore[no-untyped-call]
    serve(Scheduler(loop, _scheduler(loop, app.start, run), None, None, None), loop, stop)
    loop.run_until_complete(stopped.wait())
    app.__rsgi_del__(loop)
