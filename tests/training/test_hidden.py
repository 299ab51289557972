"""Hidden features: where validation rows have more unknown values, training rows get some, too."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.helpers.planted import QUICK

import fm2
from fm2 import Field, Fm2Error, Schema
from fm2._native import Dropout
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows, Lists
from fm2.models.registry import specs
from fm2.training.construction import make_backend, make_model
from fm2.training.hidden import (
    HIGHEST,
    LEAST_GAP,
    UNIT,
    Hidden,
    hidden_features,
    hide,
    hiding_probabilities,
)
from fm2.training.tables import EmbeddingTable, adagrad, load_batch, minibatch
from fm2.training.train import train

SIZES = [50, 4]


def ids_of(rows: EncodedRows, dropout: Dropout, step: int = 1, threads: int = 0, order=None) -> np.ndarray:
    """Return the ids of field 0 in a loaded batch, whose features have their ids as weights."""
    table = EmbeddingTable(SIZES, 1, adagrad(1.0))
    table.weights[: SIZES[0]] = np.arange(SIZES[0])
    batch = minibatch(SIZES)
    load_batch(batch, rows, order, threads, dropout, step)
    return table.gather(batch)[:, 0].astype(int)


def hiding(probability: float, seed: int = 0) -> Dropout:
    dropout = Dropout(seed=seed)
    of_features = np.full(SIZES[0], round(probability * UNIT), np.uint16)
    of_features[7] = 0
    dropout.hide([of_features, None], [[], []])
    return dropout


def test_batches_hide_features_by_seed_step_and_row():
    random = np.random.default_rng(0)
    ids = np.stack([random.integers(1, SIZES[0], 20_000), np.ones(20_000)], axis=1).astype(np.int32)
    rows = EncodedRows(ids)
    seen = ids_of(rows, hiding(0.3))
    changed = seen != ids[:, 0]
    assert not seen[changed].any()
    assert not changed[ids[:, 0] == 7].any()
    assert changed[ids[:, 0] != 7].mean() == pytest.approx(0.3, abs=0.01)
    assert (changed[1:] & changed[:-1])[(ids[1:, 0] != 7) & (ids[:-1, 0] != 7)].mean() == pytest.approx(0.09, abs=0.01)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(seen, ids_of(rows, hiding(0.3), threads=threads))
    assert (seen != ids_of(rows, hiding(0.3), step=2)).any()
    assert (seen != ids_of(rows, hiding(0.3, seed=1))).any()
    part = np.arange(0, 20_000, 3, dtype=np.uint32)  # of a worker
    dropout = hiding(0.3)
    dropout.set_rows(part)
    np.testing.assert_array_equal(seen[part], ids_of(rows, dropout, order=part.astype(np.int64)))


def test_hidden_features_have_to_match_the_batch():
    rows = EncodedRows(np.zeros((2, 2), np.int32))
    for hidden, message in (
        ([None], "expected hidden features of 2 fields, got 1"),
        ([None, np.zeros(5, np.uint16)], "field 1 has 4 features, but 5 probabilities of hiding them"),
    ):
        dropout = Dropout()
        dropout.hide(hidden, [[] for _ in hidden])
        with pytest.raises(ValueError, match=message):
            ids_of(rows, dropout)
    dropout.hide([None, np.zeros(4, np.uint16)], [[], []])
    with pytest.raises(ValueError, match="field 1 has lists, whose features cannot be hidden"):
        ids_of(EncodedRows(rows.ids, {1: Lists.of([[1]])}), dropout)


def test_the_share_of_hidden_values_is_reached_and_rare_features_are_hidden_more_often():
    counts = np.array([5, 1, 4, 100, 10_000, 0])
    probabilities = hiding_probabilities(counts, 0.02) / UNIT
    assert probabilities @ counts == pytest.approx(0.02 * counts[1:].sum(), rel=1e-3)
    assert probabilities[0] == probabilities[5] == 0
    assert probabilities[1] == HIGHEST
    assert probabilities[2] == HIGHEST
    assert HIGHEST > probabilities[3] > probabilities[4] > 0
    assert (hiding_probabilities(counts, 0.5)[1:5] == HIGHEST * UNIT).all()
    assert not hiding_probabilities(counts, 0.0).any()


def later_users(tmp_path, *others: Field, users: int = 60) -> fm2.Dataset:
    """Prepare a log of days in which users come and go, split by time: most users of later rows are new."""
    random = np.random.default_rng(1)
    day = np.sort(random.integers(1, 28, 4000))
    table = {
        "click": random.integers(0, 2, 4000),
        "time": [f"2026-03-{number:02} 10:00:00" for number in day],
        "user": [f"u{number}" for number in day * users // 28 + random.integers(0, 4, 4000)],
        "site": [f"s{number}" for number in random.integers(0, 5, 4000)],
    }
    fields = [Field("user", min_count=1), Field("site", min_count=1), Field("time", "timestamp"), *others]
    schema = Schema(fields, label="click")
    return fm2.prepare(pl.DataFrame(table), schema, tmp_path / "data", split="time")


def test_training_hides_values_of_fields_with_new_values_only(tmp_path):
    data = later_users(tmp_path)
    unknown = {entry["name"]: entry["unknown"] for entry in data.manifest["fields"]}
    assert unknown["user"]["validation"] > 0.3 * len(data.validation)
    hidden = hidden_features(data, data.vocabularies, 0.3)
    user = data.schema.names.index("user")
    assert list(hidden.probabilities) == [user]
    counts = np.r_[0, data.vocabularies[user].counts]
    assert hidden.share(user, counts) == pytest.approx(0.3, rel=0.01)
    assert not hidden_features(data, data.vocabularies, 0.0)


@pytest.mark.parametrize(("in_training", "is_hidden"), [(0.0, True), (0.09, True), (0.12, False), (0.3, False)])
def test_training_hides_no_values_if_it_has_many_unknown_ones(tmp_path, in_training, is_hidden):
    rows, random = 20_000, np.random.default_rng(3)
    day = 1 + np.arange(rows) * 28 // rows
    is_rare = random.random(rows) < np.where(day <= 23, in_training, 0.42)
    users = np.where(is_rare, 100 + np.arange(rows), random.integers(0, 20, rows))
    table = pl.DataFrame(
        {
            "click": random.integers(0, 2, rows),
            "time": [f"2026-03-{number:02} 10:00:00" for number in day],
            "user": [f"u{number}" for number in users],
        }
    )
    schema = Schema([Field("user", min_count=2), Field("time", "timestamp")], label="click")
    data = fm2.prepare(table, schema, tmp_path / "data", split="time")
    unknown = data.manifest["fields"][0]["unknown"]
    assert unknown["train"] == pytest.approx(in_training * len(data.train), rel=0.08)
    assert unknown["validation"] == pytest.approx(0.42 * len(data.validation), rel=0.08)
    assert (0 in hidden_features(data, data.vocabularies, 0.3).probabilities) == is_hidden


@pytest.mark.parametrize("name", ["lr", "ffm", "poly2", "fmfm", "deepfm"])
def test_the_unknown_feature_is_learned_from_hidden_ones(tmp_path, name):
    data = later_users(tmp_path)
    hiding, keeping = (
        train(name, data, tmp_path / str(share), **{**QUICK, "threads": 1, "unknown_dropout": share})
        for share in (0.3, 0.0)
    )
    again = train(name, data, tmp_path / "again", **{**QUICK, "threads": 1})
    rows = data.validation.encoded
    np.testing.assert_array_equal(hiding.logits(rows), again.logits(rows))
    assert (hiding.logits(rows) != keeping.logits(rows)).mean() > 0.5


def test_models_that_are_blended_with_trees_hide_values_of_other_fields(tmp_path):
    data = later_users(tmp_path, Field("trees", trees=["user", "site"]))
    hidden = hidden_features(data, data.vocabularies, 0.3)
    assert data.schema.names.index("user") in hidden.probabilities
    assert data.schema.names.index("trees") not in hidden.probabilities
    hiding, keeping = (
        train("fm", data, tmp_path / str(share), **{**QUICK, "threads": 1, "unknown_dropout": share})
        for share in (0.3, 0.0)
    )
    rows = data.validation.encoded
    assert (hiding.logits(rows) != keeping.logits(rows)).mean() > 0.5


def test_a_cross_with_a_hidden_part_is_unknown(tmp_path):
    data = later_users(tmp_path, Field("user_site", cross=["user", "site"], min_count=1))
    cross, user = (data.schema.names.index(name) for name in ("user_site", "user"))
    hidden = hidden_features(data, data.vocabularies, 0.3)
    assert list(hidden.probabilities) == [user]  # hidden parts leave enough unknown crosses
    assert hidden.parts == {cross: [user, data.schema.names.index("site")]}
    rows, random = data.train.encoded, np.random.default_rng(0)
    seen = hide(rows, hidden, random).ids
    assert (seen[:, user] == 0).mean() == pytest.approx(0.3, abs=0.03)
    assert not seen[seen[:, user] == 0, cross].any()
    sizes = data.field_sizes
    table = EmbeddingTable(sizes, 1, adagrad(1.0))
    table.weights[:] = np.concatenate([np.arange(size) for size in sizes])
    batch, dropout = minibatch(sizes), Dropout(seed=1)
    fields = range(len(sizes))
    dropout.hide([hidden.probabilities.get(f) for f in fields], [list(hidden.parts.get(f, ())) for f in fields])
    load_batch(batch, rows, None, 2, dropout, 1)
    loaded = table.gather(batch)
    assert not loaded[loaded[:, user] == 0, cross].any()
    assert (loaded[:, user] == 0).mean() == pytest.approx(0.3, abs=0.03)


def test_impressions_count_as_often_as_rows_in_the_shares(tmp_path):
    log = pl.DataFrame(
        {
            "clicks": [1, 2] * 1000,
            "shown": [100] * 2000,
            "user": [f"u{number}" if number % 100 == 7 else f"v{number % 9}" for number in range(2000)],
            "site": ["a", "b"] * 1000,
        }
    )
    schema = Schema([Field("user", min_count=1), Field("site", min_count=1)], label="clicks", impressions="shown")
    data = fm2.prepare(log, schema, tmp_path / "data")
    rows = {name: entry["impressions"] for name, entry in data.manifest["splits"].items()}
    unknown = data.manifest["fields"][0]["unknown"]
    gap = unknown["validation"] / rows["validation"] - unknown["train"] / rows["train"]
    assert 0 < gap < LEAST_GAP < gap * 100
    assert not hidden_features(data, data.vocabularies, 0.3)


def test_torch_hides_features_as_often_as_native_code():
    random = np.random.default_rng(2)
    ids = np.stack([random.integers(1, SIZES[0], 4000), random.integers(1, 4, 4000)], axis=1).astype(np.int32)
    labels, of_features = np.ones(4000, np.float32), np.full(SIZES[0], UNIT // 2, np.uint16)
    weights = []
    for hidden in (Hidden({0: of_features}), Hidden()):
        for optimizer in ("adam", "dense_adam"):
            settings = Settings.of("lr", optimizer=optimizer, learning_rate=0.01, l2=0.0, ema_decay=0.0, threads=1)
            counts = np.ones(sum(SIZES), np.int64)
            backend = make_backend(make_model(settings, SIZES), settings, counts, hidden=hidden)
            for _ in range(30):
                backend.step(EncodedRows(ids), np.arange(4000), labels, None, 1.0)
            weights.append(dict(backend.weights())["linear.weight"][0])
    assert weights[0] == pytest.approx(weights[1], rel=0.02)
    assert weights[0] > 0.2
    assert weights[2:] == [0, 0]


def test_unknown_dropout_applies_to_all_models():
    for spec in specs():
        assert Settings.of(spec.name).unknown_dropout == 0.3
    with pytest.raises(Fm2Error, match=r"unknown_dropout must be a number between 0.0 and 0.5, got 0.6"):
        Settings.of("fmfm", unknown_dropout=0.6)
