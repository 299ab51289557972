"""The Poly2 kernel, and LR, with multi-valued fields, against float64 loops over all pairs of values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.helpers.batches import draw, loaded, sizes_of
from tests.helpers.lists import random_rows, rows_of_values
from tests.helpers.polynomial import BITS, LINEAR_TILE, RULES, TILE, Model, literal_steps

import fm2
from fm2.data.rows import EncodedRows, Lists
from fm2.training.tables import adagrad

levels = pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
rules = pytest.mark.parametrize("rule", RULES)
models = pytest.mark.parametrize("bits", [0, BITS], ids=["lr", "poly2"])
fields = pytest.mark.parametrize(("n", "lists"), [(1, [0]), (2, [0, 1]), (7, [2]), (12, [0, 5, 6, 11]), (4, range(4))])


@levels
@models
@fields
@pytest.mark.parametrize("weighted", [True, False])
def test_scores_sum_over_values_and_pairs(level: str, bits: int, n: int, lists: list[int], weighted: bool) -> None:
    model = Model(sizes_of(n), adagrad(), bits)
    rows = random_rows(sizes_of(n), lists, 70, weighted=weighted)
    expected = model.literal_logits(rows_of_values(rows), model.state())
    np.testing.assert_allclose(model.score(rows, level=level), expected, rtol=1e-5, atol=1e-4)


@levels
@models
@fields
@rules
@pytest.mark.parametrize("tiles", [0, 2])
def test_steps_follow_the_rules(level: str, bits: int, n: int, lists: list[int], rule: str, tiles: int) -> None:
    """The fields are so small that values repeat within a list; some lists are empty."""
    pairs, linear, *_ = RULES[rule]
    model = Model(sizes_of(n), pairs, bits)
    rows = random_rows(sizes_of(n), lists, tiles * (TILE if bits else LINEAR_TILE) + 9)
    _, labels = draw(sizes_of(n), len(rows))
    row_weights = np.linspace(0.5, 1.5, len(rows))
    expected, loss = literal_steps(model, rule, rows, labels, row_weights)
    weights = row_weights.astype(np.float32)
    native = model.native.step(loaded(rows, model.sizes), labels, weights, pairs, linear, level=level)
    assert native == pytest.approx(loss, rel=2e-5)
    for name, cells in model.state().items():
        np.testing.assert_allclose(cells[:, :3], expected[name][:, :3], rtol=5e-4, atol=2e-5)


@levels
@models
@rules
def test_results_do_not_depend_on_the_number_of_threads(level: str, bits: int, rule: str) -> None:
    sizes = sizes_of(9)
    pairs, linear, *_ = RULES[rule]
    rows = random_rows(sizes, [1, 3, 8], 3 * LINEAR_TILE + 5)
    _, labels = draw(sizes, len(rows))

    def results() -> Iterator[tuple[bytes, ...]]:
        for threads in (1, 2, 3, 8):
            model = Model(sizes, pairs, bits)
            batch = loaded(rows, model.sizes)
            options = {"threads": threads, "level": level}
            losses = [model.native.step(batch, labels, None, pairs, linear, **options) for _ in range(3)]
            tables = [table.tobytes() for table in model.state().values()]
            yield *tables, model.score(rows, **options).tobytes(), np.array(losses).tobytes()

    assert len(set(results())) == 1


@levels
@models
@rules
def test_lists_of_one_value_train_like_single_values(level: str, bits: int, rule: str) -> None:
    sizes = sizes_of(9)
    ids, labels = draw(sizes, 600)
    pairs, linear, *_ = RULES[rule]
    lists = {field: Lists.of([[id] for id in range(sizes[field])]) for field in (2, 3, 8)}
    found = []
    for rows in (EncodedRows(ids), EncodedRows(ids, lists)):
        model = Model(sizes, pairs, bits)
        model.native.step(loaded(rows, model.sizes), labels, None, pairs, linear, level=level)
        found.append(model.state())
    for name, cells in found[0].items():
        np.testing.assert_allclose(found[1][name], cells, rtol=1e-4, atol=1e-5)


def test_rows_with_too_many_pairs_raise_an_error() -> None:
    model = Model([3, 3], adagrad())
    long = Lists.of([[1], [2] * 3000])
    rows = EncodedRows(np.array([[0, 0], [0, 0], [1, 1]], np.int32), {0: long, 1: long})
    message = "row 2 of the batch has 9000000 pairs of values; the limit is 4194304, and max_values in the schema"
    before = model.pairs.tobytes()
    with pytest.raises(ValueError, match=message):
        model.score(rows)
    with pytest.raises(ValueError, match=message):
        model.native.step(loaded(rows, model.sizes), np.ones(3, np.float32), None, adagrad(), adagrad())
    assert model.pairs.tobytes() == before
    assert np.isfinite(Model([3, 3], adagrad(), bits=0).score(rows)).all()
