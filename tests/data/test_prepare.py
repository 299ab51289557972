"""prepare: vocabularies, transforms, splits, and atomic output directories."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fm2 import Dataset, Field, Fm2Error, Schema, prepare, train
from fm2.data.splits import random_split

SITE = Schema([Field("site", min_count=3)], label="y")


def sites(values, **extra) -> pl.DataFrame:
    return pl.DataFrame({"y": [i % 2 for i in range(len(values))], "site": values, **extra})


values = st.lists(st.none() | st.sampled_from("abcdefg") | st.text(max_size=3), min_size=30, max_size=300)


@settings(max_examples=40, deadline=None)
@given(values=values, min_count=st.integers(1, 5), seed=st.integers(0, 3), all_splits=st.booleans())
def test_ids_follow_the_counts_of_the_training_rows(tmp_path_factory, values, min_count, seed, all_splits):
    schema = Schema([Field("site", min_count=min_count)], label="y")
    out = tmp_path_factory.mktemp("prepared") / "data"
    vocabulary = "all" if all_splits else "train"
    dataset = prepare(sites(values), schema, out, seed=seed, vocabulary=vocabulary)

    tokens = [value or None for value in values]
    split = random_split(np.arange(len(tokens)), (0.8, 0.1, 0.1), seed)
    counts = Counter(token for token, part in zip(tokens, split, strict=True) if all_splits or part == 0)
    kept = {token for token, count in counts.items() if count >= min_count}
    assert len(dataset.vocabularies[0]) == len(kept) + 1
    for part, name in enumerate(("train", "validation", "test")):
        rows = dataset.split(name)
        expected = [token for token, at in zip(tokens, split, strict=True) if at == part]
        assert rows.rows.tolist() == np.flatnonzero(split == part).tolist()
        assert rows.labels.tolist() == [row % 2 for row in rows.rows]
        decoded = dataset.decode(np.asarray(rows.ids))["site"]
        assert decoded == [token if token in kept else "<unknown>" for token in expected]
        # Encoding the raw rows again yields the same ids.
        np.testing.assert_array_equal(dataset.encode(sites(expected)), rows.ids)
    by_id = [counts[dataset.vocabularies[0].value(id)] for id in range(1, len(kept) + 1)]
    assert by_id == sorted(by_id, reverse=True)


@pytest.mark.parametrize(("rows", "least"), [(200, 2), (320, 3), (480, 4)])
def test_the_default_threshold_grows_with_the_training_rows(tmp_path, monkeypatch, rows, least):
    monkeypatch.setattr("fm2.data.counting.ROWS_FOR_MIN_COUNTS", {200: 2, 300: 3})  # training rows
    values = [f"v{row // 5}" for row in range(rows)]
    fields = [Field("site"), Field("three", column="site", min_count=3)]
    dataset = prepare(sites(values), Schema(fields, label="y"), tmp_path / "data")
    split = random_split(np.arange(rows), (0.8, 0.1, 0.1), 0)
    counts = Counter(value for value, part in zip(values, split, strict=True) if part == 0)
    for vocabulary, expected in zip(dataset.vocabularies, (least, 3), strict=True):
        kept = {value.encode() for value, count in counts.items() if count >= expected}
        assert set(vocabulary.values()) == kept
    assert dataset.schema.fields[0].min_count == 0  # a larger log like this one has a larger threshold


def test_a_known_vocabulary_grows_by_frequent_values_only(tmp_path):
    known = prepare(sites(["a", "b"] * 50), Schema([Field("site")], label="y"), tmp_path / "known")
    new = ["a"] * 40 + ["twice"] * 2 + ["often"] * 4
    dataset = prepare(sites(new), known, tmp_path / "new", fractions=(1, 0, 0))
    assert set(dataset.vocabularies[0].values()) == {b"a", b"b", b"often"}


def test_log_square_follows_the_paper(tmp_path):
    x = [None, -2, -1, 0, 1, 2, 3, 4, 5, 9, 100, 12345, 7_000_000]
    table = pl.DataFrame({"y": [0] * len(x), "n": x})
    dataset = prepare(table, Schema([Field("n", "numeric", min_count=1)], "y"), tmp_path / "data", fractions=(1, 0, 0))
    expected = [None if v is None else str(math.ceil(math.log(v) ** 2 + 1) if v > 2 else v) for v in x]
    assert dataset.decode(np.asarray(dataset.train.ids))["n"] == expected
    assert all(int(token) > 2 for token in expected[6:])  # no large number is merged with one of at most 2


def test_quantiles_are_learned_from_the_training_rows(tmp_path):
    random = np.random.default_rng(0)
    numbers = np.round(random.lognormal(size=20_000), 3)
    times = np.arange(len(numbers))
    numbers[times >= 16_000] += 1000.0  # later rows must not affect the boundaries
    table = pl.DataFrame({"y": times % 2, "n": numbers}).with_columns(
        pl.when(pl.int_range(pl.len()) % 10 == 0).then(None).otherwise(pl.col("n")).alias("n")
    )
    schema = Schema([Field("n", "numeric", transform="quantiles", buckets=8, min_count=1)], "y")
    dataset = prepare(table, schema, tmp_path / "data", split="time")
    train = np.asarray(dataset.train.ids)[:, 0]
    decoded = dataset.decode(train[:, None])["n"]
    counts = Counter(decoded)
    assert counts[None] == 1600
    assert {counts[str(bucket)] for bucket in range(8)} <= set(range(1750, 1850))
    test = Counter(dataset.decode(np.asarray(dataset.test.ids))["n"])
    assert set(test) == {None, "7"}
    np.testing.assert_array_equal(dataset.encode(table[:16_000])[:, 0], train)


def test_a_hashed_field_has_no_vocabulary(tmp_path):
    table = sites([f"user {i}" for i in range(2000)])
    dataset = prepare(table, Schema([Field("site", hash_bits=6)], "y"), tmp_path / "data")
    assert dataset.field_sizes == [65]
    ids = np.asarray(dataset.train.ids)[:, 0]
    assert ids.min() >= 1
    assert len(set(ids)) == 64
    np.testing.assert_array_equal(dataset.encode(table[dataset.train.rows.tolist()])[:, 0], ids)
    assert (dataset.encode({"site": ["never seen"]}) > 0).all()


def test_a_split_by_time_follows_the_timestamp_or_the_row_order(tmp_path):
    hours = np.random.default_rng(2).permutation(np.repeat(np.arange(50), 20))
    text = [f"2024-01-{1 + h // 24:02d} {h % 24:02d}:00:00" for h in hours]
    table = sites(["a"] * len(hours), when=text)
    schema = Schema([Field("site"), Field("when", "timestamp")], label="y")
    dataset = prepare(table, schema, tmp_path / "timed", split="time")
    assert sorted({int(hours[row]) for row in dataset.train.rows}) == list(range(40))
    assert sorted({int(hours[row]) for row in dataset.test.rows}) == list(range(45, 50))
    ordered = prepare(table, SITE, tmp_path / "ordered", split="time")
    assert ordered.train.rows.tolist() == list(range(800))
    assert ordered.test.rows.tolist() == list(range(900, 1000))


def test_validation_and_test_can_have_separate_sources(tmp_path):
    parts = {name: sites([name] * size) for name, size in (("a", 100), ("b", 20), ("c", 30))}
    dataset = prepare(parts["a"], SITE, tmp_path / "both", validation=parts["b"], test=parts["c"])
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [100, 20, 30]
    dataset = prepare(parts["a"], SITE, tmp_path / "one", test=parts["c"])
    assert len(dataset.test) == 30
    assert len(dataset.train) + len(dataset.validation) == 100
    assert 0 < len(dataset.validation) < 30
    timed = prepare(parts["a"], SITE, tmp_path / "timed", test=parts["c"], split="time")
    assert timed.validation.rows.tolist() == list(range(89, 100))


def test_constant_and_empty_columns_have_one_feature(tmp_path):
    table = sites(["one"] * 50, empty=[None] * 50, nothing=pl.Series([None] * 50, dtype=pl.Null))
    schema = Schema([Field("site"), Field("empty"), Field("nothing", "numeric")], "y")
    dataset = prepare(table, schema, tmp_path / "data")
    assert dataset.field_sizes == [2, 2, 2]
    assert dataset.decode(np.array([[1, 1, 1]])) == {"site": ["one"], "empty": [None], "nothing": [None]}


def test_missing_values_can_be_unknown(tmp_path):
    log = pl.DataFrame({"click": [0, 1] * 60, "site": ["a", None, "b"] * 40, "price": [1, 1, None, 9] * 30})
    fields = [Field("site"), Field("price", "numeric", missing_is_unknown=True)]
    schema = Schema([fields[0], Field("again", column="site", missing_is_unknown=True), fields[1]], label="click")
    dataset = prepare(log, schema, tmp_path / "data")
    assert dataset.field_sizes == [1 + 3, 1 + 2, 1 + 2]
    assert Schema.load(tmp_path / "data" / "schema.toml") == schema
    encoded = dataset.encode([{"site": None, "price": None}, {"site": "a", "price": 9}])
    assert (encoded[0] > 0).tolist() == [True, False, False]
    assert (encoded[1] > 0).all()
    newer = prepare(log, dataset, tmp_path / "newer")
    assert newer.field_sizes == dataset.field_sizes
    with pytest.raises(Fm2Error, match="'tags': missing_is_unknown requires a vocabulary of the field's own and one"):
        Field("tags", multivalued=True, missing_is_unknown=True)


def test_the_output_does_not_depend_on_the_number_of_threads(tmp_path):
    random = np.random.default_rng(3)
    columns = {f"c{i}": random.zipf(1.3, 5000).astype(str) for i in range(5)}
    log = tmp_path / "log.csv"
    pl.DataFrame({"y": random.integers(0, 2, 5000), **columns}).write_csv(log)
    schema = Schema([Field(name, min_count=2) for name in columns], label="y")
    manifests = [prepare(log, schema, tmp_path / f"data{n}", threads=n).manifest for n in (1, 2, 3)]
    assert manifests[0] == manifests[1] == manifests[2]


def test_an_existing_directory_is_replaced_only_with_overwrite(tmp_path):
    out = tmp_path / "data"
    first = prepare(sites(["a"] * 100), SITE, out)
    with pytest.raises(Fm2Error, match="already exists; use overwrite=True to replace it"):
        prepare(sites(["b"] * 50), SITE, out)
    with pytest.raises(Fm2Error, match="not 0 or 1"):
        prepare(sites(["b"] * 50).with_columns(y=7), SITE, out, overwrite=True)
    Dataset.open(out).verify()
    assert Dataset.open(out).manifest == first.manifest
    assert (
        sum(
            entry["rows"] for entry in prepare(sites(["b"] * 50), SITE, out, overwrite=True).manifest["splits"].values()
        )
        == 50
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(Fm2Error, match=r"is not a dataset \(no manifest.json\); choose another out="):
        prepare(sites(["b"] * 50), SITE, other, overwrite=True)
    assert (other / "thesis.txt").exists()


def test_a_killed_run_leaves_no_dataset_and_the_next_run_succeeds(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("y,site\n" + "1,a\n0,b\n" * 1000)
    script = """
