"""What trees read of multi-valued fields: the length of a row's list, and whether it contains a frequent value.

The click rates of a list's values are not among the inputs: on the MovieLens log, their means made the trees worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.rows import Lists
from fm2.data.trees import ListValue
from fm2.data.vocabulary import Vocabulary

Floats = NDArray[np.float32]

# The most frequent values of a field that trees look for in its lists. With 20 of each list, the test log loss of the
# trees alone on the MovieLens log is .5513 instead of .5565 if some values are hidden, and .5626 instead of .5653 if
# not. More of them lengthen every prediction.
MOST_LIST_VALUES = 20
MOST_INPUTS = _native.MOST_TREE_INPUTS - 128  # of single fields; the rest is for combinations

ListInput = tuple[int, Floats | ListValue, Floats]  # the part, what is read of its list, and the number of each row


def list_inputs(lists: Mapping[int, Lists], vocabularies: Sequence[Vocabulary], others: int) -> Iterator[ListInput]:
    """Yield the inputs that read lists, of parts that have some; there are so many ``others``."""
    room = (MOST_INPUTS - others) // max(len(lists), 1) - 1  # for values; the length is an input, too
    for part, table in lists.items():
        yield part, np.empty(0, np.float32), length_column(table)
        for value in _frequent_values(vocabularies[part], min(room, MOST_LIST_VALUES)):
            yield part, value, value_column(table, value)


def length_column(lists: Lists) -> Floats:
    """Return the number of values of each list.

    >>> length_column(Lists.of([[2, 1], []])).tolist()
    [2.0, 0.0]
    """
    return lists.sizes.astype(np.float32)


def value_column(lists: Lists, value: ListValue) -> Floats:
    """Return 1 for each list that contains a value, and 0 for others.

    >>> value_column(Lists.of([[2, 1, 2], [], [1]]), ListValue(2)).tolist()
    [1.0, 0.0, 0.0]
    """
    column = np.zeros(len(lists), np.float32)
    if value.id:
        column[np.searchsorted(lists.offsets, np.flatnonzero(lists.ids == value.id), side="right") - 1] = 1
    return column


def _frequent_values(vocabulary: Vocabulary, most: int) -> list[ListValue]:
    """Return the values that the training rows have most often; values that they do not have are left out."""
    order = np.argsort(-vocabulary.counts, kind="stable")[: max(most, 0)]
    return [ListValue(int(index) + 1) for index in order if vocabulary.counts[index]]
