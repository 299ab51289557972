"""prepare with multi-valued fields: vocabularies, shared fields, splits, bad rows, and the files of the dataset."""

from __future__ import annotations

import itertools
import json
import shutil
import time
import warnings
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.helpers.lists import values_of

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.data import list_files, text_files
from fm2.data.description import describe, print_description
from fm2.data.splits import random_split

ALL_TRAIN = {"fractions": (1, 0, 0)}
SPLITS = ("train", "validation", "test")


def tags(name="tags", **settings) -> Field:
    threshold = {} if "shares" in settings else {"min_count": 1}
    return Field(name, **{"multivalued": True, **threshold, **settings})


def random_cells(rows: int, seed: int = 0, values: int = 30, longest: int = 6) -> list[list[str] | None]:
    random = np.random.default_rng(seed)
    cells = [random.zipf(1.4, random.integers(0, longest)) % values for _ in range(rows)]
    return [None if random.random() < 0.05 else [f"v{value}" for value in cell] for cell in cells]


def frame_of(rows: int, **columns) -> pl.DataFrame:
    return pl.DataFrame({"y": [i % 2 for i in range(rows)], **columns})


def log_of(rows: int, seed: int = 0) -> pl.DataFrame:
    item = np.random.default_rng(seed).zipf(1.4, rows) % 30
    columns = {"item": [f"v{value}" for value in item], "history": random_cells(rows, seed)}
    return frame_of(rows, **columns, tags=random_cells(rows, seed + 1))


LOG_SCHEMA = Schema(
    [
        Field("item", min_count=3),
        tags("history", shares="item", max_values=3, keep="last"),
        tags("tags", min_count=5, pooling="sqrt"),
        tags("hashed", column="tags", hash_bits=4),
    ],
    label="y",
)


def all_rows(dataset: Dataset, field: str) -> dict[int, object]:
    """Return the decoded values of a field by row number."""
    rows: dict[int, object] = {}
    for name in SPLITS:
        split = dataset.split(name)
        rows |= dict(zip(split.rows.tolist(), dataset.decode(split.encoded)[field], strict=True))
    return rows


@pytest.mark.parametrize("vocabulary", ["train", "all"])
@pytest.mark.parametrize("split", ["random", "time"])
def test_values_are_counted_in_the_training_rows(tmp_path, split, vocabulary):
    log = log_of(2000)
    dataset = prepare(log, LOG_SCHEMA, tmp_path / "data", split=split, vocabulary=vocabulary)
    cells = log["tags"].to_list()
    training = [cells[row] for row in (range(2000) if vocabulary == "all" else dataset.train.rows)]
    counts = Counter(value for cell in training for value in ([None] if cell is None else cell))
    kept = {value for value, count in counts.items() if count >= 5}
    vocabulary_values = dataset.vocabularies[2]
    found = {vocabulary_values.value(i + 1): count for i, count in enumerate(vocabulary_values.counts.tolist())}
    assert found == {value: counts[value] for value in kept}
    assert sorted(found.values(), reverse=True) == list(found.values())
    expected = [None if cell is None else [v if v in kept else "<unknown>" for v in cell] for cell in cells]
    decoded = all_rows(dataset, "tags")
    assert [decoded[row] for row in range(2000)] == expected
    # Encoding the raw rows again yields the same values and weights.
    for name in SPLITS:
        part = dataset.split(name)
        again = dataset.encoder.encode_rows(log[part.rows.tolist()])
        for field in (1, 2, 3):
            assert values_of(again, field) == values_of(part.encoded, field)


def test_a_random_split_does_not_depend_on_the_fields(tmp_path):
    dataset = prepare(log_of(500), LOG_SCHEMA, tmp_path / "data", seed=3)
    split = random_split(np.arange(500), (0.8, 0.1, 0.1), 3)
    assert dataset.test.rows.tolist() == np.flatnonzero(split == 2).tolist()


def test_shared_fields_have_the_same_values_and_their_own_counts(tmp_path):
    log = log_of(3000)
    dataset = prepare(log, LOG_SCHEMA, tmp_path / "data", **ALL_TRAIN)
    item, history = dataset.vocabularies[:2]
    assert item.values() == history.values()
    items = Counter(log["item"].to_list())
    histories = Counter(v for cell in log["history"].to_list() for v in ([None] if cell is None else cell[-3:]))
    counted = items | {None: items[None] + histories[None]}  # other values of a history do not count
    kept = [item.value(id) for id in range(1, len(item))]
    assert set(kept) == {value for value, count in counted.items() if count >= 3}
    assert [counted[value] for value in kept] == sorted((counted[value] for value in kept), reverse=True)
    assert item.counts.tolist() == [items[value] for value in kept]
    assert history.counts.tolist() == [histories[value] for value in kept]
    assert dataset.field_sizes[0] == dataset.field_sizes[1]
    last = [None if cell is None else [v if v in kept else "<unknown>" for v in cell[-3:]] for cell in log["history"]]
    assert dataset.decode(dataset.train.encoded)["history"] == last


