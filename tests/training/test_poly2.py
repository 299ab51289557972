"""The Poly2 kernel against the paper's equation 3 and the optimizers' definitions, as float64 loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.helpers.batches import draw, loaded, sizes_of
from tests.helpers.lists import rows_of_values
from tests.helpers.polynomial import RULES, TILE, Model, literal_steps

import fm2
from fm2._native import Poly2
from fm2.data.rows import EncodedRows
from fm2.training.tables import adagrad, adam, ftrl

levels = pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
fields = pytest.mark.parametrize("n", [2, 3, 7, 12])
rules = pytest.mark.parametrize("rule", RULES)


@levels
@fields
def test_scores_follow_equation_3(level: str, n: int) -> None:
    model = Model(sizes_of(n), adagrad())
    ids, _ = draw(sizes_of(n), 70)
    expected = model.literal_logits(rows_of_values(EncodedRows(ids)), model.state())
    np.testing.assert_allclose(model.score(ids, level=level), expected, atol=2e-5)


@levels
@fields
@rules
@pytest.mark.parametrize("rows", [1, 2 * TILE + 9])
def test_steps_follow_the_rules(level: str, n: int, rule: str, rows: int) -> None:
    pairs, linear, *_ = RULES[rule]
    model = Model(sizes_of(n), pairs)
    ids, labels = draw(sizes_of(n), rows)
    row_weights = np.linspace(0.5, 1.5, rows)
    expected, loss = literal_steps(model, rule, ids, labels, row_weights)
    weights = row_weights.astype(np.float32)
    native = model.native.step(loaded(ids, model.sizes), labels, weights, pairs, linear, level=level)
    assert native == pytest.approx(loss, rel=1e-5)
    for name, cells in model.state().items():
        np.testing.assert_allclose(cells, expected[name], rtol=1e-4, atol=1e-5)


@levels
@rules
def test_results_do_not_depend_on_the_number_of_threads(level: str, rule: str) -> None:
    sizes = sizes_of(9)
    pairs, linear, *_ = RULES[rule]
    ids, labels = draw(sizes, 7 * TILE + 5)

    def results() -> Iterator[tuple[bytes, ...]]:
        for threads in (1, 2, 3, 8):
            model = Model(sizes, pairs)
            batch = loaded(ids, model.sizes)
            options = {"threads": threads, "level": level}
            losses = [model.native.step(batch, labels, None, pairs, linear, **options) for _ in range(3)]
            tables = [table.tobytes() for table in model.state().values()]
            yield *tables, model.score(ids, **options).tobytes(), np.array(losses).tobytes()

    assert len(set(results())) == 1


@rules
def test_it_learns_what_linear_weights_cannot(rule: str) -> None:
    """The label is whether two fields agree, and the third is noise."""
    rng = np.random.default_rng(7)
    ids = rng.integers(0, 6, (4000, 3)).astype(np.int32)
    labels = (ids[:, 0] == ids[:, 1]).astype(np.float32)
    optimizer = {"adagrad": adagrad(0.1), "ftrl": ftrl(0.5)}[rule]
    model = Model([6, 6, 6], optimizer, bits=16)
    for cells in (model.pairs, model.linear, model.bias):
        cells[:] = 0
    batch = loaded(ids, model.sizes)
    losses = [model.native.step(batch, labels, None, optimizer, optimizer) for _ in range(15)]
    share = labels.mean()
    best_constant = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert losses[-1] < 0.1 * best_constant


def test_an_empty_batch_changes_nothing() -> None:
    model = Model([2, 3], adagrad())
    batch = loaded(np.empty((0, 2), dtype=np.int32), model.sizes)
    assert model.native.step(batch, np.empty(0, dtype=np.float32), None, adagrad(), adagrad()) == 0
    assert len(model.score(np.empty((0, 2), dtype=np.int32))) == 0


def test_invalid_arguments_raise_errors() -> None:
    sizes = np.array([2, 3, 4], dtype=np.int32)
    pairs, linear, bias = np.zeros((16, 2), np.float32), np.zeros((9, 2), np.float32), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="hash_bits"):
        Poly2(sizes, 31, pairs, linear, bias)
    with pytest.raises(ValueError, match=r"2\^hash_bits cells"):
        Poly2(sizes, 5, pairs, linear, bias)
    with pytest.raises(ValueError, match=r"one cell per feature \(9\), got 8"):
        Poly2(sizes, 4, pairs, linear[1:], bias)
    with pytest.raises(ValueError, match="the same number of floats"):
        Poly2(sizes, 4, pairs, linear, bias[1:])
    native, batch = Poly2(sizes, 4, pairs, linear, bias), loaded(np.zeros((3, 3), dtype=np.int32), sizes)
    ones = np.ones(3, dtype=np.float32)
    with pytest.raises(ValueError, match="labels must have 3 entries, got 2"):
        native.step(batch, ones[1:], None, adagrad(), adagrad())
    with pytest.raises(ValueError, match="adagrad or ftrl"):
        native.step(batch, ones, None, adam(), adam())
    with pytest.raises(ValueError, match="adagrad or ftrl"):
        native.step(batch, ones, None, adagrad(), ftrl())
    with pytest.raises(ValueError, match="cells of 4 floats"):
        native.step(batch, ones, None, ftrl(), ftrl())
    with pytest.raises(ValueError, match="logits must have 3 entries, got 2"):
        native.score(batch, ones[1:].copy())
    with pytest.raises(ValueError, match="different field sizes"):
        native.score(loaded(np.zeros((3, 2), dtype=np.int32), sizes[:2].copy()), ones)


@levels
@rules
def test_without_pairs_it_is_logistic_regression(level: str, rule: str) -> None:
    """Rows are scored 256 at a time; every occurrence of a feature moves its weight."""
    pairs_rule, linear_rule, move, l1 = RULES[rule]
    sizes, tile = [3, 7, 20, 2, 5, 9, 4, 3, 6, 11], 256  # three groups of fields, for as many threads
    ids, labels = draw(sizes, 2 * tile + 30)
    weights = np.random.default_rng(5).choice(np.array([0, 0.5, 1, 2], np.float32), len(ids))
    whole, cell = np.array(sizes, dtype=np.int32), Poly2.cell(pairs_rule)
    linear, bias = np.full((sum(sizes), cell), 0.1, np.float32), np.full(cell, 0.1, np.float32)
    expected = {"linear": linear.astype(np.float64), "bias": bias.astype(np.float64)}
    loss = 0.0
    for begin in range(0, len(ids), tile):
        some = slice(begin, begin + tile)
        features = ids[some] + np.cumsum([0, *sizes[:-1]])
        logits = expected["bias"][0] + expected["linear"][features, 0].sum(axis=1)
        loss += (weights[some] * (np.logaddexp(0, logits) - labels[some] * logits)).sum()
        for row, label, weight, logit in zip(features, labels[some], weights[some], logits, strict=True):
            slope = weight * (1 / (1 + np.exp(-logit)) - label)
            for feature in row:
                move(expected["linear"][feature], slope, 0.1, l1, 0.02)
            move(expected["bias"], slope, 0.1, 0.0, 0.0)
    found = []
    for threads in (1, 2, 3, 8):
        moved, moved_bias = linear.copy(), bias.copy()
        native = Poly2(whole, 0, np.empty((0, cell), np.float32), moved, moved_bias)
        told = native.step(loaded(ids, whole), labels, weights, pairs_rule, linear_rule, threads, level)
        assert told == pytest.approx(loss / weights.sum(), rel=1e-4)
        found.append(moved.tobytes() + moved_bias.tobytes())
    np.testing.assert_allclose(moved[:, :-1], expected["linear"][:, :-1], rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(moved_bias[:-1], expected["bias"][:-1], rtol=2e-3, atol=1e-5)
    assert len(set(found)) == 1
