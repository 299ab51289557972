"""Served networks answer like :meth:`fm2.Scorer.predict`, and refuse what they cannot do with the reason."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.networks import pruned_run, random_run
from tests.helpers.servers import Server
from tests.serving.conftest import ROW, SCHEMA, log

import fm2

CLOSE = {"rtol": 0, "atol": 1e-5}
CONTEXT = ("site", "count", "time")
NETWORKS = ("deepfm", "deeplight")  # one in ONNX Runtime, and a pruned one in native code


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    dataset = fm2.prepare(log(), SCHEMA, folder / "data")
    runs = [random_run("deepfm", dataset, folder / "dense"), pruned_run("deeplight", dataset, folder / "sparse")]
    return {name: fm2.compile(run.path, folder / f"{name}.fm2").path for name, run in zip(NETWORKS, runs, strict=True)}


@pytest.fixture(scope="module")
def server(compiled, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server"), *compiled.values()) as running:
        yield running


@pytest.fixture(params=NETWORKS)
def network(request, compiled):
    return request.param, fm2.load(compiled[request.param])


@pytest.fixture(scope="module")
def rows():
    table = log(50).drop("click").to_dicts()
    return [{**row, "tags": [tag for tag in row["tags"].split("|") if tag]} for row in table]


def test_predict(server, network, rows):
    name, scorer = network
    expected = scorer.predict(rows)
    assert expected.std() > 1e-3
    answer = server.post(f"/v1/models/{name}/predict", {"rows": rows})
    np.testing.assert_allclose(answer["probabilities"], expected, **CLOSE)
    one = server.post(f"/v1/models/{name}/predict", {"rows": rows[:1]})
    np.testing.assert_allclose(one["probabilities"], expected[:1], **CLOSE)


def tensor(column, rows):
    """Return the tensor of a column; lists are padded with empty texts."""
    data = [row[column] + [""] * (4 - len(row[column])) if column == "tags" else str(row[column]) for row in rows]
    shape = [len(rows), 4] if column == "tags" else [len(rows)]
    return {"name": column, "shape": shape, "datatype": "BYTES", "data": data}


def test_infer_returns_the_announced_outputs(server, network, rows):
    name, scorer = network
    metadata = server.get(f"/v2/models/{name}")
    inputs = [tensor(given["name"], rows) for given in metadata["inputs"]]
    announced = [output["name"] for output in metadata["outputs"]]
    wanted = [{"name": output} for output in announced]
    answer = server.post(f"/v2/models/{name}/infer", {"inputs": inputs, "outputs": wanted})
    assert [output["name"] for output in answer["outputs"]] == announced
    found = {output["name"]: output["data"] for output in answer["outputs"]}
    np.testing.assert_allclose(found["probabilities"], scorer.predict(rows), **CLOSE)
    np.testing.assert_allclose(1 / (1 + np.exp(-np.array(found["logits"]))), found["probabilities"], **CLOSE)
    default = server.post(f"/v2/models/{name}/infer", {"inputs": inputs})["outputs"]
    assert [output["name"] for output in default] == announced[:1]


def test_rank_scores_complete_rows(server, network, rows):
    name, scorer = network
    context = {column: ROW[column] for column in CONTEXT}
    candidates = [{key: value for key, value in row.items() if key not in CONTEXT} for row in rows]
    expected = scorer.predict([{**context, **candidate} for candidate in candidates])
    answer = server.post(f"/v1/models/{name}/rank", {"context": context, "candidates": candidates, "top": 7})
    np.testing.assert_allclose(answer["probabilities"], -np.sort(-expected)[:7], **CLOSE)
    np.testing.assert_allclose(expected[answer["indices"]], answer["probabilities"], **CLOSE)


def test_what_networks_cannot_do_is_refused_with_the_reason(server, network):
    name, _ = network
    reason = f"explain: {name} is a network: its logit is not a sum of contributions"
    assert reason in server.error(400, "POST", f"/v1/models/{name}/explain", {"row": ROW})
    catalog = json.dumps({"candidate": ["ad"], "items": [{"id": "1", "ad": "ad1"}]}).encode()
    reason = f"catalog: {name} is a network: it does not compare candidates by an inner product"
    assert reason in server.error(400, "PUT", f"/v1/models/{name}/catalogs/ads", catalog)
    assert server.get(f"/v1/models/{name}")["explainable"] is False
