"""Random rows with multi-valued fields, and their values written out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fm2.data.rows import EncodedRows, Lists

Values = list[tuple[int, float]]


def random_rows(
    sizes: Sequence[int],
    list_fields: Collection[int],
    rows: int,
    *,
    weighted: bool = True,
    longest: int = 5,
    seed: int = 0,
) -> EncodedRows:
    """Return random rows of ids; the ``list_fields`` have lists of 0 to ``longest`` values, with repetitions.

    Some rows share a list, and some lists belong to no row.
    """
    random = np.random.default_rng(seed)
    ids = np.stack([random.integers(0, size, rows) for size in sizes], axis=1).astype(np.int32)
    lists = {}
    for field in list_fields:
        count = rows // 2 + 2
        lengths = random.integers(0, longest + 1, count)
        values = [random.integers(0, sizes[field], length).tolist() for length in lengths]
        weights = [random.normal(size=length).tolist() for length in lengths] if weighted else None
        lists[field] = Lists.of(values, weights)
        ids[:, field] = random.integers(0, count, rows)
    return EncodedRows(ids, lists)


def rows_of_values(rows: EncodedRows) -> list[list[Values]]:
    """Return for each row and field its (id, weight) pairs."""
    return [list(row) for row in zip(*(values_of(rows, field) for field in range(rows.ids.shape[1])), strict=True)]


def values_of(rows: EncodedRows, field: int) -> list[Values]:
    """Return the (id, weight) pairs of a field in every row; a single value has the weight 1."""
    column = rows.ids[:, field].tolist()
    if field not in rows.lists:
        return [[(id, 1.0)] for id in column]
    table = rows.lists[field]
    weights = table.value_weights()
    spans = [slice(int(table.offsets[number]), int(table.offsets[number + 1])) for number in column]
    return [list(zip(table.ids[span].tolist(), weights[span].tolist(), strict=True)) for span in spans]
