"""The Open Inference Protocol, with a client that fm2 did not write: tritonclient."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.servers import Server
from tests.serving.conftest import ROW
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

ROWS = [ROW, {**ROW, "site": "site9", "tags": ["t3", "t4"]}, {**ROW, "price": 100.0}]


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("repository")
    (directory / "shop").mkdir()
    for version, file in enumerate(files, start=1):
        (directory / "shop" / f"{version}.fm2").write_bytes(file.read_bytes())
    (directory / "other.fm2").write_bytes(files[0].read_bytes())
    with Server(directory, directory, "--workers", 2, "--poll", 0.2) as running:
        yield running


@pytest.fixture
def client(server):
    with InferenceServerClient(f"127.0.0.1:{server.port}") as opened:
        yield opened


def tensors(rows=ROWS, binary=True):
    """Return one tensor per column."""
    inputs = []
    for name in ROW:
        values = [row[name] for row in rows]
        number = isinstance(values[0], int | float)
        array = np.array(values, np.float32 if number else object)
        tensor = InferInput(name, list(array.shape), "FP32" if number else "BYTES")
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    return inputs


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("shop")
    assert client.is_model_ready("shop", "1")
    assert not client.is_model_ready("shop", "9")
    assert not client.is_model_ready("shpo")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_repository"]
    metadata = client.get_model_metadata("shop")
    assert metadata["versions"] == ["1", "2"]
    assert {entry["name"]: entry["datatype"] for entry in metadata["inputs"]} == {
        **dict.fromkeys(ROW, "BYTES"),
        "price": "FP32",
        "count": "FP32",
    }
    assert metadata["outputs"][0] == {"name": "probabilities", "datatype": "FP32", "shape": [-1]}
    assert client.get_model_metadata("shop", "1")["name"] == "shop"
    with pytest.raises(InferenceServerException, match="did you mean 'shop'"):
        client.get_model_metadata("shpo")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("version", ["", "1"])
def test_infer_agrees_with_python(client, scorers, binary, version):
    outputs = [InferRequestedOutput("probabilities", binary_data=binary)]
    answer = client.infer("shop", tensors(binary=binary), version, outputs, request_id="mine")
    scorer = scorers[0] if version else scorers[1]
    np.testing.assert_allclose(answer.as_numpy("probabilities"), scorer.predict(ROWS), atol=1e-6)
    assert answer.get_response()["id"] == "mine"
    assert answer.get_response()["model_version"] == version or "2"


def test_compressed_requests_are_accepted(client, scorers):
    for algorithm in ("gzip", "deflate"):
        answer = client.infer("shop", tensors(), request_compression_algorithm=algorithm)
        np.testing.assert_allclose(answer.as_numpy("probabilities"), scorers[1].predict(ROWS), atol=1e-6)


def test_invalid_tensors_are_refused_with_a_message(client):
    with pytest.raises(InferenceServerException, match="shpo"):
        client.infer("shpo", tensors())
    with pytest.raises(InferenceServerException, match="version '7'"):
        client.infer("shop", tensors(), "7")
    with pytest.raises(InferenceServerException, match="tags"):
        client.infer("shop", tensors()[:-1])
    wrong = InferInput("stie", [3], "BYTES")
    wrong.set_data_from_numpy(np.array(["a", "b", "c"], object))
    with pytest.raises(InferenceServerException, match="site"):
        client.infer("shop", [wrong, *tensors()[1:]])
    with pytest.raises(InferenceServerException):
        client.infer("shop", tensors(), outputs=[InferRequestedOutput("clicks")])


def test_a_wrong_length_of_the_header_is_refused(server):
    for length in ("abc", "-1", "999999", "9" * 30):
        message = server.error(
            400, "POST", "/v2/models/shop/infer", b"{}", **{"Inference-Header-Content-Length": length}
        )
        assert "Inference-Header-Content-Length" in message


def test_models_are_listed_unloaded_and_loaded(client, server):
    listed = {(entry["name"], entry["version"]): entry["state"] for entry in client.get_model_repository_index()}
    assert listed == {("other", "1"): "READY", ("shop", "1"): "READY", ("shop", "2"): "READY"}
    client.unload_model("other")
    for _ in range(4):
        assert not client.is_model_ready("other")
    states = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert states["other"] == "UNAVAILABLE"
    assert client.is_server_ready(), "a model that was unloaded on purpose is not missing"
    with pytest.raises(InferenceServerException, match="not loaded"):
        client.infer("other", tensors())
    client.load_model("other")
    for _ in range(4):
        assert client.is_model_ready("other")
    client.infer("other", tensors())


def test_parameters_that_are_no_object_are_refused(server):
    for parameters in (5, "text", [[]]):
        message = server.error(400, "POST", "/v2/repository/models/shop/load", {"parameters": parameters})
        assert message == '"parameters" must be an object'


def test_a_slash_at_the_end_of_a_path_is_pointed_out(server):
    message = server.error(404, "POST", "/v2/models/shop/infer/", {"inputs": []})
    assert message == "unknown path '/v2/models/shop/infer/'; did you mean '/v2/models/shop/infer'?"


def test_loading_what_does_not_exist_is_refused(client):
    for name in ("shpo", "..", "..%2F..%2Fetc"):
        with pytest.raises(InferenceServerException, match="unknown"):
            client.load_model(name)
        with pytest.raises(InferenceServerException, match="unknown"):
            client.unload_model(name)
    with pytest.raises(InferenceServerException, match="config"):
        client.load_model("shop", config="{}")