def test_a_shared_field_is_hashed_like_its_owner(tmp_path):
    schema = Schema([tags("history", shares="item"), Field("item", hash_bits=5)], label="y")
    dataset = prepare(frame_of(2, item=["a", "b"], history=[["b", "a"], []]), schema, tmp_path / "data", **ALL_TRAIN)
    assert dataset.field_sizes == [33, 33]
    a, b = dataset.train.ids[:, 1].tolist()
    assert values_of(dataset.train.encoded, 0) == [[(b, 0.5), (a, 0.5)], []]
    assert dataset.vocabularies[0].counts.sum() == 2


@pytest.mark.parametrize("source", ["dataset", "encoder"])
def test_a_dataset_like_another_one_keeps_its_values(tmp_path, source):
    old = prepare(log_of(1000, seed=1), LOG_SCHEMA, tmp_path / "old")
    log = log_of(1000, seed=2).with_columns(pl.col("tags").list.eval(pl.element() + "x"))
    like = old if source == "dataset" else old.encoder
    new = prepare(log, like, tmp_path / "new", **ALL_TRAIN)
    for before, after in zip(old.vocabularies, new.vocabularies, strict=True):
        assert set(before.values()) <= set(after.values())
    assert new.vocabularies[0].values() == new.vocabularies[1].values()
    assert len(new.vocabularies[2]) > len(old.vocabularies[2])
    cells = new.decode(new.train.encoded)["tags"]
    kept = {value.decode() for value in new.vocabularies[2].values()}
    assert cells == [None if c is None else [v if v in kept else "<unknown>" for v in c] for c in log["tags"].to_list()]


def test_several_sources_of_different_kinds(tmp_path):
    first = frame_of(2, tags=[["a", "b"], None])
    second = tmp_path / "more.csv"
    second.write_text("y,tags\n1,b|c\n0,\n")
    schema = Schema([tags()], label="y")
    test = frame_of(2, tags=[["a"], []])
    dataset = prepare([first, second], schema, tmp_path / "data", test=test, **ALL_TRAIN)
    assert dataset.decode(dataset.train.encoded)["tags"] == [["a", "b"], None, ["b", "c"], None]
    assert dataset.decode(dataset.test.encoded)["tags"] == [["a"], []]


def bytes_of(path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_all_files_are_the_same_for_any_number_of_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 1 << 15)
    log = log_of(5000).with_columns(pl.col("history", "tags").list.join("|"))
    log.write_csv(tmp_path / "log.tsv", separator="\t")
    outputs = []
    for threads in (1, 2, 5):
        prepare(tmp_path / "log.tsv", LOG_SCHEMA, tmp_path / f"data{threads}", threads=threads)
        outputs.append(bytes_of(tmp_path / f"data{threads}"))
    assert outputs[0] == outputs[1] == outputs[2]


def test_equal_lists_are_stored_once_as_long_as_they_are_remembered(tmp_path, monkeypatch):
    cells = [[f"v{i % 40}", "x"] for i in range(1000)]
    schema = Schema([tags()], label="y")
    dataset = prepare(frame_of(1000, tags=cells), schema, tmp_path / "all", **ALL_TRAIN)
    assert len(dataset.lists[0]) == 40
    monkeypatch.setattr(list_files, "REMEMBERED_LISTS", 10)
    bounded = prepare(frame_of(1000, tags=cells), schema, tmp_path / "bounded", **ALL_TRAIN)
    assert len(bounded.lists[0]) == 10 + 30 * 25
    assert bounded.decode(bounded.train.encoded) == dataset.decode(dataset.train.encoded)


def test_weights_are_stored_only_if_they_are_not_all_1(tmp_path):
    cells = [["a", "b"], ["a"]]
    summed = prepare(frame_of(2, tags=cells), Schema([tags(pooling="sum")], "y"), tmp_path / "sum", **ALL_TRAIN)
    assert summed.lists[0].weights is None
    assert not (tmp_path / "sum/lists/0.weights.npy").exists()
    mean = prepare(frame_of(2, tags=cells), Schema([tags()], "y"), tmp_path / "mean", **ALL_TRAIN)
    assert mean.lists[0].weights.tolist() == [0.5, 0.5, 1.0]
    assert sorted(mean.manifest["files"]) == sorted(set(bytes_of(tmp_path / "mean")) - {"manifest.json"})
    mean.verify()


