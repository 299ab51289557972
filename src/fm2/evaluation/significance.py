"""Whether one model is better than another on the same rows: AUC and log loss with their covariances.

Every metric of every model is a mean of one contribution per row, at least to first order. The contributions of all
models are computed once; the covariances of all pairs are then one matrix product. For AUC, the contributions are the
placement values of DeLong, DeLong and Clarke-Pearson (1988), computed from sorted predictions in O(n log n) with exact
ties, as Sun and Xu (2014) do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.errors import Fm2Error
from fm2.evaluation.metrics import Floats, check_inputs, row_losses

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """The difference of a metric between two models, and its standard error."""

    value: float
    standard_error: float

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the confidence interval of the normal approximation.

        >>> low, high = Difference(0.002, 0.001).interval()
        >>> round(low, 5), round(high, 5)
        (4e-05, 0.00396)
        """
        if not 0 < confidence < 1:
            raise Fm2Error(f"significance: confidence must be between 0 and 1, got {confidence}")
        margin = NormalDist().inv_cdf((1 + confidence) / 2) * self.standard_error
        return self.value - margin, self.value + margin

    @property
    def p_value(self) -> float:
        """The two-sided p-value of no difference: 1 if the models predict the same.

        >>> round(Difference(0.002, 0.001).p_value, 4)
        0.0455
        """
        if self.value == 0:
            return 1.0
        if self.standard_error == 0:
            return 0.0
        return 2 * NormalDist().cdf(-abs(self.value) / self.standard_error)


@dataclass(frozen=True)
class Estimates:
    """A metric of several models on the same rows, and the covariances of the estimates."""

    values: Floats
    covariance: Floats

    def difference(self, model: int, baseline: int) -> Difference:
        """Return how much higher the metric of a model is than that of a baseline; both are indices."""
        pair = self.covariance[np.ix_([model, baseline], [model, baseline])]
        variance = float(pair[0, 0] + pair[1, 1] - 2 * pair[0, 1])
        # Rounding can leave a tiny variance, or a negative one, for models that predict almost the same.
        floor = 1e-12 * float(pair[0, 0] + pair[1, 1])
        value = float(self.values[model] - self.values[baseline])
        return Difference(value, float(np.sqrt(max(variance, floor))) if value or variance > floor else 0.0)

    def averages(self, groups: Sequence[Sequence[int]]) -> Estimates:
        """Return the means over groups of models, such as the seeds of each model.

        >>> estimates = auc_estimates([0, 1, 0, 1], [[0.1, 0.4, 0.3, 0.2], [0.1, 0.4, 0.2, 0.3]])
        >>> estimates.averages([[0, 1]]).values.tolist()
        [0.875]
        """
        shares = np.zeros((len(groups), len(self.values)))
        for row, group in zip(shares, groups, strict=True):
            row[list(group)] = 1 / len(group)
        return Estimates(shares @ self.values, shares @ self.covariance @ shares.T)


def compare_auc(
    labels: ArrayLike, predictions: ArrayLike, baseline: ArrayLike, weights: ArrayLike | None = None
) -> Difference:
    """Test whether two models differ in AUC on the same rows: the paired test of DeLong et al.

    Predictions can be probabilities or logits.

    >>> labels = [0, 0, 1, 1, 0, 1]
    >>> difference = compare_auc(labels, [0.1, 0.2, 0.3, 0.9, 0.4, 0.8], [0.2, 0.4, 0.1, 0.9, 0.3, 0.8])
    >>> round(difference.value, 4), round(difference.standard_error, 4)
    (0.2222, 0.2485)
    """
    return auc_estimates(labels, [predictions, baseline], weights).difference(0, 1)


def compare_log_loss(
    labels: ArrayLike, probabilities: ArrayLike, baseline: ArrayLike, weights: ArrayLike | None = None
) -> Difference:
    """Test whether two models differ in log loss on the same rows: the paired normal test. Negative is better.

    >>> difference = compare_log_loss([0, 1, 1, 0], [0.2, 0.9, 0.7, 0.1], [0.3, 0.7, 0.7, 0.3])
    >>> round(difference.value, 4), round(difference.p_value, 4)
    (-0.159, 0.0079)
    """
    return log_loss_estimates(labels, [probabilities, baseline], weights).difference(0, 1)


def auc_estimates(labels: ArrayLike, predictions: Sequence[ArrayLike], weights: ArrayLike | None = None) -> Estimates:
    """Compute the AUC of several models and the covariances of DeLong et al. Labels are 0 or 1.

    Row weights are those of a weighted sample: a pair of rows counts with the product of their weights.
    """
    y, scores, w = _check(labels, predictions, weights, "prediction")
    if not np.isin(y, (0, 1)).all():
        raise Fm2Error("significance: the test of AUC needs labels of 0 or 1, not click rates of several impressions")
    clicks = y.astype(bool)
    placements = np.stack([_placements(clicks, each, w) for each in scores])
    # The AUC is the mean placement of the clicks, and also that of the other rows. Its variance is the sum of both.
    values, of_clicks = _means(placements[:, clicks], w[clicks], "rows with a click")
    _, of_others = _means(placements[:, ~clicks], w[~clicks], "rows without a click")
    return Estimates(values, of_clicks + of_others)


def log_loss_estimates(
    labels: ArrayLike, probabilities: Sequence[ArrayLike], weights: ArrayLike | None = None
) -> Estimates:
    """Compute the log loss of several models and the covariances of these means over rows."""
    y, p, w = _check(labels, probabilities, weights, "probability")
    return Estimates(*_means(np.stack([row_losses(y, each) for each in p]), w, "rows"))


def _check(
    labels: ArrayLike, predictions: Sequence[ArrayLike], weights: ArrayLike | None, kind: str
) -> tuple[NDArray[Any], list[NDArray[Any]], Floats]:
    """Return the labels, the predictions of each model and the weights as arrays."""
    if not len(predictions):
        raise Fm2Error("significance: there are no predictions")
    checked = [check_inputs(labels, each, weights, kind) for each in predictions]
    y, _, w = checked[0]
    return y, [p for _, p, _ in checked], np.ones(len(y)) if w is None else w


def _means(values: Floats, weights: Floats, what: str) -> tuple[Floats, Floats]:
    """Return the weighted means over rows of each model's values [models, rows], and their covariances."""
    rows = np.count_nonzero(weights)
    if rows < 2:
        raise Fm2Error(f"significance: at least 2 {what} with a positive weight are needed, got {rows}")
    shares = weights / weights.sum()
    means = values @ shares
    # With equal weights, this is the sample covariance, with rows - 1 in the denominator, divided by the rows.
    scaled = (values - means[:, None]) * shares * np.sqrt(rows / (rows - 1))
    return means, scaled @ scaled.T


def _placements(clicks: NDArray[np.bool_], predictions: NDArray[Any], weights: Floats) -> Floats:
    """Return the share of the other class that each row is ranked correctly against; a tie counts half."""
    order = np.argsort(predictions)
    ordered = predictions[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    starts, tie = np.flatnonzero(first), np.cumsum(first) - 1
    placements = np.empty(len(order))
    for others in (~clicks, clicks):
        tied = np.add.reduceat(np.where(others, weights, 0.0)[order], starts)
        below = (np.cumsum(tied) - tied / 2) / max(float(tied.sum()), np.finfo(np.float64).tiny)
        rows = ~others[order]
        placements[order[rows]] = below[tie[rows]]
    return np.where(clicks, placements, 1 - placements)
