"""What the cells of a generated log show: integers, and codes of 8 hexadecimal digits, for the planted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.columns import Floats, Ints
from fm2.data.synthetic.planted import Planted
from fm2.errors import require

if TYPE_CHECKING:
    import polars


class Cells:
    """Turns the features that a planted model has drawn into a table."""

    def __init__(self, model: Planted, salt: int) -> None:
        self._polars = require("polars", "train", "generating a log")
        self._fields = list(zip(model.columns, model.starts, strict=True))
        self._codes = {
            column.name: self._polars.Series([None, *hex_codes(start + np.arange(column.size), salt)])
            for column, start in self._fields
            if not column.numeric
        }

    @property
    def schema(self) -> dict[str, Any]:
        """The table's columns and their types."""
        integer, text = self._polars.Int32, self._polars.String
        columns = {column.name: integer if column.numeric else text for column, _ in self._fields}
        return {"label": self._polars.UInt8, **columns}

    def frame(self, labels: NDArray[np.bool_], features: Ints, rng: np.random.Generator) -> polars.DataFrame:
        """Make a table of labels and features (rows × fields)."""
        shown = {"label": self._polars.Series(labels.astype(np.uint8))}
        for i, (column, start) in enumerate(self._fields):
            values = features[:, i] - start
            if column.numeric:
                numbers = integers(values, rng.random(len(values))).astype(np.int32)
                shown[column.name] = self._polars.Series(numbers).set(self._polars.Series(values == 0), None)
            else:
                shown[column.name] = self._codes[column.name].gather(values)
        frame: polars.DataFrame = self._polars.DataFrame(shown)
        return frame


def integers(values: Ints, uniform: Floats) -> Ints:
    """Give for each value r > 0 any of the integers that the transform of numeric fields turns into r - 1.

    That is x > 2 with floor(ln(x)²) = r - 1, and r - 1 itself where the transform lets it be.

    >>> integers(np.array([1, 2, 2, 2, 9]), np.array([0.5, 0.0, 0.5, 0.9, 0.5]))
    array([ 0,  1,  3,  4, 19])
    """
    after = np.arange(-1.0, values.max())  # what the transform makes of the integers, by value
    low, high = (np.maximum(3, np.ceil(np.exp(np.sqrt(np.maximum(0, after + k))))) for k in (0, 1))
    itself = after <= 2
    low -= itself
    chosen = low[values] + np.floor(uniform * (high - low)[values])
    return np.where(itself[values] & (chosen == low[values]), after[values], chosen).astype(np.int64)


def hex_codes(numbers: Ints, salt: int) -> list[str]:
    """Give each number (below 2³²) a code of 8 hexadecimal digits that no other number has.

    The mixing steps can all be undone, so that different numbers stay different.

    >>> hex_codes(np.arange(3), salt=0)
    ['00000000', '514e28b7', '30f4c306']
    """
    mixed = (numbers ^ salt).astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    digits = mixed.astype(">u4").tobytes().hex()
    return [digits[i : i + 8] for i in range(0, len(digits), 8)]
