"""Hidden features: in some training rows, a known value is replaced by the unknown one.

Later rows of a log have users and ads that training has never seen. If few training rows have unknown values, a model
does not learn what to predict for such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.manifest import impressions
from fm2.data.rows import EncodedRows
from fm2.data.vocabulary import Vocabulary
from fm2.training.inputs import counts_by_field

Counts = NDArray[np.int64]

UNIT = 1 << 16  # of probabilities
HIGHEST = 0.5  # probability
# Smaller differences between validation and training rows are common in random splits, where values that occur a few
# times are unknown more often in rows that training does not count. Hiding them changed the test log loss of FmFM, FFM
# and LR on criteo_inferred and avazu of benchmarks/panel.py by at most .0001, and it would take time.
LEAST_GAP = 0.03
# If the share of unknown values in training is at least a quarter of that in validation, a model learns from them what
# to predict for unknown values; hiding others would only take known values away. Test log loss with and without hidden
# values: movies_users, with unknown movies in 9% of the training and 19% of the validation rows, FmFM .5576 and .5571,
# FFM .5610 and .5597, LR .5676 and .5666; with a threshold of 2, 3.5% and 11.6%, FmFM .5653 and .5585, FFM .5625 and
# .5618, LR .5679 and .5671; movies, 9% and 21%, FmFM .5651 and .5583, FFM .5665 and .5606, LR .5648 and .5640. Hiding
# is better on drift, with unknown users in 8% and 43%: FmFM .3972 and .3995, FFM .3951 and .3970, LR .4198 and .4205.
# So the best limit is between 8% / 43% and 3.5% / 11.6%.
ENOUGH = 1 / 4


@dataclass(frozen=True)
class Hidden:
    """With what probability each feature of some fields is hidden, in units of 1 / 65,536.

    ``parts`` has, by the index of a cross, the fields that it combines, if some of their features are hidden: a cross
    with an unknown part is unknown.
    """

    probabilities: Mapping[int, NDArray[np.uint16]] = field(default_factory=dict)
    parts: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.probabilities)

    def share(self, index: int, counts: Counts) -> float:
        """Return the share of a field's values in training that are hidden."""
        own = self.probabilities.get(index)
        return 0.0 if own is None else float(own @ counts.astype(np.float64)) / UNIT / max(int(counts.sum()), 1)


def hidden_features(dataset: Dataset, vocabularies: Sequence[Vocabulary], most: float) -> Hidden:
    """Return which features training hides, in fields whose values are unknown in far more of the validation rows.

    The share of hidden values is the difference between the two splits, but not above ``most``. Hidden parts of a cross
    make it unknown in training, too.
    """
    fields, names = dataset.schema.fields, dataset.schema.names
    unknown = [entry["unknown"] for entry in dataset.manifest["fields"]]
    rows = {name: max(impressions(totals), 1) for name, totals in dataset.manifest["splits"].items()}
    seen, later = ([own[split] / rows[split] for own in unknown] for split in ("train", "validation"))
    shares = [
        0.0 if each.is_list or each.trees or each.cross else _share(seen[i], later[i], most)
        for i, each in enumerate(fields)
    ]
    parts = {i: [names.index(name) for name in each.cross] for i, each in enumerate(fields) if each.cross}
    for index, of_cross in parts.items():
        shares[index] = _share(seen[index] + sum(shares[part] for part in of_cross), later[index], most)
    probabilities = {
        index: hiding_probabilities(counts, shares[index])
        for index, counts in enumerate(counts_by_field(dataset, vocabularies))
        if shares[index]
    }
    return Hidden(
        {index: own for index, own in probabilities.items() if own.any()},
        {index: of_cross for index, of_cross in parts.items() if any(shares[part] for part in of_cross)},
    )


def _share(training: float, validation: float, most: float) -> float:
    """Return the share of values to hide in a field with these shares of unknown values in the two splits."""
    gap = validation - training
    return min(gap, most) if gap >= LEAST_GAP and training < ENOUGH * validation else 0.0


def hiding_probabilities(counts: Counts, share: float) -> NDArray[np.uint16]:
    """Return with what probability to hide each feature, so that this share of all values is hidden.

    New values resemble rare ones, so the probability falls with the root of a feature's count. Hiding all features
    equally often raised the test log loss of FmFM on movies_users of benchmarks/panel.py from .5568 to .5593; in this
    way, it was .5564.

    >>> (hiding_probabilities(np.array([7, 100, 400, 0]), 0.06) / UNIT).round(3).tolist()
    [0.0, 0.1, 0.05, 0.0]
    """
    known = counts.astype(np.float64)
    known[0] = 0.0
    slopes = np.divide(1.0, np.sqrt(known), out=np.zeros_like(known), where=known > 0)
    low, high = 0.0, HIGHEST * np.sqrt(max(known.max(), 1.0))
    for _ in range(40):
        middle = (low + high) / 2
        hidden = np.minimum(middle * slopes, HIGHEST) @ known
        low, high = (middle, high) if hidden < share * known.sum() else (low, middle)
    probabilities: NDArray[np.uint16] = np.round(np.minimum(high * slopes, HIGHEST) * UNIT).astype(np.uint16)
    return probabilities


def counts_with_hidden(counts: Iterable[Counts], hidden: Hidden) -> Iterator[Counts]:
    """Return how often training sees each feature of each field: hidden ones are occurrences of the unknown one.

    >>> hidden = Hidden({0: np.array([0, 6554, 3277])}, {1: [0]})
    >>> [own.tolist() for own in counts_with_hidden([np.array([7, 100, 400]), np.array([0, 500])], hidden)]
    [[37, 100, 400], [29, 500]]
    """
    of_fields = list(counts)
    shares = [hidden.share(index, own) for index, own in enumerate(of_fields)]
    for index, own in enumerate(of_fields):
        share = shares[index] + sum(shares[part] for part in hidden.parts.get(index, ()))
        yield np.r_[own[:1] + int(min(share, 1.0) * int(own.sum())), own[1:]]


def hide(rows: EncodedRows, hidden: Hidden, random: np.random.Generator) -> EncodedRows:
    """Return the rows with some features hidden; native code does this while it loads a batch."""
    if not hidden:
        return rows
    ids = rows.ids.copy()
    for index, probabilities in hidden.probabilities.items():
        chosen = random.integers(0, UNIT, len(ids)) < probabilities[ids[:, index]]
        ids[chosen, index] = 0
    for index, parts in hidden.parts.items():
        ids[(ids[:, parts] == 0).any(axis=1), index] = 0
    return EncodedRows(ids, rows.lists)
