"""The trees of a log: fitted to its training rows, or taken over from an earlier dataset."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.data.counting import Assign, FieldIds, row_counts
from fm2.data.derived import DerivedEncoder
from fm2.data.log_reader import StoredRows
from fm2.data.numbers import NumberCodes
from fm2.data.rows import Lists
from fm2.data.sampling import TRAIN, targets
from fm2.data.splits import SPLITS
from fm2.data.tree_boosting import TreeProgress
from fm2.data.tree_fitting import fit_trees
from fm2.data.tree_inputs import FOLDS, TreeRows
from fm2.data.trees import Trees
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.schema import Schema

VALIDATION = SPLITS.index("validation")
FEWEST_ROWS = 100
MOST_ROWS = 500_000  # training rows that trees are fitted to; their inputs are in memory


def build_trees(
    schema: Schema,
    fields: Sequence[FieldIds],
    numbers: NumberCodes,
    encoder: DerivedEncoder,
    scratch: StoredRows,
    assign: Assign,
    known: Sequence[Vocabulary],
    training_rows: int,
    *,
    seed: int,
    all_splits: bool,
    threads: int,
    negative_rate: float = 1.0,
    progress: bool | None = None,
) -> list[FieldIds]:
    """Fit the trees of all tree fields, or take the ``known`` ones, and give them to the encoder.

    ``fields`` are those of all other fields; the result has the tree fields as well. The value of a bucket is its mean
    logit, corrected for the ``negative_rate`` of the rows that the trees are fitted to.
    """
    built = list(fields)
    if not encoder.trees:
        return built
    vocabularies = [field.vocabulary for field in fields]
    if not known:
        if training_rows < FEWEST_ROWS:
            raise Fm2Error(f"prepare: trees need at least {FEWEST_ROWS} training rows, got {training_rows}")
        step = -(-training_rows // MOST_ROWS)
        training, validation = (
            _rows_of(split, fields, numbers, encoder, scratch, assign, step, threads) for split in (TRAIN, VALIDATION)
        )
        folds = np.random.default_rng(seed).permutation(np.arange(len(training.labels), dtype=np.int32) % FOLDS)
    for index in encoder.trees:
        parts = schema.parts[index]
        if known:
            ids = [vocabularies[part].ids_in(known[part]) for part in parts]
            trees, texts = Trees.of(known[index].trees).for_features(ids), known[index]
        else:
            of_parts = [vocabularies[part] for part in parts]
            rows, checked = (each.of_parts(parts, of_parts, folds) for each in (training, validation))
            with Progress("fitting", 100, progress, unit="trees") as shown:
                fitted = fit_trees(rows, checked, schema.fields[index].buckets, seed, threads, TreeProgress(shown))
            encoder.set_held_out(index, training.rows, 1 + fitted.buckets)
            scores = fitted.scores + np.float32(math.log(negative_rate))  # of all rows, not only of the sampled ones
            trees, texts = fitted.trees, Vocabulary.of(list(map(str, scores)))
        vocabulary = dataclasses.replace(texts, counts=np.zeros(len(texts.ends), np.int64), trees=trees.words())
        encoder.set_trees(index, vocabulary)
        built[index] = FieldIds(vocabulary, np.zeros(1, np.int32), dropped=0)
    return _count(built, numbers, encoder, scratch, assign, all_splits, threads)


@dataclass(frozen=True)
class _SplitRows:
    """Rows of a split: their numbers in the log, labels, weights, and what trees read: ids, numbers and lists."""

    rows: NDArray[np.int64]
    ids: NDArray[np.int32]
    numbers: dict[int, NDArray[np.float32]]
    lists: dict[int, Lists]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]
    unit: float  # the mean weight of an impression, or of a row without impressions

    def of_parts(self, parts: Sequence[int], vocabularies: list[Vocabulary], folds: NDArray[np.int32]) -> TreeRows:
        """Return the rows of the parts of a tree field."""
        numbers = {at: self.numbers[part] for at, part in enumerate(parts) if part in self.numbers}
        lists = {at: self.lists[part] for at, part in enumerate(parts) if part in self.lists}
        return TreeRows(
            self.ids[:, parts], numbers, vocabularies, self.labels, self.weights, folds, lists, unit=self.unit
        )


def _rows_of(
    number: int,
    fields: Sequence[FieldIds],
    numbers: NumberCodes,
    encoder: DerivedEncoder,
    scratch: StoredRows,
    assign: Assign,
    step: int,
    threads: int,
) -> _SplitRows:
    """Return every ``step``-th row of a split."""
    seen, shown = 0, 0
    ids_of = [field.ids for field in fields]
    parts: list[_SplitRows] = []
    for block in scratch.blocks(encoder.parts):
        split, impressions = assign(block)
        chosen = np.flatnonzero(split == number)
        spaced = chosen[-seen % step :: step]
        seen += len(chosen)
        ids, of_numbers = encoder.part_ids(block, fields, numbers, threads), encoder.part_numbers(block)
        lists = encoder.part_lists(block, ids_of)
        encoder.encode(ids, block.rows, of_numbers, lists, threads)
        ids[:, encoder.lists] = 0
        labels, weights = targets(block, impressions)
        shown += len(spaced) if impressions is None else int(impressions[spaced].sum())
        parts.append(
            _SplitRows(
                block.rows[spaced],
                ids[spaced],
                {index: column[spaced] for index, column in of_numbers.items()},
                {index: table.take(spaced) for index, table in lists.items()},
                labels[spaced].astype(np.float32),
                np.ones(len(spaced), np.float32) if weights is None else weights[spaced],
                unit=0.0,
            )
        )
    weights = np.concatenate([part.weights for part in parts])
    return _SplitRows(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.ids for part in parts]),
        {index: np.concatenate([part.numbers[index] for part in parts]) for index in encoder.numbers},
        {index: Lists.concatenate([part.lists[index] for part in parts]) for index in encoder.lists},
        np.concatenate([part.labels for part in parts]),
        weights,
        unit=float(weights.sum(dtype=np.float64)) / max(shown, 1),
    )


def _count(
    fields: list[FieldIds],
    numbers: NumberCodes,
    encoder: DerivedEncoder,
    scratch: StoredRows,
    assign: Assign,
    all_splits: bool,
    threads: int,
) -> list[FieldIds]:
    """Return the fields with the number of training rows, or of all rows, in each bucket of the trees."""
    counts = {index: np.zeros(len(fields[index].vocabulary), np.int64) for index in encoder.trees}
    ids_of = [field.ids for field in fields]
    for block in scratch.blocks(encoder.parts):
        counted = row_counts(*assign(block), all_splits)
        ids = encoder.part_ids(block, fields, numbers, threads)
        of_numbers, lists = encoder.part_numbers(block), encoder.part_lists(block, ids_of)
        encoder.encode(ids, block.rows, of_numbers, lists, threads)
        for index, of_field in counts.items():
            of_field += np.bincount(ids[:, index], counted, minlength=len(of_field)).astype(np.int64)
    for index, of_field in counts.items():
        vocabulary = dataclasses.replace(fields[index].vocabulary, counts=of_field[1:])
        fields[index] = dataclasses.replace(fields[index], vocabulary=vocabulary)
    return fields
