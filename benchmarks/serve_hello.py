"""Hello world in granian, with the settings of fm2 serve: ``python serve_hello.py PORT``."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.log import LogLevels

HEADERS = [("content-type", "text/plain")]


class Hello:
    """Answers every request; those to ``/read`` after it has received their bodies."""

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        """Answer a request."""
        if scope.path == "/read":
            await proto()
        proto.response_bytes(200, HEADERS, b"Hello, world!")


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    server = Granian(
        "serve_hello",
        port=int(sys.argv[1]),
        interface=Interfaces.RSGI,
        loop=Loops.asyncio,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2048,
        backpressure=2048,
        log_level=LogLevels.error,
    )
    server.serve(target_loader=lambda: Hello(), wrap_loader=False)  # type: ignore[arg-type, return-value]
