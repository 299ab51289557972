"""How good predictions are: AUC, log loss, relative information gain, calibration. Exact, and in numpy alone.

Rows with the same probability are counted together first, which makes ties right and the rows' order irrelevant.
Labels are 0 or 1; every measure takes weights of the rows, by default 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.errors import Fm2Error

Floats = NDArray[np.float64]
DEFAULT_BINS = 20


def evaluate(
    labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None, bins: int = DEFAULT_BINS
) -> dict[str, float]:
    """Give every measure by its name; they need rows with and without a click.

    >>> figures = evaluate([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> {name: round(value, 4) for name, value in figures.items()}
    {'auc': 0.75, 'log_loss': 0.4723, 'rig': 0.3186, 'calibration': 0.825, 'calibration_error': 0.3375}
    """
    counts = _count(labels, probabilities, weights)
    return {
        "auc": _auc(counts),
        "log_loss": _log_loss(counts),
        "rig": _rig(counts),
        "calibration": _calibration(counts),
        "calibration_error": _calibration_error(counts, bins),
    }


def auc(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Give the probability that a click is ranked above a row without one; a tie counts half.

    >>> auc([0, 1, 1], [0.2, 0.2, 0.9])
    0.75
    """
    return _auc(_count(labels, probabilities, weights))


def log_loss(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Give the mean of −ln of the probability given to what happened.

    Probabilities are kept as far from 0 and 1 as their type can tell, so that one sure mistake costs much, not all.

    >>> round(log_loss([1, 0], [0.5, 0.5]), 4)
    0.6931
    """
    return _log_loss(_count(labels, probabilities, weights))


def sigmoid(logits: NDArray[np.float32]) -> Floats:
    """Give the probabilities of logits.

    >>> sigmoid(np.array([0.0, -1e4])).tolist()
    [0.5, 0.0]
    """
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def log_loss_of_logits(labels: ArrayLike, logits: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Give the log loss from logits, exactly even where the probability would round to 0 or 1.

    >>> log_loss_of_logits([0, 1], [1000.0, 1000.0])
    500.0
    """
    y, z, w = _checked(labels, logits, weights, "logit")
    z = z.astype(np.float64)
    return float(np.average(np.logaddexp(0, z) - y * z, weights=w))


def rig(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Give the relative information gain: the share of the base rate's log loss that the probabilities save.

    >>> rig([0, 1], [0.5, 0.5])
    0.0
    """
    return _rig(_count(labels, probabilities, weights))


def calibration(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Give the number of clicks predicted over the number observed.

    >>> calibration([0, 1], [0.25, 0.5])
    0.75
    """
    return _calibration(_count(labels, probabilities, weights))


def calibration_error(
    labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None, bins: int = DEFAULT_BINS
) -> float:
    """Give the expected calibration error: how far predicted and observed rates are apart, over bins of equal mass.

    A row's bin is told by the middle of the rows of its probability, in order; so equal probabilities share one.

    >>> calibration_error([0, 1, 1, 1], [0.5, 0.5, 0.75, 0.75], bins=2)
    0.125
    """
    return _calibration_error(_count(labels, probabilities, weights), bins)


def calibration_bins(
    labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None, bins: int = DEFAULT_BINS
) -> list[dict[str, float]]:
    """Give the bins of :func:`calibration_error` that have rows: how many, the predicted and the observed click rate.

    >>> calibration_bins([0, 1, 1, 1], [0.5, 0.5, 0.75, 0.75], bins=2)
    [{'rows': 2.0, 'predicted': 0.5, 'observed': 0.5}, {'rows': 2.0, 'predicted': 0.75, 'observed': 1.0}]
    """
    rows, predicted, observed = _bins(_count(labels, probabilities, weights), bins).tolist()
    return [
        {"rows": many, "predicted": expected / many, "observed": clicks / many}
        for many, expected, clicks in zip(rows, predicted, observed, strict=True)
        if many
    ]


@dataclass(frozen=True)
class _Counts:
    """The weight of all rows and of those with a click, for every distinct probability in ascending order."""

    probability: Floats
    rows: Floats
    clicks: Floats
    smallest: float  # the least distance from 1 that the probabilities' type can tell

    def both_classes(self, measure: str) -> tuple[float, float]:
        """Give the weights of the rows without and with a click, refusing none of either."""
        total, clicks = float(self.rows.sum()), float(self.clicks.sum())
        if clicks in (0, total):
            raise Fm2Error(
                f"metrics: {measure} needs rows with and without a click, but all labels are {int(clicks > 0)}; "
                "log_loss and calibration_error do not need both"
            )
        return total - clicks, clicks


def _count(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None) -> _Counts:
    y, p, w = _checked(labels, probabilities, weights, "probability")
    if p.min() < 0 or p.max() > 1:
        raise Fm2Error(f"metrics: the probabilities go from {p.min()} to {p.max()}; log_loss_of_logits takes logits")
    order = np.argsort(p)
    p = p[order]
    first = np.flatnonzero(np.concatenate(([True], p[1:] != p[:-1])))
    if w is None:
        rows = np.diff(first, append=len(p)).astype(np.float64)
        clicks = np.add.reduceat(y[order], first, dtype=np.float64)
    else:
        rows = np.add.reduceat(w[order], first)
        clicks = np.add.reduceat((w * y)[order], first)
    smallest = np.finfo(p.dtype).eps if np.issubdtype(p.dtype, np.floating) else np.finfo(np.float64).eps
    return _Counts(p[first].astype(np.float64), rows, clicks, float(smallest))


def _checked(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None, what: str
) -> tuple[NDArray[Any], NDArray[Any], Floats | None]:
    y, p = np.asarray(labels), np.asarray(predictions)
    w = None if weights is None else np.asarray(weights, dtype=np.float64)
    shapes = [list(array.shape) for array in (y, p, w) if array is not None]
    if y.ndim != 1 or any(shape != shapes[0] for shape in shapes):
        raise Fm2Error(f"metrics: labels, predictions and weights have the shapes {shapes}; each is one per row")
    if not len(y):
        raise Fm2Error("metrics: there are no rows")
    if not np.isfinite(p).all():
        row = int(np.flatnonzero(~np.isfinite(p))[0])
        raise Fm2Error(f"metrics: the {what} of row {row} is {p[row]}")
    if not ((y == 0) | (y == 1)).all():
        row = int(np.flatnonzero((y != 0) & (y != 1))[0])
        raise Fm2Error(f"metrics: the label of row {row} is {y[row]}; labels are 0 or 1")
    if w is not None and not (np.isfinite(w).all() and w.min() >= 0 and w.max() > 0):
        raise Fm2Error(f"metrics: the weights go from {w.min()} to {w.max()}; none is negative, one at least is not 0")
    return y, p, w


def _auc(counts: _Counts) -> float:
    without, with_click = counts.both_classes("AUC")
    others = counts.rows - counts.clicks
    below = np.cumsum(others) - others
    return float(counts.clicks @ (below + others / 2)) / (without * with_click)


def _log_loss(counts: _Counts) -> float:
    p = np.clip(counts.probability, counts.smallest, 1 - counts.smallest)
    loss = counts.clicks @ np.log(p) + (counts.rows - counts.clicks) @ np.log1p(-p)
    return float(-loss / counts.rows.sum())


def _rig(counts: _Counts) -> float:
    without, with_click = counts.both_classes("relative information gain")
    rate = with_click / (without + with_click)
    entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    return float(1 - _log_loss(counts) / entropy)


def _calibration(counts: _Counts) -> float:
    clicks = float(counts.clicks.sum())
    if clicks == 0:
        raise Fm2Error("metrics: calibration needs clicks, but all labels are 0")
    return float(counts.rows @ counts.probability) / clicks


def _calibration_error(counts: _Counts, bins: int) -> float:
    rows, predicted, observed = _bins(counts, bins)
    return float(np.abs(predicted - observed).sum() / rows.sum())


def _bins(counts: _Counts, bins: int) -> Floats:
    """Give three rows: the weights of all rows of each bin, of the clicks predicted and of those observed."""
    if bins < 1:
        raise Fm2Error(f"metrics: the calibration error needs at least one bin, not {bins}")
    middle = np.cumsum(counts.rows) - counts.rows / 2
    which = np.minimum((middle * bins / counts.rows.sum()).astype(np.int64), bins - 1)
    summed = (counts.rows, counts.rows * counts.probability, counts.clicks)
    return np.stack([np.bincount(which, values, minlength=bins) for values in summed])


def metric_title(metric: str) -> str:
    """Return a metric's name as it is written in text.

    >>> metric_title("log_loss"), metric_title("auc")
    ('log loss', 'AUC')
    """
    return {"auc": "AUC", "rig": "RIG"}.get(metric, metric.replace("_", " "))
