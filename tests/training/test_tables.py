"""Embedding tables: gathers, updates, averages and dropout against their definitions in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.helpers.tables import (
    SIZES,
    copy_of,
    draw_ids,
    loaded,
    look_up,
    make_table,
    normal,
    rng,
    rows_of_field,
    summed,
)

import fm2
from fm2 import _native
from fm2._native import Dropout, Optimizer, update
from fm2.training.tables import (
    EmbeddingTable,
    adagrad,
    adam,
    fm_logits,
    ftrl,
    linear_logits,
    minibatch,
)

DIMS = [[1] * 4, [4] * 4, [16] * 4, [3, 1, 8, 17], [2, 5, 16, 40]]
LEVELS = fm2.cpu_info()["levels"]
levels = pytest.mark.parametrize("level", LEVELS)
dimensions = pytest.mark.parametrize("dims", DIMS, ids=str)


@levels
@dimensions
@pytest.mark.parametrize("rows", [0, 1, 17, 300])
def test_gather_concatenates_the_weights_of_all_features(level: str, dims: list[int], rows: int) -> None:
    table, ids = make_table(dims, adagrad()), draw_ids(500)
    batch = minibatch(SIZES)
    for order in (rng.permutation(500)[:rows], rng.integers(0, 500, rows, dtype=np.int32), np.full(rows, 7)):
        batch.load(ids, order=order)
        out = np.empty((rows, table.width), dtype=np.float32)
        _native.gather(table.native, batch, out, level=level)
        assert np.array_equal(out, look_up(table, ids[order]))
    batch.load(ids[3:70])
    assert np.array_equal(table.gather(batch), look_up(table, ids[3:70]))


def test_a_batch_loads_from_a_memory_mapped_file(tmp_path: Path) -> None:
    ids = draw_ids(50)
    np.save(tmp_path / "ids.npy", ids)
    table, batch = make_table([3, 1, 8, 17], adagrad()), minibatch(SIZES)
    batch.load(np.load(tmp_path / "ids.npy", mmap_mode="r"), order=np.array([4, 4, 49]))
    assert len(batch) == 3
    assert np.array_equal(table.gather(batch), look_up(table, ids[[4, 4, 49]]))


@levels
@dimensions
@pytest.mark.parametrize("rule", ["adagrad", "adam"])
def test_adagrad_and_adam_match_torch(level: str, dims: list[int], rule: str) -> None:
    table = make_table(dims, adagrad(0.1) if rule == "adagrad" else adam(0.01))
    fields = [torch.nn.Parameter(torch.tensor(rows_of_field(table, f), dtype=torch.float64)) for f in range(4)]
    reference = torch.optim.Adagrad(fields, lr=0.1) if rule == "adagrad" else torch.optim.SparseAdam(fields, lr=0.01)
    batch = minibatch(SIZES)
    for step, rows in enumerate([1, 250, 64, 250], start=1):
        ids, gradient = draw_ids(rows), normal(rows, table.width)
        for f, parameter in enumerate(fields):
            part = gradient[:, table.starts[f] : table.starts[f] + table.dims[f]].astype(np.float64)
            index = torch.tensor(ids[:, f], dtype=torch.int64)[None]
            parameter.grad = torch.sparse_coo_tensor(index, torch.tensor(part), parameter.shape, check_invariants=True)
        with torch.sparse.check_sparse_tensor_invariants():
            reference.step()
        batch.load(ids)
        _native.update(batch, [table.update_by_rows(gradient)], step, level=level)
    for f, parameter in enumerate(fields):
        np.testing.assert_allclose(rows_of_field(table, f), parameter.detach().numpy(), rtol=1e-4, atol=2e-5)


def ftrl_reference(weights: np.ndarray, z: np.ndarray, n: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Follow McMahan et al. 2013, algorithm 1, with alpha 0.3, beta 0.5, lambda1 0.2, lambda2 0.7."""
    for k in range(len(g)):
        sigma = (np.sqrt(n[k] + g[k] ** 2) - np.sqrt(n[k])) / 0.3
        z[k] += g[k] - sigma * weights[k]
        n[k] += g[k] ** 2
        if abs(z[k]) <= 0.2:
            weights[k] = 0
        else:
            weights[k] = -(z[k] - np.sign(z[k]) * 0.2) / ((0.5 + np.sqrt(n[k])) / 0.3 + 0.7)
    return weights


