"""Compressed request bodies."""

from __future__ import annotations

import zlib

from fm2.serving.http import Refused

WINDOW = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body of at most ``limit`` bytes."""
    if encoding.lower() == "identity":
        return body
    if encoding.lower() not in WINDOW:
        raise Refused(415, f"unknown content encoding '{encoding[:40]}'; use gzip or deflate", "request")
    decoder = zlib.decompressobj(WINDOW[encoding.lower()])
    try:
        text = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not valid {encoding}: {error}", "request") from error
    if len(text) > limit:
        raise Refused(413, f"the decompressed body exceeds {limit} bytes (--max-body)", "too_large")
    if not decoder.eof:
        raise Refused(400, f"the {encoding} data of the body is incomplete", "request")
    return text
