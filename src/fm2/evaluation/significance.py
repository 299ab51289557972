"""Whether one model is better than another on the same rows: AUC and log loss with their covariances.

Every metric of every model is a mean of one contribution per row, at least to first order. The influence of a row is
its contribution minus the mean, divided by the number of rows; the covariances of all pairs of models are then one
matrix product. For AUC, the contributions are the placement values of DeLong, DeLong and Clarke-Pearson (1988),
computed from sorted predictions in O(n log n) with exact ties, as Sun and Xu (2014) do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.errors import Fm2Error
from fm2.evaluation import student
from fm2.evaluation.metrics import Floats, check_inputs, row_losses

CONFIDENCE = 0.95
DRAWS = 20_000  # of the largest difference that chance produces; its 95% quantile is then known to about 0.01


@dataclass(frozen=True)
class Difference:
    """The difference of a metric between two models, and its standard error.

    ``freedom`` is the number of degrees of freedom of the standard error, finite if a part of it comes from seeds.
    """

    value: float
    standard_error: float
    freedom: float = inf

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the confidence interval of the normal approximation, or of Student's t for few seeds.

        >>> low, high = Difference(0.002, 0.001).interval()
        >>> round(low, 5), round(high, 5)
        (4e-05, 0.00396)
        """
        if not 0 < confidence < 1:
            raise Fm2Error(f"significance: confidence must be between 0 and 1, got {confidence}")
        margin = student.quantile(confidence, self.freedom) * self.standard_error
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
        return student.two_sided(self.value / self.standard_error, self.freedom)


