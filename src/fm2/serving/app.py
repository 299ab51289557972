"""The RSGI application of a worker: the fast path of requests to be scored, and the dispatch of all others."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fm2.serving import channel
from fm2.serving.canary import choose
from fm2.serving.channel import SOCKET
from fm2.serving.counters import Counters
from fm2.serving.direct import CONTEXT, Answer
from fm2.serving.encodings import LENGTH, decoded, header_length
from fm2.serving.http import Request, Response, error_response, refused
from fm2.serving.keys import authorize
from fm2.serving.limits import Intake
from fm2.serving.logs import Log, RequestLog
from fm2.serving.refusals import CLOSE, JSON, Refused
from fm2.serving.routes import find_route
from fm2.serving.served import EVERY
from fm2.serving.settings import Settings
from fm2.serving.shadow import Shadows
from fm2.serving.table import INFER, Table, Target
from fm2.serving.worker import Worker

POOL_BYTES = 64 << 10  # larger bodies are scored on other threads, so that small ones do not wait for them
POOL_THREADS = 4
SWITCH_SECONDS = 0.001  # how long another Python thread may delay an answer
BINARY = ("content-type", "application/octet-stream")


class App:
    """Answers requests. ``table`` is replaced as a whole when models change."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.table = Table()
        self.headers = JSON  # of the answers of the fast path
        self.log = Log(settings.log_format)
        self.intake = Intake(settings.limits)
        self.started = time.time()

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start in a new worker: load the models, then wait for changes."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self.counters = Counters(self.settings.runtime, self.settings.workers)
        self.pool = ThreadPoolExecutor(POOL_THREADS, "fm2-pool")
        self.shadows = Shadows()
        self.requests = RequestLog(self.log, self.settings.log_sample)
        self.worker = Worker(self)
        self.worker.start()
        self.sweeper = loop.create_task(self.intake.sweep())

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop after the last request."""
        self.sweeper.cancel()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def use(self, table: Table) -> None:
        """Replace the table. While the server stops, clients are asked to open new connections elsewhere."""
        self.table = table
        self.headers = [*JSON, CLOSE] if table.draining else JSON

    def start(self, watcher: Any) -> bool:
        """Start a small request to be scored on granian's thread; return False if it is another kind of request."""
        began = time.perf_counter_ns()
        scope = watcher.scope
        table = self.table
        target = table.targets.get(scope.path)
        if target is None or scope.method != "POST":
            return False
        try:
            headers = scope.headers
            if table.keys:
                authorize(table.keys, headers, "predict")
            length = self.intake.check(headers)
            if length is None or int(length) > POOL_BYTES:
                return False
            body = watcher.proto()
        except Exception as error:
            self.refuse(scope, watcher.proto, error, target, began)
            watcher.done()
            return True
        answer = Answer(self, watcher, target, began)
        self.intake.direct[answer] = True
        body.add_done_callback(answer, context=CONTEXT)
        return True

    def answer(self, scope: Any, proto: Any, target: Target, body: bytes, began: int) -> None:
        """Score a request and answer it, on this thread."""
        headers = scope.headers
        length = header_length(headers, body) if target.kind == INFER else 0
        if target.canary is not None:
            target = choose(target, headers, body[:length] if length else body, self.settings.sticky)
        reply = target.call(body, length) if length else target.call(body)
        if reply.status != 200:
            encoding = headers.get("content-encoding")
            if encoding is not None:
                body = decoded(body, encoding, self.settings.limits.body)
                reply = target.call(body, length) if length else target.call(body)
        self._send(scope, proto, target, reply, body, length, began)

    def _send(self, scope: Any, proto: Any, target: Target, reply: Any, body: bytes, length: int, began: int) -> None:
        """Count an answer, send it, and remember the request."""
        total = time.perf_counter_ns() - began
        served = target.served
        served.block.count(target.kind, reply, total)
        if reply.status != 200:
            error = Refused(reply.status, json.loads(reply.body)["error"], reply.reason)
            id = self.requests.write(scope, reply.status, total, target, error=error)
            proto.response_bytes(reply.status, [*self.headers, ("x-request-id", id)], reply.body)
            return
        if reply.header_length:
            headers = [BINARY, (LENGTH, str(reply.header_length)), *self.headers[1:]]
            proto.response_bytes(reply.status, headers, reply.body)
        else:
            proto.response_bytes(reply.status, self.headers, reply.body)
        served.seen += 1
        if not served.seen % EVERY:
            served.remember(target.kind, body, length)
        if target.shadow is not None:
            self.shadows.add(target, body, length, reply)
        if self.requests.is_next():
            self.requests.write(scope, reply.status, total, target, reply)

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        """Answer a request that was not started directly."""
        began = time.perf_counter_ns()
        table = self.table
        target = table.targets.get(scope.path)
        try:
            if target is None or scope.method != "POST":
                response = await self._respond(scope, proto, table)
            else:
                if table.keys:
                    authorize(table.keys, scope.headers, "predict")
                body = await self.intake.read(proto, scope.headers)
                await self._answer_in_pool(scope, proto, target, body, began)
                return
        except Exception as error:
            self.refuse(scope, proto, error, target, began)
            return
        headers = [*response.headers, CLOSE] if table.draining else response.headers
        proto.response_bytes(response.status, headers, b"" if scope.method == "HEAD" else response.body)
        if self.requests.is_next():
            self.requests.write(scope, response.status, time.perf_counter_ns() - began)

    async def _answer_in_pool(self, scope: Any, proto: Any, target: Target, body: bytes, began: int) -> None:
        """Score a large request on another thread."""
        headers = scope.headers
        encoding = headers.get("content-encoding")
        if encoding is not None:
            body = decoded(body, encoding, self.settings.limits.body)
        length = header_length(headers, body) if target.kind == INFER else 0
        if target.canary is not None:
            target = choose(target, headers, body[:length] if length else body, self.settings.sticky)
        call = functools.partial(target.call, body, length) if length else functools.partial(target.call, body)
        reply = await self.in_pool(call, self.settings.limits.seconds)
        self._send(scope, proto, target, reply, body, length, began)

    async def in_pool(self, call: Callable[[], Any], seconds: float) -> Any:
        """Run a function on another thread; give up waiting after some seconds."""
        self.intake.running += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self.pool, call)
            done, _ = await asyncio.wait((future,), timeout=seconds)
            if not done:
                future.cancel()
                raise Refused(503, f"no answer within {seconds:g} seconds (fm2 serve --max-seconds)", "timeout")
            return future.result()
        finally:
            self.intake.running -= 1

    def call_keeper(self, call: str, **arguments: Any) -> Any:
        """Make a management call; it returns when all workers have applied it. To be called on another thread."""
        return channel.call(self.settings.runtime / SOCKET, call=call, **arguments)

    async def _respond(self, scope: Any, proto: Any, table: Table) -> Response:
        route, parts = find_route(scope.method, scope.path, table)
        if table.keys and route.right:
            authorize(table.keys, scope.headers, route.right)
        request = Request(self, table, scope.method, scope.path, scope.query_string, scope.headers, parts)
        if scope.method not in ("GET", "HEAD"):
            body = await self.intake.read(proto, scope.headers)
            encoding = scope.headers.get("content-encoding")
            request.body = decoded(body, encoding, self.settings.limits.body) if encoding else body
        if route.in_pool:
            seconds = channel.SECONDS if route.right == "manage" else self.settings.limits.seconds
            response: Response = await self.in_pool(functools.partial(route.handler, request), seconds)
            return response
        return route.handler(request)

    def refuse(self, scope: Any, proto: Any, error: Exception, target: Target | None, began: int) -> None:
        """Answer with an error and a request id, count it, and log it."""
        reason = refused(error)
        block = target.served.block if target else self.counters.server
        block.fail(reason.reason)
        total = time.perf_counter_ns() - began
        id = self.requests.write(scope, reason.status, total, target, error=error)
        response = error_response(reason.status, str(reason), [*reason.headers, ("x-request-id", id)])
        with contextlib.suppress(Exception):  # the client may have gone
            proto.response_bytes(response.status, response.headers, response.body)