BAD_CELLS = [
    ("a:x|b:1", "field 'tags': the weight of 'a' is 'x', not a number"),
    ("b|a:", "field 'tags': the weight of 'a' is '', not a number"),
    ("a:b:-1", "field 'tags': the weight of 'a:b' is '-1', negative"),
    ("a:inf", "field 'tags': the weight of 'a' is 'inf', infinite"),
    ("a:1e39", "field 'tags': the weight of 'a' is '1e39', infinite"),
    ("a:1e999", "field 'tags': the weight of 'a' is '1e999', infinite"),
    ("a:nan", "field 'tags': the weight of 'a' is 'nan', not a number"),
    ("a: 1", "field 'tags': the weight of 'a' is ' 1', not a number"),
    ("a:1_0", "field 'tags': the weight of 'a' is '1_0', not a number"),
    ('"a|b"', "field 'tags' has a separator inside quotes, after '\"a'; no value may contain it"),
    ("|".join(["a"] * 65_537), "field 'tags' has 65537 values, but at most 65536 are allowed without max_values"),
]


@pytest.mark.parametrize(("cell", "reason"), BAD_CELLS)
def test_bad_cells_are_reported_with_their_location(tmp_path, cell, reason):
    path = tmp_path / "log.tsv"
    path.write_text(f"y\ttags\n1\ta:2|b\n1\t{cell}\n0\tc\n")
    schema = Schema([tags(weighted=True)], label="y")
    with pytest.raises(Fm2Error) as error:
        prepare(path, schema, tmp_path / "data", **ALL_TRAIN)
    assert str(error.value) == f'prepare: {path} line 3: {reason}; bad_rows="skip" ignores such rows'
    dataset = prepare(path, schema, tmp_path / "data", **ALL_TRAIN, bad_rows="skip")
    assert dataset.decode(dataset.train.encoded)["tags"] == [["a", "b"], ["c"]]
    assert dataset.train.rows.tolist() == [0, 2]
    assert dataset.manifest["bad_rows"]["count"] == 1
    assert reason in (tmp_path / "data/bad_rows.tsv").read_text()


def test_values_and_weights_must_have_the_same_number(tmp_path):
    schema = Schema([tags(weight_column="w")], label="y")
    path = tmp_path / "log.tsv"
    path.write_text("y\ttags\tw\n1\ta|b|c\t1|2\n")
    with pytest.raises(Fm2Error, match="line 2: field 'tags' has 3 values, but 2 weights; bad_rows="):
        prepare(path, schema, tmp_path / "data", **ALL_TRAIN)
    frame = frame_of(2, tags=[["a"], None], w=[[1.0], [2.0]])
    with pytest.raises(Fm2Error, match="DataFrame row 2: field 'tags' has 0 values, but 1 weights"):
        prepare(frame, schema, tmp_path / "data", **ALL_TRAIN)
    frame = frame_of(2, tags=[["a"], ["b"]], w=[[1.0], [None]])
    with pytest.raises(Fm2Error, match="DataFrame row 2: field 'tags': the weight of 'b' is '', not a number"):
        prepare(frame, schema, tmp_path / "data", **ALL_TRAIN)


def test_libffm_weights_and_repetitions_need_a_multi_valued_field(tmp_path):
    path = tmp_path / "log.ffm"
    path.write_text("1 0:a:1\n1 0:a:1 0:b:1\n")
    with pytest.raises(Fm2Error, match="line 2: '0:b:1' repeats a field; only multi-valued fields may have several"):
        prepare(path, Schema([Field("0")], label="y"), tmp_path / "data")
    path.write_text("1 0:a:1\n1 0:a:0.5\n")
    expected = "line 2: '0:a:0.5' has a value other than 1; weights require a field with multivalued and weighted"
    for field in (Field("0"), tags("0")):
        with pytest.raises(Fm2Error, match=expected):
            prepare(path, Schema([field], label="y"), tmp_path / "data")
    path.write_text("1 0:a:1\n1 0:a:-0.5\n")
    with pytest.raises(Fm2Error, match=r"line 2: field '0': the weight of 'a' is '-0\.5', negative"):
        prepare(path, Schema([tags("0", weighted=True)], label="y"), tmp_path / "data")


