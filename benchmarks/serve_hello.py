"""Hello world in granian, with the settings of fm2 serve: ``python serve_hello.py PORT``."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from fm2.serving.granian_server import create_server
from fm2.serving.settings import Settings

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
    server = create_server(Settings(sources=(), port=int(sys.argv[1])))
    server.serve(target_loader=Hello, wrap_loader=False)
