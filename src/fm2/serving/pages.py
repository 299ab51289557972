"""The web page, the OpenAPI description and the metrics."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from fm2.errors import suggest
from fm2.serving.http import Request, Response
from fm2.serving.refusals import Headers, Refused

DIRECTORY = Path(__file__).parent / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
SECURITY: Headers = [
    ("content-security-policy", "default-src 'self'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
]


@functools.cache
def _files() -> dict[str, tuple[bytes, Headers]]:
    """Read the files of the page: only these can be requested."""
    files = {}
    for path in sorted(DIRECTORY.glob("*")):
        if path.suffix in TYPES:
            content = path.read_bytes()
            tag = ("etag", f'"{hashlib.sha256(content).hexdigest()[:16]}"')
            files[path.name] = (content, [("content-type", TYPES[path.suffix]), tag, *SECURITY])
    return files


def _send(request: Request, name: str) -> Response:
    files = _files()
    if name not in files:
        meant = f"; {suggest(name, files)}" if files else ""
        raise Refused(404, f"unknown file '{name}'{meant}", "not_found")
    content, headers = files[name]
    if request.headers.get("if-none-match") == dict(headers)["etag"]:
        return Response(b"", 304, headers)
    return Response(content, 200, headers)


def index(request: Request) -> Response:
    """``GET /``."""
    return _send(request, INDEX)


def file(request: Request) -> Response:
    """``GET /page/{file}``."""
    return _send(request, request.parts["file"])


def openapi(request: Request) -> Response:
    """``GET /openapi.json``."""
    from fm2.serving.openapi import description

    return Response(description())


def metrics(request: Request) -> Response:
    """``GET /metrics``."""
    from fm2.serving.exposition import expose

    text = expose(request.app.counters, request.table)
    return Response(text.encode(), 200, [("content-type", "text/plain; version=0.0.4; charset=utf-8")])
