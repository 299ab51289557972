"""Tree fields: the predictions of gradient-boosted trees on other fields become features."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections import Counter

import numpy as np
import polars as pl
import pytest
from tests.helpers.trees import SCHEMA, TREES, literal_ids, log_of

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.data import tree_fields
from fm2.data.description import describe
from fm2.data.encoder import Encoder
from fm2.data.tree_boosting import Boosting, TreeProgress
from fm2.data.tree_combinations import AT_ONCE, MOST_CHOSEN, select_combinations
from fm2.data.tree_fitting import _select, fit_trees
from fm2.data.tree_inputs import MOST_HIDDEN, TreeRows, add_combinations, hide_features, numbers_of, part_inputs
from fm2.data.trees import Pair, Trees, same_trees
from fm2.data.vocabulary import Vocabulary, save_vocabularies
from fm2.evaluation.metrics import auc as auc_of_probabilities
from fm2.progress import Progress

LOG = log_of(4000)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(LOG, SCHEMA, tmp_path_factory.mktemp("trees") / "data")


def auc(labels, ids) -> float:
    return auc_of_probabilities(labels, np.asarray(ids) / max(ids))


def trees_of(dataset: Dataset) -> Trees:
    return Trees.of(dataset.vocabularies[TREES].trees)


def test_other_rows_have_the_predictions_of_the_trees(dataset):
    parts = dataset.schema.parts[TREES]
    for split in (dataset.validation, dataset.test):
        ages = {parts.index(3): LOG["age"][split.rows].to_list()}
        assert split.ids[:, TREES].tolist() == literal_ids(trees_of(dataset), split.ids[:, parts], ages)
    encoded = dataset.encode(LOG)
    rows = dataset.test.rows
    np.testing.assert_array_equal(encoded.ids[rows, TREES], dataset.test.ids[:, TREES])


def test_trees_read_pairs_that_explain_clicks(dataset):
    pairs = trees_of(dataset).pairs
    names = [dataset.schema.fields[TREES].trees[part] for part in pairs[0].parts]
    assert set(names) == {"user", "item"}
    parts = {dataset.schema.fields[TREES].trees[part] for part, table in trees_of(dataset).inputs if not len(table)}
    assert parts == {"age"}  # as a number
    assert auc(dataset.test.labels, dataset.test.ids[:, TREES]) > 0.65


def test_the_labels_of_training_rows_do_not_leak(tmp_path):
    random = np.random.default_rng(0)
    users = [f"u{user}" for user in random.integers(0, 400, 4000)]
    noise = pl.DataFrame({"click": random.integers(0, 2, 4000), "user": users})
    schema = Schema([Field("user", min_count=1), Field("trees", trees=["user"])], label="click")
    train = prepare(noise, schema, tmp_path / "data").train
    assert 0.45 < auc(train.labels, train.ids[:, 1]) < 0.55
    rates = np.bincount(train.ids[:, 0], train.labels) / np.maximum(np.bincount(train.ids[:, 0]), 1)
    assert auc(train.labels, rates[train.ids[:, 0]]) > 0.65  # what the rates of all rows would reveal


def test_the_bytes_do_not_depend_on_threads(dataset, tmp_path):
    other = prepare(LOG, SCHEMA, tmp_path / "data", threads=2)
    assert other.manifest["files"] == dataset.manifest["files"]


def test_trees_are_fitted_to_a_sample_of_a_large_log(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(tree_fields, "MOST_ROWS", 500)
    sampled = prepare(LOG, SCHEMA, tmp_path / "data")
    parts, train = sampled.schema.parts[TREES], sampled.train
    ages = {parts.index(3): LOG["age"][train.rows].to_list()}
    same = train.ids[:, TREES] == literal_ids(trees_of(sampled), train.ids[:, parts], ages)
    assert 0.8 < same.mean() < 1  # the rows that the trees were not fitted to have their predictions


def test_counts_are_those_of_the_training_rows(dataset):
    counts = np.bincount(dataset.train.ids[:, TREES], minlength=len(dataset.vocabularies[TREES]))
    assert counts[1:].tolist() == dataset.vocabularies[TREES].counts.tolist()
    assert counts[0] == 0


def test_new_rows_keep_the_trees_of_older_ones(dataset, tmp_path):
    newer = log_of(1500, seed=7).with_columns(user=pl.lit("u") + pl.int_range(1500).mod(60).cast(pl.String))
    other = prepare(newer, dataset, tmp_path / "data")
    assert other.vocabularies[0].values() != dataset.vocabularies[0].values()
    known = newer.filter(pl.col("user").str.slice(1).cast(int) < 40)
    np.testing.assert_array_equal(other.encode(known).ids[:, TREES], dataset.encode(known).ids[:, TREES])
    assert same_trees(other.vocabularies[TREES].trees, dataset.vocabularies[TREES].trees)
    assert not same_trees(other.vocabularies[TREES].trees, np.empty(0, np.uint32))


def test_weights_and_impressions_count(tmp_path):
    rows = LOG.with_columns(views=pl.col("visits") + 1, weight=pl.lit(0.5))
    schema = SCHEMA.replace(impressions="views", weight="weight")
    dataset = prepare(rows, schema, tmp_path / "data")
    assert auc(dataset.test.labels > 0, dataset.test.ids[:, TREES]) > 0.6


def test_describe_shows_trees(dataset):
    field = describe(dataset)["fields"][TREES]
    assert (field["kind"], field["how"], field["unknown"]["test"]) == ("trees", "on 6 fields", 0)


def test_a_schema_with_trees_can_be_saved(tmp_path):
    SCHEMA.save(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml") == SCHEMA
    assert "trees = [" in (tmp_path / "schema.toml").read_text()
    plain = SCHEMA.replace(fields=[field for field in SCHEMA.fields if not field.trees])
    assert set(plain.with_trees().fields[-1].trees) == {*SCHEMA.fields[TREES].trees, "tags"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([Field("a"), {"trees": ["b"]}], "trees names an unknown field 'b'; choose from a"),
        ([Field("a"), {"trees": ["a", "a"]}], "trees names a field twice"),
        ([Field("a"), {"trees": ["a"], "hash_bits": 3}], "hash_bits cannot be combined with trees"),
        ([Field("a"), {"trees": ["a"], "min_count": 3}], "min_count cannot be combined with trees"),
        ([Field("a", hash_bits=20), {"trees": ["a"]}], "trees read fields with at most 18 hash bits, but 'a' has 20"),
        (
            [Field("a", hash_bits=20), Field("b", multivalued=True, shares="a"), {"trees": ["b"]}],
            "trees read fields with at most 18 hash bits, but 'b' has 20",
        ),
        ([Field("a"), {"trees": ["a"], "column": "x"}], "column cannot be combined with trees"),
        ([Field("a"), Field("b"), {"trees": ["a"], "cross": ["a", "b"]}], "cross cannot be combined with trees"),
        (
            [Field("a"), Field("b", trees=["a"]), {"trees": ["b"]}],
            "has trees on 'b', which is a tree field itself; use other fields",
        ),
        ([Field("a"), {"trees": "a"}], "trees must be a list of fields"),
    ],
)
def test_a_schema_with_invalid_trees_is_refused(fields, message):
    with pytest.raises(Fm2Error, match=message):
        Schema([*fields[:-1], Field("t", **fields[-1])], label="click")


def test_without_lightgbm_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(Fm2Error, match=r"pip install -c constraints.txt '\.\[trees\]'"):
        prepare(LOG, SCHEMA, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_damaged_trees_are_refused(dataset):
    vocabulary = dataset.vocabularies[TREES]
    encoder = Encoder(dataset.schema, dataset.vocabularies)
    before = encoder.encode_rows(LOG).ids
    words = vocabulary.trees.copy()
    words[-1 - len(trees_of(dataset).boundaries)] = 0x7FC00000  # a leaf may be any number
    roots = len(words) - sum(len(part) for part in (trees_of(dataset).boundaries, trees_of(dataset).leaves))
    roots -= 4 * len(trees_of(dataset).nodes) + len(trees_of(dataset).roots)
    words[roots] = 10**6  # a node that does not exist
    for damaged in (vocabulary.trees[:3], vocabulary.trees[:-1], np.append(vocabulary.trees, np.uint32(0)), words):
        with pytest.raises(ValueError, match="tree"):
            encoder._native.set_trees(TREES, damaged, len(vocabulary))
    np.testing.assert_array_equal(encoder.encode_rows(LOG).ids, before)  # the trees are still the old ones


def test_a_dataset_with_damaged_trees_is_damaged(dataset, tmp_path):
    shutil.copytree(dataset.path, tmp_path / "data")
    vocabularies, trees = list(dataset.vocabularies), dataset.vocabularies[TREES]
    texts = {text: trees.data.copy() for text in (b"nan", b"abc")}
    for text, data in texts.items():
        data[:3] = np.frombuffer(text, np.uint8)
    changes = [{"trees": np.empty(0, np.uint32)}, {"trees": trees.trees[:-1]}]
    older = Vocabulary.of([str(bucket) for bucket in range(len(trees.ends))])
    changes.append({"data": older.data, "ends": older.ends})
    for change in changes + [{"data": data, "ends": np.r_[3, trees.ends[1:]]} for data in texts.values()]:
        damaged = [*vocabularies]
        damaged[TREES] = dataclasses.replace(trees, **change)
        save_vocabularies(tmp_path / "data" / "vocabularies.npz", damaged)
        manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
        manifest["files"]["vocabularies.npz"]["bytes"] = (tmp_path / "data" / "vocabularies.npz").stat().st_size
        (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(Fm2Error, match=r"vocabularies.npz is damaged: .*(trees|float)"):
            Dataset.open(tmp_path / "data").encode(LOG)


def rows_of(count: int, parts: int, seed: int) -> TreeRows:
    """Return rows with 40 values per part, without any effect on their labels."""
    random = np.random.default_rng(seed)
    return TreeRows(
        random.integers(1, 41, (count, parts)).astype(np.int32),
        {},
        [Vocabulary.of([f"v{value}" for value in range(40)])] * parts,
        random.integers(0, 2, count).astype(np.float32),
        np.ones(count, np.float32),
        random.integers(0, 4, count).astype(np.int32),
    )


def with_effect(rows: TreeRows, first: int, second: int) -> TreeRows:
    """Return the rows with labels that depend on a pair of parts, but on neither of them alone."""
    effects = np.random.default_rng(99).permutation(np.repeat([0.1, 0.9], 800)).reshape(40, 40)
    clicks = np.random.default_rng(0).random(len(rows.ids)) < effects[rows.ids[:, first] - 1, rows.ids[:, second] - 1]
    return dataclasses.replace(rows, labels=clicks.astype(np.float32))


@pytest.mark.parametrize("parts", [4, 12])  # with 12, there are more candidates than are compared at once
def test_a_pair_with_an_effect_is_the_best_one(parts):
    assert (parts * (parts - 1) // 2 > AT_ONCE) == (parts == 12)
    rows, validation = (with_effect(rows_of(count, parts, count), 1, 3) for count in (12000, 3000))
    chosen = select_combinations(rows, validation, seed=0, threads=1)
    assert chosen[0] == (1, 3)
    assert max(Counter(map(len, chosen)).values()) <= MOST_CHOSEN
    nothing = dataclasses.replace(validation, ids=validation.ids[:0], labels=validation.labels[:0])
    assert select_combinations(rows, nothing, seed=0, threads=1) == []


def test_a_triple_with_an_effect_is_found():
    """The label depends on three parts; each pair of them says a little."""

    def labeled(count: int) -> TreeRows:
        rows = rows_of(count, 5, count)
        rows.ids[:, :3] = 1 + rows.ids[:, :3] % 6
        first, second, third = rows.ids[:, :3].T - 1
        effects = np.random.default_rng(99).normal(0, 1, (6, 6))[first, second]
        effects += np.random.default_rng(98).normal(0, 2, (6, 6, 6))[first, second, third]
        clicks = np.random.default_rng(count).random(count) < 1 / (1 + np.exp(-effects))
        return dataclasses.replace(rows, labels=clicks.astype(np.float32))

    rows, validation = labeled(12000), labeled(3000)
    chosen = select_combinations(rows, validation, seed=0, threads=1)
    triple = next(parts for parts in chosen if set(parts) == {0, 1, 2})
    assert len({frozenset(parts) for parts in chosen}) == len(chosen)
    assert max(map(len, chosen)) <= 4
    extended, _, _ = add_combinations(rows, [triple])
    assert [extended.combined(number) for number in (5, 6)] == [triple[:2], triple]
    distinct = len(np.unique(rows.ids[:, :3], axis=0))
    assert len(np.unique(extended.ids_of(6))) == distinct  # its features are the combinations of the three


def test_combinations_that_validation_rows_cannot_judge_are_left_out():
    rows, validation = (with_effect(rows_of(count, 4, count), 1, 3) for count in (12000, 3000))
    rows.ids[:, 0], validation.ids[:, 0] = (
        1 + each.ids[:, 1] // 5 for each in (rows, validation)
    )  # is determined by 1
    chosen = select_combinations(rows, validation, seed=0, threads=1)
    assert chosen[0] == (1, 3)
    assert not any({0, 1} <= set(parts) for parts in chosen)
    new = np.where(np.arange(3000)[:, None] % 10 == 0, validation.ids, 0)  # nine of ten features of part 1 are new
    ids = np.concatenate([validation.ids[:, :1], new[:, 1:2], validation.ids[:, 2:]], axis=1).astype(np.int32)
    others = select_combinations(rows, dataclasses.replace(validation, ids=ids), seed=0, threads=1)
    assert not any(1 in parts for parts in others)


def test_a_field_that_is_often_unknown_is_combined():
    """Part 1 is known for the 50 most frequent values of part 0 only, which has thousands of others."""

    def labeled(count: int) -> TreeRows:
        random = np.random.default_rng(count)
        frequent = random.random(count) < 0.7
        item = np.where(frequent, random.integers(1, 11, count), random.integers(11, 2000, count))
        option = np.where(frequent, random.integers(1, 6, count), 0)
        effects = np.random.default_rng(7).choice([-2.0, 2.0], (2000, 6))
        clicks = random.random(count) < 1 / (1 + np.exp(-np.where(frequent, effects[item, option], 0.0)))
        vocabularies = [Vocabulary.of([f"v{value}" for value in range(size)]) for size in (1999, 5)]
        ids = np.stack([item, option], axis=1).astype(np.int32)
        plain = rows_of(count, 2, count)
        return dataclasses.replace(plain, ids=ids, vocabularies=vocabularies, labels=clicks.astype(np.float32))

    assert select_combinations(labeled(12000), labeled(3000), seed=0, threads=1) == [(0, 1)]


def test_pairs_that_later_ones_combine_are_kept():
    pairs = [Pair(parts, np.ones((1, 2), np.int32)) for parts in ((0, 1), (0, 2), (5, 2), (6, 1))]
    table = np.zeros(2, np.float32)
    kept, inputs = _select(pairs, [(2, table), (8, table)], parts=5)
    assert [pair.parts for pair in kept] == [(0, 2), (5, 1)]  # the last pair, and the one that it combines
    assert [part for part, _ in inputs] == [2, 6]


def test_new_ids_leave_the_features_of_earlier_pairs_alone():
    pairs = (Pair((0, 1), np.array([[1, 2], [2, 1]], np.int32)), Pair((2, 0), np.array([[2, 1], [1, 2]], np.int32)))
    nothing = np.empty(0, np.int32), np.empty(0), np.empty(0, np.float32), np.empty(0, np.float32)
    new = Trees(pairs, (), *nothing).for_features([np.array([0, 2, 1]), np.array([0, 1, 2])])
    assert new.pairs[0].combinations.tolist() == [[2, 2], [1, 1]]
    assert new.pairs[1].combinations.tolist() == [[2, 2], [1, 1]]  # the first column has features of the first pair


def test_features_are_hidden_as_often_as_validation_rows_have_new_ones():
    rows, validation = rows_of(20000, 3, 1), rows_of(2000, 3, 2)
    validation.ids[:1000, 0] = 0  # half of the values are new
    validation.ids[:80, 1] = 0
    hidden = hide_features(rows, validation, seed=0).hidden
    np.testing.assert_allclose(hidden.mean(axis=0), [MOST_HIDDEN, 0.04, 0], atol=0.01)
    assert hide_features(rows, rows_of(0, 3, 0), seed=0).hidden is None


def test_hidden_features_look_like_unknown_ones():
    rows, validation = rows_of(2000, 3, 1), rows_of(500, 3, 2)
    validation.ids[:, 0] = 0
    hidden = hide_features(rows, validation, seed=0)
    unknown = dataclasses.replace(rows, ids=np.where(hidden.hidden, 0, rows.ids).astype(np.int32))
    for inputs in (part_inputs, lambda each: add_combinations(each, [(0, 1), (1, 2)])[1:]):
        (tables, columns), (_, whole) = inputs(hidden), inputs(rows)
        for (part, table), column, before in zip(tables, columns, whole, strict=True):
            affected = hidden.hidden[:, 0] if part in (0, 3) else np.zeros(2000, bool)  # 3 is the first pair
            np.testing.assert_array_equal(column[affected], table[0])
            np.testing.assert_array_equal(column[~affected], before[~affected])
    with_pair, tables, _ = add_combinations(rows, [(0, 1)])
    (count, rate) = numbers_of(unknown, tables, with_pair.pairs)
    np.testing.assert_array_equal(count[hidden.hidden[:, 0]], 0)
    assert len(np.unique(rate[hidden.hidden[:, 0]])) == 1


def test_trees_learn_what_to_predict_for_new_values():
    """The click rate of a user says more than the user's segment, but that of a new user is not known."""
    random = np.random.default_rng(5)
    logits = np.where(np.arange(41) % 2, 1, -1) + random.normal(0, 0.5, 41)  # by user; the segment is the parity

    def labeled(count: int, are_new: bool) -> TreeRows:
        rows = rows_of(count, 2, count)
        users = rows.ids[:, 0].copy()
        ids = np.stack([np.zeros_like(users) if are_new else users, 1 + users % 2], axis=1)
        clicks = random.random(count) < 1 / (1 + np.exp(-logits[users]))
        return dataclasses.replace(rows, ids=ids, labels=clicks.astype(np.float32))

    rows, new = labeled(12000, False), labeled(3000, True)
    losses = []
    for training in (rows, hide_features(rows, new, seed=0)):
        tables, columns = part_inputs(training)
        fitted = Boosting(training, 0, 1).fit_all(np.stack(columns, axis=1), 100)
        of_new = fitted.predict(np.stack(numbers_of(new, tables), axis=1), raw_score=True)
        losses.append(np.mean(np.logaddexp(0, of_new) - new.labels * of_new))
    assert losses[1] < 0.98 * losses[0]