@levels
@dimensions
def test_ftrl_follows_its_algorithm(level: str, dims: list[int]) -> None:
    table = EmbeddingTable(SIZES, dims, ftrl(0.3, beta=0.5, l1=0.2, l2=0.7))
    expected = {(f, id): np.zeros((3, dims[f])) for f in range(4) for id in range(SIZES[f])}
    batch = minibatch(SIZES)
    for step in range(1, 5):
        ids, gradient = draw_ids(120), normal(120, table.width) / 3
        for feature, g in summed(table, ids, gradient).items():
            ftrl_reference(*expected[feature], g)
        batch.load(ids)
        _native.update(batch, [table.update_by_rows(gradient)], step, level=level)
    for (f, id), (weights, z, n) in expected.items():
        np.testing.assert_allclose(rows_of_field(table, f)[id], weights, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows_of_field(table, f, table.state[0])[id], z, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows_of_field(table, f, table.state[1])[id], n, rtol=1e-4, atol=1e-5)
    assert (table.weights == 0).any()


@levels
@dimensions
def test_l2_applies_to_touched_rows_once_per_batch(level: str, dims: list[int]) -> None:
    scale = rng.random(sum(SIZES)).astype(np.float32)
    table = make_table(dims, adagrad(0.1, l2=0.3), l2_scale=scale)
    before = copy_of(table)
    ids, gradient = draw_ids(90), normal(90, table.width)
    _native.update(loaded(ids), [table.update_by_rows(gradient)], 1, level=level)
    sums = summed(table, ids, gradient)
    first = np.cumsum([0, *SIZES])
    for f in range(4):
        for id, (new, old) in enumerate(zip(rows_of_field(table, f), rows_of_field(before, f), strict=True)):
            if (f, id) not in sums:
                assert np.array_equal(new, old)
                continue
            g = sums[f, id] + 0.3 * scale[first[f] + id] * old
            np.testing.assert_allclose(new, old - 0.1 * g / np.sqrt(g**2), rtol=1e-5, atol=1e-5)


@levels
def test_ftrls_l2_is_scaled_per_feature(level: str) -> None:
    scale = rng.random(sum(SIZES)).astype(np.float32)
    table = EmbeddingTable(SIZES, 1, ftrl(0.3, beta=0.5, l2=0.7), l2_scale=scale)
    slopes = normal(60)
    ids = draw_ids(60)
    _native.update(loaded(ids), [table.update_by_logits(slopes)], 1, level=level)
    first = np.cumsum([0, *SIZES])
    for (f, id), g in summed(table, ids, np.repeat(slopes[:, None], 4, axis=1)).items():
        expected = -g / ((0.5 + abs(g)) / 0.3 + 0.7 * scale[first[f] + id])
        np.testing.assert_allclose(rows_of_field(table, f)[id], expected, rtol=1e-4)


@levels
@dimensions
def test_the_average_is_that_of_all_steps(level: str, dims: list[int]) -> None:
    table = make_table(dims, adagrad(0.2), decay=0.9)
    average = np.zeros(len(table.weights))
    batch = minibatch(SIZES)
    for step in range(1, 40):
        ids = draw_ids(3)
        batch.load(ids)
        _native.update(batch, [table.update_by_rows(normal(3, table.width))], step, level=level)
        average = 0.9 * average + 0.1 * table.weights
        if step in (20, 39):
            _native.finish_average(table.native, step, level=level)
            np.testing.assert_allclose(table.average, average, rtol=1e-4, atol=1e-5)


def test_averaging_does_not_change_the_weights() -> None:
    averaged = make_table([3, 1, 8, 17], adam(), decay=0.99)
    plain = copy_of(averaged)
    batch = loaded(draw_ids(100))
    for step in range(1, 4):
        gradient = normal(100, plain.width)
        update(batch, [averaged.update_by_rows(gradient), plain.update_by_rows(gradient)], step)
    assert np.array_equal(averaged.weights, plain.weights)


