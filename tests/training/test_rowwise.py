"""Row-by-row training of FFM, Poly2 and LR, checked against their torch modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.helpers.lists import random_rows

from fm2.artifacts.arrays import ChunkedArray
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows, Lists
from fm2.errors import Fm2Error
from fm2.models.rows import to_tensors
from fm2.training.construction import make_backend, make_model
from fm2.training.resolve import slow_path_warning
from fm2.training.rowwise_backend import FieldAwareKernel, PolynomialKernel, RowwiseBackend
from fm2.training.torch_backend import TorchBackend

SIZES = [5, 9, 3, 7]
KERNELS = {"ffm": FieldAwareKernel, "poly2": PolynomialKernel, "lr": PolynomialKernel}
CASES = pytest.mark.parametrize(
    ("name", "optimizer"),
    [("ffm", "adagrad"), ("poly2", "adagrad"), ("poly2", "ftrl"), ("lr", "adagrad"), ("lr", "ftrl")],
)
LISTS = pytest.mark.parametrize("lists", [(), (1, 3)], ids=["single", "lists"])


def settings_of(name: str, optimizer: str = "adagrad", **changes: object) -> Settings:
    own = {"ffm": {"dim": 3, "embedding_std": 0.3}, "poly2": {"hash_bits": 6}, "lr": {}}[name]
    own |= {"l2_power": 0.0, "ema_decay": 0.0}
    base = {"learning_rate": 0.1, "l2": 0.01, "initial_accumulator": 0.0 if optimizer == "ftrl" else 0.5, "seed": 3}
    return Settings.of(name, **{**own, **base, "optimizer": optimizer, **changes})


def backend_for(settings: Settings, initialized: bool = True):
    counts = np.ones(sum(SIZES), np.int64)
    return make_backend(make_model(settings, SIZES, initialized), settings, counts, initialized)


def draw(count: int, lists: tuple[int, ...] = ()) -> tuple[EncodedRows, np.ndarray]:
    labels = np.random.default_rng(1).integers(0, 2, count).astype(np.float32)
    return random_rows(SIZES, lists, count), labels


def learn(backend, rows: EncodedRows, labels: np.ndarray, batch: int) -> None:
    for begin in range(0, len(rows), batch):
        order = np.arange(begin, min(begin + batch, len(rows)))
        backend.step(rows, order, labels[order], None, 1.0)


def plain_weights(backend) -> dict[str, np.ndarray]:
    found = backend.weights()
    return {
        name: np.concatenate([piece.ravel() for piece in array.make()]) if isinstance(array, ChunkedArray) else array
        for name, array in found.items()
    }


@CASES
@LISTS
def test_torch_scores_what_was_learned_natively(name, optimizer, lists):
    settings = settings_of(name, optimizer)
    backend = backend_for(settings)
    assert isinstance(backend, RowwiseBackend)
    assert isinstance(backend.kernel, KERNELS[name])
    rows, labels = draw(500, lists)
    learn(backend, rows, labels, 64)
    model = make_model(settings, SIZES)
    weights = plain_weights(backend)
    assert weights.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict({key: torch.from_numpy(np.asarray(value)) for key, value in weights.items()}, strict=False)
    with torch.no_grad():
        np.testing.assert_allclose(backend.score(rows), model(to_tensors(rows)).numpy(), atol=1e-5)
    assert np.std(backend.score(rows)) > 0.1


@CASES
@LISTS
def test_the_batch_size_does_not_matter(name, optimizer, lists):
    """Rows are scored 32 at a time, LR's 256, whatever the batch."""
    rows, labels = draw(1280, lists)
    found = []
    tile = 256 if name == "lr" else 32
    for batch in (tile, 2 * tile, 1280):
        backend = backend_for(settings_of(name, optimizer))
        learn(backend, rows, labels, batch)
        found.append(backend.score(rows))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_vectors_drawn_in_pieces_equal_those_the_model_draws(monkeypatch):
    monkeypatch.setattr("fm2.training.rowwise_backend.PIECE", 16)
    settings = settings_of("ffm")
    early, late = backend_for(settings), backend_for(settings, initialized=False)
    model = make_model(settings, SIZES)
    for backend in (early, late):
        np.testing.assert_array_equal(plain_weights(backend)["embedding.weight"], model.embedding.weight.detach())


