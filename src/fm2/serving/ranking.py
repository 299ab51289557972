"""``POST /v1/models/{m}/rank``: the best candidates of a request, or of a catalog, in a context."""

from __future__ import annotations

import json
import time
from typing import Any

from fm2.errors import Fm2Error, suggest
from fm2.serving.python_endpoint import Reply
from fm2.serving.served import Served

KEYS = ("context", "candidates", "catalog", "top", "id")


def rank(served: Served, body: bytes) -> Reply:
    """Answer a request."""
    began = time.perf_counter_ns()
    try:
        request = json.loads(body)
        if not isinstance(request, dict):
            raise Fm2Error("expected an object")
        for key in request.keys() - set(KEYS):
            raise Fm2Error(f"unknown key '{key}'; {suggest(key, KEYS)}")
        context, top = request.get("context"), request.get("top")
        if not isinstance(context, dict):
            raise Fm2Error('"context" must be an object')
        columns = served.scorer.columns
        for key in context.keys() - set(columns):
            raise Fm2Error(f"context: unknown column '{key}'; {suggest(key, columns)}")
        parsed = time.perf_counter_ns()
        extra: dict[str, Any] = {}
        if "catalog" in request:
            if request["catalog"] not in served.catalogs:
                raise Fm2Error(f"unknown catalog '{request['catalog']}'")
            catalog = served.catalogs[request["catalog"]]
            ranked = catalog.catalog.top(context, len(catalog.ids) if top is None else top)
            rows = len(catalog.ids)
            extra = {"items": [catalog.ids[index] for index in ranked.indices.tolist()]}
        else:
            candidates = request["candidates"]
            if isinstance(candidates, dict):
                candidates = candidates["columns"]
                candidates = [dict(zip(candidates, v, strict=True)) for v in zip(*candidates.values(), strict=True)]
            for index, row in enumerate(candidates):
                for key in row:
                    if key not in columns:
                        raise Fm2Error(f"candidates[{index}]: unknown column '{key}'; {suggest(key, columns)}")
            ranker = served.scorer.ranker(context=list(context))
            ranked = ranker.rank(context, candidates, top)
            rows = len(candidates)
    except (Fm2Error, ValueError, KeyError, TypeError, AttributeError) as error:
        return Reply(400, json.dumps({"error": str(error)}).encode(), reason="request")
    scored = time.perf_counter_ns()
    answer = {
        "model": served.name,
        "version": served.version,
        "indices": ranked.indices.tolist(),
        "probabilities": ranked.probabilities.tolist(),
        **extra,
    }
    return Reply(200, json.dumps(answer).encode(), rows, parsed - began, scored - parsed)
