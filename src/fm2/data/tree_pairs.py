"""Select the pairs of fields whose counts and click rates trees should read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fm2.data.tree_boosting import Boosting
from fm2.data.tree_inputs import TreeRows, numbers_of, pair_inputs, part_inputs

MOST_PAIRS = 12
MOST_PARTS = 40  # that are combined: the number of pairs, and the time to rank them, grows with the square
AT_ONCE = 45  # candidates whose inputs are in memory
MOST_ROWS = 100_000  # that rank candidates
TREES = 50  # that rank candidates

PartPair = tuple[int, int]


def select_pairs(rows: TreeRows, validation: TreeRows, seed: int, threads: int) -> list[PartPair]:
    """Choose the pairs of parts with which trees have the lowest log loss on the validation rows.

    Candidates are ranked by the gain of the trees' splits on their inputs. Trees with none, one, two, four, eight and
    twelve of the best are then compared on the validation rows.
    """
    # Lists, and numbers with weighted features, have no ids.
    parts = [part for part, size in enumerate(map(len, rows.vocabularies)) if size > 2 and rows.ids[:, part].any()]
    if not len(validation.labels) or len(parts) < 2:
        return []
    some = rows.every(-(-len(rows.labels) // MOST_ROWS))
    ranked = _rank(some, list(combinations(_best_parts(some, parts, seed, threads), 2)), seed, threads)
    if not ranked:
        return []
    boosting = Boosting(rows, seed, threads)
    tables, columns = part_inputs(rows)
    pairs, pair_tables, pair_columns = pair_inputs(rows, ranked[:MOST_PAIRS])
    of_validation = numbers_of(validation, [*tables, *pair_tables], pairs)
    sizes = sorted({min(size, len(pairs)) for size in (0, 1, 2, 4, 8, MOST_PAIRS)})
    losses = []
    for size in sizes:
        inputs = len(tables) + size * len(pair_tables) // len(pairs)
        numbers, checked = (np.stack(every[:inputs], axis=1) for every in (columns + pair_columns, of_validation))
        losses.append(boosting.lowest_loss(numbers, validation, checked))
    return ranked[: sizes[int(np.argmin(losses))]]


def _best_parts(rows: TreeRows, parts: list[int], seed: int, threads: int) -> list[int]:
    """Return the parts on which trees split with the most gain, if there are too many to combine all."""
    if len(parts) <= MOST_PARTS:
        return parts
    tables, columns = part_inputs(rows)
    gains = dict.fromkeys(parts, 0.0)
    for (part, _), gain in zip(
        tables, Boosting(rows, seed, threads).gains(np.stack(columns, axis=1), TREES), strict=True
    ):
        if part in gains:
            gains[part] += float(gain)
    return sorted(sorted(parts, key=lambda part: -gains[part])[:MOST_PARTS])


def _rank(rows: TreeRows, candidates: Sequence[PartPair], seed: int, threads: int) -> list[PartPair]:
    """Sort candidates by the gain of their inputs; if there are many, the best of each group reach the final."""
    boosting = Boosting(rows, seed, threads)
    own = np.stack(part_inputs(rows)[1], axis=1)
    groups = -(-len(candidates) // AT_ONCE)
    if groups == 1:
        gains = _gains(rows, candidates, boosting, own)
        return [candidates[index] for index in np.argsort(-gains, kind="stable") if gains[index] > 0]
    finalists = []
    for group in range(groups):
        of_group = candidates[group::groups]
        gains = _gains(rows, of_group, boosting, own)
        finalists += list(zip(gains, of_group, strict=True))
    finalists.sort(key=lambda entry: -entry[0])
    return _rank(rows, [pair for _, pair in finalists[:AT_ONCE]], seed, threads)


def _gains(
    rows: TreeRows, candidates: Sequence[PartPair], boosting: Boosting, own: NDArray[np.float32]
) -> NDArray[np.float64]:
    columns = pair_inputs(rows, candidates)[2]
    of_inputs = boosting.gains(np.column_stack([own, *columns]), TREES)[own.shape[1] :]
    gains: NDArray[np.float64] = of_inputs.reshape(len(candidates), -1).sum(axis=1)
    return gains
