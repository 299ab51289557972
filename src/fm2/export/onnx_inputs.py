"""``fm2.onnx_inputs``: encoded rows as the inputs of an exported model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2.data.rows import EncodedRows, Lists


def onnx_inputs(
    rows: EncodedRows | NDArray[np.int32], fields: Sequence[str], *, ids: Literal["int64", "int32"] = "int64"
) -> dict[str, NDArray[Any]]:
    """Return the inputs, by name, with which an exported model predicts encoded rows.

    ``fields`` are the names of the fields, ``run.encoder.schema.names`` or ``fields`` in the model's metadata. Lists
    are padded to the longest one of their field with values of weight 0.

    >>> from fm2.data.rows import Lists
    >>> rows = EncodedRows(np.array([[7, 0], [8, 1]], np.int32), {1: Lists.of([[3, 4], [5]], [[0.5, 0.5], [1]])})
    >>> inputs = onnx_inputs(rows, ["site", "tags"])
    >>> {name: values.tolist() for name, values in inputs.items()}
    {'ids': [[7], [8]], 'tags.ids': [[3, 4], [5, 0]], 'tags.weights': [[0.5, 0.5], [1.0, 0.0]]}
    """
    rows = EncodedRows.of(rows)
    singles = [field for field in range(rows.ids.shape[1]) if field not in rows.lists]
    inputs: dict[str, NDArray[Any]] = {"ids": rows.ids[:, singles].astype(ids)} if singles else {}
    for field, lists in rows.lists.items():
        padded, weights = _padded(lists.take(rows.ids[:, field]))
        inputs |= {f"{fields[field]}.ids": padded.astype(ids), f"{fields[field]}.weights": weights}
    return inputs


def _padded(lists: Lists) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    used = np.arange(lists.sizes.max(initial=0)) < lists.sizes[:, None]
    ids, weights = np.zeros(used.shape, np.int32), np.zeros(used.shape, np.float32)
    ids[used] = lists.ids
    weights[used] = lists.value_weights()
    return ids, weights