import sys, time, fm2.data.engine as e, fm2.data.prepare as p
def slow(*arguments):
    write_splits(*arguments); print("written", flush=True); time.sleep(60)
write_splits, e.write_splits = e.write_splits, slow
p.prepare(sys.argv[1], p.Schema([__import__("fm2").Field("site")], "y"), sys.argv[2])
"""
    out = tmp_path / "data"
    child = subprocess.Popen([sys.executable, "-c", script, str(log), str(out)], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"written\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert not out.exists()
    leftovers = [entry for entry in tmp_path.iterdir() if entry.name != "log.csv"]
    assert len(leftovers) == 1
    with pytest.raises(Fm2Error, match="not a prepared dataset"):
        Dataset.open(leftovers[0])
    prepare(log, SITE, out).verify()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "log.csv"]


def test_a_full_disk_leaves_no_files(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("y,site\n" + "1,a\n0,b\n" * 100_000)
    script = """
import resource, sys, fm2
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    fm2.prepare(sys.argv[1], fm2.Schema([fm2.Field("site")], "y"), sys.argv[2])
except fm2.Fm2Error as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(log), str(tmp_path / "data")], capture_output=True, text=True, check=True
    )
    assert "data: File too large; nothing was written" in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.csv"]


def test_damaged_files_are_errors(tmp_path):
    out = tmp_path / "data"
    prepare(sites(["a"] * 100), SITE, out).verify()
    ids = out / "train" / "ids.npy"
    content = bytearray(ids.read_bytes())
    content[-1] ^= 1
    ids.write_bytes(content)
    with pytest.raises(Fm2Error, match=r"the checksum of train/ids.npy does not match"):
        Dataset.open(out).verify()
    ids.write_bytes(content[:-4])
    with pytest.raises(Fm2Error, match=r"train/ids.npy is missing or its size has changed"):
        Dataset.open(out)
    (out / "train" / "ids.npy").write_bytes(b"x" * (len(content)))
    with pytest.raises(Fm2Error, match=r"train/ids\.npy is not a valid array"):
        Dataset.open(out).split("train")
    vocabularies = out / "vocabularies.npz"
    vocabularies.write_bytes(b"PK" + vocabularies.read_bytes()[2:][::-1])
    with pytest.raises(Fm2Error, match="is damaged"):
        Dataset.open(out).encode({"site": ["a"]})
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"version": 99}))
    with pytest.raises(Fm2Error, match="has the format 'fm2 dataset 99'; this version of fm2 reads 'fm2 dataset 1'"):
        Dataset.open(out)


