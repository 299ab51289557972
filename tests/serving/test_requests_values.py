"""Values in requests become the same features as values in Python: all predictions are those of the scorer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.served import make_endpoint, make_scorer, post, rows_of

MODELS = {
    "mixed": {},
    "lists": {},
    "crosses": {},
    "trees": {},
    "planted": {"calibrate": "c2"},
}


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    return {name: make_scorer(name, tmp_path_factory.mktemp(name), **options) for name, options in MODELS.items()}


def columns_of(rows, columns):
    return {name: [row.get(name) for row in rows] for name in columns}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 3, 40, 1500])
def test_rows_and_columns_are_scored_like_dicts(scorers, name, count):
    scorer, rows = scorers[name], rows_of(name, count)
    endpoint, expected = make_endpoint(scorer), [scorer.predict_one(row) for row in rows]
    by_row = post(endpoint.predict, {"rows": rows})
    by_column = post(endpoint.predict, {"columns": columns_of(rows, scorer.columns)})
    assert by_row == by_column
    assert by_row.keys() == {"model", "version", "probabilities"}
    np.testing.assert_array_equal(np.array(by_row["probabilities"], np.float32), np.array(expected, np.float32))
    np.testing.assert_allclose(by_row["probabilities"], scorer.predict(rows), atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_absent_columns_of_a_row_are_missing(scorers, name):
    scorer = scorers[name]
    rows = [{column: row[column]} for row in rows_of(name, 3) for column in scorer.columns]
    rows = [row for row in rows if next(iter(row)) not in ("scores", "genres")] + [
        {key: row[key] for key in ("genres", "scores")} for row in rows_of(name, 3) if "scores" in row
    ]
    expected = [scorer.predict_one(row) for row in rows]
    assert post(make_endpoint(scorer).predict, {"rows": rows})["probabilities"] == pytest.approx(expected, abs=1e-7)


def test_the_order_of_columns_does_not_matter(scorers):
    scorer, rows = scorers["mixed"], rows_of("mixed", 50)
    shuffled = [dict(sorted(row.items(), key=lambda item: hash((item[0], index)))) for index, row in enumerate(rows)]
    endpoint = make_endpoint(scorer)
    assert post(endpoint.predict, {"rows": shuffled}) == post(endpoint.predict, {"rows": rows})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
scalars = (
    st.none() | st.booleans() | numbers | texts | st.sampled_from(["True", "1.0", "3", "-0", "i1", "s2", "t3", "g1:2"])
)
lists = st.lists(scalars, max_size=6)


def any_cells(column):
    """Return values that a column of the model with lists may have."""
    if column in ("history", "genres"):
        return scalars | lists
    if column == "tags":
        return scalars | lists | st.dictionaries(texts | st.sampled_from(["t1", "t2"]), scalars, max_size=5)
    if column == "scores":
        return st.none() | lists
    return scalars


@settings(max_examples=150, deadline=None)
@given(data=st.data(), ascii=st.booleans())
@pytest.mark.parametrize("name", ["mixed", "lists"])
def test_any_values_are_scored_like_dicts(scorers, name, data, ascii):
    scorer = scorers[name]
    row = st.fixed_dictionaries({}, optional={column: any_cells(column) for column in scorer.columns}).filter(bool)
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    body = json.dumps({"rows": rows}, ensure_ascii=ascii).encode()
    reply = make_endpoint(scorer).predict(body)
    expected = [scorer.predict_one(row) for row in rows]
    assert reply.status == 200, reply.body
    assert json.loads(reply.body)["probabilities"] == pytest.approx(expected, abs=1e-7)


SPELLINGS = [
    ("-0", 0),
    ("-0.0", 0),
    ("1.0", 1),
    ("1e2", 100),
    ("1E+2", 100),
    ("25e-1", 2.5),
    ("0.1", 0.1),
    ("1e-400", 0.0),
    ("-1e-999999999999999999999", 0.0),
    ("0e999999999999999999999", 0.0),
    ("0." + "0" * 400 + "1e401", 1.0),
    ("123456789012345678901234567890", 123456789012345678901234567890),
    ("9007199254740993.0", 9007199254740993.0),
    ("2.2250738585072011e-308", 2.2250738585072011e-308),
    ("true", True),
    ("null", None),
    (r'"\u0061"', "a"),
    (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
    (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
    ('"ü"', "ü"),
    (r'"a\u0000b"', "a\0b"),
    ('"news.exam\\u0070le"', "news.example"),
]


@pytest.mark.parametrize(("text", "value"), SPELLINGS)
def test_spellings_of_a_value_are_one_feature(scorers, text, value):
    scorer = scorers["mixed"]
    body = f' {{ "rows" : [ {{ "site" : {text} , "user": {text}, "price":{text} }}\n] }} '.encode()
    reply = make_endpoint(scorer).predict(body)
    expected = scorer.predict_one({"site": value, "user": value, "price": value})
    assert json.loads(reply.body)["probabilities"] == [pytest.approx(expected, abs=1e-7)]


def test_no_rows_have_no_probabilities(scorers):
    endpoint = make_endpoint(scorers["mixed"])
    assert post(endpoint.predict, {"rows": []})["probabilities"] == []
    columns = {name: [] for name in scorers["mixed"].columns}
    assert post(endpoint.predict, {"columns": columns})["probabilities"] == []


def test_the_id_is_echoed(scorers):
    endpoint, rows = make_endpoint(scorers["mixed"]), rows_of("mixed", 1)
    for id in ("abc", "", 'quotes " and \n lines', "ü"):
        answer = post(endpoint.predict, {"id": id, "rows": rows})
        assert (answer["id"], answer["model"], answer["version"]) == (id, "shop", "3")


def test_replies_have_figures(scorers):
    scorer, rows = scorers["mixed"], rows_of("mixed", 100)
    counters = np.zeros(2 * len(scorer.native.sizes), np.uint64)
    endpoint = make_endpoint(scorer, counters=counters)
    reply = endpoint.predict(json.dumps({"rows": [{**row, "site": "never seen"} for row in rows]}).encode())
    assert (reply.rows, reply.predictions) == (100, 100)
    assert reply.parse_ns > 0
    assert reply.score_ns > 0
    assert reply.probability_sum == pytest.approx(sum(json.loads(reply.body)["probabilities"]))
    by_field = dict(zip(scorer.schema.names, counters.reshape(-1, 2).tolist(), strict=True))
    assert by_field["site"] == [100, 100]
    assert by_field["user"] == [100, 0]
    endpoint.predict(b"{")
    assert counters.reshape(-1, 2)[0].tolist() == [100, 100]  # failures are not counted


def test_values_of_lists_are_counted(scorers):
    scorer = scorers["lists"]
    counters = np.zeros(2 * len(scorer.native.sizes), np.uint64)
    rows = [{"tags": {"t1": 1, "new": 2}, "history": ["i1", "i2"]}, {"tags": [], "history": None}]
    post(make_endpoint(scorer, counters=counters).predict, {"rows": rows})
    by_field = dict(zip(scorer.schema.names, counters.reshape(-1, 2).tolist(), strict=True))
    assert by_field["tags"] == [2, 1]
    assert by_field["history"][0] == 3  # a missing list has one value


def test_networks_are_scored_by_a_function(scorers):
    for name in ("mixed", "lists"):
        scorer, rows = scorers[name], rows_of(name, 30)
        expected = post(make_endpoint(scorer).predict, {"rows": rows})

        def score(ids, lists, scorer=scorer):
            logits = np.empty(len(ids), np.float32)
            scorer.native.score(ids, logits, lists=lists)
            return logits

        assert post(make_endpoint(scorer, score=score).predict, {"rows": rows}) == expected


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda ids, lists: 1 / 0, "ZeroDivisionError"),
        (lambda ids, lists: np.zeros(3, np.float32), "must have 1 entries, got 3"),
        (lambda ids, lists: "text", "float32 array"),
        (lambda ids, lists: np.full(1, np.nan, np.float32), "not a finite number"),
    ],
)
def test_failures_of_the_function_are_the_servers(scorers, score, message):
    reply = make_endpoint(scorers["mixed"], score=score).predict(json.dumps({"rows": rows_of("mixed", 1)}).encode())
    assert (reply.status, reply.reason) == (500, "model_failed")
    assert message in json.loads(reply.body)["error"]
