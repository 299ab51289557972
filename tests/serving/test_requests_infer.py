"""Open Inference Protocol requests, encoded and decoded by NVIDIA's client."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import tritonclient.http as triton
from tests.helpers.served import error_of, make_endpoint, make_scorer, rows_of

MODELS = ("mixed", "lists", "planted", "trees")


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    return {name: make_scorer(name, tmp_path_factory.mktemp(name)) for name in MODELS}


def tensor(name, values, datatype, *, binary=True):
    """Return an input that the client encodes."""
    made = triton.InferInput(name, list(values.shape), datatype)
    return made.set_data_from_numpy(values, binary_data=binary)


def text_tensors(rows, *, binary=True, shape=(-1,)):
    columns = {name: np.array([row[name] for row in rows], object).reshape(shape) for name in rows[0]}
    return [tensor(name, values, "BYTES", binary=binary) for name, values in columns.items()]


def infer(endpoint, inputs, outputs=None, **options):
    """Send a request of the client; return its result, which the client decodes, and the reply."""
    body, header_length = triton.InferenceServerClient.generate_request_body(inputs, outputs=outputs, **options)
    reply = endpoint.infer(body, header_length or 0)
    assert reply.status == 200, reply.body
    length = reply.header_length or None
    return triton.InferenceServerClient.parse_response_body(reply.body, header_length=length), reply


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_texts_are_scored_like_dicts(scorers, binary_input, binary_output, shape):
    scorer, rows = scorers["mixed"], rows_of("mixed", 30)
    outputs = [triton.InferRequestedOutput("probabilities", binary_data=binary_output)]
    inputs = text_tensors(rows, binary=binary_input, shape=shape)
    result, reply = infer(make_endpoint(scorer), inputs, outputs, request_id="7", timeout=1000, parameters={"mine": 1})
    np.testing.assert_allclose(result.as_numpy("probabilities"), scorer.predict(rows), atol=1e-6)
    assert bool(reply.header_length) == binary_output
    response = result.get_response()
    assert (response["model_name"], response["model_version"], response["id"]) == ("shop", "3", "7")
    assert response["outputs"][0]["shape"] == [30]


def test_binary_output_is_the_clients_default(scorers):
    result, reply = infer(make_endpoint(scorers["mixed"]), text_tensors(rows_of("mixed", 2)))
    assert reply.header_length
    assert result.get_response().keys() == {"model_name", "model_version", "outputs"}


def test_json_is_the_default_of_the_protocol(scorers):
    row = rows_of("mixed", 1)[0]
    inputs = [{"name": name, "shape": [1], "datatype": "BYTES", "data": [value]} for name, value in row.items()]
    reply = make_endpoint(scorers["mixed"]).infer(json.dumps({"inputs": inputs}).encode())
    (output,) = json.loads(reply.body)["outputs"]
    assert output.keys() == {"name", "datatype", "shape", "data"}
    assert output["data"] == [pytest.approx(scorers["mixed"].predict_one(row), abs=1e-7)]


def test_logits_are_an_output(scorers):
    scorer, rows = scorers["planted"], rows_of("planted", 5)
    for binary in (True, False):
        outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("logits", "probabilities")]
        result, _ = infer(make_endpoint(scorer), text_tensors(rows), outputs)
        np.testing.assert_allclose(result.as_numpy("logits"), scorer.logits(rows), atol=1e-6)
        np.testing.assert_allclose(result.as_numpy("probabilities"), scorer.predict(rows), atol=1e-6)
    outputs = [triton.InferRequestedOutput("logits", True), triton.InferRequestedOutput("probabilities", False)]
    result, _ = infer(make_endpoint(scorer), text_tensors(rows), outputs)
    np.testing.assert_allclose(result.as_numpy("probabilities"), scorer.predict(rows), atol=1e-6)


NUMBERS = {
    "INT8": np.array([0, -3, 12, 127], np.int8),
    "INT16": np.array([0, -3, 12, 700], np.int16),
    "INT32": np.array([0, -3, 12, 2**31 - 1], np.int32),
    "INT64": np.array([0, -(2**63), 12, 2**63 - 1], np.int64),
    "UINT8": np.array([0, 3, 12, 255], np.uint8),
    "UINT16": np.array([0, 3, 12, 65535], np.uint16),
    "UINT32": np.array([0, 3, 12, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 3, 12, 2**64 - 1], np.uint64),
    "FP16": np.array([0, 2.25, 0.1, -17], np.float16),
    "FP32": np.array([0, 2.25, 0.1, 1e30], np.float32),
    "FP64": np.array([0, 2.25, 0.1, 1e300], np.float64),
    "BOOL": np.array([True, False, True, False]),
}


@pytest.mark.parametrize("datatype", NUMBERS)
@pytest.mark.parametrize("binary", [True, False])
def test_numbers_are_scored_like_dicts(scorers, datatype, binary):
    scorer, values = scorers["mixed"], NUMBERS[datatype]
    others = text_tensors(rows_of("mixed", 4))[:2]
    columns = dict.fromkeys(("price", "visits", "time"), values)
    inputs = [*others, *(tensor(name, values, datatype, binary=binary) for name in columns)]
    texts = [{"site": row["site"], "user": row["user"]} for row in rows_of("mixed", 4)]
    rows = [{**row, **dict.fromkeys(columns, value)} for row, value in zip(texts, values, strict=True)]
    result, _ = infer(make_endpoint(scorer), inputs)
    expected = [scorer.predict_one(row) for row in rows]
    np.testing.assert_allclose(result.as_numpy("probabilities"), expected, atol=1e-7)


def test_missing_numbers_are_nan_or_null(scorers):
    scorer, rows = scorers["mixed"], rows_of("mixed", 2)
    expected = scorer.predict_one({**rows[0], "price": None})
    inputs = [each for each in text_tensors(rows[:1]) if each.name() != "price"]
    result, _ = infer(make_endpoint(scorer), [*inputs, tensor("price", np.array([np.nan], np.float32), "FP32")])
    assert result.as_numpy("probabilities")[0] == pytest.approx(expected, abs=1e-7)
    body = {
        "inputs": [
            {"name": name, "shape": [1], "datatype": "BYTES", "data": [value]}
            for name, value in rows[0].items()
            if name != "price"
        ]
        + [{"name": "price", "shape": [1], "datatype": "INT64", "data": [None]}]
    }
    reply = make_endpoint(scorer).infer(json.dumps(body).encode())
    assert json.loads(reply.body)["outputs"][0]["data"] == [pytest.approx(expected, abs=1e-7)]


@pytest.mark.parametrize("binary", [True, False])
def test_lists_are_padded_with_empty_texts(scorers, binary):
    scorer, rows = scorers["lists"], rows_of("lists", 20)
    for row in rows:
        row["history"] = list(row["history"] or [])
        row["tags"] = [f"{value}:{weight}" for value, weight in row["tags"].items()]

    def padded(name, fill, dtype):
        width = max(len(row[name]) for row in rows)
        return np.array([row[name] + [fill] * (width - len(row[name])) for row in rows], dtype)

    inputs = [
        *(
            tensor(name, np.array([row[name] for row in rows], object), "BYTES", binary=binary)
            for name in ("site", "item")
        ),
        *(tensor(name, padded(name, "", object), "BYTES", binary=binary) for name in ("history", "tags", "genres")),
        tensor("scores", padded("scores", np.nan, np.float64), "FP64"),
        tensor("price", np.array([row["price"] for row in rows], np.float64), "FP64"),
    ]
    result, _ = infer(make_endpoint(scorer), inputs)
    np.testing.assert_allclose(result.as_numpy("probabilities"), scorer.predict(rows), atol=1e-6)


def test_texts_of_lists_are_split(scorers):
    scorer = scorers["lists"]
    row = {
        "site": "s1",
        "item": "i1",
        "history": "i1|i2",
        "tags": "t1:2|t2",
        "genres": "g1|g2",
        "scores": "1|2",
        "price": "2",
    }
    result, _ = infer(make_endpoint(scorer), text_tensors([row]))
    assert result.as_numpy("probabilities")[0] == pytest.approx(scorer.predict_one(row), abs=1e-7)


@pytest.mark.parametrize("datatype", ["INT32", "INT64"])
@pytest.mark.parametrize("binary", [True, False])
def test_ids_are_scored(scorers, datatype, binary):
    scorer = scorers["mixed"]
    ids = scorer.encode(rows_of("mixed", 30))
    given = tensor("ids", ids.astype(np.int32 if datatype == "INT32" else np.int64), datatype, binary=binary)
    result, _ = infer(make_endpoint(scorer), [given])
    np.testing.assert_allclose(result.as_numpy("probabilities"), scorer.predict(ids), atol=1e-6)


def test_data_may_be_nested_and_come_first(scorers):
    scorer = scorers["mixed"]
    ids = scorer.encode(rows_of("mixed", 3))
    shape = list(ids.shape)
    tensors = [
        {"data": ids.tolist(), "shape": shape, "datatype": "INT64", "name": "ids"},
        {"data": ids.flatten().tolist(), "name": "ids", "datatype": "INT32", "shape": shape},
        {"name": "ids", "shape": shape, "datatype": "INT32", "data": ids.tolist(), "parameters": {"mine": [1, {}]}},
    ]
    for given in tensors:
        reply = make_endpoint(scorer).infer(json.dumps({"inputs": [given], "other": {"key": [1]}}).encode())
        assert json.loads(reply.body)["outputs"][0]["data"] == pytest.approx(scorer.predict(ids).tolist(), abs=1e-7)


def changed(**changes):
    """Return a request for the planted model, with changes to its first input."""
    inputs = [{"name": f"c{i}", "shape": [2], "datatype": "BYTES", "data": ["v1", "v2"]} for i in range(4)]
    inputs[0] = {key: value for key, value in {**inputs[0], **changes}.items() if value is not None}
    return {"inputs": inputs}


IDS = {"name": "ids", "shape": [1, 4], "datatype": "INT64", "data": [1, 2, 3, 4]}
REFUSED = {
    "no inputs": ({}, "has no 'inputs'"),
    "inputs are no list": ({"inputs": {}}, "expected an array, got an object"),
    "no input": ({"inputs": []}, "no input for column 'c0'"),
    "too few inputs": ({"inputs": changed()["inputs"][:3]}, "no input for column 'c3'"),
    "repeated input": ({"inputs": changed()["inputs"] + changed()["inputs"][:1]}, "input 'c0': the input occurs twice"),
    "unknown input": (changed(name="c00"), "unknown column 'c00'; did you mean 'c0'?"),
    "no name": (changed(name=None), r"inputs[0]: the input has no 'name'"),
    "no shape": (changed(shape=None), "input 'c0': the input has no 'shape'"),
    "no datatype": (changed(datatype=None), "input 'c0': the input has no 'datatype'"),
    "no data": (changed(data=None), "neither 'data' nor the parameter 'binary_data_size'"),
    "unknown datatype": (changed(datatype="INT46"), "unknown datatype 'INT46'; did you mean 'INT64'?"),
    "wrong datatype": (changed(datatype="INT64"), "element 0: expected a number for INT64, got a string"),
    "number for text": (changed(data=[1, 2]), "element 0: expected a string for BYTES, got a number"),
    "fraction": (changed(datatype="INT64", data=[1, 1.5]), "element 1: expected an integer for INT64, got 1.5"),
    "integer range": (changed(datatype="INT8", data=[1, 128]), "128 is out of the range of INT8"),
    "unsigned range": (changed(datatype="UINT16", data=[-1, 1]), "-1 is out of the range of UINT16"),
    "float range": (changed(datatype="FP32", data=[1e39, 1]), "1e+39 is out of the range of FP32"),
    "too few elements": (changed(data=["v1"]), "expected 2 elements for the shape [2], got 1"),
    "too many elements": (changed(data=["v1"] * 3), "more elements than the shape [2] has"),
    "nested": (changed(data=[["v1"], ["v2"]]), "data is nested, but the shape is [2]"),
    "ragged": (changed(shape=[2, 1], data=[["v1"], ["v2", "v3"]]), "more elements than the shape [2, 1] has"),
    "half nested": (changed(shape=[2, 1], data=[["v1"], "v2"]), "expected an array, got a string"),
    "scalar": (changed(shape=[]), "must be [rows] or [rows, values], got []"),
    "three dimensions": (changed(shape=[2, 1, 1]), "it has more dimensions"),
    "negative shape": (changed(shape=[-2]), "expected an integer of 0 or more, got -2"),
    "different rows": (
        changed(shape=[1], data=["v1"]),
        "input 'c1': the shape [2] has 2 rows, but the first input has 1",
    ),
    "list of one value": (changed(shape=[2, 2], data=["v1"] * 4), "because the field is not multi-valued, got [2, 2]"),
    "numeric id": ({**changed(), "id": 3}, "expected a string as 'id', got a number"),
    "unknown output": ({**changed(), "outputs": [{"name": "probs"}]}, "outputs[0]: unknown output 'probs'"),
    "repeated output": ({**changed(), "outputs": [{"name": "logits"}] * 2}, "output 'logits' occurs twice"),
    "unnamed output": ({**changed(), "outputs": [{}]}, "outputs[0]: the output has no 'name'"),
    "classes": (
        {**changed(), "outputs": [{"name": "logits", "parameters": {"classification": 2}}]},
        "classification is not supported",
    ),
    "shared memory": (changed(parameters={"shared_memory_region": "x"}), "shared memory is not supported"),
    "binary without bytes": (
        changed(data=None, parameters={"binary_data_size": 10}),
        "binary_data_size is 10, but only 0 bytes are left",
    ),
    "both": (changed(parameters={"binary_data_size": 0}), "both 'data' and 'binary_data_size'"),
    "ids and columns": (
        {"inputs": [*changed()["inputs"], {**IDS, "shape": [2, 4], "data": [0] * 8}]},
        "both 'ids' and columns",
    ),
    "id beyond the field": ({"inputs": [{**IDS, "data": [1, 2, 3, 4000]}]}, "row 0 has id 4000 in field 3"),
    "negative id": ({"inputs": [{**IDS, "data": [1, -2, 3, 4]}]}, "row 0 has id -2 in field 1"),
    "huge id": ({"inputs": [{**IDS, "data": [1, 2**40, 3, 4]}]}, "the id 1099511627776 is out of range"),
    "missing id": ({"inputs": [{**IDS, "data": [1, None, 3, 4]}]}, "element 1: expected a number, got null"),
    "text ids": ({"inputs": [{**IDS, "datatype": "BYTES"}]}, "ids must be INT32 or INT64, got BYTES"),
    "shape of ids": ({"inputs": [{**IDS, "shape": [4, 1]}]}, "expected the shape [rows, 4], got [4, 1]"),
}


@pytest.mark.parametrize("title", REFUSED)
def test_invalid_requests_are_refused(scorers, title):
    request, message = REFUSED[title]
    assert message in error_of(make_endpoint(scorers["planted"]).infer(json.dumps(request).encode()))


def test_ids_need_single_valued_fields(scorers):
    ids = {"name": "ids", "shape": [1, 9], "datatype": "INT64", "data": [0] * 9}
    reply = make_endpoint(scorers["lists"]).infer(json.dumps({"inputs": [ids]}).encode())
    assert "multi-valued fields" in error_of(reply)


def binary_request(data, *, shape=(2,), datatype="BYTES", size=None, declared=None):
    """Return a request for the planted model whose first input is binary, and the length of its JSON."""
    request = changed(data=None, shape=list(shape), datatype=datatype)
    request["inputs"][0]["parameters"] = {"binary_data_size": len(data) if size is None else size}
    header = json.dumps(request).encode()
    return header + data, len(header) if declared is None else declared


def elements(*texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


BINARY = {
    "truncated length": (binary_request(elements(b"v1") + b"\2\0"), "ends within element 1 of 2"),
    "truncated text": (binary_request(elements(b"v1", b"v2")[:-1]), "ends within element 1 of 2"),
    "huge length": (binary_request(elements(b"v1") + b"\xff\xff\xff\xffx"), "ends within element 1 of 2"),
    "bytes after the last element": (binary_request(elements(b"v1", b"v2", b"v3")), "6 bytes of binary data follow"),
    "size below the data": (binary_request(elements(b"v1", b"v2"), size=11), "ends within element 1"),
    "size above the data": (
        binary_request(elements(b"v1", b"v2"), size=13),
        "binary_data_size is 13, but only 12 bytes",
    ),
    "undeclared bytes": (binary_request(elements(b"v1", b"v2"), size=0), "ends within element 0"),
    "wrong size of numbers": (
        binary_request(b"\0" * 15, datatype="INT64"),
        "expected 16 bytes for the shape [2] of INT64, got 15",
    ),
    "header beyond the body": (
        binary_request(elements(b"v1", b"v2"), declared=10_000),
        "Inference-Header-Content-Length is 10000, but the body has",
    ),
    "header within the JSON": (binary_request(elements(b"v1", b"v2"), declared=20), "invalid JSON"),
}


@pytest.mark.parametrize("title", BINARY)
def test_invalid_binary_data_is_refused(scorers, title):
    (body, header_length), message = BINARY[title]
    assert message in error_of(make_endpoint(scorers["planted"]).infer(body, header_length))


def test_bytes_after_json_are_refused(scorers):
    header = json.dumps(changed()).encode()
    reply = make_endpoint(scorers["planted"]).infer(header + b"1234", len(header))
    assert "followed by 4 bytes of binary data, but the inputs have 0" in error_of(reply)


def test_large_shapes_are_refused_before_they_are_read(scorers):
    endpoint = make_endpoint(scorers["planted"], max_rows=10, max_values=100)
    assert "10 rows" in error_of(endpoint.infer(json.dumps(changed(shape=[11])).encode()), 413)
    assert "100 values" in error_of(endpoint.infer(json.dumps(changed(shape=[2, 2**63])).encode()), 413)
    assert "100 values" in error_of(endpoint.infer(json.dumps(changed(shape=[10, 11])).encode()), 413)
    error_of(endpoint.infer(json.dumps(changed(shape=[2**64])).encode()))


def test_bytes_that_are_not_utf8_are_unknown_values(scorers):
    scorer = scorers["planted"]
    rows = [{**row, "c0": b"\xff\xfe"} for row in rows_of("planted", 1)]
    result, _ = infer(make_endpoint(scorer), text_tensors(rows))
    assert result.as_numpy("probabilities")[0] == pytest.approx(scorer.predict_one(rows[0]), abs=1e-7)