@pytest.mark.parametrize("option", [{"split": "odd"}, {"vocabulary": "none"}, {"bad_rows": "keep"}])
def test_errors_name_the_invalid_option(tmp_path, option):
    (name, value), *_ = option.items()
    with pytest.raises(Fm2Error, match=f"prepare: {name} must be .* or .*, got '{value}'"):
        prepare(sites(["a"] * 10), SITE, tmp_path / "data", **option)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"threads": -3}, "threads must be between 1 and 1024, or 0 for all, got -3"),
        ({"seed": 2**70}, "the seed must fit into 64 bits"),
        ({"fractions": (float("nan"), 0.5, 0.5)}, "three shares that add up to 1"),
    ],
)
def test_numbers_out_of_range_are_errors(tmp_path, option, message):
    with pytest.raises(Fm2Error, match=message):
        prepare(sites(["a"] * 10), SITE, tmp_path / "data", **option)


def test_missing_sources_and_unknown_presets_are_errors(tmp_path):
    with pytest.raises(Fm2Error, match="there are no sources"):
        prepare([], SITE, tmp_path / "data")
    with pytest.raises(Fm2Error, match="'crito' is neither a file nor a preset; the presets are criteo, avazu"):
        prepare(sites(["a"]), "crito", tmp_path / "data")


