"""Trees on multi-valued fields read how many values a list has, and which of the most frequent ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from tests.helpers.tree_lists import SCHEMA, TREES, log_of
from tests.helpers.trees import literal_ids

from fm2 import Field, Schema, _native, prepare
from fm2.data import tree_lists
from fm2.data.encoder import Encoder
from fm2.data.rows import Lists
from fm2.data.sources import open_sources
from fm2.data.tree_lists import list_inputs
from fm2.data.trees import NODE, ListValue, Pair, Trees, same_trees
from fm2.data.vocabulary import Vocabulary
from fm2.evaluation.metrics import auc

LOG = log_of(4000)
PARTS = SCHEMA.parts[TREES]
LISTS = [name for name in SCHEMA.names if SCHEMA.fields[SCHEMA.names.index(name)].multivalued]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(LOG, SCHEMA, tmp_path_factory.mktemp("trees") / "data")


def trees_of(dataset) -> Trees:
    return Trees.of(dataset.vocabularies[TREES].trees)


def columns_of(rows, prices):
    """Return the lists and numbers of encoded rows, by part."""
    columns = {}
    for at, part in enumerate(PARTS):
        if SCHEMA.fields[part].multivalued:
            table = rows.lists[part].take(rows.ids[:, part])
            columns[at] = [ids.tolist() for ids in np.split(table.ids, table.offsets[1:-1])]
        elif SCHEMA.fields[part].column == "price":
            columns[at] = prices
    return columns


def literal(dataset, rows, prices):
    return literal_ids(trees_of(dataset), rows.ids[:, PARTS], columns_of(rows, prices))


def test_rows_have_the_predictions_of_the_trees(dataset):
    for split in (dataset.validation, dataset.test):
        expected = literal(dataset, split.encoded, LOG["price"][split.rows].to_list())
        assert len(set(expected)) > 50
        assert split.ids[:, TREES].tolist() == expected
        np.testing.assert_array_equal(dataset.encode(LOG).ids[split.rows, TREES], expected)


def test_trees_read_every_list(dataset):
    inputs = [(SCHEMA.names[PARTS[part]], table) for part, table in trees_of(dataset).inputs if part < len(PARTS)]
    values = {name: {table.id for of, table in inputs if of == name and isinstance(table, ListValue)} for name in LISTS}
    assert all(values.values())
    assert 0 not in set.union(*values.values())
    lengths = {name for name, table in inputs if name in LISTS and not isinstance(table, ListValue) and not len(table)}
    assert {"history", "tags"} <= lengths
    parts = [part for pair in trees_of(dataset).pairs for part in pair.parts if part < len(PARTS)]
    assert not {SCHEMA.names[PARTS[part]] for part in parts} & set(LISTS)


def test_trees_learn_from_lists(tmp_path):
    random = np.random.default_rng(0)
    lists = [random.choice(["x", "y", "z"], size, replace=False) for size in random.integers(0, 4, 4000)]
    rate = np.array([0.2 + 0.5 * ("x" in values) - 0.15 * (len(values) > 1) for values in lists])
    log = pl.DataFrame({"click": (random.random(4000) < rate).astype(int), "tags": ["|".join(cell) for cell in lists]})
    tags = Field("tags", multivalued=True, empty_is_missing=False)
    test = prepare(log, Schema([tags], label="click").with_trees(), tmp_path / "data").test
    scores = test.ids[:, 1] / test.ids[:, 1].max()
    assert auc(test.labels, scores) > auc(test.labels, rate[test.rows]) - 0.01


@pytest.mark.parametrize("threads", [1, 2])
def test_all_kinds_of_rows_have_the_same_trees(dataset, tmp_path, threads):
    rows = log_of(2500, seed=5).with_columns(tags=pl.lit("t1:1|new:2|t3:0.5|") + pl.col("tags"))
    encoder = dataset.encoder
    encoded = encoder.encode_rows(rows, threads)
    expected = literal(dataset, encoded, rows["price"].to_list())
    assert len(set(expected)) > 50
    assert encoded.ids[:, TREES].tolist() == expected
    assert encoder.encode_rows(rows.to_dicts()).ids[:, TREES].tolist() == expected
    assert [int(encoder.encode_rows([row]).ids[0, TREES]) for row in rows[:50].to_dicts()] == expected[:50]
    flat = rows.with_columns(pl.col("genres", "scores").cast(pl.List(pl.String)).list.join("|"))
    flat.write_csv(tmp_path / "rows.csv")
    (file,) = open_sources(tmp_path / "rows.csv", SCHEMA)
    (text,) = [chunk.rows for chunk, _ in encoder.encode_text(file, threads)]  # in which empty lists are missing
    assert text.ids[:, TREES].tolist() == literal(dataset, text, rows["price"].to_list())


def test_empty_missing_and_unreadable_lists(dataset):
    cells = ["", None, "t1:1", "t1:x", "t1:1|t1:2"]
    rows = [{"site": "s1", "item": "i1", "price": 2, "history": cell, "tags": cell} for cell in cells]
    encoded = dataset.encoder.encode_rows(rows)
    assert encoded.ids[:, TREES].tolist() == literal(dataset, encoded, [2] * len(rows))


def test_new_rows_keep_the_trees_of_older_ones(dataset, tmp_path):
    newer = log_of(1500, seed=7).with_columns(tags=pl.lit("new:1|t7:1|") + pl.col("tags"))
    other = prepare(newer, dataset, tmp_path / "data")
    tags = SCHEMA.names.index("tags")
    assert other.vocabularies[tags].values() != dataset.vocabularies[tags].values()
    np.testing.assert_array_equal(other.encode(newer).ids[:, TREES], dataset.encode(newer).ids[:, TREES])
    train = other.train
    np.testing.assert_array_equal(dataset.encode(newer).ids[train.rows, TREES], train.ids[:, TREES])
    assert same_trees(other.vocabularies[TREES].trees, dataset.vocabularies[TREES].trees)


def test_values_get_their_new_ids_and_vanished_ones_are_in_no_list():
    none = np.empty(0, np.float32)
    inputs = ((0, none), (0, ListValue(1)), (0, ListValue(7)), (0, ListValue(0)))
    trees = Trees((), inputs, np.array([~0], np.int32), np.empty(0, NODE), none, none)
    again = Trees.of(trees.for_features([np.array([0, 3, -1, 1], np.int32)]).words())
    assert [table.id for _, table in again.inputs[1:]] == [3, 0, 0]
    assert len(again.inputs[0][1]) == 0
    other = dataclasses.replace(trees, inputs=((0, none), (0, none), *inputs[2:]))
    assert not same_trees(trees.words(), other.words())


def test_the_most_frequent_values_are_inputs():
    vocabulary = Vocabulary.of(list("abc"), [5, 0, 9])
    lists = Lists.of([[3, 1, 1], [], [2, 0], [1]])
    (length, *values) = list_inputs({4: lists}, [Vocabulary.of([])] * 4 + [vocabulary], 0)
    assert (length[0], length[2].tolist()) == (4, [3, 0, 2, 1])
    assert [(part, value.id, column.tolist()) for part, value, column in values] == [
        (4, 3, [1, 0, 0, 0]),
        (4, 1, [1, 0, 0, 1]),
    ]
    frequent = Vocabulary.of([f"v{value}" for value in range(50)], range(50))
    assert len(list(list_inputs({0: lists}, [frequent], 0))) == 1 + tree_lists.MOST_LIST_VALUES


@pytest.mark.parametrize("others", [0, 300, 700])
def test_many_lists_share_the_inputs_that_trees_can_have(others):
    vocabulary = Vocabulary.of([f"v{value}" for value in range(50)], range(1, 51))
    lists = dict.fromkeys(range(200), Lists.of([[1]]))
    inputs = list(list_inputs(lists, [vocabulary] * 200, others))
    assert 200 <= len(inputs) <= _native.MOST_TREE_INPUTS - others
    assert {part for part, *_ in inputs} == set(lists)


def changed_inputs(trees: Trees):
    """Yield trees whose first input does not match its part, and what is wrong."""
    tags, site, price = (PARTS.index(SCHEMA.names.index(name)) for name in ("tags", "site", "price_knots"))
    none, one = np.empty(0, np.float32), np.zeros(1, np.float32)
    for part, table, message in [
        (site, ListValue(1), "look for a feature in the list of a field that has one value"),
        (price, ListValue(1), "look for a feature in the list of a field that has one value"),
        (tags, ListValue(1000), "look for a feature that does not exist"),
        (tags, ListValue((1 << 31) - 1), "look for a feature that does not exist"),
        (len(PARTS), ListValue(0), "has a part that does not exist"),
        (10**6, ListValue(1), "has a part that does not exist"),
        (tags, one, "differ in size"),
        (tags, np.zeros(9, np.float32), "read the features of a list"),
        (site, none, "read the numbers of a field that has none"),
    ]:
        yield dataclasses.replace(trees, inputs=((part, table), *trees.inputs[1:])), message
    pair = Pair((tags, site), np.ones((1, 2), np.int32))
    yield dataclasses.replace(trees, pairs=(*trees.pairs, pair)), "read the features of a list"


def test_damaged_inputs_of_lists_are_refused(dataset):
    encoder = Encoder(dataset.schema, dataset.vocabularies)
    size = len(dataset.vocabularies[TREES])
    before = encoder.encode_rows(LOG).ids
    for trees, message in changed_inputs(trees_of(dataset)):
        with pytest.raises(ValueError, match=message):
            encoder._native.set_trees(TREES, trees.words(), size)
    np.testing.assert_array_equal(encoder.encode_rows(LOG).ids, before)
    ids = np.zeros((3, len(SCHEMA.fields)), np.int32)
    with pytest.raises(ValueError, match="trees read the lists of field 2"):
        encoder._native.encode_derived(ids, [np.zeros(3, np.float32)] * len(SCHEMA.fields), [], 1)
