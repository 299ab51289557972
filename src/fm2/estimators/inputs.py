"""From tables of any library, arrays and lists to a polars table and labels 0 and 1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from fm2.data.row_inputs import is_missing
from fm2.data.sources import is_frame
from fm2.errors import Fm2Error

Labels = NDArray[np.uint8]


class InputError(Fm2Error, ValueError):
    """An error in the input; also a ValueError, as scikit-learn's users expect."""


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Turn errors of fm2 into errors that are ValueErrors as well."""
    try:
        yield
    except InputError:
        raise
    except Fm2Error as error:
        raise InputError(str(error)) from error


def read_table(estimator: Any, x: Any, names: Sequence[str] | None, reset: bool) -> polars.DataFrame:
    """Return the columns under their own names or, if they have none, under ``names`` or x0, x1, ...

    With ``reset`` the estimator remembers the number of features and their names; without it, they have to match.

    >>> from fm2 import FmFMClassifier
    >>> read_table(FmFMClassifier(), [["a", 1.5], ["b", None]], None, reset=True).to_dict(as_series=False)
    {'x0': ['a', 'b'], 'x1': [1.5, None]}
    """
    if hasattr(x, "collect_batches"):
        x = x.collect()
    framed = is_frame(x) or hasattr(x, "iloc")
    if framed:
        validate_data(estimator, x, skip_check_array=True, reset=reset)
        if not all(x.shape):
            raise InputError(f"X has {x.shape[0]} sample(s) and {x.shape[1]} feature(s); it needs at least one of each")
    else:
        if isinstance(x, list | tuple):
            x = _objects(x)  # NumPy would convert all cells of a row to text if one of them is text
        x = validate_data(estimator, x, reset=reset, dtype=None, ensure_all_finite="allow-nan")
    columns = _names(x) if framed else []
    columns = columns or list(names or []) or [f"x{index}" for index in range(x.shape[1])]
    if len(columns) != x.shape[1]:
        raise InputError(f"X has {x.shape[1]} columns without names, but the fields read {len(columns)} columns")
    table = polars.DataFrame([column.alias(name) for name, column in zip(columns, _columns(x, columns), strict=True)])
    for column in table.get_columns():
        if column.dtype.is_float() and column.is_infinite().any():
            raise InputError(f"X has an infinite value in column '{column.name}'; make it finite or missing")
    return table


def _objects(rows: Sequence[Any]) -> Any:
    with contextlib.suppress(ValueError):  # rows of different lengths: check_array reports them
        return np.array(rows, dtype=object)
    return rows


def _names(table: Any) -> list[str]:
    """Return the column names if they are strings; pyarrow's ``columns`` are the values."""
    names = list(getattr(table, "column_names", table.columns))
    return names if all(isinstance(name, str) for name in names) else []


def _columns(x: Any, names: Sequence[str]) -> Iterator[polars.Series]:
    if hasattr(x, "iloc"):
        for index, name in enumerate(names):
            column = x.iloc[:, index]
            # Polars would need PyArrow for these texts.
            if column.dtype == object or column.dtype.name in ("str", "string"):
                yield _series(column.to_numpy(dtype=object), name)
            else:
                yield polars.Series(values=column)
    elif is_frame(x):
        yield from polars.DataFrame(x).get_columns()
    else:
        yield from (_series(x[:, index], name) for index, name in enumerate(names))


def _series(column: NDArray[Any], name: str) -> polars.Series:
    """Convert a column of an array; a column of objects gets their type, or text."""
    if column.dtype.kind == "O":
        return _objects_series(column, name)
    if column.dtype.kind == "S":
        column = column.astype(str)
    if column.dtype.kind == "f" and column.dtype.itemsize not in (4, 8):
        column = column.astype(np.float64)
    return polars.Series(values=np.ascontiguousarray(column), nan_to_null=True)


def _objects_series(column: NDArray[Any], name: str) -> polars.Series:
    cells = [None if is_missing(value) else _cell(value) for value in column]
    is_list = {isinstance(cell, list) for cell in cells if cell is not None}
    if len(is_list) > 1:
        raise InputError(f"X has lists and single values in column '{name}'; make every cell a list, or missing")
    series = polars.Series(values=cells, strict=False)
    return series.cast(polars.List(polars.String)) if series.dtype == polars.List(polars.Null) else series


def _cell(value: Any) -> Any:
    """Return a cell as polars takes it: any collection as a list, and a dict of weights as a list of pairs."""
    if isinstance(value, dict):
        return [{"value": key, "weight": weight} for key, weight in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return list(value) if isinstance(value, tuple | np.ndarray) else value


def read_classes(y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the targets as an array, and their classes."""
    y = column_or_1d(y, warn=True)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise InputError(f"Only binary classification is supported. The type of the target is {kind}.")
    classes: NDArray[Any] = np.unique(y)
    return y, classes


def read_labels(y: NDArray[Any], classes: NDArray[Any], operation: str) -> Labels:
    """Return 1 for the second class and 0 for the first."""
    others = np.setdiff1d(y, classes)
    if len(others):
        raise InputError(
            f"{operation}: y has {others[:1].tolist()[0]!r}, which is not one of the classes {classes.tolist()}"
        )
    labels: Labels = np.asarray(y == classes[1]).astype(np.uint8)
    return labels
