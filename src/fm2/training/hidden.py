"""Hidden features: in some training rows, a known value is replaced by the unknown one.

Logs go on: later rows have users and ads that training has never seen. If training rows have hardly any unknown values,
a model does not learn what to predict for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.rows import EncodedRows
from fm2.data.vocabulary import Vocabulary
from fm2.training.inputs import counts_by_field

# By field, with what probability each feature is hidden, in units of 1 / 65,536.
Hidden = Mapping[int, NDArray[np.uint16]]
Counts = NDArray[np.int64]

UNIT = 1 << 16
HIGHEST = 0.5  # probability
# Smaller differences between validation and training rows are common in random splits, where values that occur a few
# times are unknown more often in rows that training does not count. Hiding them changed the test log loss of FmFM, FFM
# and LR on criteo_inferred and avazu of benchmarks/panel.py by at most .0001, and it would take time.
LEAST_GAP = 0.03


def hidden_features(dataset: Dataset, vocabularies: Sequence[Vocabulary], most: float) -> Hidden:
    """Return which features training hides, in fields whose values are unknown in more of the validation rows.

    The share of hidden values is the difference between the two splits, but not above ``most``.
    """
    rows = {name: max(entry["rows"], 1) for name, entry in dataset.manifest["splits"].items()}
    hidden = {}
    counts = counts_by_field(dataset, vocabularies)
    for index, (field, entry, own) in enumerate(
        zip(dataset.schema.fields, dataset.manifest["fields"], counts, strict=True)
    ):
        unknown = entry["unknown"]
        gap = unknown["validation"] / rows["validation"] - unknown["train"] / rows["train"]
        if gap >= LEAST_GAP and not (field.is_list or field.trees):
            hidden[index] = hiding_probabilities(own, min(gap, most))
    return {index: own for index, own in hidden.items() if own.any()}


def hiding_probabilities(counts: Counts, share: float) -> NDArray[np.uint16]:
    """Return with what probability to hide each feature, so that this share of all values is hidden.

    New values resemble rare ones, so the probability falls with the root of a feature's count. Hiding all features
    equally often raised the test log loss of FmFM on movies_users of benchmarks/panel.py from .5568 to .5593, where it
    is .5564 in this way; .5578 became .5584 and .5560 on movies, .4044 became .4008 and .4012 on drift.

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

    >>> [own.tolist() for own in counts_with_hidden([np.array([7, 100, 400])], {0: np.array([0, 6554, 3277])})]
    [[37, 100, 400]]
    """
    for index, own in enumerate(counts):
        more = int(own @ hidden[index].astype(np.float64) / UNIT) if index in hidden else 0
        yield np.r_[own[:1] + more, own[1:]]


def hide(rows: EncodedRows, hidden: Hidden, random: np.random.Generator) -> EncodedRows:
    """Return a copy of the rows in which some features are hidden; native code does this while it loads a batch."""
    ids = rows.ids.copy()
    for index, probabilities in hidden.items():
        chosen = random.integers(0, UNIT, len(ids)) < probabilities[ids[:, index]]
        ids[chosen, index] = 0
    return EncodedRows(ids, rows.lists)
