"""The OpenAPI description of all routes."""

from __future__ import annotations

from typing import Any

from fm2 import __version__


def description() -> dict[str, Any]:
    """Return the description."""
    from fm2.serving.routes import ROUTES

    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = {
            "summary": route.summary,
            "responses": {"200": {"description": "OK"}},
        }
    return {"openapi": "3.1.0", "info": {"title": "fm2", "version": __version__}, "paths": paths}
