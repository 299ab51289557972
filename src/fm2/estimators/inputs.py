"""What scikit-learn's callers hand over: tables of any library, arrays, lists; as a polars table and labels 0 and 1."""

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
    """What a caller can put right; a ValueError too, as scikit-learn's callers expect."""


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Let the errors of what is called be ValueErrors too."""
    try:
        yield
    except InputError:
        raise
    except Fm2Error as wrong:
        raise InputError(str(wrong)) from wrong


def read_table(estimator: Any, x: Any, names: Sequence[str] | None, reset: bool) -> polars.DataFrame:
    """Give the columns under their own names, or, where they have none, under ``names`` or x0, x1, ...

    With ``reset`` the estimator learns from it how many features there are and what they are called; without, they
    have to be the same.

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
            raise InputError(f"X has {x.shape[0]} sample(s) and {x.shape[1]} feature(s); there has to be one of each")
    else:
        if isinstance(x, list | tuple):
            x = _objects(x)  # numpy would turn all cells of a row to text if one is
        x = validate_data(estimator, x, reset=reset, dtype=None, ensure_all_finite="allow-nan")
    called = _names(x) if framed else []
    called = called or list(names or []) or [f"x{place}" for place in range(x.shape[1])]
    if len(called) != x.shape[1]:
        raise InputError(f"X has {x.shape[1]} columns without names, and there are {len(called)} columns in the fields")
    table = polars.DataFrame([column.alias(name) for name, column in zip(called, _columns(x), strict=True)])
    for column in table.get_columns():
        if column.dtype.is_float() and column.is_infinite().any():
            raise InputError(f"X has an infinite number in the column '{column.name}'; make it missing, or a large one")
    return table


def _objects(rows: Sequence[Any]) -> Any:
    with contextlib.suppress(ValueError):  # rows of different lengths: check_array tells
        return np.array(rows, dtype=object)
    return rows


def _names(table: Any) -> list[str]:
    """Give the names of columns, if they are texts; what pyarrow calls columns are their values."""
    names = list(getattr(table, "column_names", table.columns))
    return names if all(isinstance(name, str) for name in names) else []


def _columns(x: Any) -> Iterator[polars.Series]:
    if hasattr(x, "iloc"):
        for place in range(x.shape[1]):
            column = x.iloc[:, place]
            yield _series(column.to_numpy()) if column.dtype == object else polars.Series(values=column)
    elif is_frame(x):
        yield from polars.DataFrame(x).get_columns()
    else:
        yield from (_series(x[:, place]) for place in range(x.shape[1]))


def _series(column: NDArray[Any]) -> polars.Series:
    """Give a column of an array; one of objects has the type that they have, or else text."""
    if column.dtype.kind == "O":
        return polars.Series(values=[None if is_missing(value) else value for value in column], strict=False)
    if column.dtype.kind == "S":
        column = column.astype(str)
    if column.dtype.kind == "f" and column.dtype.itemsize not in (4, 8):
        column = column.astype(np.float64)
    return polars.Series(values=np.ascontiguousarray(column), nan_to_null=True)


def read_classes(y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give the targets as an array, and the two classes among them."""
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
    """Give 1 for the second of the classes and 0 for the first."""
    others = np.setdiff1d(y, classes)
    if len(others):
        raise InputError(f"{operation}: y has {others[:1].tolist()[0]!r}; the classes are {classes.tolist()}")
    labels: Labels = np.asarray(y == classes[1]).astype(np.uint8)
    return labels
