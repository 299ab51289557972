"""Dicts with misspelled columns: the first row that a model can use is checked, and the first candidates."""

from __future__ import annotations

import warnings

import polars as pl
import pytest
from tests.helpers.planted import QUICK, planted

import fm2
from fm2 import Field, Fm2Error, Fm2Warning, Schema

COLUMNS = {"c0": "user", "c1": "site", "c2": "item_id", "c3": "device"}
MESSAGE = r"^{}: unknown key '{}'; did you mean '{}'\? A column that is absent from a row is a missing value$"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("misspelled")
    schema = Schema([Field(name, min_count=1) for name in COLUMNS.values()], label="click")
    data = fm2.prepare(planted(600).rename(COLUMNS), schema, folder / "data")
    return fm2.train("fmfm", data, folder / "run", **QUICK, dim=2)


@pytest.fixture
def scorer(trained, tmp_path):
    return fm2.load(fm2.compile(trained.path, tmp_path / "model.fm2").path)


@pytest.fixture
def row() -> dict[str, str]:
    return planted(3).rename(COLUMNS).drop("click").to_dicts()[0]


def misspelled(row: dict[str, str], column: str, key: str) -> dict[str, str]:
    return {key if name == column else name: value for name, value in row.items()}


@pytest.mark.parametrize(
    ("column", "key"),
    [("user", "usr"), ("user", "User"), ("item_id", "itemId"), ("site", "stie"), ("user", "user_id")],
)
def test_the_first_row_is_checked_once(scorer, trained, tmp_path, row, column, key):
    wrong = misspelled(row, column, key)
    with pytest.warns(Fm2Warning, match=MESSAGE.format("predict", key, column)) as shown:
        probability = scorer.predict_one(wrong)
    assert [warning.filename for warning in shown] == [__file__]
    assert scorer.predict_one(wrong) == probability == scorer.predict_one({**wrong, column: None})
    for rows in ([wrong, row], {name: [value] for name, value in wrong.items()}):
        again = fm2.load(scorer.path)
        with pytest.warns(Fm2Warning, match=MESSAGE.format("predict", key, column)):
            again.predict(rows)
        again.predict(rows)
    with pytest.warns(Fm2Warning, match=MESSAGE.format("encode", key, column)):
        fm2.Run.open(trained.path).predict([wrong])


def test_a_row_that_fails_does_not_use_up_the_check(trained, scorer, row):
    wrong = misspelled(row, "user", "usr")
    for failing in ({"usr": 1}, {**row, "user": object()}):
        fresh, run = fm2.load(scorer.path), fm2.Run.open(trained.path)
        for predict in (fresh.predict_one, lambda values, fresh=fresh: fresh.predict([values])):
            with pytest.raises(Fm2Error):
                predict(failing)
        with pytest.raises(Fm2Error):
            run.predict([failing])
        with pytest.warns(Fm2Warning, match=MESSAGE.format("predict", "usr", "user")):
            fresh.predict_one(wrong)
        fresh.predict([wrong])
        with pytest.warns(Fm2Warning, match=MESSAGE.format("encode", "usr", "user")):
            run.predict([wrong])


def test_rows_that_are_not_misspelled_are_not_reported(trained, scorer, row):
    absent = {name: value for name, value in row.items() if name != "user"}
    for right in (row, {**row, "usr": 1}, absent, {**absent, "label": 1, "price": 3, 7: 8}, pl.DataFrame([row])):
        fresh = fm2.load(scorer.path)
        fresh.predict(right if isinstance(right, pl.DataFrame) else [right])
        fm2.Run.open(trained.path).predict(right if isinstance(right, pl.DataFrame) else [right])
    with pytest.raises(fm2.Fm2Error, match="none of the model's columns"):
        fm2.load(scorer.path).predict_one({"usr": 1})


def test_columns_that_differ_in_a_number_are_not_confused(tmp_path):
    schema = Schema([Field(f"c{i}", min_count=1) for i in range(4)], label="click")
    data = fm2.prepare(planted(300), schema, tmp_path / "data")
    fm2.Run.open(fm2.train("lr", data, tmp_path / "run", **QUICK).path).predict([{"c0": "v1", "c10": "v1"}])


def test_contexts_and_candidates_are_checked_once(scorer, row):
    context = {name: row[name] for name in ("user", "device")}
    candidates = [{name: row[name] for name in ("site", "item_id")}] * 2
    ranker = scorer.ranker(context=["user", "device"])
    with pytest.warns(Fm2Warning, match=MESSAGE.format("rank", "devise", "device")):
        ranker.rank(misspelled(context, "device", "devise"), candidates)
    ranker.rank(misspelled(context, "device", "devise"), candidates)
    ranker = scorer.ranker(context=["user", "device"])
    ranker.rank({**context, "item": 1, "sites": 2}, candidates)  # resembles columns of the other side only
    ranker = scorer.ranker(context=["user", "device"])
    with pytest.warns(Fm2Warning, match=MESSAGE.format("rank", "item", "item_id")):
        ranker.catalog([misspelled(candidates[0], "item_id", "item")])
    ranker = scorer.ranker(context=["user", "device"])
    with pytest.warns(Fm2Warning, match=MESSAGE.format("rank", "item", "item_id")) as shown:  # only once
        ranker.rank(context, [*candidates, *[misspelled(candidates[0], "item_id", "item")] * 2])
    assert len(shown) == 1
    with pytest.raises(Fm2Error, match="rank: candidate 2 has none of its columns: item_id, site"):
        scorer.ranker(context=["user", "device"]).rank(context, [candidates[0], {"page": 1}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scorer.ranker(context=["user", "device"]).rank(context, candidates)