def test_an_open_dataset_detects_that_it_was_replaced(tmp_path):
    old = prepare(sites(["a"] * 100), SITE, tmp_path / "data")
    assert len(old.train)
    prepare(sites(["b"] * 50), SITE, tmp_path / "data", overwrite=True)
    with pytest.raises(Fm2Error, match="has been replaced since it was opened"):
        old.decode(np.array([[1]]))


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    prepare(sites(["a"] * 100), SITE, tmp_path / "data")
    prepare(sites(["b"] * 50), SITE, tmp_path / "data", overwrite=True)
    assert (tmp_path / "data").is_symlink()
    assert Dataset.open(tmp_path / "disk").vocabularies[0].value(1) == "b"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "disk"]


def test_a_log_without_training_rows_is_an_error(tmp_path):
    with pytest.raises(Fm2Error, match="none of the 1 rows is for training"):
        prepare(sites(["a"]), SITE, tmp_path / "data", fractions=(0.01, 0.495, 0.495))


def test_quantiles_accept_numbers_beyond_float32(tmp_path):
    schema = Schema([Field("n", "numeric", transform="quantiles", buckets=3, min_count=1)], "y")
    values = [-1e300, 0.5, 1e300] * 40
    dataset = prepare(pl.DataFrame({"n": values, "y": [0, 1] * 60}), schema, tmp_path / "data")
    assert np.isfinite(dataset.vocabularies[0].boundaries).all()
    assert dataset.decode(dataset.encode({"n": values[:3]}))["n"] == ["0", "1", "2"]
    run = train("lr", dataset, tmp_path / "run", epochs=1, threads=1)
    assert len(run.predict({"n": values[:3]})) == 3


def test_new_rows_are_encoded_with_the_same_vocabularies(tmp_path):
    schema = Schema([Field("site", min_count=1), Field("n", "numeric", min_count=1)], "y")
    table = sites(["a", "b"] * 50, n=[1, 2] * 50)
    dataset = prepare(table, schema, tmp_path / "data")
    encoded = dataset.encode({"n": [1, 77, None, 2.0], "site": ["a", "new", "b", None], "more": [0, 0, 0, 0]})
    assert dataset.decode(encoded) == {
        "site": ["a", "<unknown>", "b", "<unknown>"],
        "n": ["1", "<unknown>", "<unknown>", "2"],
    }
    assert dataset.encode(pl.DataFrame({"site": ["a"], "n": ["not a number"]})).tolist()[0][1] == 0
    assert dataset.encode(table[:0]).shape == (0, 2)
    with pytest.raises(Fm2Error, match="encode: the DataFrame has no column 'n'"):
        dataset.encode(pl.DataFrame({"site": ["a"]}))
    with pytest.raises(Fm2Error, match="encode: expected a row as a dict of values by column, got 'int'"):
        dataset.encode([1, 2])
    with pytest.raises(
        Fm2Error, match="encode: rows must be dicts, a dict of columns, a DataFrame or an array of ids, got str"
    ):
        dataset.encode("a")
    with pytest.raises(Fm2Error, match=r"decode: ids of field 'site' must be between 0 and 2, got 9 to 9"):
        dataset.decode(np.array([[9, 0]]))
