"""Every call of tritonclient, with valid and invalid input; test_protocol.py compares its predictions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.servers import Server
from tests.serving.conftest import ROW
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

TYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "INT32": np.int32, "BYTES": object}


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("triton")
    with Server(directory, f"shop@1={files[0]}", f"shop@2={files[1]}", "--max-rows", 100) as running:
        yield running


@pytest.fixture
def client(server):
    with InferenceServerClient(f"127.0.0.1:{server.port}") as opened:
        yield opened


def tensor(name, values, datatype="BYTES"):
    array = np.array(values, TYPES[datatype])
    made = InferInput(name, list(array.shape), datatype)
    return made.set_data_from_numpy(array)


def tensors(rows=2, **others):
    """Return one tensor per column; ``others`` replaces some, or leaves them out."""
    made = {name: tensor(name, [ROW[name]] * rows) for name in ("site", "ad", "time", "tags")}
    made |= {name: tensor(name, [ROW[name]] * rows, "FP32") for name in ("price", "count")}
    return [entry for entry in {**made, **others}.values() if entry is not None]


def refusal(call):
    """Return the message of a refused call, which is not a fault of the server."""
    with pytest.raises(InferenceServerException) as raised:
        call()
    assert raised.value.status() is None or raised.value.status().startswith("4")
    return raised.value.message()


def test_health_metadata_and_versions(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert [client.is_model_ready("shop", version) for version in ("", "1", "2", "3")] == [True, True, True, False]
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "fm2"
    assert client.get_model_metadata("shop", "2")["versions"] == ["1", "2"]
    assert "did you mean 'shop'" in refusal(lambda: client.get_model_metadata("shpo"))
    assert "no version '3'" in refusal(lambda: client.get_model_metadata("shop", "3"))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_model_config("shop"),
        lambda client: client.get_inference_statistics("shop"),
        lambda client: client.get_trace_settings(),
        lambda client: client.update_log_settings({"log_info": False}),
        lambda client: client.get_system_shared_memory_status(),
        lambda client: client.register_system_shared_memory("region", "/region", 64),
        lambda client: client.get_cuda_shared_memory_status(),
    ],
)
def test_extensions_that_are_not_announced_are_refused(client, call):
    assert "unknown path" in refusal(lambda: call(client))
    announced = client.get_server_metadata()["extensions"]
    assert set(announced) == {"binary_tensor_data", "model_repository"}


@pytest.mark.parametrize("binary", [True, False])
def test_outputs_binary_and_json(client, scorers, binary):
    outputs = [InferRequestedOutput(name, binary_data=binary) for name in ("logits", "probabilities")]
    answer = client.infer("shop", tensors(), outputs=outputs)
    probabilities = answer.as_numpy("probabilities")
    np.testing.assert_allclose(probabilities, scorers[1].predict([ROW, ROW]), atol=1e-6)
    np.testing.assert_allclose(1 / (1 + np.exp(-answer.as_numpy("logits"))), probabilities, atol=1e-6)
    assert [entry["name"] for entry in answer.get_response()["outputs"]] == ["logits", "probabilities"]


def test_numbers_of_all_types_and_compressed_answers(client, scorers):
    expected = scorers[1].predict([ROW, ROW])
    for datatype in ("INT64", "INT32", "FP64", "FP32"):
        inputs = tensors(count=tensor("count", [7, 7], datatype))
        np.testing.assert_allclose(client.infer("shop", inputs).as_numpy("probabilities"), expected, atol=1e-6)
    for algorithm in ("gzip", "deflate"):
        answer = client.infer("shop", tensors(), response_compression_algorithm=algorithm)
        np.testing.assert_allclose(answer.as_numpy("probabilities"), expected, atol=1e-6)


def test_several_requests_at_once(server, scorers):
    with InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as client:
        pending = [client.async_infer("shop", tensors(rows), request_id=str(rows)) for rows in range(1, 9)]
        for rows, request in enumerate(pending, start=1):
            answer = request.get_result()
            assert answer.get_response()["id"] == str(rows)
            np.testing.assert_allclose(answer.as_numpy("probabilities"), scorers[1].predict([ROW] * rows), atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        (lambda: tensors(ad=None), "ad"),
        (lambda: [*tensors(), tensor("stie", ["a", "b"])], "site"),
        (lambda: tensors(ad=tensor("ad", ["ad1"])), "ad"),
        (lambda: tensors(ad=tensor("ad", [["ad1", "x"], ["ad2", "x"]])), "ad"),
        (lambda: [*tensors(), tensors()[0]], "site"),
        (lambda: [tensor("ids", [[1, 2]], "INT64")], "ids"),
        (lambda: tensors(101), "100"),
    ],
)
def test_invalid_tensors_are_refused(client, inputs, part):
    assert part in refusal(lambda: client.infer("shop", inputs()))
    assert client.infer("shop", tensors()).as_numpy("probabilities").shape == (2,)


def test_a_damaged_binary_body_is_refused(client, server):
    body, length = InferenceServerClient.generate_request_body(tensors())
    for damaged in (body[:-1], body + b"x", body[: length + 3]):
        headers = {"Inference-Header-Content-Length": str(length)}
        assert server.error(400, "POST", "/v2/models/shop/infer", damaged, **headers)
    answer = client.infer("shop", tensors())
    parsed = json.loads(json.dumps(answer.get_response()))
    assert parsed["model_name"] == "shop"


def test_the_repository(client):
    listed = client.get_model_repository_index()
    assert [(entry["version"], entry["state"]) for entry in listed] == [("1", "READY"), ("2", "READY")]
    client.unload_model("shop", unload_dependents=True)
    assert not client.is_model_ready("shop")
    assert "not loaded" in refusal(lambda: client.infer("shop", tensors()))
    client.load_model("shop")
    assert client.is_model_ready("shop", "2")
    assert "unknown model" in refusal(lambda: client.load_model("shpo"))
    assert "unknown model" in refusal(lambda: client.unload_model("shpo"))
    assert "config" in refusal(lambda: client.load_model("shop", config="{}"))
