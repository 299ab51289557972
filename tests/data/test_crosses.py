"""Crosses: the combinations of other fields' features become features."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pandas
import polars as pl
import pytest
from tests.helpers.crosses import CROSSES, SCHEMA, UNKNOWN, combinations_of, features_of, log_of

from fm2 import Field, Fm2Error, Schema, prepare
from fm2.data import crosses, text_files
from fm2.data.description import describe, print_description
from fm2.data.encoder import Encoder
from fm2.data.sources import open_sources
from fm2.data.vocabulary import Vocabulary

COUNTED = ["user_item", "device_visits", "user_cost_device"]
HASHED = ["item_hour", "hashed_device"]
LOG = log_of(3000)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(LOG, SCHEMA, tmp_path_factory.mktemp("crosses") / "data")


def vocabulary_of(dataset, name: str) -> Vocabulary:
    return dataset.vocabularies[dataset.schema.names.index(name)]


def counts_of(vocabulary: Vocabulary) -> dict[str | None, int]:
    return {vocabulary.value(id): count for id, count in enumerate(vocabulary.counts.tolist(), start=1)}


@pytest.mark.parametrize("split", ["random", "time"])
@pytest.mark.parametrize("vocabulary", ["train", "all"])
def test_frequent_combinations_of_the_training_rows_are_features(tmp_path, split, vocabulary):
    dataset = prepare(LOG, SCHEMA, tmp_path / "data", split=split, vocabulary=vocabulary)
    for name in COUNTED:
        texts = combinations_of(dataset, name)
        counted = texts if vocabulary == "all" else dataset.train.rows.tolist()
        counts = Counter(texts[row] for row in counted if texts[row] != UNKNOWN)
        least = SCHEMA.fields[SCHEMA.names.index(name)].min_count
        kept = {text: count for text, count in counts.items() if count >= least}
        found = counts_of(vocabulary_of(dataset, name))
        assert found == kept
        assert list(found.values()) == sorted(kept.values(), reverse=True)
        entry = dataset.manifest["fields"][SCHEMA.names.index(name)]
        assert entry["dropped"] == len(counts) - len(kept)
        assert features_of(dataset, name) == {row: text if text in kept else UNKNOWN for row, text in texts.items()}
        assert entry["unknown"]["test"] == sum(texts[row] not in kept for row in dataset.test.rows.tolist())


def test_hashed_combinations_have_one_feature_each(dataset):
    for name in HASHED:
        features = defaultdict(set)
        by_row = features_of(dataset, name)
        for row, text in combinations_of(dataset, name).items():
            features[text].add(by_row[row])
        assert all(len(found) == 1 for found in features.values())
        assert features.pop(UNKNOWN, {UNKNOWN}) == {UNKNOWN}
        hashes = {found for values in features.values() for found in values}
        buckets = len(vocabulary_of(dataset, name)) - 1
        expected = buckets * (1 - (1 - 1 / buckets) ** len(features))  # if the hashes are uniform
        assert abs(len(hashes) - expected) < 6 * np.sqrt(buckets)
        training = Counter(by_row[row] for row in dataset.train.rows.tolist())
        counts = counts_of(vocabulary_of(dataset, name))
        assert {value: count for value, count in counts.items() if count} == training - Counter({UNKNOWN: 10**9})


def test_hashes_depend_on_values_and_not_on_ids(dataset, tmp_path):
    rare = {"item": ["a longer item than eight bytes"] * 999, "user": ["u7"] * 999, "click": [1] * 999}
    others = log_of(999, seed=5).with_columns(**{name: pl.Series(values) for name, values in rare.items()})
    other = prepare(pl.concat([LOG, others]), SCHEMA, tmp_path / "data")
    assert vocabulary_of(other, "item").values() != vocabulary_of(dataset, "item").values()
    cells = [row for row in LOG.to_dicts() if row["item"] != ""][:200]
    for name in HASHED:
        features, again = dataset.decode(dataset.encode(cells))[name], other.decode(other.encode(cells))[name]
        known = [i for i in range(200) if UNKNOWN not in (features[i], again[i])]
        assert len(known) > 100
        assert [features[i] for i in known] == [again[i] for i in known]


def test_all_kinds_of_rows_have_the_same_ids(dataset, tmp_path):
    rows = log_of(3000, seed=1).with_columns(user=pl.Series([f"u{number % 90}" for number in range(3000)]))
    expected = dataset.encode(rows)
    assert (expected.ids[:, [SCHEMA.names.index(name) for name in CROSSES]] > 0).any(axis=0).all()
    rows.write_csv(tmp_path / "rows.csv")
    (source,) = open_sources(tmp_path / "rows.csv", dataset.schema)
    text = np.concatenate([chunk.ids for chunk, _ in dataset.encoder.encode_text(source)])
    columns = rows.to_dict(as_series=False)
    kinds = [dataset.encode(rows.to_dicts()), dataset.encode(rows.to_pandas()), dataset.encode(columns)]
    kinds.append(dataset.encode(pandas.DataFrame(columns), threads=2))
    single = [index for index, field in enumerate(SCHEMA.fields) if not field.is_list]
    for ids in (text, *(kind.ids for kind in kinds)):
        np.testing.assert_array_equal(ids[:, single], expected.ids[:, single])


@pytest.mark.parametrize("most", [1, 7, 100])
def test_files_do_not_depend_on_threads_blocks_or_passes(tmp_path, monkeypatch, most):
    log = tmp_path / "log.csv"
    LOG.write_csv(log)
    first = prepare(log, SCHEMA, tmp_path / "first", threads=1)
    monkeypatch.setattr(crosses, "MOST_COMBINATIONS", most * len(COUNTED))
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 1 << 14)
    for threads in (1, 2, 3):
        again = prepare(log, SCHEMA, tmp_path / f"{threads}", threads=threads)
        assert again.manifest["files"] == first.manifest["files"]


def test_impressions_are_counted(tmp_path):
    columns = ["user", "item", "cost", "visits", "device", "time", "tags"]
    counts = LOG.group_by(columns, maintain_order=True).agg(clicks=pl.col("click").sum(), views=pl.len())
    schema = SCHEMA.replace(label="clicks", impressions="views")
    rows = prepare(LOG, SCHEMA, tmp_path / "rows", fractions=(1, 0, 0))
    aggregated = prepare(counts, schema, tmp_path / "counts", fractions=(1, 0, 0))
    for name in CROSSES:
        assert counts_of(vocabulary_of(aggregated, name)) == counts_of(vocabulary_of(rows, name))


def test_rows_that_negative_sampling_drops_are_not_counted(tmp_path):
    dataset = prepare(LOG, SCHEMA, tmp_path / "data", negative_rate=0.3)
    texts = combinations_of(dataset, "user_cost_device")
    counts = Counter(texts[row] for row in dataset.train.rows.tolist())
    del counts[UNKNOWN]
    assert counts_of(vocabulary_of(dataset, "user_cost_device")) == counts


def test_like_keeps_all_combinations_although_ids_change(dataset, tmp_path):
    new = log_of(800, seed=9).with_columns(item=pl.Series([f"new{number % 3}" for number in range(400)] + ["b"] * 400))
    later = prepare(new, dataset, tmp_path / "later")
    assert vocabulary_of(later, "item").values() != vocabulary_of(dataset, "item").values()
    assert len(vocabulary_of(later, "user_item")) > len(vocabulary_of(dataset, "user_item"))
    for name in COUNTED:
        assert set(vocabulary_of(dataset, name).values()) <= set(vocabulary_of(later, name).values())
        features, texts = features_of(later, name), combinations_of(later, name)
        training = Counter(texts[row] for row in later.train.rows.tolist())
        least = SCHEMA.fields[SCHEMA.names.index(name)].min_count
        known = {value.decode() for value in vocabulary_of(dataset, name).values()}
        for row, text in texts.items():
            is_known = text != UNKNOWN and (text in known or training[text] >= least)
            assert features[row] == (text if is_known else UNKNOWN)
    old_rows = LOG[:500]  # old combinations that the new log does not have are encoded as well
    before, after = dataset.decode(dataset.encode(old_rows)), later.decode(later.encode(old_rows))
    for name in CROSSES:
        known = [i for i, value in enumerate(before[name]) if value != UNKNOWN]
        assert [after[name][i] for i in known] == [before[name][i] for i in known]


def test_descriptions_show_what_is_combined(dataset, capsys):
    description = {field["name"]: field for field in describe(dataset)["fields"]}
    assert description["user_item"]["kind"] == "cross"
    assert description["user_item"]["how"] == "user × item"
    assert description["item_hour"]["how"] == "item × time_hour, hash, 7 bits"
    value = description["user_item"]["most_frequent"][0]["value"]
    assert value == "u1 × missing"
    assert vocabulary_of(dataset, "user_item").value(1) == "u1 × "
    assert " × " in value
    print_description(describe(dataset))
    assert "cross user × cost × device" in capsys.readouterr().out


def test_a_bad_row_of_text_is_an_error(dataset, tmp_path):
    path = tmp_path / "rows.csv"
    LOG[:3].write_csv(path)
    path.write_text(path.read_text() + "1,2\n")
    (source,) = open_sources(path, dataset.schema)
    with pytest.raises(Fm2Error, match="line 5"):
        list(dataset.encoder.encode_text(source))


def test_an_empty_cross_is_always_unknown(tmp_path):
    log = pl.DataFrame({"click": [0, 1] * 20, "a": [f"a{i}" for i in range(40)], "b": ["b"] * 40})
    schema = Schema([Field("a"), Field("b"), Field("ab", cross=["a", "b"])], label="click")
    dataset = prepare(log, schema, tmp_path / "data", fractions=(1, 0, 0))
    assert dataset.field_sizes == [1, 2, 1]
    assert dataset.encode(log)[:, 2].tolist() == [0] * 40


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a"], "not a combination: 'a'"),
        (["a × b × c"], "not a combination"),
        (["a×b"], "not a combination"),
        (["\\a × b"], "not a combination"),
        (["a × b", "a × b"], "contains a combination twice"),
    ],
)
def test_damaged_vocabularies_are_errors(values, message):
    schema = Schema([Field("x"), Field("y"), Field("xy", cross=["x", "y"])], label="click")
    with pytest.raises(ValueError, match=message):
        Encoder(schema, [Vocabulary.of(["a"]), Vocabulary.of(["b"]), Vocabulary.of(values)])


def test_a_combination_of_unknown_values_has_an_id_that_no_row_has():
    schema = Schema([Field("x"), Field("y"), Field("xy", cross=["x", "y"])], label="click")
    encoder = Encoder(
        schema, [Vocabulary.of(["a", ""]), Vocabulary.of(["b"]), Vocabulary.of(["c × b", "a × b", " × b"])]
    )
    rows = [{"x": "a", "y": "b"}, {"x": "c", "y": "b"}, {"x": None, "y": "b"}, {"x": "a"}]
    assert encoder.encode(rows)[:, 2].tolist() == [2, 0, 3, 0]
    assert encoder.decode(np.array([[0, 0, 1]]))["xy"] == ["c × b"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cross": "user"}, r"field 'x': cross must be a list of fields, like \['user', 'item'\], got 'user'"),
        ({"cross": 3}, "cross must be a list of fields"),
        ({"cross": ["user", 3]}, "cross must be a list of fields"),
        ({"cross": ["user"]}, "cross must name 2 to 3 fields, got 1"),
        ({"cross": ["a", "b", "c", "d"]}, "cross must name 2 to 3 fields, got 4"),
        ({"cross": ["user", "user"]}, "cross names a field twice: user, user"),
        ({"cross": ["a", "b"], "kind": "numeric"}, "cross requires a categorical field, but the field is numeric"),
        ({"cross": ["a", "b"], "column": "c"}, "column cannot be combined with cross"),
        ({"cross": ["a", "b"], "multivalued": True}, "multivalued cannot be combined with cross"),
        ({"cross": ["a", "b"], "shares": "a"}, "shares cannot be combined with cross"),
    ],
)
def test_invalid_crosses_are_errors(settings, message):
    with pytest.raises(Fm2Error, match=message):
        Field("x", **settings)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            [Field("item_", cross=["usr", "item"])],
            "field 'item_': cross names an unknown field 'usr'; did you mean 'user'",
        ),
        ([Field("t", "timestamp"), Field("x", cross=["user", "t"])], "unknown field 't'; choose from .*, t_hour"),
        ([Field("x", cross=["user", "item"]), Field("z", cross=["user", "x"])], "crosses 'x', which is a cross itself"),
        ([Field("tags", multivalued=True), Field("x", cross=["user", "tags"])], "'tags', which is multi-valued; cross"),
        (
            [Field("n", "numeric", transform="linear"), Field("x", cross=["user", "n"])],
            "field 'x' crosses 'n', which is a number with the transform linear; cross fields with one value",
        ),
        ([Field("x", cross=["user", "item"]), Field("z", shares="x")], "field 'z' shares 'x', which is a cross"),
    ],
)
def test_crosses_of_other_fields_are_errors(fields, message):
    with pytest.raises(Fm2Error, match=message):
        Schema([Field("user"), Field("item"), *fields], label="click")


def test_a_cross_needs_no_column(tmp_path):
    SCHEMA.save(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml") == SCHEMA
    assert SCHEMA.feature_columns == ("user", "item", "cost", "visits", "device", "time", "tags")
    toml = 'label = "y"\n[[field]]\nname = "a"\n[[field]]\nname = "b"\n[[field]]\nname = "ab"\ncross = ["a", "b"]\n'
    (tmp_path / "hand.toml").write_text(toml)
    assert Schema.load(tmp_path / "hand.toml").fields[2] == Field("ab", cross=("a", "b"))
