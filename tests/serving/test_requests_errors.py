"""A request that cannot be answered completely is refused: the message says what is wrong, where, and the way out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.served import error_of, make_endpoint, make_scorer, rows_of


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    return {name: make_scorer(name, tmp_path_factory.mktemp(name)) for name in ("mixed", "lists")}


JSON = {
    "nothing": (b"", "the text ends after 0 bytes"),
    "blanks": (b" \n", "the text ends after 2 bytes"),
    "another type": (b"[]", "expected an object, got an array"),
    "truncated": (b'{"rows": [{"site": "a"}', "expected ',' or ']'"),
    "truncated text": (b'{"rows": [{"site": "a', "but the text ends after 21 bytes"),
    "trailing text": (b'{"rows": []} x', "invalid JSON at byte 13: unexpected text after the end"),
    "trailing NUL": (b'{"rows": []}\0', "unexpected text after the end"),
    "trailing comma": (b'{"rows": [{"site": "a"},]}', "expected an object"),
    "trailing comma of an object": (b'{"rows": [{"site": "a",}]}', "expected a string as a key"),
    "no quotes": (b"{rows: []}", "invalid JSON at byte 1: expected a string as a key"),
    "no colon": (b'{"rows" []}', "expected ':'"),
    "NaN": (b'{"rows": [{"site": NaN}]}', "byte 19: expected a value"),
    "Infinity": (b'{"rows": [{"site": -Infinity}]}', "byte 20: expected a digit"),
    "leading zero": (b'{"rows": [{"site": 01}]}', "expected ',' or '}'"),
    "leading plus": (b'{"rows": [{"site": +1}]}', "expected a value"),
    "no fraction": (b'{"rows": [{"site": 1.}]}', "expected a digit"),
    "no exponent": (b'{"rows": [{"site": 1e}]}', "expected a digit"),
    "misspelled literal": (b'{"rows": [{"site": nul}]}', "unexpected character"),
    "control character": (b'{"rows": [{"site": "a\nb"}]}', "control characters must be escaped"),
    "unknown escape": (rb'{"rows": [{"site": "\x"}]}', "unknown escape sequence"),
    "short escape": (rb'{"rows": [{"site": "\u12"}]}', "four hexadecimal digits"),
    "signed escape": (rb'{"rows": [{"site": "\u-123"}]}', "four hexadecimal digits"),
    "first surrogate alone": (rb'{"rows": [{"site": "\ud800"}]}', "a surrogate has no partner"),
    "second surrogate alone": (rb'{"rows": [{"site": "\udc00"}]}', "a surrogate has no partner"),
    "two first surrogates": (rb'{"rows": [{"site": "\ud800\ud800"}]}', "a surrogate has no partner"),
    "invalid UTF-8": (b'{"rows": [{"site": "\xff"}]}', "not valid UTF-8"),
    "encoded surrogate": (b'{"rows": [{"site": "\xed\xa0\x80"}]}', "not valid UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf{}", "invalid JSON at byte 0"),
}


@pytest.mark.parametrize("title", JSON)
def test_invalid_json_is_refused(scorers, title):
    body, message = JSON[title]
    reply = make_endpoint(scorers["mixed"]).predict(body)
    assert message in error_of(reply)


REQUESTS = {
    "no rows": ({}, "invalid_request", "neither 'rows' nor 'columns'"),
    "both": ({"rows": [], "columns": {}}, "invalid_request", "more than one of 'rows' and 'columns'"),
    "another member": ({"row": []}, "invalid_request", "unknown key 'row'; did you mean 'rows'?"),
    "rows as an object": ({"rows": {}}, "invalid_request", "expected an array, got an object"),
    "a row as a list": ({"rows": [[]]}, "invalid_request", "rows[0]: expected an object, got an array"),
    "numeric id": ({"id": 3, "rows": []}, "invalid_request", "expected a string as 'id', got a number"),
    "unknown column": (
        {"rows": [{"site": 1}, {"stie": 1}]},
        "unknown_column",
        "rows[1]: unknown column 'stie'; did you mean 'site'?",
    ),
    "strange column": (
        {"rows": [{"x": 1}]},
        "unknown_column",
        "unknown column 'x'; choose from site, user, price, visits, time",
    ),
    "empty row": (
        {"rows": [{"site": 1}, {}]},
        "unknown_column",
        "rows[1]: the object has none of the model's columns: site, ...",
    ),
    "nested value": (
        {"rows": [{"site": ["a"]}]},
        "invalid_value",
        "rows[0]: column 'site': the value is a list; only multi-valued",
    ),
    "object value": ({"rows": [{"site": {"a": 1}}]}, "invalid_value", "rows[0]: column 'site': the value is an object"),
    "unknown column of a table": (
        {"columns": {"stie": []}},
        "unknown_column",
        "unknown column 'stie'; did you mean 'site'?",
    ),
    "absent column": (
        {"columns": {"site": ["a"]}},
        "unknown_column",
        "column 'user' is absent; missing values are null",
    ),
    "ragged columns": (
        {"columns": {"site": ["a", "b"], "user": ["a"]}},
        "unknown_column",
        "column 'user': expected 2 values like in the first column, got 1",
    ),
    "column of one value": (
        {"columns": {"site": "a"}},
        "invalid_request",
        "column 'site': expected an array, got a string",
    ),
    "nested value of a column": (
        {"columns": {"site": ["a", ["b"]]}},
        "invalid_value",
        "column 'site': row 1: the value is a list",
    ),
}


@pytest.mark.parametrize("title", REQUESTS)
def test_invalid_requests_are_refused(scorers, title):
    request, reason, message = REQUESTS[title]
    reply = make_endpoint(scorers["mixed"]).predict(json.dumps(request).encode())
    assert message in error_of(reply)
    assert reply.reason == reason


def test_repeated_keys_are_refused(scorers):
    endpoint = make_endpoint(scorers["mixed"])
    repeated = {
        b'{"rows": [], "rows": []}': "more than one",
        b'{"rows": [{"site": 1, "site": 1}]}': "rows[0]: column 'site': the column occurs twice",
        b'{"columns": {"site": [], "site": []}}': "column 'site': the column occurs twice",
    }
    for body, message in repeated.items():
        assert message in error_of(endpoint.predict(body))
    body = b'{"rows": [{"tags": {"a": 1, "b": 2, "\\u0061": 3}}]}'
    assert "the value 'a' occurs twice" in error_of(make_endpoint(scorers["lists"]).predict(body))


LISTS = {
    "nested list": ({"tags": [["a"]]}, "rows[0]: column 'tags': a value is nested"),
    "nested weights": ({"tags": {"a": [1]}}, "rows[0]: column 'tags': a value is nested"),
    "weights for a field without": (
        {"history": {"i1": 1}},
        "only fields with weighted = true may have weights by value",
    ),
    "weights beside a column of weights": ({"genres": {"g1": 1}}, "only fields with weighted = true"),
    "list of numbers": ({"price": [1.5]}, "the value is a list; only multi-valued fields"),
}


@pytest.mark.parametrize("title", LISTS)
def test_invalid_lists_are_refused(scorers, title):
    row, message = LISTS[title]
    assert message in error_of(make_endpoint(scorers["lists"]).predict(json.dumps({"rows": [row]}).encode()))


def test_errors_name_their_column(scorers):
    endpoint = make_endpoint(scorers["mixed"])
    for request, column in (
        ({"rows": [{"site": []}]}, "site"),
        ({"rows": [{"stie": 1}]}, "stie"),
        ({"columns": {}}, "site"),
    ):
        assert json.loads(endpoint.predict(json.dumps(request).encode()).body)["column"] == column


def test_numbers_without_a_double_are_refused(scorers):
    endpoint = make_endpoint(scorers["mixed"])
    for number in (b"1e400", b"-1e309", b"1" + b"0" * 400 + b".0", b"1e99999999999999999999"):
        assert "is too large" in error_of(endpoint.predict(b'{"rows": [{"price": %s}]}' % number))


def test_requests_have_limits(scorers):
    endpoint = make_endpoint(scorers["lists"], max_rows=10, max_values=20)
    rows = rows_of("lists", 11)
    reply = endpoint.predict(json.dumps({"rows": [{"site": "s1"}] * 11}).encode())
    assert "a request may have 10 rows; send several" in error_of(reply, 413)
    assert reply.reason == "too_many_rows"
    assert "10 rows" in error_of(endpoint.predict(json.dumps({"columns": {"site": ["s1"] * 11}}).encode()), 413)
    assert "20 values" in error_of(endpoint.predict(json.dumps({"rows": rows[:10]}).encode()), 413)
    assert "20 values" in error_of(endpoint.predict(json.dumps({"rows": [{"tags": ["t1"] * 21}]}).encode()), 413)
    assert endpoint.predict(json.dumps({"rows": [{"tags": ["t1"] * 20}]}).encode()).status == 200


def test_deep_nesting_is_refused(scorers):
    endpoint = make_endpoint(scorers["mixed"])
    for depth in (64, 1000, 1_000_000):
        for body in (b"[" * depth, b'{"inputs":' + b"[" * depth, b'{"x":' * depth):
            assert error_of(endpoint.infer(body))
            assert error_of(endpoint.predict(body))
    deep = b'{"x": ' + b"[" * 63 + b"]" * 63 + b"}"
    assert "no 'inputs'" in error_of(endpoint.infer(deep))
    assert "nested too deeply" in error_of(endpoint.infer(b'{"x": ' + b"[" * 64 + b"]" * 64 + b"}"))


def test_messages_are_short(scorers):
    endpoint = make_endpoint(scorers["mixed"])
    reply = endpoint.predict(json.dumps({"rows": [{"x" * 100_000: 1}]}).encode())
    assert len(reply.body) < 500


def test_counters_must_fit_the_model(scorers):
    with pytest.raises(ValueError, match="expected 12 counters, two per field, got 3"):
        make_endpoint(scorers["mixed"], counters=np.zeros(3, np.uint64))
