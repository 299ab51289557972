"""The raw values of a synthetic log: integers, and codes of 8 hexadecimal digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.synthetic.columns import Floats, Ints
from fm2.data.synthetic.planted import Planted
from fm2.errors import require

if TYPE_CHECKING:
    import polars


class RawValues:
    """Turn the features that a planted model has drawn into the DataFrame of a log."""

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
        """The names and types of the columns."""
        pl = self._polars
        columns = {column.name: pl.Int32 if column.numeric else pl.String for column, _ in self._fields}
        return {"label": pl.UInt8, **columns}

    def frame(self, labels: NDArray[np.bool_], features: Ints, rng: np.random.Generator) -> polars.DataFrame:
        """Return the DataFrame of labels and features (rows × fields)."""
        series = {"label": self._polars.Series(labels.astype(np.uint8))}
        for i, (column, start) in enumerate(self._fields):
            values = features[:, i] - start
            if column.numeric:
                numbers = integers(values, rng.random(len(values))).astype(np.int32)
                series[column.name] = self._polars.Series(numbers).set(self._polars.Series(values == 0), None)
            else:
                series[column.name] = self._codes[column.name].gather(values)
        frame: polars.DataFrame = self._polars.DataFrame(series)
        return frame


def integers(values: Ints, uniform: Floats) -> Ints:
    """Draw for each value r > 0 one of the integers that the transform ``log_square`` maps to r - 1.

    These are all x > 2 with floor(ln(x)²) = r - 1, and r - 1 itself if it is at most 2.
    """
    transformed = np.arange(-1.0, values.max())  # the result of the transform, by value
    low, high = (np.maximum(3, np.ceil(np.exp(np.sqrt(np.maximum(0, transformed + k))))) for k in (0, 1))
    unchanged = transformed <= 2
    low -= unchanged
    chosen = low[values] + np.floor(uniform * (high - low)[values])
    return np.where(unchanged[values] & (chosen == low[values]), transformed[values], chosen).astype(np.int64)


def hex_codes(numbers: Ints, salt: int) -> list[str]:
    """Return a distinct code of 8 hexadecimal digits for each number below 2³².

    All mixing steps are invertible, so that different numbers have different codes.
    """
    mixed = (numbers ^ salt).astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    digits = mixed.astype(">u4").tobytes().hex()
    return [digits[i : i + 8] for i in range(0, len(digits), 8)]
