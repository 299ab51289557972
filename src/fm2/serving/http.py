"""Requests outside the fast path, and responses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]

from fm2.errors import Fm2Error, suggest
from fm2.serving.refusals import JSON, Headers, Refused
from fm2.serving.table import ServedModel, Table

if TYPE_CHECKING:
    from fm2.serving.app import App
    from fm2.serving.served import Served


@dataclass
class Response:
    """A response; ``content`` is bytes, or a value to be sent as JSON."""

    content: Any = None
    status: int = 200
    headers: Headers = field(default_factory=lambda: JSON)

    @property
    def body(self) -> bytes:
        """The bytes to send."""
        if isinstance(self.content, bytes):
            return self.content
        return b"" if self.content is None else json.dumps(self.content, ensure_ascii=False).encode()


@dataclass
class Request:
    """A request: the parts of its path that vary, and its body."""

    app: App
    table: Table
    method: str
    path: str
    query: str
    headers: Any
    parts: dict[str, str]
    body: bytes = b""

    def json(self) -> Any:
        """Return the body as JSON."""
        try:
            value = json.loads(self.body.decode(), parse_constant=_refuse_constant)
            if rb"\u" in self.body:
                json.dumps(value, ensure_ascii=False).encode()  # an unpaired surrogate cannot be stored or sent
        except UnicodeEncodeError as error:
            message = f"the body has a text that is not Unicode: the unpaired surrogate {error.object[error.start]!r}"
            raise Refused(400, message, "invalid_json") from error
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is not JSON: {error}", "invalid_json") from error
        return value

    def json_object(self, *keys: str) -> dict[str, Any]:
        """Return the body as an object that has only these keys."""
        value = self.json()
        if not isinstance(value, dict):
            raise Refused(400, f"the body must be an object with {', '.join(keys)}", "invalid_request")
        for key in value:
            if key not in keys:
                raise Refused(400, f"unknown key '{key}'; {suggest(key, keys)}", "invalid_request")
        return value

    def argument(self, name: str) -> str | None:
        """Return an argument of the query."""
        values = parse_qs(self.query).get(name)
        return values[0] if values else None

    def model(self) -> ServedModel:
        """Return the model that the path names."""
        return find_model(self.table, self.parts["model"])

    def served(self) -> Served:
        """Return the version that the path names, or the one that serves."""
        model = self.model()
        version = self.parts.get("version")
        if version is None:
            if model.serving is None:
                raise Refused(404, f"the model '{model.name}' is not loaded", "not_ready")
            return model.serving
        found = model.versions.get(version) or model.versions.get(model.state.labels.get(version, ""))
        if found is None:
            meant = suggest(version, [*model.versions, *model.state.labels])
            raise Refused(404, f"the model '{model.name}' has no version '{version}'; {meant}", "not_found")
        return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a value of JSON")


def find_model(table: Table, name: str) -> ServedModel:
    """Return a model, or refuse with a suggestion."""
    if name in table.models:
        return table.models[name]
    meant = f"; {suggest(name, table.models)}" if table.models else "; no model is loaded"
    raise Refused(404, f"unknown model '{name}'{meant}", "not_found")


def error_response(status: int, message: str, headers: Headers | None = None) -> Response:
    """Return an error as all clients expect it."""
    return Response({"error": message}, status, JSON + (headers or []))


def refused(error: Exception) -> Refused:
    """Return how a request is refused because of an error."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Fm2Error):
        message = str(error)
        return Refused(404 if message.startswith("unknown ") else 400, message, "invalid_request")
    if isinstance(error, ProtocolClosed):
        message = "the body ended before as many bytes as Content-Length announces, or the connection was closed"
        return Refused(400, message, "invalid_request")
    if isinstance(error, TimeoutError):
        return Refused(503, str(error) or "the request took too long", "timeout")
    return Refused(500, "internal error; the server's log has the reason", "internal_error")
