"""Ids of another dataset: which datasets are compatible, and what their ids become."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from tests.helpers.lists import random_rows, values_of

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.data.rows import EncodedRows, Lists
from fm2.evaluation.evaluate import evaluate_split, mostly_unknown
from fm2.evaluation.id_mapping import IdMap, check_same_encoding, make_id_map, map_ids
from fm2.evaluation.metrics import sigmoid
from fm2.evaluation.prediction import Predictions, count_values

SCHEMA = Schema([Field("site", min_count=1), Field("price", kind="numeric", min_count=1)], label="y")
HASHED = Schema([Field("site", hash_bits=4), Field("price", kind="numeric", min_count=1)], label="y")


def rows(sites: list[str]) -> pl.DataFrame:
    """Make 200 rows that repeat these sites."""
    numbers = range(200)
    columns = {"y": [i % 2 for i in numbers], "site": [sites[i % len(sites)] for i in numbers]}
    return pl.DataFrame({**columns, "price": [i % 3 for i in numbers]})


@pytest.fixture
def known(tmp_path) -> Dataset:
    return prepare(rows(["a", "b", "b"]), SCHEMA, tmp_path / "known")


class Constant:
    """A model that predicts the same probability for every row, and remembers the ids that it was given."""

    def __init__(self, dataset: Dataset) -> None:
        self.path, self.threads, self.encoder = dataset.path, 1, dataset.encoder
        self.seen: list[np.ndarray] = []

    calibration = None

    def logits(self, rows):
        self.seen.append(rows.ids)
        return np.zeros(len(rows), np.float32)

    def probabilities(self, rows):
        return sigmoid(self.logits(rows)).astype(np.float32)


def test_the_same_vocabulary_needs_no_map(known):
    assert make_id_map(known.encoder, known, known.path) is None
    rows = known.test.encoded
    assert map_ids(rows, None) is rows


def test_values_are_matched_by_their_text_and_new_ones_are_unknown(known, tmp_path):
    other = prepare(rows(["c", "b", "c", "a"]), SCHEMA, tmp_path / "other")
    id_map = make_id_map(known.encoder, other, known.path)
    mapped = map_ids(other.train.encoded, id_map)
    decoded = known.decode(mapped.ids)["site"]
    expected = ["<unknown>" if site == "c" else site for site in other.decode(other.train.ids)["site"]]
    assert decoded == expected
    assert {"a", "b", "<unknown>"} == set(decoded)
    with pytest.raises(IndexError, match="an id is negative"):
        map_ids(EncodedRows(np.array([[-1, 0]], np.int32)), id_map)


def test_the_ids_in_lists_are_translated():
    rows = random_rows([5, 4, 6], list_fields=(1, 2), rows=40)
    id_map = [np.array([3, 1, 4, 1, 5], np.int32), np.array([0, 2, 0, 1], np.int32), np.arange(6, dtype=np.int32)]
    mapped = map_ids(rows[5:12], IdMap(id_map))
    for field, new_ids in enumerate(id_map):
        expected = [[(int(new_ids[id]), weight) for id, weight in values] for values in values_of(rows, field)[5:12]]
        assert values_of(mapped, field) == expected
    assert sum(len(lists.ids) for lists in mapped.lists.values()) < sum(len(lists.ids) for lists in rows.lists.values())


@pytest.mark.parametrize(
    "lists", [Lists.of([[0, -1]]), Lists.of([[0, 4]]), Lists(np.array([1, 0]), np.zeros(2, np.int32)), Lists.of([])]
)
def test_damaged_lists_are_an_error(lists):
    with pytest.raises(IndexError):
        map_ids(EncodedRows(np.zeros((1, 1), np.int32), {0: lists}), IdMap([np.arange(4, dtype=np.int32)]))


def test_unknown_values_of_lists_are_counted_among_all_values(known):
    rows = EncodedRows(np.array([[1, 0], [1, 1], [0, 1]], np.int32), {1: Lists.of([[0, 0, 2], [], [0, 0]])})
    assert count_values(rows) == ([1, 2], [3, 3])
    predictions = Predictions(3, {"site": 1, "tags": 2, "none": 0}, {"site": 3, "tags": 3, "none": 0})
    assert predictions.mostly_unknown() == {"tags": 2 / 3}


def test_evaluation_scores_mapped_ids_and_reports_unknown_values(known, tmp_path):
    other = prepare(rows(["c"]), SCHEMA, tmp_path / "other")
    model = Constant(known)
    assert evaluate_split(model, other.path, "train")["auc"] == 0.5
    assert (np.concatenate(model.seen)[:, 0] == 0).all()
    assert mostly_unknown(model, other, "train") == {"site": 1.0}
    assert mostly_unknown(model, known, "train") == {}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            Schema(SCHEMA.fields[:1], label="y"),
            "has other fields than the model in .*: it has no field '[a-z]+'; prepare",
        ),
        (dataclasses.replace(SCHEMA, missing=("", "none")), "has other missing values than the model in"),
        (HASHED, "reads, hashes or buckets the field 'site' differently .*; prepare the rows like the dataset"),
    ],
)
def test_another_encoding_is_an_error(known, tmp_path, schema, message):
    other = prepare(rows(["a", "b"]), schema, tmp_path / "other")
    with pytest.raises(Fm2Error, match=f"^train: .*other {message}"):
        check_same_encoding("train", known.encoder, other, known.path)
    with pytest.raises(Fm2Error, match=f"^evaluate: .*other {message}"):
        evaluate_split(Constant(known), other)


def test_how_many_buckets_were_requested_does_not_matter_if_they_are_the_same(tmp_path):
    table = pl.DataFrame({"y": [0, 1] * 50, "price": [1, 2, 3, 4] * 25})
    fields = [Field("price", "numeric", transform="quantiles", buckets=buckets) for buckets in (20, 0, 2)]
    known, other, coarser = (prepare(table, Schema([field], "y"), tmp_path / str(field.buckets)) for field in fields)
    check_same_encoding("train", known.encoder, other, known.path)
    with pytest.raises(Fm2Error, match="buckets the field 'price' differently"):
        check_same_encoding("train", known.encoder, coarser, known.path)