def mask_of(table: EmbeddingTable, batch: fm2._native.Minibatch, dropout: Dropout, step: int, level: str) -> np.ndarray:
    """Find the mask by gathering ones."""
    ones = EmbeddingTable(table.sizes, table.dims, adagrad(), weights=1)
    out = np.empty((len(batch), table.width), dtype=np.float32)
    _native.gather(ones.native, batch, out, dropout, step, level=level)
    return out


@levels
@dimensions
def test_dropout_masks_gathered_values_and_their_gradient(level: str, dims: list[int]) -> None:
    dropout, ids = Dropout(element=0.4, field=0.2, seed=3), draw_ids(200)
    table, batch = make_table(dims, adagrad(0.1)), loaded(ids)
    mask = mask_of(table, batch, dropout, 7, level)
    assert set(np.unique(mask).tolist()) == {0.0, float(np.float32(1 / (0.6 * 0.8)))}
    assert np.array_equal(mask, mask_of(table, batch, dropout, 7, LEVELS[0]))
    assert not np.array_equal(mask, mask_of(table, batch, dropout, 8, level))
    assert not np.array_equal(mask, mask_of(table, batch, Dropout(0.4, 0.2, seed=4), 7, level))
    part = np.array([3, 4, 50, 199], np.uint32)  # of the same rows, as a worker has them
    dropout.set_rows(part)
    with pytest.raises(ValueError, match="dropout: expected the numbers of 200 rows, got 4"):
        mask_of(table, batch, dropout, 7, level)
    batch.load(ids[part])
    assert np.array_equal(mask[part], mask_of(table, batch, dropout, 7, level))
    batch.load(ids)
    dropout = Dropout(element=0.4, field=0.2, seed=3)

    out = np.empty_like(mask)
    _native.gather(table.native, batch, out, dropout, 7, level=level)
    assert np.array_equal(out, look_up(table, ids) * mask)
    gradient, plain = normal(*mask.shape), copy_of(table)
    _native.update(batch, [table.update_by_rows(gradient, dropout)], 7, level=level)
    _native.update(batch, [plain.update_by_rows(gradient * mask)], 7, level=level)
    np.testing.assert_allclose(table.weights, plain.weights, rtol=1e-4, atol=1e-5)

    slopes = normal(200)
    _native.update(batch, [table.update_by_rows(gradient, dropout, slopes)], 7, level=level)
    _native.update(batch, [plain.update_by_rows(gradient * mask * slopes[:, None])], 7, level=level)
    np.testing.assert_allclose(table.weights, plain.weights, rtol=1e-4, atol=1e-5)


def test_dropout_has_the_right_rate_and_is_independent() -> None:
    sizes = [2] * 30
    table, batch = EmbeddingTable(sizes, 8, adagrad()), loaded(np.zeros((4000, 30), dtype=np.int32), sizes)
    kept = mask_of(table, batch, Dropout(element=0.3), 1, "generic").reshape(4000, 30, 8) > 0
    assert kept.mean() == pytest.approx(0.7, abs=0.002)
    assert np.abs(kept.mean(axis=0) - 0.7).max() < 0.04
    assert np.abs(kept.mean(axis=(1, 2)) - 0.7).max() < 0.15
    both = (kept[:, :, 1:] & kept[:, :, :-1]).mean(), (kept[1:] & kept[:-1]).mean()
    assert both == pytest.approx((0.49, 0.49), abs=0.003)
    fields = mask_of(table, batch, Dropout(field=0.25), 1, "generic").reshape(4000, 30, 8) > 0
    assert (fields.all(axis=2) | ~fields.any(axis=2)).all()
    assert fields.mean() == pytest.approx(0.75, abs=0.005)


@levels
@pytest.mark.parametrize("rows", [1, 16, 333])
def test_a_linear_models_logits_and_step(level: str, rows: int) -> None:
    table, ids = make_table([1] * 4, adagrad(0.1)), draw_ids(rows)
    batch, logits, slopes = loaded(ids), np.empty(rows, dtype=np.float32), normal(rows)
    _native.linear_logits(table.native, batch, logits, level=level)
    np.testing.assert_allclose(logits, look_up(table, ids).sum(axis=1, dtype=np.float64), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits, linear_logits(table, batch), rtol=1e-4, atol=1e-5)
    other = copy_of(table)
    _native.update(batch, [table.update_by_logits(slopes)], 1, level=level)
    update(batch, [other.update_by_rows(np.repeat(slopes[:, None], 4, axis=1))], 1)
    np.testing.assert_allclose(table.weights, other.weights, rtol=1e-5, atol=1e-6)