def test_the_progress_of_fitting_only_grows():
    class Updates(Progress):
        def update(self, done: int, rows: int) -> None:
            updates.append((done, rows))

    updates: list[tuple[int, int]] = []
    rows, validation = (with_effect(rows_of(count, 3, count), 1, 2) for count in (3000, 1000))
    fit_trees(rows, validation, 20, seed=0, threads=1, progress=TreeProgress(Updates("fitting", 100)))
    assert updates == sorted(updates)
    assert [trees for _, trees in updates] == list(range(1, len(updates) + 1))
    assert updates[0][0] == 0
    assert len({percent for percent, _ in updates if percent < 50}) > 3  # while combinations are selected
    assert updates[-1][0] == 92  # while the last trees are fitted, to all rows


def test_pairs_do_not_leak_labels():
    rows = rows_of(4000, 2, 3)
    _, _, (counts, rates) = add_combinations(rows, [(0, 1)])
    assert abs(np.corrcoef(rows.labels, counts)[0, 1]) < 0.05
    assert abs(np.corrcoef(rows.labels, rates)[0, 1]) < 0.1


@pytest.mark.parametrize("transform", ["interpolate", "linear"])
def test_trees_read_numbers_with_any_transform(tmp_path, transform):
    fields = [Field("age", "numeric", transform=transform), Field("trees", trees=["age"])]
    schema = Schema(fields, label="click")
    dataset = prepare(LOG, schema, tmp_path / "data", split="time", negative_rate=0.7)
    assert len(np.unique(dataset.train.ids[:, 1])) > 5
    np.testing.assert_array_equal(dataset.encode(LOG).ids[dataset.test.rows, 1], dataset.test.ids[:, 1])


@pytest.mark.parametrize("labels", [[0], [1], [0, 1]])
def test_small_logs_and_equal_labels(tmp_path, labels):
    rows = LOG[:150].with_columns(click=pl.Series(labels * (150 // len(labels))))
    dataset = prepare(rows, SCHEMA, tmp_path / "data", fractions=(1, 0, 0))
    assert set(dataset.train.ids[:, TREES]) <= set(range(1, 21))
    with pytest.raises(Fm2Error, match="prepare: trees need at least 100 training rows, got 50"):
        prepare(rows[:50], SCHEMA, tmp_path / "few", fractions=(1, 0, 0))


def test_a_schema_has_trees_once_and_names_their_fields(tmp_path):
    with pytest.raises(Fm2Error, match="the field 'trees' already has trees"):
        SCHEMA.with_trees()
    with pytest.raises(Fm2Error, match="field 't': trees must name fields, got an empty list"):
        Schema.from_dict({"label": "click", "field": [{"name": "t", "trees": []}]})
