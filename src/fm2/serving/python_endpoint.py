"""Temporary: the interface of the native endpoint, in Python."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fm2.errors import Fm2Error, suggest


@dataclass
class Reply:
    status: int
    body: bytes
    rows: int = 0
    parse_ns: int = 0
    score_ns: int = 0
    probability_sum: float = 0.0
    reason: str = ""
    header_length: int = 0


class Endpoint:
    def __init__(self, scorer: Any, counters: Any, *, name: str, version: str, max_rows: int, max_values: int) -> None:
        self.scorer, self.counters, self.name, self.version = scorer, counters, name, version
        self.max_rows = max_rows

    def _score(self, rows: list[Any]) -> list[float]:
        for i, row in enumerate(rows):
            if not isinstance(row, dict):
                raise Fm2Error(f"rows[{i}]: expected an object")
            for key in row:
                if key not in self.scorer.columns:
                    raise Fm2Error(f"rows[{i}]: unknown column '{key}'; {suggest(key, self.scorer.columns)}")
        ids = self.scorer.encode_rows(rows)
        for field in range(ids.ids.shape[1]):
            self.counters[2 * field] += len(ids)
            self.counters[2 * field + 1] += int((ids.ids[:, field] == 0).sum())
        return [float(p) for p in self.scorer.predict(ids)]

    def _reply(self, body: bytes, rows_of: Any, answer: Any) -> Reply:
        began = time.perf_counter_ns()
        try:
            request = json.loads(body)
            rows = rows_of(request)
            parsed = time.perf_counter_ns()
            probabilities = self._score(rows)
        except (Fm2Error, ValueError, KeyError, TypeError) as error:
            return Reply(400, json.dumps({"error": str(error)}).encode(), reason="request")
        scored = time.perf_counter_ns()
        result = {**answer(probabilities), **({"id": request["id"]} if "id" in request else {})}
        text = json.dumps(result).encode()
        return Reply(200, text, len(rows), parsed - began, scored - parsed, float(np.sum(probabilities)))

    def predict(self, body: bytes) -> Reply:
        def rows_of(request: Any) -> Any:
            if "columns" in request:
                columns = request["columns"]
                return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            return request["rows"]

        return self._reply(body, rows_of, lambda p: {"model": self.name, "version": self.version, "probabilities": p})

    def infer(self, body: bytes, header_length: int = 0) -> Reply:
        def rows_of(request: Any) -> Any:
            names = [tensor["name"] for tensor in request["inputs"]]
            return [dict(zip(names, v, strict=True)) for v in zip(*(t["data"] for t in request["inputs"]), strict=True)]

        def answer(p: Any) -> Any:
            output = {"name": "probability", "datatype": "FP32", "shape": [len(p)], "data": p}
            return {"model_name": self.name, "model_version": self.version, "outputs": [output]}

        return self._reply(body, rows_of, answer)
