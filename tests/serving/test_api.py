"""The JSON API: predict, rank, explain, catalogs, outcomes, descriptions, metrics."""

from __future__ import annotations

import gzip

import pytest
from tests.helpers.servers import Server
from tests.serving.conftest import ROW

SHOP = "/v1/models/shop"


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    items = tmp_path_factory.mktemp("items") / "ads.jsonl"
    items.write_text("".join(f'{{"id": "item{i}", "ad": "ad{i}", "price": {i}}}\n' for i in range(50)))
    catalog = ("--catalog", f"shop:ads={items}")
    with Server(tmp_path_factory.mktemp("api"), f"shop={files[0]}", "--workers", 2, *catalog) as running:
        yield running


def test_rows_get_the_same_probabilities_as_in_python(server, scorers):
    rows = [ROW, {"site": "site3"}, {"ad": None}]
    answer = server.post(f"{SHOP}/predict", {"rows": rows, "id": "7"})
    assert (answer["model"], answer["version"], answer["id"]) == ("shop", "1", "7")
    assert answer["probabilities"] == pytest.approx(scorers[0].predict(rows).tolist(), abs=1e-6)


def test_columns_are_another_form_of_rows(server, scorers):
    columns = {name: [value, None] for name, value in ROW.items()}
    answer = server.post(f"{SHOP}/versions/1/predict", {"columns": columns})
    expected = scorers[0].predict([ROW, dict.fromkeys(ROW)]).tolist()
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-6)


def test_a_compressed_body_is_accepted(server):
    plain = server.post(f"{SHOP}/predict", {"rows": [ROW]})
    body = gzip.compress(b'{"rows": [{"site": "site1"}]}')
    status, answer, _ = server.send("POST", f"{SHOP}/predict", body, {"Content-Encoding": "gzip"})
    assert status == 200
    assert answer.keys() == plain.keys()
    broken = {"Content-Encoding": "gzip"}
    assert "gzip" in server.send("POST", f"{SHOP}/predict", body[:-9], broken)[1]["error"]
    assert "gzip or deflate" in server.send("POST", f"{SHOP}/explain", b"x", {"Content-Encoding": "br"})[1]["error"]


def test_a_large_request_is_scored_on_another_thread(server, scorers):
    rows = [{**ROW, "count": count} for count in range(3000)]
    answer = server.post(f"{SHOP}/predict", {"rows": rows})
    assert answer["probabilities"] == pytest.approx(scorers[0].predict(rows).tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"rows": [ROW, {"stie": "a"}]}, "did you mean 'site'?"),
        ({"rows": [ROW, 3]}, "rows[1]"),
        ({"row": [ROW]}, "row"),
        (b'{"rows": [{"site": "a"', "JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "JSON"),
        ([], "object"),
    ],
)
def test_bad_requests_are_explained(server, body, message):
    assert message in server.error(400, "POST", f"{SHOP}/predict", body)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/models/shpo/predict", 404, "unknown model 'shpo'; did you mean 'shop'?"),
        ("POST", "/v1/models/shop/versions/2/predict", 404, "has no version '2'"),
        ("POST", "/v1/models/shop/predic", 404, "did you mean '/v1/models/shop/predict'?"),
        ("GET", "/v1/models/shop/predict", 405, "use POST"),
        ("GET", "/v1/modles", 404, "did you mean '/v1/models'?"),
        ("GET", "/nowhere", 404, "/openapi.json"),
        ("GET", "/v1/models/../../etc/passwd", 404, "unknown"),
        ("GET", "/page/..%2f..%2fsecret", 404, "unknown"),
        ("DELETE", "/v1/models/shop", 405, "use GET"),
    ],
)
def test_unknown_names_and_paths_get_a_suggestion(server, method, path, status, message):
    assert message in server.error(status, method, path, {})


def test_an_explanation_adds_up_to_the_logit(server, scorers):
    answer = server.post(f"{SHOP}/explain", {"row": ROW})
    total = answer["bias"] + sum(answer["fields"].values()) + sum(term for _, _, term in answer["pairs"])
    assert total == pytest.approx(answer["logit"], abs=1e-5)
    assert answer["probability"] == pytest.approx(scorers[0].predict_one(ROW), abs=1e-6)
    assert answer["row"]["site"] == "site1"
    assert {value["value"] for value in answer["values"]["tags"]} == {"t1", "t2"}
    assert "did you mean 'site'?" in server.error(400, "POST", f"{SHOP}/explain", {"row": {"siet": 1}})
    assert "row" in server.error(400, "POST", f"{SHOP}/explain", {"row": []})


