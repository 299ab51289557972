"""All routes: method, path, right, handler and description. The OpenAPI page is generated from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fm2.errors import suggest
from fm2.serving import manage, oip, pages, v1
from fm2.serving.http import Request, Response, find_model
from fm2.serving.refusals import Refused
from fm2.serving.table import Table

VERSION = "/versions/{version}"


@dataclass(frozen=True)
class Route:
    """A route. ``right`` is that of the API key, empty if none is needed; ``in_pool``: the handler may take long."""

    method: str
    path: str
    right: str
    handler: Callable[[Request], Response]
    summary: str
    request: str = ""  # the schema of the body
    response: str = ""  # the schema of the answer
    in_pool: bool = False

    @property
    def pattern(self) -> list[str]:
        """The parts of the path."""
        return self.path.split("/")


def _versioned(route: Route) -> tuple[Route, ...]:
    """Return a route of a model, and the same one of a version or label."""
    path = route.path.replace("{model}", "{model}" + VERSION, 1)
    return route, Route(
        route.method,
        path,
        route.right,
        route.handler,
        f"{route.summary} (version or label)",
        route.request,
        route.response,
        route.in_pool,
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/", "", pages.index, "The web page", response="html"),
    Route("GET", "/page/{file}", "", pages.file, "A file of the web page", response="html"),
    Route("GET", "/openapi.json", "", pages.openapi, "This description", response="object"),
    Route("GET", "/metrics", "predict", pages.metrics, "Prometheus metrics", response="text", in_pool=True),
    Route("GET", "/v1/stats", "predict", v1.stats, "Counters of all models", response="Stats", in_pool=True),
    Route("GET", "/v1/models", "predict", v1.models, "All models", response="Models"),
    *_versioned(Route("GET", "/v1/models/{model}", "predict", v1.model, "A model", response="Model", in_pool=True)),
    *_versioned(
        Route(
            "POST",
            "/v1/models/{model}/predict",
            "predict",
            v1.not_scored,
            "Predict rows",
            "PredictRequest",
            "PredictResponse",
        )
    ),
    *_versioned(
        Route(
            "POST",
            "/v1/models/{model}/rank",
            "predict",
            v1.not_scored,
            "Rank candidates",
            "RankRequest",
            "RankResponse",
        )
    ),
    *_versioned(
        Route(
            "POST",
            "/v1/models/{model}/explain",
            "predict",
            v1.explain,
            "Explain a prediction",
            "ExplainRequest",
            "Explanation",
            in_pool=True,
        )
    ),
    *_versioned(
        Route(
            "POST",
            "/v1/models/{model}/outcomes",
            "predict",
            v1.outcomes,
            "Report what happened, for calibration metrics",
            "OutcomesRequest",
            "Outcomes",
        )
    ),
    Route(
        "GET", "/v1/models/{model}/traffic", "predict", manage.traffic, "Labels, canary and shadow", response="Traffic"
    ),
    Route(
        "PUT",
        "/v1/models/{model}/traffic",
        "manage",
        manage.direct_traffic,
        "Set labels, canary and shadow",
        "Traffic",
        "Traffic",
        in_pool=True,
    ),
    Route("GET", "/v1/models/{model}/catalogs", "predict", manage.catalogs, "All catalogs", response="Catalogs"),
    Route(
        "GET",
        "/v1/models/{model}/catalogs/{catalog}",
        "predict",
        manage.catalog,
        "A catalog and its items' ids",
        response="Catalog",
    ),
    Route(
        "PUT",
        "/v1/models/{model}/catalogs/{catalog}",
        "manage",
        manage.put_catalog,
        "Create or replace a catalog",
        "CatalogRequest",
        "Catalog",
        in_pool=True,
    ),
    Route(
        "DELETE",
        "/v1/models/{model}/catalogs/{catalog}",
        "manage",
        manage.delete_catalog,
        "Delete a catalog",
        response="object",
        in_pool=True,
    ),
    Route(
        "POST",
        "/v1/models/{model}/catalogs/{catalog}/items",
        "manage",
        manage.extend_catalog,
        "Add or replace items",
        "ItemsRequest",
        "Catalog",
        in_pool=True,
    ),
    Route(
        "DELETE",
        "/v1/models/{model}/catalogs/{catalog}/items",
        "manage",
        manage.prune_catalog,
        "Remove items",
        "PruneRequest",
        "Catalog",
        in_pool=True,
    ),
    Route("GET", "/v2", "", oip.server, "Server metadata", response="object"),
    Route("GET", "/v2/health/live", "", oip.live, "Whether the server is alive"),
    Route("GET", "/v2/health/ready", "", oip.ready, "Whether the server can answer"),
    *_versioned(
        Route(
            "GET",
            "/v2/models/{model}",
            "predict",
            oip.metadata,
            "Inputs and outputs of a model",
            response="ModelMetadata",
        )
    ),
    *_versioned(Route("GET", "/v2/models/{model}/ready", "predict", oip.model_ready, "Whether a model is ready")),
    *_versioned(
        Route(
            "POST",
            "/v2/models/{model}/infer",
            "predict",
            v1.not_scored,
            "Predict tensors",
            "InferRequest",
            "InferResponse",
        )
    ),
    Route("POST", "/v2/repository/index", "predict", oip.index, "All models and their states", response="Index"),
    Route(
        "POST", "/v2/repository/models/{model}/load", "manage", oip.load, "Load a model", "LoadRequest", in_pool=True
    ),
    Route(
        "POST",
        "/v2/repository/models/{model}/unload",
        "manage",
        oip.unload,
        "Unload a model",
        "LoadRequest",
        in_pool=True,
    ),
)
_PATTERNS = [(route, route.pattern) for route in ROUTES]


def find_route(method: str, path: str, table: Table) -> tuple[Route, dict[str, str]]:
    """Return the route of a request and the parts of its path that vary; refuse unknown paths and methods."""
    wanted = "GET" if method == "HEAD" else method
    parts = (path.rstrip("/") or "/").split("/")
    allowed = []
    for route, pattern in _PATTERNS:
        found = _match(pattern, parts)
        if found is not None:
            if route.method == wanted:
                return route, found
            allowed.append(route.method)
    if allowed:
        message = f"{method} is not allowed for {path}; use {' or '.join(allowed)}"
        raise Refused(405, message, "method_not_allowed", [("allow", ", ".join(allowed))])
    raise Refused(404, f"unknown path '{path[:200]}'; {_suggest_path(parts, table)}", "not_found")


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{") and part:
            found[expected[1:-1]] = part
        elif expected != part:
            return None
    return found


def _suggest_path(parts: list[str], table: Table) -> str:
    """Suggest a path; a model in it is checked first."""
    if len(parts) > 3 and parts[1] in ("v1", "v2") and parts[2] == "models":
        find_model(table, parts[3])
        paths = [route.path.replace("{model}", parts[3]) for route in ROUTES]
    else:
        paths = [route.path for route in ROUTES]
    hint = suggest("/".join(parts)[:200], sorted(set(paths)))
    return hint if hint.startswith("did you mean") else "/openapi.json describes all paths"
