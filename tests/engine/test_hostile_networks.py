"""The layers of a network in a model file may come from anyone, too: they are rejected, or they score."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.helpers.hostile import with_section
from tests.helpers.mixed import SCHEMA, mixed
from tests.helpers.networks import pruned_run, random_run
from tests.helpers.rejections import load_error

import fm2
from fm2.engine.compile import compile
from fm2.engine.scorer import load


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> fm2.Dataset:
    return fm2.prepare(mixed(600), SCHEMA, tmp_path_factory.mktemp("hostile") / "data")


@pytest.fixture(scope="module")
def deepfm(data, tmp_path_factory) -> Path:
    """Return a compiled network of six fields with four dimensions each."""
    folder = tmp_path_factory.mktemp("deepfm")
    return compile(random_run("deepfm", data, folder / "run").path, folder / "model.fm2").path


@pytest.fixture(scope="module")
def deeplight(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("deeplight")
    return compile(pruned_run("deeplight", data, folder / "run").path, folder / "model.fm2").path


def graph_of(*nodes, **changes) -> bytes:
    """Return an ONNX model with these nodes instead of the layers of a network."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    width, result = changes.get("width", 24), changes.get("result", ["rows"])
    inputs = [helper.make_tensor_value_info("embedding", changes.get("kind", kind), ["rows", width])]
    outputs = [helper.make_tensor_value_info("logits", kind, result)] * changes.get("outputs", 1)
    graph = helper.make_graph(nodes, "network", inputs, outputs, changes.get("constants", ()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model.SerializeToString()


def node(kind, inputs=("embedding",), outputs=("logits",), **attributes):
    return onnx.helper.make_node(kind, inputs, outputs, **attributes)


AXIS = onnx.numpy_helper.from_array(np.array([1]), "axis")
SUM = node("ReduceSum", ("embedding", "axis"), keepdims=0)
EMPTY_GRAPH = onnx.helper.make_graph([], "body", [], [])
OUTSIDE = onnx.TensorProto(name="axis", data_type=onnx.TensorProto.INT64, dims=[1], data_location=1)
OUTSIDE.external_data.add(key="location", value="/etc/passwd")


def test_a_graph_of_simple_operations_is_accepted(deepfm, write):
    path = write("model.fm2", with_section(deepfm.read_bytes(), b"network.onnx", graph_of(SUM, constants=[AXIS])))
    assert np.isfinite(load(path).predict(np.zeros((3, 6), np.int32))).all()


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (b"", "its ONNX graph"),
        (b"not a graph", "its ONNX graph"),
        (bytes(1000), "its ONNX graph"),
        (graph_of(SUM, constants=[AXIS])[:-3], "truncated"),
        (graph_of(SUM, constants=[AXIS], width=23), "its inputs have 23 columns, and the embeddings 24"),
        (graph_of(SUM, constants=[AXIS], width="columns"), "not float32"),
        (graph_of(SUM, constants=[AXIS], kind=onnx.TensorProto.DOUBLE), "its ONNX graph"),
        (graph_of(node("Identity"), result=["rows", 24]), r"its result is float32 \[2, 24\]"),
        (graph_of(node("Cast", to=1)), "the operation 'Cast' is not allowed"),
        (graph_of(node("Loop", ("n", "", "embedding"), body=EMPTY_GRAPH)), "the operation 'Loop' is not allowed"),
        (graph_of(node("Relu", body=EMPTY_GRAPH)), "unexpected field 6"),
        (graph_of(node("Relu", domain="other")), "unexpected field 7"),
        (graph_of(SUM, constants=[OUTSIDE]), "unexpected field 1[34]"),
        (graph_of(node("MatMul", ("embedding", "nothing"))), "its ONNX graph"),
    ],
)
def test_graphs_that_fm2_does_not_write_are_rejected(deepfm, write, graph, reason):
    """Loops, other files, operations of other packages, wrong shapes."""
    error = load_error(write("model.fm2", with_section(deepfm.read_bytes(), b"network.onnx", graph)))
    assert re.search(reason, error)


def test_a_graph_whose_result_depends_on_the_batch_raises_an_error(deepfm, write):
    """It returns two numbers for any batch; loading tries two rows."""
    ends = [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in (("begin", 0), ("end", 2))]
    first = [
        node("Slice", ("embedding", "begin", "end", "begin"), ("two",)),
        node("ReduceSum", ("two", "axis"), keepdims=0),
    ]
    graph = graph_of(*first, constants=[AXIS, *ends])
    scorer = load(write("model.fm2", with_section(deepfm.read_bytes(), b"network.onnx", graph)))
    with pytest.raises(fm2.Fm2Error, match=r"its result is float32 \[2\], not a float32 per row"):
        scorer.predict(np.zeros((3, 6), np.int32))


@pytest.mark.parametrize(
    ("section", "place", "wrong"),
    [
        ("network.activation", 0, 4),
        ("network.shapes", 0, 5),
        ("network.shapes", 1, 7),
        ("network.shapes", 2, 0),
        ("network.shapes", 3, 2**32 - 1),
        ("network.begins", 0, 1),
        ("network.begins", 6, 2**32 - 1),
        ("network.columns", 0, 6),
        ("network.columns", -1, 2**31),
    ],
)
def test_sparse_matrices_must_match_each_other(deeplight, write, section, place, wrong):
    numbers = np.frombuffer(load(deeplight).native.section(section), np.uint32).copy()
    numbers[place] = wrong
    content = with_section(deeplight.read_bytes(), section.encode(), numbers.tobytes())
    assert "network" in load_error(write("model.fm2", content))


@pytest.mark.parametrize("section", ["shapes", "begins", "columns", "values", "biases", "last", "activation"])
def test_sections_of_a_sparse_network_must_be_complete(deeplight, write, section):
    content = load(deeplight).native.section(f"network.{section}")
    for wrong in (content[:-4], content + bytes(4), content + bytes(8), b""):
        load_error(write("model.fm2", with_section(deeplight.read_bytes(), f"network.{section}".encode(), wrong)))