def test_an_explanation_says_what_is_missing_and_refuses_what_is_not_a_value(server):
    row = server.post(f"{SHOP}/explain", {"row": {"site": "new", "price": None}})["row"]
    assert row == {"site": "<unknown>", "ad": None, "price": None, "count": None, "hour": None}
    assert "column 'ad': a value is a list" in server.error(400, "POST", f"{SHOP}/explain", {"row": {"ad": ["a"]}})
    message = server.error(400, "POST", f"{SHOP}/explain", b'{"row": {"price": NaN}}')
    assert message == "the body is not JSON: NaN is not a value of JSON"


def test_candidates_are_ranked(server, scorers):
    context = {name: ROW[name] for name in ("site", "count", "time", "tags")}
    candidates = [{"ad": f"ad{i}", "price": i} for i in range(20)]
    answer = server.post(f"{SHOP}/rank", {"context": context, "candidates": candidates, "top": 3})
    ranked = scorers[0].ranker(context=list(context)).rank(context, candidates, top=3)
    assert answer["indices"] == ranked.indices.tolist()
    assert answer["probabilities"] == pytest.approx(ranked.probabilities.tolist(), abs=1e-6)
    assert "candidates" in server.error(400, "POST", f"{SHOP}/rank", {"context": context, "candidates": [3]})


def test_a_catalog_from_a_file_is_ranked(server):
    context = {"site": "site1", "count": 3, "time": None, "tags": []}
    answer = server.post(f"{SHOP}/rank", {"context": context, "catalog": "ads", "top": 5})
    candidates = [{"ad": f"ad{i}", "price": i} for i in range(50)]
    expected = server.post(f"{SHOP}/rank", {"context": context, "candidates": candidates, "top": 5})
    assert answer["indices"] == expected["indices"]
    assert answer["items"] == [f"item{index}" for index in expected["indices"]]


def test_a_catalog_is_created_extended_pruned_and_deleted_in_all_workers(server):
    path = f"{SHOP}/catalogs/new"
    items = [{"id": f"i{i}", "ad": f"ad{i}"} for i in range(10)]
    assert server.post(path, {"candidate": ["ad"], "items": items}, "PUT")["items"] == 10
    assert (
        server.post(f"{path}/items", {"items": [{"id": "i3", "ad": "ad33"}, {"id": "x", "ad": "ad9"}]})["items"] == 11
    )
    assert server.post(f"{path}/items", {"ids": ["i0", "i1"]}, "DELETE")["items"] == 9
    for _ in range(6):  # connections go to different workers
        found = server.get(path)
        assert found["ids"] == ["i2", "i3", "i4", "i5", "i6", "i7", "i8", "i9", "x"]
        assert len(server.post(f"{SHOP}/rank", {"context": {"site": "site1"}, "catalog": "new"})["items"]) == 9
    assert "did you mean 'new'?" in server.error(404, "POST", f"{SHOP}/catalogs/nwe/items", {"items": []})
    assert "no item 'i0'" in server.error(400, "DELETE", f"{path}/items", {"ids": ["i0"]})
    assert "did you mean 'ad'?" in server.error(
        400, "PUT", path, {"candidate": ["ad"], "items": [{"id": "a", "adx": "1"}]}
    )
    assert 'no "id"' in server.error(400, "PUT", path, {"candidate": ["ad"], "items": [{"ad": "1"}]})
    assert "unknown column" in server.error(400, "PUT", path, {"candidate": ["adx"], "items": []})
    assert len(server.get(path)["ids"]) == 9, "a refused change has no effect"
    server.post(path, None, "DELETE")
    assert server.send("GET", path)[0] == 404
    assert server.send("POST", f"{SHOP}/rank", {"context": {"site": "site1"}, "catalog": "new"})[0] == 404


def test_an_item_that_cannot_be_read_is_named(server):
    items = [{"id": "7", "ad": "ad1"}, {"id": "8", "ad": ["ad2"]}]
    body = {"candidate": ["ad"], "items": items}
    message = server.error(400, "PUT", f"{SHOP}/catalogs/odd", body)
    assert message.startswith("catalog: item '8': column 'ad': a value is a list")


