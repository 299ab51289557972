"""A log that is prepared in parts gives the same dataset, byte for byte, as in one process."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import polars as pl
import pytest
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.parts import check_same_dataset, open_parts_engine

import fm2
from fm2 import Dataset, Field, Fm2Error, Schema
from fm2.data import npy, reduced
from fm2.data import prepare as prepare_module
from fm2.data.npy import npy_header, open_parts

FILES = 3
PLAIN = [Field("site"), Field("item", min_count=2), Field("age", "numeric", transform="quantiles", buckets=5)]


@pytest.fixture
def prepare_both(tmp_path, monkeypatch):
    """Prepare in one process and in parts; return both datasets."""

    def both(source, schema, **settings):
        one = fm2.prepare(source, schema, tmp_path / "one", **settings)
        monkeypatch.setattr(prepare_module, "open_engine", open_parts_engine)
        return one, fm2.prepare(source, schema, tmp_path / "parts", **settings)

    return both


def log(rows, seed=0):
    """Return rows with a skewed item, numbers, times out of order, impressions and weights."""
    random = np.random.default_rng(seed)
    items = (random.pareto(0.7, rows) * 5).astype(np.int64)
    impressions = random.integers(1, 6, rows)
    return pl.DataFrame(
        {
            "click": random.integers(0, 2, rows),
            "clicks": random.integers(0, impressions + 1),
            "shown": impressions,
            "site": [f"site {n} ü" for n in random.integers(0, 9, rows)],
            "item": [None if n == 3 else f"item-{n}" for n in items],
            "last": [None if n % 5 == 0 else f"item-{n}" for n in random.permutation(items)],
            "age": [None if random.random() < 0.1 else round(random.lognormal(3), 1) for _ in range(rows)],
            "w": random.choice([0.1, 0.7, 1.3], rows),
            "time": [f"2026-01-{n:02d} 10:00:00" for n in random.integers(1, 28, rows)],
        }
    )


def write_files(tmp_path, frame, files=FILES, extension="csv"):
    """Write the rows to files of different sizes; return their paths, in order."""
    limits = [0, *(len(frame) * (file + 1) ** 2 // files**2 for file in range(files))]
    paths = [tmp_path / f"log-{file}.{extension}" for file in range(files)]
    for path, (begin, end) in zip(paths, itertools.pairwise(limits), strict=True):
        if extension == "parquet":
            frame[begin:end].write_parquet(path)
        elif extension == "csv.gz":
            path.write_bytes(gzip.compress(frame[begin:end].write_csv().encode()))
        else:
            frame[begin:end].write_csv(path)
    return paths


CROSSED = Field("site_item", cross=["site", "item"], min_count=2)
VARIANTS = {
    "random": (Schema(PLAIN, label="click"), {}),
    "compressed": (Schema(PLAIN, label="click"), {"seed": 5, "fractions": (0.5, 0.3, 0.2)}),
    "by time": (
        Schema([*PLAIN, Field("time", "timestamp", format="%Y-%m-%d %H:%M:%S")], label="click"),
        {"split": "time"},
    ),
    "in order": (Schema(PLAIN, label="click"), {"split": "time", "vocabulary": "all"}),
    "sampled": (Schema(PLAIN, label="click", weight="w"), {"negative_rate": 0.4}),
    "impressions": (Schema(PLAIN, label="clicks", impressions="shown", weight="w"), {"negative_rate": 0.4}),
    "shared": (
        Schema([*PLAIN, Field("last", shares="item"), Field("site2", column="site", hash_bits=5)], label="click"),
        {},
    ),
    "missing": (Schema([Field("item", missing_is_unknown=True), Field("age", "numeric")], label="click"), {}),
    "crosses": (Schema([*PLAIN, CROSSED, Field("hashed", cross=["site", "age"], hash_bits=6)], label="click"), {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_parts_are_the_same_dataset(tmp_path, prepare_both, name):
    schema, settings = VARIANTS[name]
    write_files(tmp_path, log(900), extension="csv.gz" if name == "compressed" else "csv")
    one, parts = prepare_both(str(tmp_path / "log-*"), schema, **settings)
    check_same_dataset(one, parts, FILES)
    frame = log(40, seed=1)
    assert np.array_equal(one.encode(frame), parts.encode(frame))


def test_lists_weights_and_interpolated_numbers_are_the_same(tmp_path, prepare_both):
    paths = write_files(tmp_path, everything_log(600), extension="parquet")
    one, parts = prepare_both(paths, EVERYTHING_SCHEMA, negative_rate=0.8)
    check_same_dataset(one, parts, FILES)
    assert parts.lists.keys() == one.lists.keys() != set()


def test_trees_are_the_same(tmp_path, prepare_both):
    paths = write_files(tmp_path, log(800))
    check_same_dataset(*prepare_both(paths, Schema(PLAIN, label="click").with_trees(), threads=1), FILES)


def test_trees_on_lists_are_the_same(tmp_path, prepare_both):
    paths = write_files(tmp_path, everything_log(800), extension="parquet")
    one, parts = prepare_both(paths, EVERYTHING_SCHEMA.with_trees(), threads=1, negative_rate=0.8)
    check_same_dataset(one, parts, FILES)
    assert len(np.unique(one.train.ids[:, -1])) > 20


def test_files_for_validation_and_test_are_parts_of_their_own(tmp_path, prepare_both):
    paths = write_files(tmp_path, log(700), files=5)
    one, parts = prepare_both(paths[2:], VARIANTS["random"][0], validation=paths[0], test=paths[1])
    check_same_dataset(one, parts, 5)


def test_the_values_of_an_older_dataset_are_kept(tmp_path, prepare_both):
    older = fm2.prepare(log(300, seed=7), VARIANTS["shared"][0], tmp_path / "older")
    paths = write_files(tmp_path, log(500))
    check_same_dataset(*prepare_both(paths, older), FILES)


def test_bad_rows_of_all_files_are_skipped_in_order(tmp_path, prepare_both):
    paths = write_files(tmp_path, log(400), files=4)
    for path, line in zip(paths, ("2", "1,2", "x", "7"), strict=True):
        path.write_text(path.read_text() + f"{line}{',' * 8}\n" + "1,too few\n")
    only_bad = tmp_path / "log-1.csv"
    header = only_bad.read_text().splitlines()[0]
    only_bad.write_text(f"{header}\nx,,,,,,,,\n")
    one, parts = prepare_both(paths, VARIANTS["sampled"][0], bad_rows="skip")
    check_same_dataset(one, parts, 4)
    assert len((parts.path / "bad_rows.tsv").read_text().splitlines()) == 8


def test_an_error_names_the_file_and_nothing_is_written(tmp_path, prepare_both):
    paths = write_files(tmp_path, log(300))
    fm2.prepare(paths, VARIANTS["random"][0], tmp_path / "good")
    paths[1].write_text(paths[1].read_text() + "7,,,,,,,,\n")
    with pytest.raises(Fm2Error, match=r"log-1.csv line \d+: label 'click' is '7', not 0 or 1"):
        prepare_both(paths, VARIANTS["random"][0])
    assert not (tmp_path / "parts").exists()


def test_a_single_file_is_a_dataset_without_parts(tmp_path, prepare_both):
    one, parts = prepare_both(write_files(tmp_path, log(200), files=1), VARIANTS["random"][0])
    check_same_dataset(one, parts, 1)
    assert parts.manifest == one.manifest


def test_many_files_share_a_part(tmp_path, prepare_both, monkeypatch):
    monkeypatch.setattr("fm2.data.parts_engine.MOST_PARTS", 4)
    one, parts = prepare_both(write_files(tmp_path, log(900), files=7), VARIANTS["random"][0])
    check_same_dataset(one, parts, 4)


def test_data_frames_are_refused(tmp_path, prepare_both, monkeypatch):
    monkeypatch.setattr(prepare_module, "open_engine", open_parts_engine)
    with pytest.raises(Fm2Error, match='engine="ray" reads files, not a polars DataFrame; write it to a Parquet file'):
        fm2.prepare(log(50), VARIANTS["random"][0], tmp_path / "data")


def test_parts_train_like_one_file_and_lose_fields_like_one(tmp_path, prepare_both):
    one, parts = prepare_both(write_files(tmp_path, log(900)), VARIANTS["shared"][0])
    settings = {"epochs": 2, "batch_size": 64, "threads": 1}
    scores = [fm2.train("fm", data, tmp_path / f"run {data.path.name}", **settings).metrics for data in (one, parts)]
    assert scores[0] == scores[1]
    fewer = [reduced.without_fields(data, ["item"], tmp_path / f"fewer {data.path.name}") for data in (one, parts)]
    check_same_dataset(*fewer, FILES)


def test_a_damaged_part_is_found(tmp_path, prepare_both):
    _, parts = prepare_both(write_files(tmp_path, log(300)), VARIANTS["random"][0])
    ids = parts.path / "parts/1/train/ids.npy"
    content = ids.read_bytes()
    ids.write_bytes(content[:-1] + b"\x07")
    with pytest.raises(Fm2Error, match=r"the checksum of parts/1/train/ids.npy does not match"):
        Dataset.open(parts.path).verify()
    ids.unlink()
    with pytest.raises(Fm2Error, match=r"parts/1/train/ids.npy is missing or its size has changed"):
        Dataset.open(parts.path)


def write_parts(tmp_path, whole, limits):
    """Write the rows between the limits to files; return their paths."""
    paths = [tmp_path / f"{part}.npy" for part in range(len(limits) - 1)]
    for path, (begin, end) in zip(paths, itertools.pairwise(limits), strict=True):
        rows = whole[begin:end]
        path.write_bytes(npy_header(rows.shape, rows.dtype, begin) + rows.tobytes())
        assert np.array_equal(np.load(path), rows)
    return paths


@pytest.mark.parametrize("columns", [1, 39])
def test_the_pages_of_parts_are_mapped_as_one_array(tmp_path, columns):
    whole = np.arange(30_000 * columns, dtype=np.int32).reshape(-1, columns)
    mapped = open_parts(write_parts(tmp_path, whole, [0, 1, 1, 9_000, 9_003, 30_000]))
    assert np.array_equal(mapped, whole)
    assert mapped.flags.c_contiguous and not mapped.flags.writeable


def test_parts_are_copied_to_whole_pages_of_machines_with_larger_ones(tmp_path, monkeypatch):
    larger = 16 * npy.PAGE
    monkeypatch.setattr("mmap.PAGESIZE", larger)
    replaced, replace = [], npy._Pages._map
    monkeypatch.setattr(npy._Pages, "_map", lambda self, *args: replaced.append(args[:2]) or replace(self, *args))
    whole = np.arange(60_000, dtype=np.int32).reshape(-1, 3)
    assert np.array_equal(open_parts(write_parts(tmp_path, whole, [0, 1_000, 9_000, 9_001, 20_000])), whole)
    assert len(replaced) > 1
    assert all(place % larger == 0 for places in replaced for place in places)  # the system refuses others