def test_ten_million_values_in_a_cell_are_an_error_within_seconds(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_bytes(b"y\ttags\n1\ta|b\n1\t" + b"1|" * 9_999_999 + b"2\n1\ta\n")
    start = time.perf_counter()
    with pytest.raises(Fm2Error, match="line 3: field 'tags' has 10000000 values, but at most 65536 are allowed"):
        prepare(path, Schema([tags()], label="y"), tmp_path / "data", **ALL_TRAIN)
    limited = Schema([tags(max_values=2, keep="last")], label="y")
    dataset = prepare(path, limited, tmp_path / "data", **ALL_TRAIN)
    assert dataset.decode(dataset.train.encoded)["tags"] == [["a", "b"], ["1", "2"], ["a"]]
    assert time.perf_counter() - start < 20
    frame = pa.table({"y": [1], "tags": pa.array([np.zeros(10_000_000, np.int8)], pa.large_list(pa.int8()))})
    with pytest.raises(Fm2Error, match="row 1: field 'tags' has 10000000 values"):
        prepare(frame, Schema([tags()], label="y"), tmp_path / "more", **ALL_TRAIN)


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ([[["a"]], None], tags(), "column 'tags' contains nested lists; a cell must be a list of values"),
        ([[{"a": 1, "b": 2, "c": 3}], None], tags(weighted=True), "expected structs of a value and its weight"),
        (
            [[{"v": "a", "weight": 1.0}], None],
            tags(),
            "contains values with weights; set weighted = true",
        ),
        ([["a"], None], Field("tags"), "column 'tags' contains lists; set multivalued = true for its field"),
    ],
)
def test_columns_of_other_lists_are_errors(tmp_path, values, field, message):
    with pytest.raises(Fm2Error, match=message):
        prepare(frame_of(2, tags=values), Schema([field], label="y"), tmp_path / "data", **ALL_TRAIN)


def test_bad_rows_of_other_columns_drop_their_lists(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("y,n,tags\n1,1,a|b\n1,x,c\n0,2,\n1,3,b\n7,4,b|b\n0,5,d\n")
    schema = Schema([Field("n", "numeric", min_count=1), tags(pooling="sum")], label="y")
    dataset = prepare(path, schema, tmp_path / "data", **ALL_TRAIN, bad_rows="skip")
    assert dataset.decode(dataset.train.encoded)["tags"] == [["a", "b"], None, ["b"], ["d"]]
    assert dataset.vocabularies[1].counts.sum() == 5


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("small") / "data"
    prepare(log_of(3000), LOG_SCHEMA, out)
    return out


def test_the_manifest_and_describe_count_values_and_lists(small, capsys):
    log = log_of(3000)
    dataset = Dataset.open(small)
    entry = dataset.manifest["fields"][2]
    cells = log["tags"].to_list()
    decoded = all_rows(dataset, "tags")
    for name in SPLITS:
        rows = dataset.split(name).rows.tolist()
        unknown = sum(decoded[row].count("<unknown>") for row in rows if decoded[row] is not None)
        assert entry["unknown"][name] == unknown
        assert entry["lists"]["missing"][name] == sum(cells[row] is None for row in rows)
        assert entry["lists"]["empty"][name] == sum(cells[row] == [] for row in rows)
        values = sum(1 if cells[row] is None else len(cells[row]) for row in rows)
        assert entry["lists"]["values"][name] == values
    described = describe(dataset)["fields"][2]
    lengths = [0 if cell is None else len(cell) for cell in cells]
    assert described["lists"]["values_per_row"] == pytest.approx(np.mean(lengths))
    assert described["lists"]["empty"] == pytest.approx(np.mean([cell == [] for cell in cells]))
    assert described["lists"]["missing"] == pytest.approx(np.mean([cell is None for cell in cells]))
    assert "lists" not in describe(dataset)["fields"][0]
    print_description(describe(dataset))
    printed = capsys.readouterr().out
    assert f"{np.mean(lengths):.1f} values" in printed


def change(path, name, values) -> None:
    """Replace an array and its size in the manifest."""
    np.save(path / name, values)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name]["bytes"] = (path / name).stat().st_size
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("offsets", lambda array: array[:-1]),
        ("offsets", lambda array: array[:0]),
        ("offsets", lambda array: array + 1),
        ("offsets", lambda array: array.astype(np.int32)),
        ("offsets", lambda array: array[:, None]),
        ("ids", lambda array: array[:-1]),
        ("ids", lambda array: array.astype(np.int64)),
        ("weights", lambda array: array[:-1]),
        ("weights", lambda array: array.astype(np.float64)),
    ],
)
def test_damaged_lists_are_rejected(small, tmp_path, name, damage):
    path = tmp_path / "data"
    shutil.copytree(small, path)
    file = f"lists/2.{name}.npy"
    change(path, file, damage(np.load(path / file)))
    with pytest.raises(Fm2Error, match=r"data is damaged: (the lists of field 'tags' are inconsistent|.* valid array)"):
        Dataset.open(path).split("train")