@levels
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 8, 10, 16, 20, 33])
@pytest.mark.parametrize("n_fields", [1, 4, 7])
@pytest.mark.parametrize("signed", [False, True])
def test_a_factorization_machines_logits_and_step(level: str, dim: int, n_fields: int, signed: bool) -> None:
    sizes = [*SIZES, 9, 9, 9][:n_fields]
    linear, factors = make_table([1] * n_fields, adagrad(0.1), sizes), make_table([dim] * n_fields, adagrad(0.1), sizes)
    ids, slopes = draw_ids(40, sizes), normal(40)
    batch, logits = loaded(ids, sizes), np.empty(40, dtype=np.float32)
    sums = np.empty((40, dim), dtype=np.float32)
    signs = np.where(np.arange(dim) % 3 == 1, -1, 1).astype(np.float32) if signed else None
    _native.fm_logits(linear.native, factors.native, batch, sums, logits, signs, level=level)

    v = look_up(factors, ids).astype(np.float64).reshape(40, n_fields, dim)
    s = np.ones(dim) if signs is None else signs
    pairs = [sum((row[i] * s) @ row[j] for i, j in combinations(range(n_fields), 2)) for row in v]
    np.testing.assert_allclose(logits, look_up(linear, ids).sum(1) + pairs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums, s * v.sum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fm_logits(None, factors, batch, signs=signs)[0], pairs, rtol=1e-4, atol=1e-4)

    others = np.array([[np.delete(row, i, axis=0).sum(axis=0) for i in range(n_fields)] for row in v])
    by_rows = (slopes[:, None, None] * s * others).astype(np.float32).reshape(40, -1)
    other, other_linear = copy_of(factors), copy_of(linear)
    _native.update(
        batch, [linear.update_by_logits(slopes), factors.update_by_sums(slopes, sums, signs)], 1, level=level
    )
    update(batch, [other.update_by_rows(by_rows), other_linear.update_by_logits(slopes)], 1)
    np.testing.assert_allclose(factors.state[0], other.state[0], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(linear.weights, other_linear.weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", [adagrad, adam, ftrl])
def test_results_do_not_depend_on_the_number_of_threads(rule: Callable[..., Optimizer]) -> None:
    optimizer = rule(l2=0.01)
    dropout, ids, order = Dropout(0.5, 0.1, seed=1), draw_ids(3000), rng.permutation(3000)
    start = normal(np.dot(SIZES, [3, 1, 8, 17])), normal(sum(SIZES)), normal(16 * sum(SIZES))
    gradient, slopes = normal(1000, 29), normal(1000)
    outcomes = []
    for threads in (1, 2, 3):
        mixed = EmbeddingTable(SIZES, [3, 1, 8, 17], optimizer, weights=start[0], decay=0.9)
        linear, factors = (
            EmbeddingTable(SIZES, 1, optimizer, weights=start[1]),
            EmbeddingTable(SIZES, 16, optimizer, weights=start[2]),
        )
        batch, seen = minibatch(SIZES), []
        for step in range(1, 4):
            batch.load(ids, [], order[1000 * (step - 1) : 1000 * step], threads)
            seen.append(mixed.gather(batch, dropout=dropout, step=step, threads=threads))
            logits, sums = fm_logits(linear, factors, batch, threads)
            seen += [logits, sums]
            updates = [
                mixed.update_by_rows(gradient, dropout),
                linear.update_by_logits(slopes),
                factors.update_by_sums(slopes, sums),
            ]
            update(batch, updates, step, threads)
        seen += [mixed.finish_average(3, threads), mixed.weights, linear.weights, factors.weights, *factors.state]
        outcomes.append(b"".join(array.tobytes() for array in seen))
    assert outcomes[0] == outcomes[1] == outcomes[2]
