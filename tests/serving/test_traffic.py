"""Labels, canaries and shadows."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
import tritonclient.http as triton
from tests.helpers.servers import Server, wait_for
from tests.serving.conftest import ROW

SHOP = "/v1/models/shop"


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    models = (f"shop@1={files[0]}", f"shop@2={files[1]}", f"shop@10={files[0]}")
    with Server(tmp_path_factory.mktemp("traffic"), *models, "--workers", 2, "--canary", "shop=2:0.5") as running:
        yield running


def tensors():
    """Return a binary tensor for each column."""
    texts = {name: "|".join(value) if name == "tags" else str(value) for name, value in ROW.items()}
    return [
        triton.InferInput(name, [1], "BYTES").set_data_from_numpy(np.array([text], object))
        for name, text in texts.items()
    ]


def version(server, **headers):
    return server.post(f"{SHOP}/predict", {"rows": [ROW]}, **headers)["version"]


def test_the_newest_version_serves_unless_a_label_says_otherwise(server):
    server.post(f"{SHOP}/traffic", {}, "PUT")
    assert {version(server) for _ in range(6)} == {"10"}
    server.post(f"{SHOP}/traffic", {"labels": {"stable": "1", "old": "2"}}, "PUT")
    assert {version(server) for _ in range(6)} == {"1"}
    assert server.post(f"{SHOP}/versions/old/predict", {"rows": [ROW]})["version"] == "2"
    assert server.post(f"{SHOP}/versions/10/predict", {"rows": [ROW]})["version"] == "10"


def test_a_canary_gets_its_share_and_the_same_requests_every_time(server):
    traffic = {"labels": {"stable": "1"}, "canary": {"version": "2", "share": 0.3}}
    answer = server.post(f"{SHOP}/traffic", traffic, "PUT")
    assert answer == {"serving": "1", **traffic, "shadow": None}

    def by_header(connection, key):
        connection.request("POST", f"{SHOP}/predict", b'{"rows": [{"ad": 1}]}', {"X-Request-Id": key})
        return json.loads(connection.getresponse().read())["version"] == "2"

    with contextlib.closing(server.connect()) as connection:
        chosen = [by_header(connection, f"user{i}") for i in range(300)]
        assert 60 < sum(chosen) < 120
        assert [by_header(connection, f"user{i}") for i in range(300)] == chosen
    in_body = [server.post(f"{SHOP}/predict", {"rows": [ROW], "id": f"user{i}"})["version"] == "2" for i in range(20)]
    assert in_body == chosen[:20], "the id in the body has the same effect"
    with contextlib.closing(triton.InferenceServerClient(f"127.0.0.1:{server.port}")) as client:
        in_binary = [client.infer("shop", tensors(), request_id=f"user{i}") for i in range(20)]
    assert [answer.get_response()["model_version"] == "2" for answer in in_binary] == chosen[:20]
    listed = {entry["version"]: (entry["label"], entry["share"]) for entry in server.get(SHOP)["versions"]}
    assert listed == {"1": ("", None), "2": ("canary", 0.3), "10": ("inactive", None)}


def test_a_shadow_is_compared_but_not_returned(server, scorers):
    server.post(f"{SHOP}/traffic", {"labels": {"stable": "1"}, "shadow": {"version": "2"}}, "PUT")
    rows = [ROW, {**ROW, "site": "site7"}]
    before = server.metric("fm2_shadow_difference_sum", version="2")
    answers = [server.post(f"{SHOP}/predict", {"rows": rows}) for _ in range(5)]
    assert {answer["version"] for answer in answers} == {"1"}
    wait_for(lambda: server.metric("fm2_shadow_rows_total", version="2") == 10)
    expected = 5 * abs(scorers[0].predict(rows) - scorers[1].predict(rows)).sum()
    assert server.metric("fm2_shadow_difference_sum", version="2") - before == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        ({"canary": {"version": "3", "share": 0.1}}, "no version '3'"),
        ({"canary": {"version": "2", "share": 1.5}}, "between 0 and 1"),
        ({"canary": "2"}, "canary"),
        ({"shadow": 5}, "shadow"),
        ({"labels": {"stable": "7"}}, "no version '7'"),
        ({"labels": {"a/b": "1"}}, "label"),
        ({"canray": None}, "did you mean 'canary'?"),
    ],
)
def test_invalid_traffic_is_refused_and_changes_nothing(server, traffic, message):
    before = server.get(f"{SHOP}/traffic")
    assert message in server.error(400, "PUT", f"{SHOP}/traffic", traffic)
    assert server.get(f"{SHOP}/traffic") == before