@dataclass(frozen=True)
class Estimates:
    """A metric of several models on the same rows, and the covariances of the estimates.

    ``seed_variances`` is what the variation over seeds adds to the variance of each model's value, which is then the
    mean of ``seeds`` trainings. Without them, or with one seed, the models count as fixed.
    """

    values: Floats
    covariance: Floats
    seed_variances: Floats | None = None
    seeds: Sequence[int] = ()

    def difference(self, model: int, baseline: int) -> Difference:
        """Return how much higher the metric of a model is than that of a baseline; both are indices."""
        pair = self.covariance[np.ix_([model, baseline], [model, baseline])]
        variance = float(pair[0, 0] + pair[1, 1] - 2 * pair[0, 1])
        # Rounding can leave a tiny variance, or a negative one, for models that predict almost the same.
        floor = 1e-12 * float(pair[0, 0] + pair[1, 1])
        value = float(self.values[model] - self.values[baseline])
        variance = max(variance, floor) if value or variance > floor else 0.0
        between, freedom = self._between_seeds(model, baseline, variance)
        return Difference(value, sqrt(variance + between), freedom)

    def interval(self, model: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the confidence interval of the metric of one model."""
        variance = float(self.covariance[model, model])
        between, freedom = self._between_seeds(model, None, variance)
        return Difference(float(self.values[model]), sqrt(variance + between), freedom).interval(confidence)

    def _between_seeds(self, model: int, baseline: int | None, variance: float) -> tuple[float, float]:
        """Return what seeds add to a variance over rows, and the degrees of freedom of the sum (Satterthwaite)."""
        if self.seed_variances is None or model == baseline:
            return 0.0, inf
        parts = [(float(self.seed_variances[i]), self.seeds[i] - 1) for i in (model, baseline) if i is not None]
        between = sum(part for part, _ in parts)
        unsure = sum(part**2 / freedom for part, freedom in parts if freedom)
        return between, (variance + between) ** 2 / unsure if unsure else inf

    def simultaneous(self, confidence: float = CONFIDENCE, pairs: Sequence[tuple[int, int]] | None = None) -> float:
        """Return the confidence that the interval of each pair needs, so that all pairs together have ``confidence``.

        Of many models, the best one is partly the luckiest, and some pair differs by chance. The largest difference by
        chance, in standard errors, is drawn from the covariances, so that models that predict alike count as one.

        >>> independent = Estimates(np.zeros(5), np.eye(5))
        >>> round(student.quantile(independent.simultaneous(), inf), 1)  # Tukey's 3.86 / sqrt(2)
        2.7
        """
        if pairs is None:
            pairs = list(combinations(range(len(self.values)), 2))
        errors = np.array([self.difference(a, b).standard_error for a, b in pairs])
        first, second = (np.array(pairs).reshape(-1, 2)[errors > 0]).T
        if len(first) < 2:
            return confidence
        total = self.covariance if self.seed_variances is None else self.covariance + np.diag(self.seed_variances)
        scales, axes = np.linalg.eigh(total)
        draws = np.random.default_rng(0).normal(size=(DRAWS, len(scales))) * np.sqrt(scales.clip(0)) @ axes.T
        largest = np.zeros(DRAWS)
        for a, b, error in zip(first, second, errors[errors > 0], strict=True):
            np.maximum(largest, np.abs(draws[:, a] - draws[:, b]) / error, out=largest)
        critical = float(np.quantile(largest, confidence))
        return max(confidence, 2 * NormalDist().cdf(critical) - 1)

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
    """Compute the AUC of several models and the covariances of DeLong et al.

    Row weights are those of a weighted sample: a pair of rows counts with the product of their weights. A click rate is
    a row with and without a click, each with its share of the weight.
    """
    return _estimates([auc_influence(labels, each, weights) for each in predictions])


def log_loss_estimates(
    labels: ArrayLike, probabilities: Sequence[ArrayLike], weights: ArrayLike | None = None
) -> Estimates:
    """Compute the log loss of several models and the covariances of these means over rows."""
    return _estimates([log_loss_influence(labels, each, weights) for each in probabilities])


def _estimates(models: Sequence[tuple[float, Floats]]) -> Estimates:
    if not models:
        raise Fm2Error("significance: there are no predictions")
    influences = np.stack([influence for _, influence in models])
    return Estimates(np.array([value for value, _ in models]), influences @ influences.T)


def auc_influence(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> tuple[float, Floats]:
    """Compute the AUC of a model and the influence of each row; the sum of their squares is the variance."""
    y, p, w = check_inputs(labels, predictions, weights, "prediction")
    order = np.argsort(p)
    clicks, others = _classes(y[order], None if w is None else w[order])
    total, other_total = float(clicks.sum()), float(others.sum())
    corrections = _correction(clicks, "rows with a click"), _correction(others, "rows without a click")
    bounds = _tie_bounds(p[order])
    placed = _below(others, bounds) / other_total  # the share of the other class that a click is ranked above
    auc = float(clicks @ placed) / total
    passed = 1 - _below(clicks, bounds) / total
    influence = np.empty(len(order))
    influence[order] = (corrections[0] / total) * clicks * (placed - auc) + (corrections[1] / other_total) * others * (
        passed - auc
    )
    return auc, influence


def log_loss_influence(
    labels: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None
) -> tuple[float, Floats]:
    """Compute the log loss of a model and the influence of each row; the sum of their squares is the variance."""
    y, p, w = check_inputs(labels, probabilities, weights, "probability")
    shares = np.ones(len(y)) if w is None else w
    # With equal weights, the variance is the sample variance, with rows - 1 in the denominator, divided by the rows.
    correction = _correction(shares, "rows")
    losses, shares = row_losses(y, p), shares / shares.sum()
    loss = float(losses @ shares)
    return loss, (losses - loss) * shares * correction


def _classes(labels: NDArray[Any], weights: Floats | None) -> tuple[Floats, Floats]:
    """Return the weight of the clicks and of the other impressions of each row."""
    clicks, others = labels.astype(np.float64), 1.0 - labels
    return (clicks, others) if weights is None else (clicks * weights, others * weights)


def _correction(weights: Floats, what: str) -> float:
    """Return the factor that makes a variance unbiased."""
    rows = int(np.count_nonzero(weights))
    if rows < 2:
        raise Fm2Error(f"significance: at least 2 {what} with a positive weight are needed, got {rows}")
    return sqrt(rows / (rows - 1))


def _tie_bounds(ordered: NDArray[Any]) -> NDArray[np.int64] | None:
    """Return where each run of equal predictions begins, and their number at the end. None if there are no ties."""
    first = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return None if len(first) == len(ordered) - 1 else np.concatenate(([0], first, [len(ordered)]))


def _below(weights: Floats, bounds: NDArray[np.int64] | None) -> Floats:
    """Return the total weight of the rows that are ranked below each row; a tie counts half."""
    sums = np.cumsum(weights)
    if bounds is None:
        return sums - weights / 2
    at_bounds = np.concatenate(([0.0], sums))[bounds]
    return np.repeat((at_bounds[1:] + at_bounds[:-1]) / 2, np.diff(bounds))
