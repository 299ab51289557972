"""The OpenAPI 3.1 description of all routes."""

from __future__ import annotations

import re
from typing import Any

from fm2 import __version__
from fm2.serving.routes import ROUTES, Route
from fm2.serving.schemas import SCHEMAS, reference

MEDIA = {"html": "text/html", "text": "text/plain", "object": "application/json"}
OPTIONAL_BODIES = ("LoadRequest",)


def description() -> dict[str, Any]:
    """Return the description as plain values."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fm2",
            "version": __version__,
            "summary": "Click-through-rate predictions of compiled models",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "responses": {"Error": {"description": "Error", "content": _content("Error")}},
        },
        "tags": [{"name": name} for name in ("v1", "v2", "server")],
    }


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    tag = route.path.split("/")[1]
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.path).rstrip('_')}",
        "summary": route.summary,
        "tags": [tag if tag in ("v1", "v2") else "server"],
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names],
        "responses": {
            "200": {"description": "Success", **({"content": _content(route.response)} if route.response else {})},
            "4XX": {"$ref": "#/components/responses/Error"},
            "5XX": {"$ref": "#/components/responses/Error"},
        },
        "security": [{"key": []}, {}] if route.right else [{}],
    }
    if route.request:
        required = route.request not in OPTIONAL_BODIES
        operation["requestBody"] = {"required": required, "content": _content(route.request)}
    return operation


def _content(name: str) -> dict[str, Any]:
    """Return the content of a body: a schema by name, or a media type."""
    if name in MEDIA:
        return {MEDIA[name]: {"schema": {"type": "object" if name == "object" else "string"}}}
    return {"application/json": {"schema": reference(name)}}
