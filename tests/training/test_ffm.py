"""The FFM kernel against the paper's equation 5 and the definition of Adagrad, as float64 loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.helpers.batches import draw, loaded, sizes_of
from tests.helpers.field_aware import TILE, Model, assert_close, literal_steps
from tests.helpers.lists import rows_of_values

import fm2
from fm2._native import Ffm, FfmLayout
from fm2.data.rows import EncodedRows
from fm2.training.tables import adagrad, adam

levels = pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
dims = pytest.mark.parametrize("dim", [1, 3, 4, 8, 16, 21])
fields = pytest.mark.parametrize("n", [2, 3, 5, 11, 22, 39])


@levels
@dims
@fields
def test_scores_follow_equation_5(level: str, dim: int, n: int) -> None:
    model = Model(sizes_of(n), dim)
    ids, _ = draw(sizes_of(n), 5)
    weights = model.weights
    np.testing.assert_allclose(
        model.score(ids, level=level), [weights.score(row) for row in rows_of_values(EncodedRows(ids))], atol=2e-5
    )


@levels
@dims
def test_steps_follow_the_gradient_of_the_loss(level: str, dim: int) -> None:
    """With large sums of squares n and the rate √n, Adagrad's step is the gradient itself."""
    sizes, squares = [2, 1, 3, 2, 4, 2, 2], 1e10
    model = Model(sizes, dim, squares)
    before = model.weights
    ids, labels = draw(sizes, 1)
    model.step(ids, labels, vectors=adagrad(squares**0.5), linear=adagrad(squares**0.5), level=level)
    after = model.weights
    (row,) = rows_of_values(EncodedRows(ids))

    def slope(array: np.ndarray, place: tuple[int, ...]) -> float:
        losses = []
        for change in (1e-4, -2e-4):
            array[place] += change
            losses.append(before.loss(row, labels[0]))
        array[place] += 1e-4
        return (losses[0] - losses[1]) / 2e-4

    pairs = [(before.v[pair], after.v[pair]) for pair in before.v] + list(zip(before.w, after.w, strict=True))
    for old, new in pairs:
        moved = old - new
        expected = np.array([slope(old, place) for place in np.ndindex(old.shape)]).reshape(old.shape)
        np.testing.assert_allclose(moved, expected, atol=2e-6)


@levels
@dims
@pytest.mark.parametrize("n", [2, 3, 14, 39])
def test_a_single_row_updates_the_weights_as_adagrad_does(level: str, dim: int, n: int) -> None:
    model = Model(sizes_of(n), dim, squares=0.01)
    ids, labels = draw(sizes_of(n), 1)
    expected, loss = literal_steps(model, ids, labels, np.full(1, 2.0), (0.05, 0.1), (0.01, 0.02))
    two = np.full(1, 2, dtype=np.float32)
    native = model.step(ids, labels, two, adagrad(0.05, l2=0.01), adagrad(0.1, l2=0.02), level=level)
    assert_close(model.weights, expected)
    assert native == pytest.approx(loss, rel=1e-5)


@levels
@pytest.mark.parametrize("dim", [2, 4, 8])
def test_many_rows_update_the_weights_tile_by_tile(level: str, dim: int) -> None:
    """Rows share features here, some occur twice in a row: every occurrence moves the weights."""
    sizes = [2, 1, 5, 9, 3, 4, 2, 6]
    model = Model(sizes, dim, squares=0.1)
    ids, labels = draw(sizes, 2 * TILE + 9)
    ids[5] = ids[4]
    row_weights = np.linspace(0.5, 1.5, len(ids))
    expected, loss = literal_steps(model, ids, labels, row_weights, (0.05, 0.02), (0.001, 0))
    native = model.step(
        ids, labels, row_weights.astype(np.float32), adagrad(0.05, l2=0.001), adagrad(0.02), level=level
    )
    assert_close(model.weights, expected, rtol=3e-4)
    assert native == pytest.approx(loss, rel=1e-5)


@levels
@pytest.mark.parametrize("dim", [3, 4, 16])
@pytest.mark.parametrize("n", [2, 9, 39])
def test_results_do_not_depend_on_the_number_of_threads(level: str, dim: int, n: int) -> None:
    sizes = sizes_of(n)
    ids, labels = draw(sizes, 7 * TILE + 5)

    def results() -> Iterator[tuple[bytes, ...]]:
        for threads in (1, 2, 3, 8):
            model = Model(sizes, dim)
            losses = [model.step(ids, labels, threads=threads, level=level) for _ in range(3)]
            logits = model.score(ids, threads=threads, level=level)
            yield model.table.tobytes(), model.bias.tobytes(), logits.tobytes(), np.array(losses).tobytes()

    assert len(set(results())) == 1


