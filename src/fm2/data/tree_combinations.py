"""Select the combinations of fields whose counts and click rates trees should read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from fm2.data.tree_boosting import Boosting, TreeProgress, is_lower
from fm2.data.tree_inputs import Parts, TreeRows, add_combinations, combine, numbers_of, part_inputs

MOST_CHOSEN = 12  # in each round
COMPARED = (1, 2, 4, 8, MOST_CHOSEN)
# Pairs, triples, and combinations of four fields, as in CatBoost. If rows share a date, an hour and a place, as flights
# do, pairs are not enough: with triples, FmFM with trees on such a log had a test log loss of .430 instead of .444.
LARGEST = 4
LEAST_KNOWN = 0.5  # of the share of training rows that have known features
MOST_SAME = 0.99  # of the rows of a combination whose feature is determined by fewer parts
MOST_EXTENDED = 4  # combinations that the next round extends by each part
MOST_PARTS = 40  # that are combined: the number of pairs, and the time to rank them, grows with the square
AT_ONCE = 45  # candidates whose inputs are in memory
MOST_ROWS = 100_000  # that rank candidates
TREES = 50  # that rank candidates
SELECTION_PERCENT = 50  # of the time to fit trees, on most logs

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


def select_combinations(
    rows: TreeRows, validation: TreeRows, seed: int, threads: int, progress: TreeProgress | None = None
) -> list[Parts]:
    """Choose the combinations of parts with which trees have the lowest log loss on the validation rows.

    Candidates are ranked by the gain of the trees' splits on their inputs. Those whose features are new in most of the
    validation rows, or are determined by fewer parts, are left out. Trees with none, one, two, four, eight and twelve
    of the best are then compared on the validation rows; some must be better than none by more than chance. The first
    candidates are pairs; if some of them are chosen, the best ones are extended by a third part, and so on.
    """
    # Lists, and numbers with weighted features, have no ids.
    parts = [part for part, size in enumerate(map(len, rows.vocabularies)) if size > 2 and rows.ids[:, part].any()]
    if not len(validation.labels) or len(parts) < 2:
        return []
    progress = progress or TreeProgress()
    parts = _best_parts(rows.every(_step(rows)), parts, seed, threads, progress)
    trees = _Trees(rows, validation, seed, threads, progress)
    candidates = list[Parts](combinations(parts, 2))
    while candidates:
        size, groups = len(candidates[0]), -(-len(candidates) // AT_ONCE)
        start, end = (SELECTION_PERCENT * (size - first) / (LARGEST - 1) for first in (2, 1))
        progress.begin(start, end, groups + (groups > 1) + len(COMPARED))
        ranked = list(islice(filter(trees.can_judge, trees.rank(candidates)), MOST_CHOSEN))
        added = trees.add_best(ranked)
        is_last = not added or size == LARGEST
        candidates = [] if is_last else extensions(ranked[:MOST_EXTENDED], parts)
    return trees.chosen


def extensions(extended: Sequence[Parts], parts: Sequence[int]) -> list[Parts]:
    """Return combinations with one part more, each once.

    >>> extensions([(0, 2), (0, 1)], range(4))
    [(0, 2, 1), (0, 2, 3), (0, 1, 3)]
    """
    found: dict[frozenset[int], Parts] = {}
    for known in extended:
        for part in parts:
            if part not in known:
                found.setdefault(frozenset({*known, part}), (*known, part))
    return list(found.values())


def _step(rows: TreeRows) -> int:
    return -(-len(rows.labels) // MOST_ROWS)


def _best_parts(rows: TreeRows, parts: list[int], seed: int, threads: int, progress: TreeProgress) -> list[int]:
    """Return the parts on which trees split with the most gain, if there are too many to combine all."""
    if len(parts) <= MOST_PARTS:
        return parts
    tables, columns = part_inputs(rows)
    gains = dict.fromkeys(parts, 0.0)
    of_inputs = Boosting(rows, seed, threads, progress).gains(np.stack(columns, axis=1), TREES)
    for (part, _), gain in zip(tables, of_inputs, strict=True):
        if part in gains:
            gains[part] += float(gain)
    return sorted(sorted(parts, key=lambda part: -gains[part])[:MOST_PARTS])


class _Trees:
    """Trees on the inputs of the parts and of the combinations that were chosen so far."""

    def __init__(self, rows: TreeRows, validation: TreeRows, seed: int, threads: int, progress: TreeProgress) -> None:
        self.chosen: list[Parts] = []
        self._rows, self._validation = rows, validation
        tables, self._columns = part_inputs(rows)
        self._of_validation = numbers_of(validation, tables)
        self._boosting = Boosting(rows, seed, threads, progress)
        self._losses = self._losses_with([], [])
        self._sample = self._judged = rows.every(_step(rows))  # the latter with all combinations that were judged
        self._checked = validation
        self._boosting_of_sample = Boosting(self._sample, seed, threads, progress)

    def rank(self, candidates: Sequence[Parts]) -> list[Parts]:
        """Sort candidates by the gain of their inputs; if there are many, the best of each group reach the final."""
        rows, _, of_chosen = add_combinations(self._sample, self.chosen)
        return self._rank(rows, [*part_inputs(rows)[1], *of_chosen], candidates)

    def _rank(self, rows: TreeRows, own: list[Floats], candidates: Sequence[Parts]) -> list[Parts]:
        groups = -(-len(candidates) // AT_ONCE)
        if groups == 1:
            gains = self._gains(rows, own, candidates)
            return [candidates[index] for index in np.argsort(-gains, kind="stable") if gains[index] > 0]
        finalists = []
        for group in range(groups):
            of_group = candidates[group::groups]
            gains = self._gains(rows, own, of_group)
            finalists += list(zip(gains, of_group, strict=True))
        finalists.sort(key=lambda entry: -entry[0])
        return self._rank(rows, own, [parts for _, parts in finalists[:AT_ONCE]])

    def _gains(self, rows: TreeRows, own: list[Floats], candidates: Sequence[Parts]) -> NDArray[np.float64]:
        columns = add_combinations(rows, candidates)[2]
        of_inputs = self._boosting_of_sample.gains(np.stack([*own, *columns], axis=1), TREES)[len(own) :]
        gains: NDArray[np.float64] = of_inputs.reshape(len(candidates), -1).sum(axis=1)
        return gains

    def can_judge(self, parts: Parts) -> bool:
        """Return whether the validation rows can tell what a combination is worth.

        They must have known features of it about as often as training rows do. (A feature that only one training row
        has would be new in this row.) If they have other users than training and test rows, as on the log of movies,
        they cannot judge a combination with users: trees with triples of them lowered the validation log loss of FmFM
        from .5288 to .5254, but raised that of the test rows from .5514 to .5566. And no part may be determined by the
        others, as a brand is by an item: the combination would then have the features of a smaller one.
        """
        ids = self._ids_of(parts)
        known = np.flatnonzero(ids)
        if any(
            is_determined(ids[known], self._ids_of(parts[:at] + parts[at + 1 :])[known]) for at in range(len(parts))
        ):
            return False
        in_training = np.mean((np.bincount(ids)[ids] > 1) & (ids > 0))
        number = self._judged.number_of(parts)
        return number is not None and bool(np.mean(self._checked.ids_of(number) > 0) >= LEAST_KNOWN * in_training)

    def _ids_of(self, parts: Parts) -> Ints:
        """Return the feature of a combination in each row of the sample, and remember it."""
        before = len(self._judged.pairs)
        self._judged, number = combine(self._judged, parts)
        for pair in self._judged.pairs[before:]:
            self._checked = self._checked.with_pair(pair)
        return self._judged.ids_of(number)

    def add_best(self, ranked: Sequence[Parts]) -> list[Parts]:
        """Choose as many of the first candidates as lower the loss most, and return them."""
        rows, tables, columns = add_combinations(self._rows, ranked)
        of_validation = numbers_of(self._validation, tables, rows.pairs)
        per_candidate, best = len(tables) // max(len(ranked), 1), 0
        lowest, before, weights = self._losses, self._losses, self._validation.weights
        for size in sorted({min(size, len(ranked)) for size in COMPARED} - {0}):
            losses = self._losses_with(columns[: size * per_candidate], of_validation[: size * per_candidate])
            if losses @ weights < lowest @ weights and is_lower(losses, before, weights):
                lowest, best = losses, size
        self._losses = lowest
        self._columns += columns[: best * per_candidate]
        self._of_validation += of_validation[: best * per_candidate]
        self.chosen += ranked[:best]
        return list(ranked[:best])

    def _losses_with(self, columns: list[Floats], of_validation: list[Floats]) -> NDArray[np.float64]:
        numbers, checked = [*self._columns, *columns], [*self._of_validation, *of_validation]
        return self._boosting.lowest_losses(np.stack(numbers, axis=1), self._validation, np.stack(checked, axis=1))


def is_determined(whole: Ints, rest: Ints) -> bool:
    """Return whether, in nearly all rows, the feature of a combination is the most frequent one with the same ``rest``.

    >>> item_and_brand, item = np.array([1, 1, 2, 3]), np.array([1, 1, 2, 3])
    >>> is_determined(item_and_brand, item), is_determined(item_and_brand, np.array([1, 1, 1, 2]))
    (True, False)
    """
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    usual = np.zeros(int(rest.max(initial=0)) + 1, np.int64)
    np.maximum.at(usual, rest[first], counts)
    return bool(usual.sum() >= MOST_SAME * len(whole))
