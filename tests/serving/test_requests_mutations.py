"""Damaged requests: each is answered, or refused with a message. Nothing crashes, whatever the bytes are."""

from __future__ import annotations

import json
import random
import struct

import numpy as np
import pytest
import tritonclient.http as triton
from tests.helpers.served import make_endpoint, make_scorer, rows_of

MUTATIONS = 40_000
SYNTAX = [b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b"[" * 100, b'{"a":' * 100]
VALUES = [b"null", b"true", b"-", b"-1", b"0.1", b"1e999", b"1e-999", b"9" * 400, b"18446744073709551616", b"NaN"]
NAMES = [b"data", b"shape", b"ids", b"BYTES", b"INT64"]
BYTES = [b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", struct.pack("<I", 2**32 - 1), struct.pack("<q", -1)]
PIECES = SYNTAX + VALUES + NAMES + BYTES


def mutate(body: bytes, source: random.Random) -> bytes:
    """Change a request at a few places: bytes flipped, pieces inserted, ranges removed, repeated or cut off."""
    changed = bytearray(body)
    for _ in range(source.choice([1, 1, 1, 2, 4])):
        at, size = source.randrange(len(changed) + 1), source.choice([1, 2, 8, 50])
        match source.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                changed[at:at] = source.choice(PIECES)
            case 2:
                piece = source.choice(PIECES)
                changed[at : at + len(piece)] = piece
            case 3:
                del changed[at : at + size]
            case 4:
                changed[at:at] = changed[at : at + size]
            case _:
                del changed[at:]
    return bytes(changed)


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    return {name: make_scorer(name, tmp_path_factory.mktemp(name)) for name in ("mixed", "lists", "trees")}


def binary_requests(scorer, rows):
    tensors = []
    for name in scorer.columns:
        texts = np.array([str(row.get(name)) for row in rows], object)
        tensors.append(triton.InferInput(name, [len(rows)], "BYTES").set_data_from_numpy(texts))
    ids = np.zeros((2, len(scorer.native.sizes)), np.int64)
    one = triton.InferInput("ids", list(ids.shape), "INT64").set_data_from_numpy(ids)
    return [triton.InferenceServerClient.generate_request_body(inputs) for inputs in (tensors, [one])]


def requests_of(name, scorer):
    """Return calls: the method of the endpoint, a valid body, the length of its JSON."""
    rows = rows_of(name, 3)
    columns = {column: [row.get(column) for row in rows] for column in scorer.columns}
    context = {column: rows[0][column] for column in scorer.columns[:2]}
    candidates = [{key: value for key, value in row.items() if key not in context} for row in rows]
    inputs = [
        {"name": column, "shape": [len(rows)], "datatype": "BYTES", "data": [str(value) for value in values]}
        for column, values in columns.items()
    ]
    documents = [
        ("predict", {"rows": rows, "id": "x"}),
        ("predict", {"columns": columns}),
        ("rank", {"context": context, "candidates": candidates, "top": 2}),
        ("rank", {"context": context, "catalog": "ads"}),
        ("infer", {"inputs": inputs, "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}),
    ]
    calls = [(method, json.dumps(document).encode(), 0) for method, document in documents]
    return calls + [("infer", body, length) for body, length in binary_requests(scorer, rows)]


@pytest.mark.parametrize("name", ["mixed", "lists", "trees"])
def test_damaged_requests_are_answered(scorers, name):
    scorer, source = scorers[name], random.Random(name)
    endpoint = make_endpoint(scorer, max_rows=100, max_values=10_000)
    calls = requests_of(name, scorer)
    for method, body, length in calls:
        reply = getattr(endpoint, method)(body, length) if method == "infer" else getattr(endpoint, method)(body)
        assert reply.status in (200, 400, 404), reply.body  # lists have no ids, and there is no catalog
    answers = {200: 0, 400: 0, 404: 0, 413: 0}
    for _ in range(MUTATIONS // 3):
        method, body, length = source.choice(calls)
        changed = mutate(body, source)
        if method == "infer":
            shifted = max(0, length + source.choice([0, 0, 0, -1, 1, len(changed) - len(body), 10**9]))
            reply = endpoint.infer(changed, shifted)
        else:
            reply = getattr(endpoint, method)(changed)
        answers[reply.status] += 1
        if reply.status == 200:
            continue
        assert json.loads(reply.body)["error"], changed
        assert reply.reason
        assert len(reply.body) < 2000
    assert answers[200] > 100
    assert answers[400] > 1000
