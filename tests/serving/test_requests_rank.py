"""Ranking requests return what the ranker returns, for candidates in the request and for catalogs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.served import error_of, make_endpoint, make_scorer, post, rows_of

import fm2

MODELS = {
    "mixed": (("mixed",), {}),
    "lists": (("lists",), {}),
    "crosses": (("crosses",), {}),
    "trees": (("trees",), {}),
    "tree_lists": (("tree_lists",), {}),
    "calibrated": (("planted",), {"calibrate": "c2"}),
    "poly2": (("planted",), {"model": "poly2", "hash_bits": 8}),
    "ffm": (("planted",), {"model": "ffm"}),
}
CONTEXTS = {
    "mixed": [["site", "user"], ["time"]],
    "lists": [["site", "history", "price"], ["item", "genres", "scores"]],
    "crosses": [["user", "device", "cost"], ["item", "tags"]],
    "trees": [["user", "device"], ["item", "age"], ["tags", "visits"]],
    "tree_lists": [["site", "history", "price"], ["item", "genres", "scores"], ["tags"]],
    "calibrated": [["c0", "c1"], ["c2"]],
    "ffm": [["c0", "c3"]],
}


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    made = {}
    for name, (arguments, options) in MODELS.items():
        made[name] = make_scorer(*arguments, tmp_path_factory.mktemp(name), **options)
    return made


def split(name, context, count=60):
    rows = rows_of(MODELS[name][0][0], count)
    given = {column: rows[0][column] for column in context}
    return given, [{key: value for key, value in row.items() if key not in context} for row in rows]


CASES = [(name, context) for name, contexts in CONTEXTS.items() for context in contexts]


@pytest.mark.parametrize(("name", "context"), CASES)
def test_candidates_are_ranked_like_by_the_ranker(scorers, name, context):
    scorer = scorers[name]
    given, candidates = split(name, context)
    ranked = scorer.ranker(context=context).rank(given, candidates)
    endpoint = make_endpoint(scorer)
    columns = {column: [row[column] for row in candidates] for column in scorer.columns if column not in context}
    for request in (candidates, {"columns": columns}):
        answer = post(endpoint.rank, {"context": given, "candidates": request})
        complete = np.array([scorer.predict_one({**given, **row}) for row in candidates])
        np.testing.assert_allclose(answer["probabilities"], ranked.probabilities, atol=2e-6)
        np.testing.assert_allclose(answer["probabilities"], complete[answer["indices"]], atol=2e-6)
        assert sorted(answer["indices"]) == list(range(60))
        best = post(endpoint.rank, {"candidates": request, "top": 5, "context": given, "id": "x"})
        assert best["indices"] == answer["indices"][:5]
        assert best["id"] == "x"


def test_trees_read_the_lists_of_the_context_in_every_block_of_candidates(scorers):
    scorer, context = scorers["tree_lists"], ["history", "tags"]
    given, candidates = split("tree_lists", context, 2500)
    answer = post(make_endpoint(scorer, threads=2).rank, {"context": given, "candidates": candidates})
    expected = scorer.predict([{**given, **row} for row in candidates])
    np.testing.assert_allclose(answer["probabilities"], expected[answer["indices"]], atol=2e-6)


def test_models_without_a_ranker_score_complete_rows(scorers):
    scorer = scorers["poly2"]
    given, candidates = split("poly2", ["c0", "c1"])
    answer = post(make_endpoint(scorer).rank, {"context": given, "candidates": candidates})
    expected = np.array([scorer.predict_one({**given, **row}) for row in candidates])
    np.testing.assert_allclose(answer["probabilities"], expected[answer["indices"]], atol=1e-6)
    assert answer["probabilities"] == sorted(answer["probabilities"], reverse=True)


@pytest.mark.parametrize("name", ["lists", "trees", "tree_lists", "crosses"])
def test_networks_score_complete_rows(scorers, name):
    scorer, context = scorers[name], CONTEXTS[name][0]

    def score(ids, lists):
        logits = np.empty(len(ids), np.float32)
        scorer.native.score(ids, logits, lists=lists)
        return logits

    given, candidates = split(name, context)
    request = {"context": given, "candidates": candidates}
    answer = post(make_endpoint(scorer, score=score).rank, request)
    np.testing.assert_allclose(
        answer["probabilities"], post(make_endpoint(scorer).rank, request)["probabilities"], atol=2e-6
    )


def serve_catalog(endpoint, name, catalog, items=None):
    endpoint.set_catalog(name, catalog.ranker._native, catalog.rows, catalog.shifts, items)


@pytest.mark.parametrize(
    ("name", "context"), [case for case in CASES if case[0] not in ("crosses", "trees", "tree_lists")]
)
def test_catalogs_are_searched_like_by_the_catalog(scorers, name, context):
    scorer, endpoint = scorers[name], make_endpoint(scorers[name])
    given, items = split(name, context, 300)
    catalog = scorer.ranker(context=context).catalog(items)
    serve_catalog(endpoint, "ads", catalog, [f"item {index} ü\n" for index in range(300)])
    answer = post(endpoint.rank, {"context": given, "catalog": "ads", "top": 7})
    ranked = catalog.top(given, 7)
    assert answer["indices"] == ranked.indices.tolist()
    assert answer["items"] == [f"item {index} ü\n" for index in answer["indices"]]
    np.testing.assert_array_equal(np.array(answer["probabilities"], np.float32), ranked.probabilities)
    assert len(post(endpoint.rank, {"context": given, "catalog": "ads"})["indices"]) == 100
    assert len(post(endpoint.rank, {"context": given, "catalog": "ads", "top": 1000})["indices"]) == 300
    assert post(endpoint.rank, {"context": given, "catalog": "ads", "top": 0})["indices"] == []


def test_catalogs_are_replaced_and_removed(scorers):
    scorer, endpoint = scorers["mixed"], make_endpoint(scorers["mixed"])
    given, items = split("mixed", ["site", "user"], 50)
    ranker = scorer.ranker(context=["site", "user"])
    request = {"context": given, "catalog": "ads", "top": 50}
    serve_catalog(endpoint, "ads", ranker.catalog(items), [str(index) for index in range(50)])
    assert "items" in post(endpoint.rank, request)
    serve_catalog(endpoint, "ads", ranker.catalog(items[:20]))
    answer = post(endpoint.rank, request)
    assert len(answer["indices"]) == 20
    assert "items" not in answer
    assert "did you mean 'ads'?" in error_of(endpoint.rank(json.dumps({**request, "catalog": "ad"}).encode()), 404)
    assert endpoint.remove_catalog("ads")
    assert not endpoint.remove_catalog("ads")
    message = error_of(endpoint.rank(json.dumps(request).encode()), 404)
    assert message == "unknown catalog 'ads'; the model has none"


def test_catalogs_of_other_models_are_refused(scorers):
    _, items = split("mixed", ["site", "user"], 5)
    catalog = scorers["mixed"].ranker(context=["site", "user"]).catalog(items)
    with pytest.raises(ValueError, match="belongs to another model"):
        serve_catalog(make_endpoint(fm2.load(scorers["mixed"].path)), "ads", catalog)
    with pytest.raises(ValueError, match="5 rows, but 1 items"):
        serve_catalog(make_endpoint(scorers["mixed"]), "ads", catalog, ["a"])
    catalog.rows = catalog.rows[:, :2].copy()
    with pytest.raises(ValueError, match="rows of 2 floats"):
        serve_catalog(make_endpoint(scorers["mixed"]), "ads", catalog)


ONE = {"site": "a", "user": "u1"}
REQUESTS = {
    "no context": ({"candidates": []}, "no 'context'"),
    "no candidates": ({"context": ONE}, "either 'candidates' or 'catalog'"),
    "both": ({"context": ONE, "candidates": [], "catalog": "ads"}, "either 'candidates' or 'catalog'"),
    "empty context": ({"context": {}, "candidates": []}, "context: the object has none of the model's columns"),
    "unknown column": (
        {"context": {"stie": 1}, "candidates": []},
        "context: unknown column 'stie'; did you mean 'site'?",
    ),
    "unknown column of a candidate": (
        {"context": ONE, "candidates": [{"price": 1}, {"pirce": 1}]},
        "candidates[1]: unknown column 'pirce'; did you mean 'price'?",
    ),
    "column on both sides": (
        {"context": ONE, "candidates": [{"price": 1}, {"price": 1, "site": "a"}]},
        "candidates[1]: column 'site' is also in the context",
    ),
    "candidates as a number": ({"context": ONE, "candidates": 3}, "expected an array, got a number"),
    "misspelled columns": ({"context": ONE, "candidates": {"column": {}}}, "candidates: expected an array of objects"),
    "absent column": (
        {"context": ONE, "candidates": {"columns": {"price": [1]}}},
        "column 'visits' is absent; missing values are null",
    ),
    "negative top": ({"context": ONE, "candidates": [], "top": -1}, "expected an integer of 0 or more, got -1"),
    "top as text": ({"context": ONE, "candidates": [], "top": "1"}, "expected a number, got a string"),
    "another member": ({"context": ONE, "candidate": []}, "unknown key 'candidate'; did you mean 'candidates'?"),
    "columns of items": (
        {"context": {"price": 1}, "catalog": "ads"},
        "context: column 'price' belongs to the items of catalog 'ads'",
    ),
}


@pytest.mark.parametrize("title", REQUESTS)
def test_invalid_requests_are_refused(scorers, title):
    request, message = REQUESTS[title]
    endpoint = make_endpoint(scorers["mixed"])
    _, items = split("mixed", ["site", "user"], 5)
    serve_catalog(endpoint, "ads", scorers["mixed"].ranker(context=["site", "user"]).catalog(items))
    assert message in error_of(endpoint.rank(json.dumps(request).encode()))


def test_weights_stay_with_their_values(scorers):
    request = {"context": {"genres": ["g1"]}, "candidates": [{"item": "i1"}]}
    message = error_of(make_endpoint(scorers["lists"]).rank(json.dumps(request).encode()))
    assert message == "column 'scores' has the weights of 'genres', but is not on the same side"


def test_rankings_have_limits(scorers):
    scorer = scorers["mixed"]
    endpoint = make_endpoint(scorer, max_rows=10)
    _, items = split("mixed", ["site", "user"], 20)
    serve_catalog(endpoint, "ads", scorer.ranker(context=["site", "user"]).catalog(items))
    assert post(endpoint.rank, {"context": ONE, "catalog": "ads", "top": 10})["indices"]
    error_of(endpoint.rank(json.dumps({"context": ONE, "catalog": "ads", "top": 11}).encode()), 413)
    error_of(endpoint.rank(json.dumps({"context": ONE, "candidates": [{"price": 1}] * 11}).encode()), 413)


def test_rankings_are_counted(scorers):
    scorer = scorers["mixed"]
    counters = np.zeros(2 * len(scorer.native.sizes), np.uint64)
    endpoint = make_endpoint(scorer, counters=counters)
    given, candidates = split("mixed", ["site", "user"], 30)
    reply = endpoint.rank(json.dumps({"context": given, "candidates": candidates, "top": 3}).encode())
    assert (reply.rows, reply.predictions) == (30, 3)
    assert reply.probability_sum == pytest.approx(sum(json.loads(reply.body)["probabilities"]))
    by_field = dict(zip(scorer.schema.names, counters.reshape(-1, 2)[:, 0].tolist(), strict=True))
    assert by_field["site"] == 1
    assert by_field["price"] == 30
