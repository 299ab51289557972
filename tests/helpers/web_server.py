"""A small HTTP server on loopback that loses connections, lies about sizes, refuses ranges, or lists files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The files of a server, and how it misbehaves."""

    files: dict[str, bytes]
    drop_after: int | None = None  # bytes of each of the first ``drops`` bodies; then the connection is closed
    drops: int = 0
    ranges: bool = True
    announced: int | None = None  # the size in answers to HEAD
    status: list[int] = field(default_factory=list)  # of the first requests
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serve a site until the end of the ``with`` statement."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            site.requests.append(f"{self.command} {self.headers.get('Range', '')}".strip())
            name = self.path.partition("?")[0].lstrip("/")
            status = site.status.pop(0) if site.status else 200 if name in site.files else 404
            content = site.files.get(name, b"") if status == 200 else b""
            size, start = len(content), 0
            if site.ranges and "Range" in self.headers and status == 200:
                start = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])
                status = 206
            self.send_response(status)
            length = site.announced if self.command == "HEAD" and site.announced is not None else size - start
            self.send_header("Content-Length", str(length))
            self.send_header("ETag", f'"{hash(content)}"')
            self.send_header("Content-Type", "text/html" if content.startswith(b"<a") else "text/plain")
            self.end_headers()
            if body:
                content = content[start:]
                if site.drops and site.drop_after is not None and len(content) > site.drop_after:
                    site.drops -= 1
                    content = content[: site.drop_after]
                with contextlib.suppress(OSError):  # a reader of the beginning has closed the connection
                    self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