@CASES
@LISTS
def test_a_state_is_restored(name, optimizer, lists):
    rows, labels = draw(300, lists)
    one, other = (backend_for(settings_of(name, optimizer, seed=seed)) for seed in (1, 2))
    learn(one, rows, labels, 50)
    other.load({key: values.copy() for key, values in one.state().items()}, one.steps)
    for backend in (one, other):
        learn(backend, rows, labels, 50)
    assert one.steps == other.steps
    np.testing.assert_array_equal(one.score(rows), other.score(rows))


@CASES
def test_values_of_lists_are_dropped_in_training_only(name, optimizer):
    rows, labels = draw(300, (1, 3))
    plain, dropped, again = (
        backend_for(settings_of(name, optimizer, value_dropout=rate, threads=threads))
        for rate, threads in ((0.0, 1), (0.5, 1), (0.5, 3))
    )
    np.testing.assert_array_equal(plain.score(rows), dropped.score(rows))
    for backend in (plain, dropped, again):
        learn(backend, rows, labels, 50)
    assert np.abs(plain.score(rows) - dropped.score(rows)).max() > 0.01
    np.testing.assert_array_equal(dropped.score(rows), again.score(rows))
    single, _ = draw(300)
    scores = []
    for rate in (0.0, 0.5):
        backend = backend_for(settings_of(name, optimizer, value_dropout=rate))
        learn(backend, single, labels, 50)
        scores.append(backend.score(single))
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize(
    "changes", [{"ema_decay": 0.9}, {"l2_power": 0.5}, {"optimizer": "adam", "initial_accumulator": 0}]
)
@pytest.mark.parametrize("name", ["ffm", "poly2"])
@LISTS
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_torch_trains_what_native_code_does_not_support(name, changes, lists):
    settings = settings_of(name, **changes)
    model = make_model(settings, SIZES)
    backend = make_backend(model, settings, np.ones(sum(SIZES), np.int64))
    assert isinstance(backend, TorchBackend)
    rows, labels = draw(200, lists)
    before = backend.step(rows, np.arange(200), labels, None, 1.0)
    for _ in range(30):
        after = backend.step(rows, np.arange(200), labels, None, 1.0)
    assert after < before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimizer": "adam", "initial_accumulator": 0.0}, "the optimizer adam"),
        ({"optimizer": "adam", "initial_accumulator": 0.0, "l2": 0.0, "l2_power": 0.5}, "the optimizer adam"),
        ({"l2_power": 0.5}, "l2_power"),
        ({"ema_decay": 0.9}, "ema_decay"),
    ],
)
def test_the_warning_names_the_setting_that_rules_out_the_kernel(changes, reason):
    assert slow_path_warning(settings_of("ffm")) is None
    expected = f"the native kernel for ffm does not support {reason}; torch trains it, many times slower"
    assert slow_path_warning(settings_of("ffm", **changes)) == expected


def test_rows_with_too_many_pairs_raise_an_error():
    backend = backend_for(settings_of("poly2"))
    long = Lists.of([[1] * 3000])
    rows = EncodedRows(np.zeros((1, 4), np.int32), {0: long, 1: long})
    message = "poly2: row 0 of the batch has 9012001 pairs of values; the limit is 4194304, and max_values"
    with pytest.raises(Fm2Error, match=message):
        backend.step(rows, np.arange(1), np.ones(1, np.float32), None, 1.0)
    with pytest.raises(Fm2Error, match=message):
        backend.score(rows)
