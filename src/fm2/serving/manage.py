"""Routes that show and change labels, canary, shadow and catalogs."""

from __future__ import annotations

from typing import Any

from fm2.errors import suggest
from fm2.serving.http import Request, Response
from fm2.serving.refusals import Refused
from fm2.serving.served import Served, ServedCatalog


def traffic(request: Request) -> Response:
    """``GET /v1/models/{model}/traffic``."""
    state = request.model().state
    canary = {"version": state.canary[0], "share": state.canary[1]} if state.canary else None
    shadow = {"version": state.shadow} if state.shadow else None
    return Response({"serving": state.serving, "labels": state.labels, "canary": canary, "shadow": shadow})


def direct_traffic(request: Request) -> Response:
    """``PUT /v1/models/{model}/traffic``."""
    values = request.json_object("labels", "canary", "shadow")
    request.app.call_keeper("traffic", name=request.model().name, traffic=values)
    request.table = request.app.table
    return traffic(request)


def catalogs(request: Request) -> Response:
    """``GET /v1/models/{model}/catalogs``."""
    return Response({"catalogs": describe_catalogs(request.served())})


def describe_catalogs(served: Served) -> list[dict[str, Any]]:
    """Return the name, candidate columns and number of items of each catalog."""
    return [_describe(name, catalog) for name, catalog in served.catalogs.items()]


def _describe(name: str, catalog: ServedCatalog) -> dict[str, Any]:
    return {"name": name, "candidate": catalog.state.candidate, "items": catalog.state.count}


def catalog(request: Request) -> Response:
    """``GET /v1/models/{model}/catalogs/{catalog}``."""
    served, name = request.served(), request.parts["catalog"]
    if name not in served.catalogs:
        meant = f"; {suggest(name, served.catalogs)}" if served.catalogs else ""
        raise Refused(404, f"unknown catalog '{name}' of the model '{served.name}'{meant}", "not_found")
    found = served.catalogs[name]
    return Response({**_describe(name, found), "ids": found.ids})


def put_catalog(request: Request) -> Response:
    """``PUT /v1/models/{model}/catalogs/{catalog}``."""
    values = request.json_object("candidate", "items")
    candidate, items = values.get("candidate"), _list(values, "items")
    if not isinstance(candidate, list) or not candidate or not all(isinstance(column, str) for column in candidate):
        raise Refused(400, '"candidate" must be a list of the candidates\' columns', "invalid_request")
    return _call(request, "put_catalog", candidate=candidate, items=items)


def extend_catalog(request: Request) -> Response:
    """``POST /v1/models/{model}/catalogs/{catalog}/items``."""
    return _call(request, "extend_catalog", items=_list(request.json_object("items"), "items"))


def prune_catalog(request: Request) -> Response:
    """``DELETE /v1/models/{model}/catalogs/{catalog}/items``."""
    ids = _list(request.json_object("ids"), "ids")
    return _call(request, "prune_catalog", ids=[str(id) for id in ids])


def delete_catalog(request: Request) -> Response:
    """``DELETE /v1/models/{model}/catalogs/{catalog}``."""
    return _call(request, "delete_catalog")


def _call(request: Request, call: str, **arguments: Any) -> Response:
    name, catalog = request.model().name, request.parts["catalog"]
    result = request.app.call_keeper(call, name=name, catalog=catalog, **arguments)
    return Response(result or {})


def _list(values: dict[str, Any], key: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list):
        raise Refused(400, f'"{key}" must be a list', "invalid_request")
    return found
