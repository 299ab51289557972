"""The FFM kernel with multi-valued fields, against float64 loops over all pairs of values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.helpers.batches import draw, sizes_of
from tests.helpers.field_aware import TILE, Model, assert_close, literal_steps
from tests.helpers.lists import random_rows, rows_of_values

import fm2
from fm2.data.rows import EncodedRows, Lists
from fm2.training.tables import adagrad

levels = pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
dims = pytest.mark.parametrize("dim", [1, 3, 4, 8, 21])
# The fields are in groups, whose pairs are in blocks: lists in one group, in several, everywhere.
fields = pytest.mark.parametrize(
    ("n", "lists"), [(2, [0]), (2, [0, 1]), (5, [1, 4]), (11, [2, 3, 10]), (22, [0, 12, 13]), (6, range(6))]
)


@levels
@dims
@fields
def test_scores_sum_over_all_pairs_of_values(level: str, dim: int, n: int, lists: list[int]) -> None:
    model = Model(sizes_of(n), dim)
    rows = random_rows(sizes_of(n), lists, 5)
    weights = model.weights
    expected = [weights.score(row) for row in rows_of_values(rows)]
    np.testing.assert_allclose(model.score(rows, level=level), expected, rtol=1e-5, atol=5e-5)


@levels
@dims
def test_steps_follow_the_gradient_of_the_loss(level: str, dim: int) -> None:
    """With large sums of squares n and the rate √n, Adagrad's step is the gradient itself."""
    sizes, squares = [2, 1, 3, 2, 4, 2, 2], 1e10
    model = Model(sizes, dim, squares)
    before = model.weights
    values = {2: Lists.of([[2, 0, 1]], [[0.5, -1.0, 0.25]]), 3: Lists.of([[1, 0]]), 5: Lists.of([[]])}
    rows = EncodedRows(np.zeros((1, 7), np.int32), values)
    label = np.ones(1, np.float32)
    model.step(rows, label, vectors=adagrad(squares**0.5), linear=adagrad(squares**0.5), level=level)
    after = model.weights
    (row,) = rows_of_values(rows)

    def slope(array: np.ndarray, place: tuple[int, ...]) -> float:
        losses = []
        for change in (1e-4, -2e-4):
            array[place] += change
            losses.append(before.loss(row, 1))
        array[place] += 1e-4
        return (losses[0] - losses[1]) / 2e-4

    pairs = [(before.v[pair], after.v[pair]) for pair in before.v] + list(zip(before.w, after.w, strict=True))
    for old, new in pairs:
        expected = np.array([slope(old, place) for place in np.ndindex(old.shape)]).reshape(old.shape)
        np.testing.assert_allclose(old - new, expected, atol=2e-6)


@levels
@dims
@fields
def test_a_single_row_updates_its_values_as_adagrad_does(level: str, dim: int, n: int, lists: list[int]) -> None:
    model = Model(sizes_of(n), dim, squares=0.01)
    rows = random_rows(sizes_of(n), lists, 1, seed=4)
    label, two = np.ones(1, np.float32), np.full(1, 2, np.float32)
    expected, loss = literal_steps(model, rows, label, two, (0.05, 0.1), (0.01, 0.02))
    native = model.step(rows, label, two, adagrad(0.05, l2=0.01), adagrad(0.1, l2=0.02), level=level)
    assert_close(model.weights, expected, rtol=5e-5)
    assert native == pytest.approx(loss, rel=1e-5)


@levels
@pytest.mark.parametrize("dim", [2, 4, 8])
@pytest.mark.parametrize("weighted", [True, False])
def test_many_rows_update_the_weights_tile_by_tile(level: str, dim: int, weighted: bool) -> None:
    """The fields are so small that values repeat within a list; some lists are empty."""
    sizes = [2, 1, 5, 9, 3, 4, 2, 6]
    model = Model(sizes, dim, squares=0.1)
    rows = random_rows(sizes, [0, 3, 4, 7], 2 * TILE + 9, weighted=weighted)
    _, labels = draw(sizes, len(rows))
    row_weights = np.linspace(0.5, 1.5, len(rows))
    expected, loss = literal_steps(model, rows, labels, row_weights, (0.05, 0.02), (0.001, 0.002))
    optimizers = adagrad(0.05, l2=0.001), adagrad(0.02, l2=0.002)
    native = model.step(rows, labels, row_weights.astype(np.float32), *optimizers, level=level)
    assert_close(model.weights, expected, rtol=3e-4)
    assert native == pytest.approx(loss, rel=1e-5)


@levels
@pytest.mark.parametrize("dim", [3, 4])
@pytest.mark.parametrize(("n", "lists"), [(2, [1]), (9, [0, 4, 5]), (39, [7, 20, 38])])
def test_results_do_not_depend_on_the_number_of_threads(level: str, dim: int, n: int, lists: list[int]) -> None:
    sizes = sizes_of(n)
    rows = random_rows(sizes, lists, 7 * TILE + 5)
    _, labels = draw(sizes, len(rows))

    def results() -> Iterator[tuple[bytes, ...]]:
        for threads in (1, 2, 3, 8):
            model = Model(sizes, dim)
            losses = [model.step(rows, labels, threads=threads, level=level) for _ in range(3)]
            logits = model.score(rows, threads=threads, level=level)
            yield model.table.tobytes(), model.bias.tobytes(), logits.tobytes(), np.array(losses).tobytes()

    assert len(set(results())) == 1


@levels
@pytest.mark.parametrize("dim", [4, 5])
def test_lists_of_one_value_train_like_single_values(level: str, dim: int) -> None:
    sizes = sizes_of(9)
    ids, labels = draw(sizes, 100)
    lists = {field: Lists.of([[id] for id in range(sizes[field])]) for field in (2, 3, 8)}
    models = [Model(sizes, dim), Model(sizes, dim)]
    for model, rows in zip(models, (EncodedRows(ids), EncodedRows(ids, lists)), strict=True):
        for _ in range(3):
            model.step(rows, labels, vectors=adagrad(0.1, l2=0.01), level=level)
    assert_close(models[0].weights, models[1].weights, rtol=1e-4)


def test_it_learns_from_values_that_agree() -> None:
    """The label is whether a list contains the other field's value."""
    random = np.random.default_rng(7)
    lists = [random.choice(8, size, replace=False).tolist() for size in random.integers(0, 5, 500)]
    ids = np.stack([random.integers(0, 8, 4000), random.integers(0, 500, 4000)], 1).astype(np.int32)
    labels = np.array([id in lists[number] for id, number in ids.tolist()], np.float32)
    model = Model([8, 8], 8, squares=0.1)
    rows = EncodedRows(ids, {1: Lists.of(lists)})
    losses = [model.step(rows, labels, vectors=adagrad(0.1), linear=adagrad(0.05)) for _ in range(15)]
    assert losses[-1] < 0.1 * losses[0]
