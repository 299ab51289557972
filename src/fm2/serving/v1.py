"""The ``/v1`` routes of models, except predict and rank, which native code answers."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from fm2.errors import suggest
from fm2.serving.counters import (
    BOUNDS,
    FAILURES,
    KIND,
    OUTCOME_CLICKS,
    OUTCOME_LOSS,
    OUTCOME_PREDICTIONS,
    OUTCOMES,
    REQUESTS,
    ROWS,
    TOTAL_TIMES,
)
from fm2.serving.http import Request, Response
from fm2.serving.manage import describe_catalogs
from fm2.serving.refusals import Refused
from fm2.serving.served import Served
from fm2.serving.sources import version_key
from fm2.serving.table import EXPLAIN, ServedModel
from fm2.serving.typical import describe_columns


def models(request: Request) -> Response:
    """``GET /v1/models``."""
    names = request.table.models.values()
    return Response({"models": [{"name": model.name, "versions": _versions(model)} for model in names]})


def model(request: Request) -> Response:
    """``GET /v1/models/{model}``."""
    found, served = request.model(), request.served()
    return Response(
        {
            **_describe(found, served),
            "name": found.name,
            "versions": _versions(found),
            "catalogs": describe_catalogs(served),
            "columns": describe_columns(served.scorer),
            "labels": found.state.labels,
            "rejected": found.state.rejected,
        }
    )


def _versions(model: ServedModel) -> list[dict[str, Any]]:
    newest_first = sorted(model.versions, key=version_key, reverse=True)
    return [_describe(model, model.versions[version]) for version in newest_first]


def _describe(model: ServedModel, served: Served) -> dict[str, Any]:
    """Describe a version; the label of the serving one is empty."""
    scorer, version = served.scorer, served.version
    canary, share = model.state.canary or ("", 0.0)
    roles = {model.state.shadow: "shadow", canary: "canary", model.state.serving: ""}
    return {
        "version": version,
        "label": roles.get(version, "inactive"),
        "share": share if version == canary else None,
        "loaded": served.state.loaded,
        "model": scorer.meta["model"]["model"],
        "plan": scorer.meta["plan"],
        "dtype": scorer.dtype,
        "bytes": served.state.bytes,
        "fields": len(scorer.schema.fields),
        "features": sum(scorer.native.sizes),
        "calibrated": scorer.calibration is not None,
        "explainable": not scorer.is_network,
        "metrics": scorer.meta.get("metrics"),
        "checksum": scorer.fingerprint,
    }


def not_scored(request: Request) -> Response:
    """Refuse a request whose path is not one of a loaded model: the reason is its model or version."""
    served = request.served()
    path = request.path.rstrip("/")
    if path != request.path:
        raise Refused(404, f"unknown path '{request.path[:200]}'; did you mean '{path[:200]}'?", "not_found")
    raise Refused(503, f"the model '{served.name}' is being replaced; try again", "not_ready")


def explain(request: Request) -> Response:
    """``POST /v1/models/{model}/explain``."""
    served = request.served()
    row = request.json_object("row", "id").get("row")
    if not isinstance(row, dict):
        raise Refused(400, '"row" must be an object of values by column', "invalid_request")
    for column in row:
        if column not in served.scorer.columns:
            meant = suggest(column, served.scorer.columns, list(row))
            raise Refused(400, f"row: unknown column '{column}'; {meant}", "unknown_column")
    explanation = served.scorer.explain(row)
    served.block.words[KIND + EXPLAIN] += 1
    calibrated = None
    if served.scorer.calibration is not None:
        calibrated = served.scorer.predict_one(row)
    return Response(
        {
            "model": served.name,
            "version": served.version,
            "bias": explanation.bias,
            "fields": explanation.fields,
            "pairs": [[first, second, term] for (first, second), term in explanation.pairs.items() if term],
            "values": {name: [vars(value) for value in parts] for name, parts in explanation.values.items()},
            "row": explanation.row,
            "logit": explanation.logit,
            "probability": explanation.probability,
            "calibrated": calibrated,
        }
    )


def outcomes(request: Request) -> Response:
    """``POST /v1/models/{model}/outcomes``: predictions and what happened, for calibration metrics."""
    served = request.served()
    values = request.json_object("probabilities", "clicks")
    probabilities, clicks = (_numbers(values, key) for key in ("probabilities", "clicks"))
    if len(probabilities) != len(clicks):
        counts = f"{len(probabilities)} probabilities, but {len(clicks)} clicks"
        raise Refused(400, f"there are {counts}", "invalid_request")
    words, floats = served.block.words, served.block.floats
    inside = np.clip(probabilities, 1e-7, 1 - 1e-7)
    words[OUTCOMES] += len(clicks)
    floats[OUTCOME_CLICKS] += math.fsum(clicks)
    floats[OUTCOME_PREDICTIONS] += math.fsum(probabilities)
    floats[OUTCOME_LOSS] -= float(np.sum(clicks * np.log(inside) + (1 - clicks) * np.log1p(-inside)))
    return Response({"accepted": len(clicks)})


def _numbers(values: dict[str, Any], key: str) -> Any:
    """Return a list of numbers between 0 and 1 as an array."""
    given = values.get(key)
    if not isinstance(given, list):
        raise Refused(400, f'"{key}" must be a list of numbers between 0 and 1', "invalid_request")
    for index, number in enumerate(given):
        if not isinstance(number, int | float) or not 0 <= number <= 1:
            raise Refused(
                400, f"{key}[{index}] must be a number between 0 and 1, got {repr(number)[:80]}", "invalid_value"
            )
    return np.array(given, np.float64)


def stats(request: Request) -> Response:
    """``GET /v1/stats``: sums over all workers since the start."""
    found = {
        model.name: {version: _stats(request, served) for version, served in model.versions.items()}
        for model in request.table.models.values()
    }
    return Response({"time": time.time(), "started": request.app.started, "models": found})


def _stats(request: Request, served: Served) -> dict[str, Any]:
    names = served.scorer.schema.names
    total = request.app.counters.total(served.state.block, len(names))
    fields = {name: total.field(index) for index, name in enumerate(names)}
    return {
        "requests": total.words[REQUESTS],
        "rows": total.words[ROWS],
        "failures": total.words[FAILURES],
        "latency": {"bounds": BOUNDS, "counts": total.times(TOTAL_TIMES)},
        "unknown": {name: {"values": values, "unknown": unknown} for name, (values, unknown) in fields.items()},
    }
