"""Metrics of predictions: AUC, log loss, relative information gain, calibration. Exact, in numpy only.

Rows with the same probability are counted together first, so ties are exact and the order of the rows does not matter.
Labels are 0 or 1, or the click rate of several impressions, whose number is then part of the weight. Every metric
accepts row weights, 1 by default.
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
    """Compute all metrics; the labels must contain both classes.

    >>> metrics = evaluate([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> {name: round(value, 4) for name, value in metrics.items()}
    {'auc': 0.75, 'log_loss': 0.4723, 'rig': 0.3186, 'calibration': 0.825, 'calibration_error': 0.3375}
    """
    counts = _count(labels, probabilities, weights)
    metrics = {"auc": counts.auc(), "log_loss": counts.log_loss(), "rig": counts.rig()}
    return metrics | {"calibration": counts.calibration(), "calibration_error": counts.calibration_error(bins)}


def auc(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Compute the probability that a click is ranked above a row without one; a tie counts half.

    >>> auc([0, 1, 1], [0.2, 0.2, 0.9])
    0.75
    """
    return _count(labels, probabilities, weights).auc()


def log_loss(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Compute the mean of −ln p, where p is the predicted probability of the observed label.

    Probabilities are clipped to the resolution of their type, so that a certain but wrong prediction costs a lot, but
    not infinitely much.

    >>> round(log_loss([1, 0], [0.5, 0.5]), 4)
    0.6931
    """
    return _count(labels, probabilities, weights).log_loss()


def sigmoid(logits: NDArray[np.float32] | Floats) -> Floats:
    """Return the probabilities of logits.

    >>> sigmoid(np.array([0.0, -1e4])).tolist()
    [0.5, 0.0]
    """
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def log_loss_of_logits(labels: ArrayLike, logits: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Compute the log loss from logits, exact even where the probability would round to 0 or 1.

    >>> log_loss_of_logits([0, 1], [1000.0, 1000.0])
    500.0
    """
    y, z, w = check_inputs(labels, logits, weights, "logit")
    z = z.astype(np.float64)
    return float(np.average(np.logaddexp(0, z) - y * z, weights=w))


def rig(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Compute the relative information gain: the share of the base rate's log loss that the predictions avoid.

    >>> rig([0, 1], [0.5, 0.5])
    0.0
    """
    return _count(labels, probabilities, weights).rig()


def calibration(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Compute the ratio of predicted to observed clicks.

    >>> calibration([0, 1], [0.25, 0.5])
    0.75
    """
    return _count(labels, probabilities, weights).calibration()


def calibration_error(
    labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None, bins: int = DEFAULT_BINS
) -> float:
    """Compute the expected calibration error: the mean distance of predicted and observed rates in bins of equal mass.

    Rows with equal probabilities share a bin: the one that contains the middle of their ranks.

    >>> calibration_error([0, 1, 1, 1], [0.5, 0.5, 0.75, 0.75], bins=2)
    0.125
    """
    return _count(labels, probabilities, weights).calibration_error(bins)


def calibration_bins(
    labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None, bins: int = DEFAULT_BINS
) -> list[dict[str, float]]:
    """Return the nonempty bins of :func:`calibration_error`: rows, predicted and observed click rate.

    >>> calibration_bins([0, 1, 1, 1], [0.5, 0.5, 0.75, 0.75], bins=2)
    [{'rows': 2.0, 'predicted': 0.5, 'observed': 0.5}, {'rows': 2.0, 'predicted': 0.75, 'observed': 1.0}]
    """
    rows, predicted, observed = _count(labels, probabilities, weights).bins(bins).tolist()
    return [
        {"rows": count, "predicted": expected / count, "observed": clicks / count}
        for count, expected, clicks in zip(rows, predicted, observed, strict=True)
        if count
    ]


@dataclass(frozen=True)
class _Counts:
    """The weights of all rows and of the clicks, for every distinct probability in ascending order."""

    probability: Floats
    rows: Floats
    clicks: Floats
    resolution: float  # of the probabilities' type, near 1

    def _both_classes(self, metric: str) -> tuple[float, float]:
        """Return the weights of the rows without and with a click; raise an error if either is zero."""
        total, clicks = float(self.rows.sum()), float(self.clicks.sum())
        if clicks in (0, total):
            raise Fm2Error(
                f"metrics: {metric} needs rows with and without a click, but all labels are {int(clicks > 0)}; "
                "log_loss and calibration_error accept one class"
            )
        return total - clicks, clicks

    def auc(self) -> float:
        without, with_click = self._both_classes("AUC")
        negatives = self.rows - self.clicks
        below = np.cumsum(negatives) - negatives
        return float(self.clicks @ (below + negatives / 2)) / (without * with_click)

    def log_loss(self) -> float:
        p = np.clip(self.probability, self.resolution, 1 - self.resolution)
        loss = self.clicks @ np.log(p) + (self.rows - self.clicks) @ np.log1p(-p)
        return float(-loss / self.rows.sum())

    def rig(self) -> float:
        without, with_click = self._both_classes("relative information gain")
        rate = with_click / (without + with_click)
        entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
        return float(1 - self.log_loss() / entropy)

    def calibration(self) -> float:
        clicks = float(self.clicks.sum())
        if clicks == 0:
            raise Fm2Error("metrics: calibration needs clicks, but all labels are 0")
        return float(self.rows @ self.probability) / clicks

    def calibration_error(self, bins: int) -> float:
        rows, predicted, observed = self.bins(bins)
        return float(np.abs(predicted - observed).sum() / rows.sum())

    def bins(self, bins: int) -> Floats:
        """Return [3, bins]: the weights of the rows, of the predicted clicks and of the observed clicks."""
        if bins < 1:
            raise Fm2Error(f"metrics: bins must be at least 1, got {bins}")
        middle = np.cumsum(self.rows) - self.rows / 2
        bin_of = np.minimum((middle * bins / self.rows.sum()).astype(np.int64), bins - 1)
        totals = (self.rows, self.rows * self.probability, self.clicks)
        return np.stack([np.bincount(bin_of, values, minlength=bins) for values in totals])


def _count(labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None) -> _Counts:
    y, p, w = check_inputs(labels, probabilities, weights, "probability")
    order = np.argsort(p)
    p = p[order]
    first = np.flatnonzero(np.concatenate(([True], p[1:] != p[:-1])))
    if w is None:
        rows = np.diff(first, append=len(p)).astype(np.float64)
        clicks = np.add.reduceat(y[order], first, dtype=np.float64)
    else:
        rows = np.add.reduceat(w[order], first)
        clicks = np.add.reduceat((w * y)[order], first)
    return _Counts(p[first].astype(np.float64), rows, clicks, _resolution(p))


def _resolution(p: NDArray[Any]) -> float:
    return float(np.finfo(p.dtype if np.issubdtype(p.dtype, np.floating) else np.float64).eps)


def row_losses(labels: NDArray[Any], probabilities: NDArray[Any]) -> Floats:
    """Return the log loss of each row; :func:`log_loss` is the mean.

    >>> row_losses(np.array([1, 0]), np.array([0.5, 0.0])).round(4).tolist()
    [0.6931, 0.0]
    """
    y, resolution = labels.astype(np.float64), _resolution(probabilities)
    p = np.clip(probabilities.astype(np.float64), resolution, 1 - resolution)
    return -y * np.log(p) - (1 - y) * np.log1p(-p)


def check_inputs(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None, kind: str
) -> tuple[NDArray[Any], NDArray[Any], Floats | None]:
    """Return labels, predictions and weights as arrays, or raise an error that says which value is invalid."""
    y, p = np.asarray(labels), np.asarray(predictions)
    w = None if weights is None else np.asarray(weights, dtype=np.float64)
    shapes = [list(array.shape) for array in (y, p, w) if array is not None]
    if y.ndim != 1 or any(shape != shapes[0] for shape in shapes):
        raise Fm2Error(f"metrics: expected one label, prediction and weight per row, got the shapes {shapes}")
    if not len(y):
        raise Fm2Error("metrics: no rows")
    if not np.isfinite(p).all():
        row = int(np.flatnonzero(~np.isfinite(p))[0])
        raise Fm2Error(f"metrics: the {kind} of row {row} is {p[row]}")
    if kind == "probability" and (p.min() < 0 or p.max() > 1):
        values = f"got {p.min()} to {p.max()}"
        raise Fm2Error(f"metrics: probabilities must be between 0 and 1, {values}; log_loss_of_logits takes logits")
    if not ((y >= 0) & (y <= 1)).all():
        row = int(np.flatnonzero(~((y >= 0) & (y <= 1)))[0])
        raise Fm2Error(f"metrics: the label of row {row} is {y[row]}, expected 0 or 1, or a click rate in between")
    if w is not None and not (np.isfinite(w).all() and w.min() >= 0 and w.max() > 0):
        raise Fm2Error(f"metrics: weights must not be negative or all 0, got {w.min()} to {w.max()}")
    return y, p, w


def weigh_clicks(
    labels: NDArray[Any], weights: NDArray[Any] | None, factor: float
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return labels and weights after the weight of every click is multiplied by a factor.

    A click rate y is y clicks and 1 - y rows without one, so this holds for it as well.

    >>> labels, weights = weigh_clicks(np.array([0.0, 1.0, 0.25]), None, 3)
    >>> labels.tolist(), weights.tolist()
    ([0.0, 1.0, 0.5], [1.0, 3.0, 1.5])
    """
    if factor == 1:
        return labels, weights
    clicks = labels * factor
    total = clicks + (1 - labels)
    return clicks / total, total if weights is None else total * weights


def metric_title(metric: str) -> str:
    """Return a metric's name as it is written in text: "AUC", "log loss"."""
    return {"auc": "AUC", "rig": "RIG"}.get(metric, metric.replace("_", " "))