def test_a_model_is_described_for_forms(server):
    model = server.get(SHOP)
    assert [version["version"] for version in server.get("/v1/models")["models"][0]["versions"]] == ["1"]
    columns = {column["name"]: column for column in model["columns"]}
    assert list(columns) == ["site", "ad", "price", "count", "time", "tags"]
    assert columns["site"]["size"] == 40
    assert columns["site"]["values"][0].startswith("site")
    assert columns["tags"]["multivalued"]
    for name in ("price", "count"):
        assert all(isinstance(value, int | float) for value in columns[name]["values"])
    row = {name: column["values"][0] for name, column in columns.items()}
    before = server.get("/v1/stats")["models"]["shop"]["1"]
    server.post(f"{SHOP}/predict", {"rows": [row, {**row, "site": "never seen"}]})
    after = server.get("/v1/stats")["models"]["shop"]["1"]
    assert after["requests"] == before["requests"] + 1
    assert after["rows"] == before["rows"] + 2
    assert after["unknown"]["site"]["unknown"] == before["unknown"]["site"]["unknown"] + 1
    assert after["unknown"]["ad"]["unknown"] == before["unknown"]["ad"]["unknown"], "typical values are known"
    assert sum(after["latency"]["counts"]) == after["requests"]
    assert len(after["latency"]["bounds"]) + 1 == len(after["latency"]["counts"])


def test_the_mean_prediction_is_that_of_returned_probabilities(server):
    def metrics():
        return {name: server.metric(f"fm2_{name}") for name in ("prediction_sum", "prediction_count", "rows_total")}

    before = metrics()
    candidates = [{"ad": f"ad{number}"} for number in range(20)]
    answer = server.post(f"{SHOP}/rank", {"context": {"site": "site1"}, "candidates": candidates, "top": 3})
    after = metrics()
    assert after["rows_total"] - before["rows_total"] == 20
    assert after["prediction_count"] - before["prediction_count"] == 3
    assert after["prediction_sum"] - before["prediction_sum"] == pytest.approx(sum(answer["probabilities"]), rel=1e-5)


def test_metrics_count_requests_rows_failures_and_outcomes(server):
    names = ("fm2_requests_total", "fm2_rows_total", "fm2_failures_total", "fm2_request_seconds_count")
    before = [server.metric(name, model="shop") for name in names]
    predicted = server.metric("fm2_prediction_sum")
    answer = server.post(f"{SHOP}/predict", {"rows": [ROW, ROW]})
    server.error(400, "POST", f"{SHOP}/predict", {"rows": [1]})
    assert [server.metric(name, model="shop") for name in names] == [
        x + y for x, y in zip(before, (2, 2, 1, 2), strict=True)
    ]
    assert server.metric("fm2_prediction_sum") - predicted == pytest.approx(sum(answer["probabilities"]), rel=1e-4)
    assert server.post(f"{SHOP}/outcomes", {"probabilities": [0.25, 0.5], "clicks": [0, 1]}) == {"accepted": 2}
    assert server.metric("fm2_outcomes_total") == 2
    assert server.metric("fm2_outcome_clicks_sum") == 1
    assert server.metric("fm2_outcome_predictions_sum") == 0.75
    long = server.error(400, "POST", f"{SHOP}/outcomes", {"probabilities": ["9" * 1000], "clicks": [1]})
    assert long.startswith("probabilities[0] must be a number between 0 and 1, got '99")
    assert len(long) < 200
    assert "clicks[0]" in server.error(400, "POST", f"{SHOP}/outcomes", {"probabilities": [0.1], "clicks": [2]})
    before = server.metric("fm2_server_failures_total", reason="not_found")
    server.error(404, "GET", "/nowhere")
    assert server.metric("fm2_server_failures_total", reason="not_found") == before + 1


def test_an_error_has_a_request_id(server):
    _, _, headers = server.send("GET", "/nowhere")
    assert len(headers["x-request-id"]) == 16
    _, _, headers = server.send("GET", "/nowhere", None, {"X-Request-Id": "mine"})
    assert headers["x-request-id"] == "mine"
    status, _, headers = server.send("POST", f"{SHOP}/predict", {"rows": [1]}, {"X-Request-Id": "mine"})
    assert (status, headers["x-request-id"]) == (400, "mine")
