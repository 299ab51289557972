"""Limits while a request is received: body size, time, and the number of requests at the same time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fm2.serving.direct import Answer, slow_sender
from fm2.serving.refusals import CLOSE, Refused
from fm2.serving.settings import Limits

SWEEP_SECONDS = 0.5


class Intake:
    """Receives bodies.

    ``reading`` has the deadline of each task that waits for a body, ``direct`` the requests that wait without a task:
    one sweep over them costs less than a timer for each request. ``running`` counts requests on other threads.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.reading: dict[asyncio.Task[Any], float] = {}
        self.direct: dict[Answer, bool] = {}
        self.running = 0

    async def sweep(self) -> None:
        """Give up on slow senders, forever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.monotonic()
            for task in [task for task, deadline in self.reading.items() if deadline < now]:
                task.cancel()
            for answer in [answer for answer in list(self.direct) if answer.deadline < now]:
                answer.give_up(self.limits.seconds)

    def check(self, headers: Any) -> str | None:
        """Refuse a request that is too large, or one too many. Return its content length."""
        if len(self.direct) + len(self.reading) + self.running >= self.limits.queue:
            message = (
                f"the server already has {self.limits.queue} requests; try again later, or raise fm2 serve --max-queue"
            )
            raise Refused(429, message, "overloaded", [("retry-after", "1")])
        length: str | None = headers.get("content-length")
        if length is not None and (len(length) > 18 or int(length) > self.limits.body):
            raise self.too_large(length)
        return length

    def too_large(self, length: str | int) -> Refused:
        """Return the error for a body that is too large."""
        message = f"the body has {length} bytes; the limit is {self.limits.body} (fm2 serve --max-body)"
        return Refused(413, message, "body_too_large", [CLOSE])

    async def read(self, proto: Any, headers: Any) -> bytes:
        """Receive a body within the limits."""
        length = self.check(headers)
        task = asyncio.current_task()
        assert task is not None
        self.reading[task] = time.monotonic() + self.limits.seconds
        try:
            if length is not None:
                body: bytes = await proto()
                return body
            return await self._read_chunks(proto, headers)
        except asyncio.CancelledError:
            raise slow_sender(self.limits.seconds) from None
        finally:
            del self.reading[task]

    async def _read_chunks(self, proto: Any, headers: Any) -> bytes:
        """Receive a body of unknown length. granian ends it with an empty chunk, and has one more for an error."""
        chunks = bytearray()
        empty = 0
        async for chunk in proto:
            chunks += chunk
            empty += not chunk
            if len(chunks) > self.limits.body:
                raise self.too_large(f"more than {self.limits.body}")
        if empty > 1 and "transfer-encoding" in headers:  # i.e. HTTP/1.1
            message = "the chunked body is damaged or incomplete, or has trailers, which are not supported"
            raise Refused(400, message, "invalid_request", [CLOSE])
        return bytes(chunks)
