"""Compressed bodies, and bodies with binary tensors."""

from __future__ import annotations

import zlib
from typing import Any

from fm2.serving.refusals import Refused

LENGTH = "inference-header-content-length"
WINDOW = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body of at most ``limit`` bytes."""
    if encoding.lower() == "identity":
        return body
    if encoding.lower() not in WINDOW:
        raise Refused(415, f"unknown content encoding '{encoding[:40]}'; use gzip or deflate", "invalid_request")
    decoder = zlib.decompressobj(WINDOW[encoding.lower()])
    try:
        text = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not valid {encoding}: {error}", "invalid_request") from error
    if len(text) > limit:
        raise Refused(413, f"the decompressed body exceeds {limit} bytes (fm2 serve --max-body)", "body_too_large")
    if not decoder.eof:
        raise Refused(400, f"the {encoding} data of the body is incomplete", "invalid_request")
    return text


def header_length(headers: Any, body: bytes) -> int:
    """Return the length of the JSON in front of binary tensors, or 0."""
    text = headers.get(LENGTH)
    if text is None:
        return 0
    if not text.isdigit() or len(text) > 18 or int(text) == 0:
        message = f"the header Inference-Header-Content-Length must be a number above 0, got '{text[:40]}'"
        raise Refused(400, message, "invalid_request")
    return int(text)