def test_missing_and_garbled_list_files_are_rejected(small, tmp_path):
    path = tmp_path / "data"
    shutil.copytree(small, path)
    (path / "lists/1.ids.npy").unlink()
    with pytest.raises(Fm2Error, match=r"is damaged: lists/1.ids.npy is missing or its size has changed"):
        Dataset.open(path)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["files"]["lists/1.ids.npy"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Fm2Error, match=r"is damaged: lists/1.ids.npy is not a valid array"):
        Dataset.open(path).split("train")


@pytest.mark.parametrize("ids", [-1, 10**6])
def test_invalid_ids_and_offsets_are_found_where_they_are_used(small, tmp_path, ids):
    path = tmp_path / "data"
    shutil.copytree(small, path)
    change(path, "lists/2.ids.npy", np.full_like(np.load(path / "lists/2.ids.npy"), ids))
    dataset = Dataset.open(path)
    with pytest.raises(Fm2Error, match="decode: ids of field 'tags' must be between 0 and"):
        dataset.decode(dataset.train.encoded)
    offsets = np.load(path / "lists/1.offsets.npy")
    offsets[1:-1] = offsets[1:-1][::-1].copy()
    change(path, "lists/1.offsets.npy", offsets)
    dataset = Dataset.open(path)
    with pytest.raises(Fm2Error, match="decode: a row refers to an invalid list of field 'history'"):
        dataset.decode(dataset.train.encoded)


def test_scratch_files_are_removed(small):
    files = sorted(bytes_of(small))
    assert not [name for name in files if "scratch" in name]
    parts = [f"lists/{field}.{part}.npy" for field, part in itertools.product((1, 2, 3), ("ids", "offsets", "weights"))]
    assert [name for name in files if name.startswith("lists")] == sorted(parts)


def test_blanks_and_empty_items_in_text_are_ignored(tmp_path):
    cells = ["a | b", "b|", "|a||b|", " ", "a"]
    schema = Schema([tags(pooling="sum", weight_column="w")], label="y")
    dataset = prepare(
        frame_of(5, tags=cells, w=["2|3", "1", None, None, " 4 |"]), schema, tmp_path / "data", **ALL_TRAIN
    )
    assert list(all_rows(dataset, "tags").values()) == [["a", "b"], ["b"], ["a", "b"], [], ["a"]]
    lists = dataset.train.encoded.compact().lists[0]
    assert lists.value_weights().tolist() == [2, 3, 1, 1, 1, 4]  # missing weights are 1


@pytest.mark.parametrize("separator", ["|", ","])
def test_a_wrong_separator_is_visible_in_the_description(tmp_path, capsys, monkeypatch, separator):
    monkeypatch.setenv("COLUMNS", "60")  # narrower than the warning, which is one line all the same
    log = frame_of(60, tags=["a|b", "b", None, "c|a|b"] * 15)
    dataset = prepare(log, Schema([tags(separator=separator)], label="y"), tmp_path / "data")
    print_description(describe(dataset))
    warning = "warning: tags: no list has more than one value; check the separator in the schema"
    assert (warning in capsys.readouterr().out) == (separator == ",")


@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrt"])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_weighted_field_without_weights_is_reported(tmp_path, pooling, weighted):
    lists = [["a", "b", "c"], ["b"], [], None, ["a", "c"]] * 4
    frame = pl.DataFrame({"y": [0, 1] * 10, "tags": lists})
    schema = Schema([tags(weighted=weighted, pooling=pooling)], "y")
    message = (
        "prepare: field 'tags' is weighted, but the values of each row have equal weights; write value:weight, use "
        "lists of structs with a value and a weight, or remove weighted = true"
    )
    texts = frame.with_columns(pl.col("tags").list.join("|"))
    for number, source in enumerate([frame, texts]):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            prepare(source, schema, tmp_path / str(number), **ALL_TRAIN)
        assert [str(warning.message) for warning in shown] == ([message] if weighted else [])
        assert all(warning.filename == __file__ for warning in shown)
    if weighted:
        weights = frame.with_columns(tags=pl.Series([["a:0.5", "b"], *lists[1:]]))
        prepare(weights, schema, tmp_path / "weights", **ALL_TRAIN)


def test_libffm_lists_need_no_other_weights_than_1(tmp_path):
    path = tmp_path / "log.ffm"
    path.write_text("1 0:a:1 0:b:1\n0 0:b:1\n" * 5)
    prepare(path, Schema.infer(path, label="y"), tmp_path / "data", **ALL_TRAIN)
