"""Which requests go to a model's canary: a share of them, the same ones every time."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

from fm2.serving.table import Target

LARGEST = 64 << 10  # bodies up to this size are searched for the request's id


def choose(target: Target, headers: Any, body: bytes, sticky: str) -> Target:
    """Return the target of a request: decided by a header, by the request's id, or at random."""
    assert target.canary is not None
    key = headers.get(sticky)
    if key is None:
        key = _request_id(body)
    if key is None:
        return target.canary if random.random() < target.share else target
    return target.canary if fraction(key) < target.share else target


def fraction(key: str) -> float:
    """Return a number between 0 and 1 that depends only on the key.

    >>> fraction("user-1") == fraction("user-1")
    True
    """
    return zlib.crc32(key.encode("utf-8", "replace")) / 2**32


def _request_id(body: bytes) -> str | None:
    """Return the id in a JSON body."""
    if len(body) > LARGEST or b'"id"' not in body:
        return None
    try:
        request = json.loads(body)
        return str(request["id"]) if isinstance(request, dict) and "id" in request else None
    except (ValueError, RecursionError):
        return None
