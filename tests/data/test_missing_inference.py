"""Texts such as NA in columns of numbers: inference makes them missing, and errors say how to."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fm2 import Field, Fm2Error, Schema, prepare

ROWS = 600
PRICES = np.random.default_rng(0).lognormal(2, 1, ROWS).round(2).astype(str)


def log_of(marker: str, share: float) -> pl.DataFrame:
    price = np.where(np.arange(ROWS) % 100 < 100 * share, marker, PRICES)
    site = np.where(np.arange(ROWS) % 3 == 0, marker, "s1")
    return pl.DataFrame({"click": np.arange(ROWS) % 2, "price": price, "site": site})


@pytest.mark.parametrize("marker", ["NA", "null", "N/A", "-", "?"])
@pytest.mark.parametrize("share", [0.02, 0.4])
@pytest.mark.parametrize("as_file", [False, True])
def test_numbers_with_a_marker_are_numeric(tmp_path, marker, share, as_file):
    log = log_of(marker, share)
    path = tmp_path / "log.csv"
    log.write_csv(path)
    schema = Schema.infer(path if as_file else log, "click")
    assert schema.missing == (marker,)
    assert [field.kind for field in schema.fields] == ["numeric", "categorical"]
    dataset = prepare(path if as_file else log, schema, tmp_path / "data")
    rows = dataset.train
    missing = log["price"].to_numpy()[rows.rows] == marker
    ids = rows.ids[:, 0]
    assert len(set(ids[missing])) == 1
    assert not set(ids[missing]) & {0, *ids[~missing]}
    assert dataset.decode(np.asarray(rows.ids[:3]))["site"] == [None if n % 3 == 0 else "s1" for n in rows.rows[:3]]


def test_other_texts_are_values():
    codes = pl.DataFrame({"click": np.arange(ROWS) % 2, "region": ["NA", "EU", "-"] * (ROWS // 3)})
    few = codes.with_columns(region=pl.Series(["NA", "1", "2"] * (ROWS // 3)))  # codes, of which NA may be one
    for log in (codes, few, log_of("unknown", 0.4)):
        assert Schema.infer(log, "click").missing == ()


def test_the_error_says_how_to_make_values_missing(tmp_path):
    schema = Schema([Field("price", "numeric", transform="quantiles")], label="click")
    with pytest.raises(Fm2Error, match=r"'price' is 'NA', not a number; missing = .*NA.* in the schema"):
        prepare(log_of("NA", 0.02), schema, tmp_path / "data")
