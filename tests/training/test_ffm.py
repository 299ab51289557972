"""The FFM kernel against the paper's equation 5 and the definition of Adagrad, as float64 loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from tests.helpers.batches import draw, loaded, sizes_of

import fm2
from fm2._native import Ffm, FfmLayout
from fm2.training.tables import Optimizer, adagrad, adam, aligned_zeros

levels = pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
dims = pytest.mark.parametrize("dim", [1, 3, 4, 8, 16, 21])
fields = pytest.mark.parametrize("n", [2, 3, 5, 11, 22, 39])
TILE = 32  # rows that are scored before the first of them moves a weight


@dataclass
class Weights:
    """A model as the equation has it: v[i, j] are the vectors [size, dim] of field i's features for field j."""

    v: dict[tuple[int, int], np.ndarray]
    w: list[np.ndarray]
    bias: float

    def score(self, row: np.ndarray) -> float:
        """Follow equation 5."""
        result = self.bias
        for i, feature in enumerate(row):
            result += self.w[i][feature]
        for i, j in combinations(range(len(row)), 2):
            for k in range(self.v[i, j].shape[1]):
                result += self.v[i, j][row[i], k] * self.v[j, i][row[j], k]
        return float(result)

    def loss(self, row: np.ndarray, label: float) -> float:
        return float(np.logaddexp(0, self.score(row)) - label * self.score(row))


class Model:
    """The native model, and its weights in float64."""

    def __init__(self, sizes: list[int], dim: int, squares: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.sizes, self.dim = np.array(sizes, dtype=np.int32), dim
        self.layout = FfmLayout(self.sizes, dim)
        self.table, self.bias = aligned_zeros(self.layout.floats), np.array([0.25, squares], dtype=np.float32)
        self.native = Ffm(self.layout, self.table, self.bias)
        shape = (int(self.sizes.sum()), len(sizes) - 1, dim)
        vectors = rng.normal(0, dim**-0.5 / len(sizes) ** 0.5, shape).astype(np.float32)
        self.native.write(vectors, rng.normal(0, 0.3, shape[0]).astype(np.float32), squares)

    @property
    def weights(self) -> Weights:
        m, n = int(self.sizes.sum()), len(self.sizes)
        vectors, linear = np.empty((m, n - 1, self.dim), dtype=np.float32), np.empty(m, dtype=np.float32)
        self.native.read(vectors, linear)
        first = np.cumsum(self.sizes) - self.sizes
        v, w = {}, []
        for i in range(n):
            own = slice(first[i], first[i] + self.sizes[i])
            w.append(linear[own].astype(np.float64))
            for place, j in enumerate(j for j in range(n) if j != i):
                v[i, j] = vectors[own, place].astype(np.float64)
        return Weights(v, w, float(self.bias[0]))

    def score(self, ids: np.ndarray, **options: object) -> np.ndarray:
        logits = np.empty(len(ids), dtype=np.float32)
        self.native.score(loaded(ids, self.sizes), logits, **options)
        return logits

    def step(
        self,
        ids: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray | None = None,
        vectors: Optimizer | None = None,
        linear: Optimizer | None = None,
        **options: object,
    ) -> float:
        vectors, linear = vectors or adagrad(0.1), linear or adagrad(0.1)
        return self.native.step(loaded(ids, self.sizes), labels, weights, vectors, linear, **options)


def assert_close(native: Weights, literal: Weights, rtol: float = 2e-5) -> None:
    np.testing.assert_allclose(native.bias, literal.bias, rtol=rtol)
    for ours, theirs in zip(native.w, literal.w, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)
    for pair, vectors in literal.v.items():
        np.testing.assert_allclose(native.v[pair], vectors, rtol=rtol, atol=1e-6)


@levels
@dims
@fields
def test_scores_follow_equation_5(level: str, dim: int, n: int) -> None:
    model = Model(sizes_of(n), dim)
    ids, _ = draw(sizes_of(n), 5)
    weights = model.weights
    np.testing.assert_allclose(model.score(ids, level=level), [weights.score(row) for row in ids], atol=2e-5)


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

    def slope(array: np.ndarray, place: tuple[int, ...]) -> float:
        losses = []
        for change in (1e-4, -2e-4):
            array[place] += change
            losses.append(before.loss(ids[0], labels[0]))
        array[place] += 1e-4
        return (losses[0] - losses[1]) / 2e-4

    pairs = [(before.v[pair], after.v[pair]) for pair in before.v] + list(zip(before.w, after.w, strict=True))
    for old, new in pairs:
        moved = old - new
        expected = np.array([slope(old, place) for place in np.ndindex(old.shape)]).reshape(old.shape)
        np.testing.assert_allclose(moved, expected, atol=2e-6)


def literal_steps(
    model: Model,
    ids: np.ndarray,
    labels: np.ndarray,
    row_weights: np.ndarray,
    rates: tuple[float, float],
    l2: tuple[float, float],
) -> tuple[Weights, float]:
    """Train a copy of the weights, a tile at a time, with sums of squares that begin as the model's do."""
    now, start = model.weights, float(model.bias[1])
    v_squares = {pair: np.full(len(vectors), start) for pair, vectors in now.v.items()}
    w_squares, bias_squares, losses = [np.full(len(w), start) for w in now.w], start, 0.0
    for begin in range(0, len(ids), TILE):
        tile = slice(begin, begin + TILE)
        logits = [now.score(row) for row in ids[tile]]
        for row, label, weight, logit in zip(ids[tile], labels[tile], row_weights[tile], logits, strict=True):
            slope = weight * (1 / (1 + np.exp(-logit)) - label)
            losses += weight * (np.logaddexp(0, logit) - label * logit)
            bias_squares += slope**2
            now.bias -= rates[1] * slope / bias_squares**0.5
            for i, f in enumerate(row):
                g = slope + l2[1] * now.w[i][f]
                w_squares[i][f] += g**2
                now.w[i][f] -= rates[1] * g / w_squares[i][f] ** 0.5
            for i, j in combinations(range(len(row)), 2):
                x, y = now.v[i, j][row[i]].copy(), now.v[j, i][row[j]].copy()
                for pair, f, own, other in (((i, j), row[i], x, y), ((j, i), row[j], y, x)):
                    g = slope * other + l2[0] * own
                    v_squares[pair][f] += (g**2).mean()
                    now.v[pair][f] -= rates[0] * g / v_squares[pair][f] ** 0.5
    return now, losses / row_weights.sum()


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
