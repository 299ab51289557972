"""Ids of another dataset: which datasets are compatible, and what their ids become."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.evaluation.evaluate import evaluate_split, mostly_unknown
from fm2.evaluation.id_mapping import check_same_encoding, make_id_map, map_ids

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

    def probabilities(self, ids):
        self.seen.append(ids)
        return np.full(len(ids), 0.5, np.float32)


def test_the_same_vocabulary_needs_no_map(known):
    assert make_id_map(known.encoder, known, known.path) is None
    ids = np.asarray(known.test.ids)
    assert map_ids(ids, None) is ids


def test_values_are_matched_by_their_text_and_new_ones_are_unknown(known, tmp_path):
    other = prepare(rows(["c", "b", "c", "a"]), SCHEMA, tmp_path / "other")
    id_map = make_id_map(known.encoder, other, known.path)
    ids = map_ids(np.asarray(other.train.ids), id_map)
    decoded = known.decode(ids)["site"]
    expected = ["<unknown>" if site == "c" else site for site in other.decode(other.train.ids)["site"]]
    assert decoded == expected
    assert {"a", "b", "<unknown>"} == set(decoded)
    with pytest.raises(IndexError, match="an id is negative"):
        map_ids(np.array([[-1, 0]], np.int32), id_map)


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
        (Schema(SCHEMA.fields[:1], label="y"), "has other fields than the model in"),
        (dataclasses.replace(SCHEMA, missing=("", "none")), "has other missing values than the model in"),
        (HASHED, "reads, hashes or buckets the field 'site' differently .*; prepare the rows with --like"),
    ],
)
def test_another_encoding_is_an_error(known, tmp_path, schema, message):
    other = prepare(rows(["a", "b"]), schema, tmp_path / "other")
    with pytest.raises(Fm2Error, match=f"^train: .*other {message}"):
        check_same_encoding("train", known.encoder, other, known.path)
    with pytest.raises(Fm2Error, match=f"^evaluate: .*other {message}"):
        evaluate_split(Constant(known), other)
