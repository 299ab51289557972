"""Shadow versions: they score the same requests in the background, and the differences are counted."""

from __future__ import annotations

import json
import math
import queue
import threading
from typing import Any

import numpy as np

from fm2.serving.counters import SHADOW_DIFFERENCE, SHADOW_DROPPED, SHADOW_FAILURES, SHADOW_ROWS, SHADOW_SQUARES
from fm2.serving.served import Served
from fm2.serving.table import INFER, PREDICT, Target

LENGTH = 256  # requests that wait for a shadow; more are dropped and counted


class Shadows:
    """Scores requests again, on a thread of its own, which starts with the first request."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[Served, int, bytes, int, Any]] = queue.Queue(LENGTH)
        self._thread: threading.Thread | None = None

    def add(self, target: Target, body: bytes, length: int, reply: Any) -> None:
        """Queue a request that has been answered."""
        assert target.shadow is not None
        if target.kind not in (PREDICT, INFER):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fm2-shadow", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((target.shadow, target.kind, body, length, reply))
        except queue.Full:
            target.shadow.block.words[SHADOW_DROPPED] += 1

    def _run(self) -> None:
        while True:
            shadow, *request = self._queue.get()
            try:
                compare(shadow, *request)
            except Exception:  # the thread compares the requests of all models
                shadow.block.words[SHADOW_FAILURES] += 1
            del shadow, request  # while it waits, a model that was replaced must not stay open


def compare(shadow: Served, kind: int, body: bytes, length: int, reply: Any) -> None:
    """Score a request with the shadow and count how its probabilities differ from those of the answer."""
    endpoint = shadow.endpoint
    other = endpoint.predict(body) if kind == PREDICT else endpoint.infer(body, length)
    words, floats = shadow.block.words, shadow.block.floats
    if other.status != 200:
        words[SHADOW_FAILURES] += 1
        return
    expected, actual = _probabilities(reply), _probabilities(other)
    if len(expected) != len(actual):
        words[SHADOW_FAILURES] += 1
        return
    words[SHADOW_ROWS] += len(actual)
    floats[SHADOW_DIFFERENCE] += math.fsum(abs(a - b) for a, b in zip(actual, expected, strict=True))
    floats[SHADOW_SQUARES] += math.fsum((a - b) ** 2 for a, b in zip(actual, expected, strict=True))


def _probabilities(reply: Any) -> list[float]:
    """Read the probabilities of an answer; there may be none if a client asked for logits."""
    length = reply.header_length
    answer = json.loads(reply.body[:length] if length else reply.body)
    if "probabilities" in answer:
        return list(answer["probabilities"])
    offset = length
    for output in answer["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if output["name"] == "probabilities":
            data = output["data"] if size is None else np.frombuffer(reply.body[offset : offset + size], "<f4")
            return list(np.asarray(data).reshape(-1).tolist())
        offset += size or 0
    return []
