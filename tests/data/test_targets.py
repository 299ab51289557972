"""prepare: row weights, impressions, and sampling of rows without a click."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from tests.helpers.counts import FIELDS, counted_log, expand
from tests.helpers.lists import values_of

import fm2
from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.cli.main import main
from fm2.data.description import describe
from fm2.data.splits import uniform

COUNTS = Schema(FIELDS, label="clicks", impressions="views")
LIST_FIELDS = [
    Field("site", min_count=30),
    Field("visited", multivalued=True, shares="site", max_values=3, keep="last"),
    Field("hashed", column="visited", multivalued=True, hash_bits=4, pooling="sqrt"),
    Field("knots", "numeric", column="price", transform="interpolate", knots=7),
    Field("scaled", "numeric", column="price", transform="linear"),
]
SPLITS = ("train", "validation", "test")


def with_lists(log: pl.DataFrame) -> pl.DataFrame:
    random = np.random.default_rng(0)
    sites = log["site"].to_numpy()
    cells = [None if random.random() < 0.1 else random.choice(sites, random.integers(0, 6)).tolist() for _ in sites]
    return log.with_columns(visited=pl.Series(cells, dtype=pl.List(pl.String)))


@pytest.mark.parametrize("fields", [FIELDS, LIST_FIELDS], ids=["single", "lists"])
def test_impressions_equal_one_row_per_impression(tmp_path, fields):
    log = with_lists(counted_log(3000))
    parts = {"validation": log[2000:2500], "test": log[2500:]}
    expanded = {name: expand(part) for name, part in parts.items()}
    counts = Schema(fields, label="clicks", impressions="views")
    counted = prepare(log[:2000], counts, tmp_path / "counted", fractions=(1, 0, 0), **parts)
    single = Schema(fields, label="clicks")
    rows = prepare(expand(log[:2000]), single, tmp_path / "rows", fractions=(1, 0, 0), **expanded)
    for one, other in zip(counted.vocabularies, rows.vocabularies, strict=True):
        assert one.counts.tolist() == other.counts.tolist()
        assert one.data.tobytes() == other.data.tobytes()
        np.testing.assert_array_equal(one.boundaries, other.boundaries)
    assert counted.manifest["fields"] == rows.manifest["fields"]  # features, dropped and unknown values
    for name in SPLITS:
        totals = counted.manifest["splits"][name]
        expected = rows.manifest["splits"][name]
        assert (totals["impressions"], totals["clicks"]) == (expected["rows"], expected["clicks"])
        split = counted.split(name)
        assert split.labels.dtype == np.float64
        np.testing.assert_array_equal(np.round(split.labels * split.weights), log["clicks"].to_numpy()[split.rows])
        np.testing.assert_array_equal(split.weights, log["views"].to_numpy()[split.rows])
        assert describe(counted)["splits"][name]["click_rate"] == describe(rows)["splits"][name]["click_rate"]
    assert describe(counted)["fields"] == describe(rows)["fields"]


def test_quantiles_are_spaced_by_impressions(tmp_path, monkeypatch):
    monkeypatch.setattr("fm2.data.counting.NUMBER_SAMPLE", 500)
    log = counted_log(800)
    single = Schema(FIELDS, label="clicks")
    counted = prepare(log, COUNTS, tmp_path / "counted", fractions=(1, 0, 0))
    rows = prepare(expand(log), single, tmp_path / "rows", fractions=(1, 0, 0))
    np.testing.assert_array_equal(counted.vocabularies[-1].boundaries, rows.vocabularies[-1].boundaries)


def test_weights_are_stored_with_each_split(tmp_path):
    log = counted_log(500).with_columns(w=pl.Series(np.arange(500) % 4 / 2), click=pl.col("clicks").clip(0, 1))
    weighted = prepare(log, Schema(FIELDS, "click", weight="w"), tmp_path / "weighted")
    both = prepare(log, COUNTS.replace(weight="w"), tmp_path / "both")
    plain = prepare(log, Schema(FIELDS, "click"), tmp_path / "plain")
    for name in SPLITS:
        split = weighted.split(name)
        assert (split.labels.dtype, split.weights.dtype) == (np.uint8, np.float32)
        np.testing.assert_array_equal(split.weights, log["w"].to_numpy()[split.rows])
        views = log["views"].to_numpy()[both.split(name).rows]
        np.testing.assert_array_equal(both.split(name).weights, split.weights * views)
        assert plain.split(name).weights is None
        totals = weighted.manifest["splits"][name]
        assert totals["weight"] == split.weights.sum()
        rate = describe(weighted)["splits"][name]["click_rate"]
        assert rate == pytest.approx(np.average(split.labels, weights=split.weights), rel=1e-12)
    assert weighted.vocabularies[0].counts.tolist() == plain.vocabularies[0].counts.tolist()
    assert Dataset.open(both.path).schema == COUNTS.replace(weight="w")
    assert Schema.load(both.path / "schema.toml") == both.schema
    assert "weights.npy" not in {path.name for path in plain.path.rglob("*")}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("x,3,1", "label 'clicks' is 'x', not an integer from 0 to 4294967295"),
        ("1.5,3,1", "label 'clicks' is '1.5', not an integer from 0 to 4294967295"),
        ("-1,3,1", "label 'clicks' is '-1', not an integer from 0 to 4294967295"),
        (",3,1", "label 'clicks' is '', not an integer from 0 to 4294967295"),
        ("4294967296,3,1", "label 'clicks' is '4294967296', not an integer from 0 to 4294967295"),
        ("0,0,1", "impressions 'views' is '0', not an integer from 1 to 4294967295"),
        ("0,2.5,1", "impressions 'views' is '2.5', not an integer from 1 to 4294967295"),
        ("0,-2,1", "impressions 'views' is '-2', not an integer from 1 to 4294967295"),
        ("0,many,1", "impressions 'views' is 'many', not an integer from 1 to 4294967295"),
        ("4,3,1", "label 'clicks' exceeds the impressions 'views': 4 > 3"),
        ("1,3,-0.5", "weight 'w' is '-0.5', not a finite number of at least 0"),
        ("1,3,inf", "weight 'w' is 'inf', not a finite number of at least 0"),
        ("1,3,1e39", "weight 'w' is '1e39', not a finite number of at least 0"),
        ("1,3,", "weight 'w' is '', not a finite number of at least 0"),
        ("1,3,heavy", "weight 'w' is 'heavy', not a finite number of at least 0"),
    ],
)
def test_bad_rows_are_reported_with_their_line(write, tmp_path, cells, reason):
    schema = Schema([Field("site", min_count=1)], "clicks", impressions="views", weight="w")
    log = write("log.csv", f"clicks,views,w,site\n1,2,1,a\n{cells},b\n2.0,+5,2e0,c\n")
    with pytest.raises(Fm2Error) as raised:
        prepare(log, schema, tmp_path / "data", fractions=(1, 0, 0))
    assert str(raised.value) == f'prepare: {log} line 3: {reason}; bad_rows="skip" ignores such rows'
    dataset = prepare(log, schema, tmp_path / "data", fractions=(1, 0, 0), bad_rows="skip")
    assert dataset.train.rows.tolist() == [0, 2]
    assert dataset.train.labels.tolist() == [0.5, 0.4]
    assert dataset.train.weights.tolist() == [2.0, 10.0]
    assert dataset.manifest["bad_rows"]["count"] == 1


def test_invalid_settings(tmp_path, write):
    log = counted_log(50).with_columns(w=pl.lit(0))
    with pytest.raises(Fm2Error, match=r"prepare: all weights are zero \(column 'w'\)"):
        prepare(log, COUNTS.replace(weight="w"), tmp_path / "data")
    for rate in (0, -0.1, 1.5, float("nan")):
        with pytest.raises(Fm2Error, match="prepare: negative_rate must be above 0 and at most 1, got"):
            prepare(log, COUNTS, tmp_path / "data", negative_rate=rate)
    with pytest.raises(Fm2Error, match="has no column 'views'"):
        prepare(write("log.ffm", "1 0:1:1\n0 0:2:1\n"), Schema([Field("0")], "y", impressions="views"), tmp_path / "d")
    for settings, message in (
        ({"weight": "a"}, "field 'a' reads the column of the weight, 'a'"),
        ({"impressions": "a"}, "field 'a' reads the column of the impressions, 'a'"),
        ({"impressions": "y"}, "impressions and label are the same column, 'y'"),
        ({"impressions": "v", "weight": "v"}, "impressions and weight are the same column, 'v'"),
        ({"weight": 3}, "weight must be the name of a column, got 3"),
        ({"weight": "w", "columns": ["y", "a"]}, "columns does not list the column 'w'"),
    ):
        with pytest.raises(Fm2Error, match=message):
            Schema.from_dict({"label": "y", "field": [{"name": "a"}], **settings})


@pytest.mark.parametrize("split", ["random", "time"])
@pytest.mark.parametrize("counts", [False, True])
def test_negative_sampling_keeps_all_clicks_and_the_other_splits(tmp_path, split, counts):
    log = counted_log(20_000)
    schema = COUNTS
    if not counts:
        log = log.with_columns(clicks=(pl.col("clicks") > 0).cast(pl.Int8))
        schema = Schema(FIELDS, label="clicks")
    full = prepare(log, schema, tmp_path / "full", split=split)
    sampled = prepare(log, schema, tmp_path / "sampled", split=split, negative_rate=0.2, threads=1)
    for name in ("validation", "test"):
        np.testing.assert_array_equal(sampled.split(name).rows, full.split(name).rows)
        np.testing.assert_array_equal(sampled.split(name).labels, full.split(name).labels)
        assert sampled.manifest["splits"][name] == full.manifest["splits"][name]
    before, after = (each.manifest["splits"]["train"] for each in (full, sampled))
    total = "impressions" if counts else "rows"
    negatives = before[total] - before["clicks"]
    assert after["clicks"] == before["clicks"]
    assert after[total] - after["clicks"] == pytest.approx(0.2 * negatives, rel=0.05)
    assert np.isin(sampled.train.rows, full.train.rows).all()
    assert sampled.negative_rate == describe(sampled)["negative_rate"] == 0.2
    settings = sampled.manifest["settings"]
    assert settings["dropped_rows"] == before["rows"] - after["rows"]
    # The vocabulary counts what is left.
    left = sampled.train.weights if counts else np.ones(len(sampled.train))
    ids = np.asarray(sampled.train.ids)[:, 0]
    counted = np.bincount(ids, left, minlength=sampled.field_sizes[0])
    np.testing.assert_array_equal(counted[1:], sampled.vocabularies[0].counts)
    # A row of the log still has its number.
    weights = fm2.data.dataset.read_row_values("train", "row weights", np.arange(len(log)), sampled, np.int64)
    assert len(weights) == len(log)


@pytest.mark.parametrize("split", ["random", "time"])
def test_lists_of_sampled_rows_are_those_of_the_log(tmp_path, split):
    schema = Schema(LIST_FIELDS, label="clicks", impressions="views")
    log = with_lists(counted_log(4000)).with_columns(
        clicks=pl.when(pl.int_range(pl.len()) % 97 == 5).then(99).otherwise("clicks")
    )
    options = {"split": split, "negative_rate": 0.2, "bad_rows": "skip"}
    old = prepare(log, schema, tmp_path / "old", **options)
    new = prepare(log[::-1], old, tmp_path / "new", **options, vocabulary="all")
    for dataset, rows in ((old, log), (new, log[::-1])):
        assert dataset.manifest["bad_rows"]["count"] == dataset.manifest["bad_rows"]["excess"] == 42
        assert dataset.manifest["settings"]["dropped_rows"] > 0
        for name in SPLITS:
            part = dataset.split(name)
            again = dataset.encoder.encode_rows(rows[part.rows.tolist()])
            np.testing.assert_array_equal(part.ids[:, 0], again.ids[:, 0])
            for field in range(1, len(LIST_FIELDS)):
                assert values_of(part.encoded, field) == values_of(again, field)
    np.testing.assert_array_equal(old.vocabularies[3].boundaries, new.vocabularies[3].boundaries)


def test_negative_sampling_does_not_depend_on_threads_or_sources(tmp_path):
    log = counted_log(5000)
    one = prepare(log, COUNTS, tmp_path / "one", negative_rate=0.3, threads=1)
    parts = prepare([log[:1234], log[1234:]], COUNTS, tmp_path / "parts", negative_rate=0.3, threads=3)
    other = prepare(log, COUNTS, tmp_path / "other", negative_rate=0.3, seed=1)
    assert one.manifest["files"] == parts.manifest["files"]
    assert one.train.rows.tolist() != other.train.rows.tolist()
    kept = np.floor((log["views"] - log["clicks"]).to_numpy() * 0.3 + uniform(np.arange(5000), 0, stream=1))
    views = (log["clicks"].to_numpy() + kept)[one.train.rows]
    np.testing.assert_array_equal(one.train.weights, views)
    assert views.min() > 0


def test_the_streams_of_random_numbers_are_independent():
    rows = np.arange(100_000)
    one, other = uniform(rows, 0), uniform(rows, 0, stream=1)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
    assert abs(other.mean() - 0.5) < 0.01


def test_damaged_datasets(tmp_path):
    dataset = prepare(counted_log(300), COUNTS, tmp_path / "data")
    manifest = tmp_path / "data" / "manifest.json"
    values = json.loads(manifest.read_text())
    for rate in (0, 2, -1, "x", None, []):
        values["settings"]["negative_rate"] = rate
        manifest.write_text(json.dumps(values))
        with pytest.raises(Fm2Error, match="data"):
            Dataset.open(tmp_path / "data")
    del values["settings"]["negative_rate"]
    manifest.write_text(json.dumps(values))
    path = dataset.path / "train" / "weights.npy"
    weights = np.load(path)
    for wrong, message in (
        (np.full_like(weights, np.nan), "is damaged: the split 'train' has invalid weights"),
        (-weights, "is damaged: the split 'train' has invalid weights"),
        (np.zeros_like(weights), "has only rows with the weight 0 in the split 'train'"),
    ):
        np.save(path, wrong)
        with pytest.raises(Fm2Error, match=message):
            fm2.train("lr", Dataset.open(dataset.path), tmp_path / "run", verify=False)
    np.save(path, weights.view(np.int32))
    with pytest.raises(Fm2Error, match="the arrays of the split 'train' are inconsistent"):
        _ = Dataset.open(dataset.path).train


def test_the_command_line(tmp_path, capsys):
    counted_log(2000).with_columns(w=pl.lit(2.0)).write_csv(tmp_path / "log.csv")
    command = f"prepare {tmp_path}/log.csv --label clicks --impressions views --weight w"
    assert main(f"{command} --out {tmp_path}/data --negative-rate 0.5".split()) == 0
    printed = capsys.readouterr().out
    assert "impressions" in printed
    assert "train has 0.5 of its rows without a click" in printed
    dataset = Dataset.open(tmp_path / "data")
    assert "w" not in dataset.schema.feature_columns
    assert dataset.schema.target_columns == ("clicks", "views", "w")
    like = f"prepare {tmp_path}/log.csv --like {tmp_path}/data --out {tmp_path}/next --weight w"
    assert main(like.split()) == 1
    assert "--weight cannot be combined with --like" in capsys.readouterr().err