def test_weights_are_read_as_they_were_written() -> None:
    rng = np.random.default_rng(3)
    model = Model([3, 4, 2, 5, 1, 6], 5)
    vectors, linear = rng.random((21, 5, 5), dtype=np.float32), rng.random(21, dtype=np.float32)
    model.native.write(vectors, linear, 0.5)
    for begin, end in ((0, 21), (2, 9), (20, 21), (7, 7)):
        found = np.zeros_like(vectors[begin:end]), np.zeros_like(linear[begin:end])
        model.native.read(*found, begin=begin)
        np.testing.assert_array_equal(found[0], vectors[begin:end])
        np.testing.assert_array_equal(found[1], linear[begin:end])
    model.native.write(2 * vectors[4:8], linear[4:8], 0.5, begin=4)
    vectors[4:8] *= 2
    found = np.zeros_like(vectors), np.zeros_like(linear)
    model.native.read(*found)
    np.testing.assert_array_equal(found[0], vectors)


def test_an_empty_batch_changes_nothing() -> None:
    model = Model([2, 3], 4)
    before = model.table.tobytes()
    assert model.step(np.empty((0, 2), dtype=np.int32), np.empty(0, dtype=np.float32)) == 0
    assert model.table.tobytes() == before
    assert len(model.score(np.empty((0, 2), dtype=np.int32))) == 0


def test_a_zero_gradient_leaves_weights_without_accumulator_unchanged() -> None:
    model = Model([2, 3], 4, squares=0)
    ids, labels = draw([2, 3], 1)
    before = model.table.tobytes()
    model.step(ids, labels, np.zeros(1, dtype=np.float32), adagrad(0.1, epsilon=0), adagrad(0.1, epsilon=0))
    assert model.table.tobytes() == before


def test_it_learns_what_linear_weights_cannot() -> None:
    """The label is whether two fields agree, and the third is noise."""
    rng = np.random.default_rng(7)
    ids = rng.integers(0, 6, (4000, 3)).astype(np.int32)
    labels = (ids[:, 0] == ids[:, 1]).astype(np.float32)
    model = Model([6, 6, 6], 4, squares=0.1)
    losses = [model.step(ids, labels, vectors=adagrad(0.1), linear=adagrad(0.05)) for _ in range(15)]
    share = labels.mean()
    best_constant = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert losses[-1] < 0.1 * best_constant
    assert losses[-1] < losses[0]


def test_invalid_arguments_raise_errors() -> None:
    sizes = np.array([2, 3, 4], dtype=np.int32)
    layout = FfmLayout(sizes, 4)
    table, bias = np.zeros(layout.floats, dtype=np.float32), np.zeros(2, dtype=np.float32)
    with pytest.raises(ValueError, match="number of fields must be between 2 and 1024, got 1"):
        FfmLayout(np.array([2], dtype=np.int32), 4)
    with pytest.raises(ValueError, match="dimension must be between 1 and 1024, got 0"):
        FfmLayout(sizes, 0)
    with pytest.raises(ValueError, match="at least one feature, got 0"):
        FfmLayout(np.array([2, 0], dtype=np.int32), 4)
    with pytest.raises(ValueError, match=f"table must have {layout.floats} entries"):
        Ffm(layout, table[1:], bias)
    with pytest.raises(ValueError, match=r"bias .* must have 2 entries, got 1"):
        Ffm(layout, table, bias[1:])
    native, batch = Ffm(layout, table, bias), loaded(np.zeros((3, 3), dtype=np.int32), sizes)
    ones = np.ones(3, dtype=np.float32)
    with pytest.raises(ValueError, match="labels must have 3 entries, got 2"):
        native.step(batch, ones[1:], None, adagrad(), adagrad())
    with pytest.raises(ValueError, match="weights must have 3 entries, got 2"):
        native.step(batch, ones, ones[1:], adagrad(), adagrad())
    with pytest.raises(ValueError, match="the only supported optimizer is adagrad"):
        native.step(batch, ones, None, adam(), adagrad())
    with pytest.raises(ValueError, match="logits must have 3 entries, got 2"):
        native.score(batch, ones[1:].copy())
    with pytest.raises(ValueError, match="different field sizes"):
        native.score(loaded(np.zeros((3, 3), dtype=np.int32), np.array([2, 3, 5], dtype=np.int32)), ones)
    with pytest.raises(ValueError, match=r"vectors must be \[features, fields - 1, dim\]"):
        native.write(np.zeros((9, 3, 4), dtype=np.float32), np.zeros(9, dtype=np.float32), 1)
    with pytest.raises(ValueError, match="there are 9 features"):
        native.write(np.zeros((9, 2, 4), dtype=np.float32), np.zeros(9, dtype=np.float32), 1, begin=1)
    with pytest.raises(TypeError):
        native.step(batch, ones.astype(np.float64), None, adagrad(), adagrad())


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
def test_ids_out_of_range_raise_an_error_before_any_update(bad: int) -> None:
    model = Model([2, 3, 4], 4)
    ids, labels = draw([2, 3, 4], 100)
    ids[70, 1] = bad
    before = model.table.tobytes()
    with pytest.raises(IndexError, match=f"row 70 of the batch: the id of field 1 must be between 0 and 2, got {bad}"):
        model.step(ids, labels)
    assert model.table.tobytes() == before
