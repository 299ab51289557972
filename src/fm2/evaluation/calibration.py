"""Fit calibrations: isotonic or Platt, with a shift per value of a field. Measure the calibration error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.calibration import Calibration
from fm2.errors import Fm2Error, suggest
from fm2.evaluation.metrics import DEFAULT_BINS, Floats, sigmoid

Method = Literal["isotonic", "platt"]

MIN_ROWS = 200  # of either class between two knots: the standard error of a knot's logit is at most 0.1
MAX_KNOTS = 256
MIN_SLOPE = 0.01
DRAWS, SEED, LEVEL = 2000, 0, 0.95
MAX_STEPS, TOLERANCE = 200, 1e-7


def fit_calibration(
    logits: NDArray[np.float32],
    labels: NDArray[Any],
    weights: NDArray[np.float32] | None = None,
    *,
    method: Method = "isotonic",
    field: int | None = None,
    features: NDArray[np.int32] | None = None,
    size: int = 0,
) -> Calibration:
    """Fit a calibration to the logits and labels of rows.

    With a ``field`` of this ``size``, each of its features also gets a shift; ``features`` has that of each row.

    >>> random = np.random.default_rng(0)
    >>> logits = random.normal(size=20_000).astype(np.float32)
    >>> labels = random.random(20_000) < sigmoid(2 * logits - 1)
    >>> fit_calibration(logits, labels, method="platt").knots.round(1).tolist()
    [[0.0, -1.0], [1.0, 1.0]]
    """
    if method not in get_args(Method):
        raise Fm2Error(f"calibrate: unknown method '{method}'; {suggest(method, get_args(Method))}")
    z, y = logits.astype(np.float64), labels.astype(np.float64)
    w = np.ones(len(z)) if weights is None else weights.astype(np.float64)
    if not np.isfinite(z).all():
        raise Fm2Error("calibrate: the model predicts logits that are not finite")
    if not 0 < w @ y < w.sum():
        raise Fm2Error("calibrate: the rows must have both clicks and other rows; choose another split=")
    w *= w.sum() / (w @ w)  # so that their sum is the effective number of rows
    slope, intercept = _fit_line(z, y, w)
    line = np.array([[0, intercept], [1, intercept + slope]])
    knots = line if method == "platt" else _fit_isotonic(z, y, w, slope)
    calibration = Calibration(knots, method=method)
    if features is None:
        return calibration
    shifts = fit_shifts(calibration.apply_by(logits, None), y, w, features, size)
    return Calibration(knots, field, shifts.astype(np.float32), method)


def _fit_line(z: Floats, y: Floats, w: Floats) -> tuple[float, float]:
    """Fit slope and intercept by Newton's method, with Platt's targets, which keep them finite for separable rows."""
    clicks = w @ y
    target = 1 / (w.sum() - clicks + 2) * (1 - y) + (clicks + 1) / (clicks + 2) * y
    center, scale = np.average(z, weights=w), z.std()
    if scale == 0:
        raise Fm2Error("calibrate: all logits are equal, so there is nothing to calibrate")
    design = np.stack([(z - center) / scale, np.ones_like(z)])
    solution = np.array([0.0, np.log(clicks / (w.sum() - clicks))])

    def loss(candidate: Floats) -> float:
        t = candidate @ design
        return float(w @ (np.logaddexp(0, t) - target * t))

    for _ in range(MAX_STEPS):
        p = sigmoid(solution @ design)
        hessian = (design * (w * p * (1 - p))) @ design.T
        step = np.linalg.solve(hessian + 1e-12 * np.trace(hessian) * np.eye(2), design @ (w * (p - target)))
        while loss(solution - step) > loss(solution) and np.abs(step).max() > TOLERANCE:
            step /= 2
        solution = solution - step
        if np.abs(step).max() < TOLERANCE:
            break
    slope = float(solution[0] / scale)
    if slope <= 0:
        raise Fm2Error(
            f"calibrate: the click rate does not increase with the logit (the fitted slope is {slope:.3g}); "
            "the model ranks these rows no better than at random"
        )
    return slope, float(solution[1] - slope * center)


def _fit_isotonic(z: Floats, y: Floats, w: Floats, outer_slope: float) -> Floats:
    """Fit an increasing map: blocks of isotonic regression, connected by lines.

    A block's knot has the logit of its mean prediction and the logit of its click rate, so a calibrated model keeps
    its logits. The outermost lines have Platt's slope, because isotonic regression is least certain there.
    """
    order = np.argsort(z, kind="stable")
    z, y, w = z[order], y[order], w[order]
    starts = _pool(_group(z, y, w), y, w)
    log_w = np.log(np.maximum(w, np.finfo(np.float64).tiny))
    clicks = np.logaddexp.reduceat(log_w - np.logaddexp(0, -z), starts)
    others = np.logaddexp.reduceat(log_w - np.logaddexp(0, z), starts)
    x = clicks - others
    t = np.log(np.add.reduceat(w * y, starts)) - np.log(np.add.reduceat(w * (1 - y), starts))
    distinct = np.diff(x, prepend=-np.inf) > 1e-6
    x, t = x[distinct], t[distinct]
    t = np.maximum.accumulate(t - MIN_SLOPE * x) + MIN_SLOPE * x
    slope = max(outer_slope, MIN_SLOPE)
    x = np.concatenate([[x[0] - 1], x, [x[-1] + 1]])
    t = np.concatenate([[t[0] - slope], t, [t[-1] + slope]])
    return np.stack([x, t], axis=1)


def _group(z: Floats, y: Floats, w: Floats) -> list[int]:
    """Return where groups of sorted rows begin: each has enough clicks and other rows, and equal logits stay together.

    Without enough rows for two groups, all rows are one group.
    """
    ends = np.append(np.flatnonzero(np.diff(z)) + 1, len(z))  # of runs of equal logits
    clicks, others = (np.cumsum(values)[ends - 1] for values in (w * y, w * (1 - y)))
    needed = max(MIN_ROWS, min(clicks[-1], others[-1]) / MAX_KNOTS)
    starts, done = [0], -1
    while True:
        before = (clicks[done], others[done]) if done >= 0 else (0.0, 0.0)
        pairs = zip((clicks, others), before, strict=True)
        done = max(int(np.searchsorted(sums, base + needed)) for sums, base in pairs)
        if done >= len(ends) - 1:
            break
        starts.append(int(ends[done]))
    return starts[:-1] if len(starts) > 1 else starts  # the rows after the last complete group join it


def _pool(starts: list[int], y: Floats, w: Floats) -> list[int]:
    """Merge neighboring groups until their click rates increase (pool adjacent violators)."""
    blocks: list[tuple[int, float, float]] = []
    clicks, rows = np.add.reduceat(w * y, starts), np.add.reduceat(w, starts)
    for block in zip(starts, clicks.tolist(), rows.tolist(), strict=True):
        blocks.append(block)
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][2] >= blocks[-1][1] * blocks[-2][2]:
            _, more_clicks, more_rows = blocks.pop()
            start, fewer_clicks, fewer_rows = blocks.pop()
            blocks.append((start, fewer_clicks + more_clicks, fewer_rows + more_rows))
    return [start for start, _, _ in blocks]


def fit_shifts(logits: Floats, labels: Floats, weights: Floats, features: NDArray[np.int32], size: int) -> Floats:
    """Fit a shift of the logit for each feature: the mode of its posterior.

    The prior is a normal distribution around 0 whose variance is fitted too (expectation maximization with a Laplace
    approximation), so the shifts of rare features are small, and those of features without rows are 0.
    """
    present, index = np.unique(features, return_inverse=True)
    fitted, variance = np.zeros(len(present)), 1.0
    for _ in range(MAX_STEPS):
        p = sigmoid(logits + fitted[index])
        gradient = np.bincount(index, weights * (labels - p), len(present)) - fitted / variance
        precision = np.bincount(index, weights * p * (1 - p), len(present)) + 1 / variance
        step = np.clip(gradient / precision, -1, 1)
        fitted += step
        earlier, variance = variance, float(np.mean(fitted**2 + 1 / precision))
        if np.abs(step).max() < TOLERANCE and abs(variance - earlier) < 1e-4 * earlier:
            break
    shifts = np.zeros(size)
    shifts[present] = fitted
    return shifts


@dataclass(frozen=True)
class CalibrationError:
    """The expected calibration error of predictions, with a 95% confidence interval from ``low`` to ``high``.

    ``chance`` is the error that perfectly calibrated predictions would have on so many rows, on average, and
    ``chance_limit`` is what they would exceed in 5% of all cases.
    """

    error: float
    low: float
    high: float
    chance: float
    chance_limit: float

    @property
    def verdict(self) -> str:
        """Whether the error is larger than that of perfectly calibrated predictions, in words."""
        return "miscalibrated" if self.error > self.chance_limit else "no significant miscalibration"

    def __str__(self) -> str:
        perfect = f"perfectly calibrated predictions: about {self.chance:.5f}"
        return f"{self.error:.5f} [{self.low:.5f}, {self.high:.5f}]: {self.verdict} ({perfect})"


def error_lines(errors: Mapping[str, CalibrationError]) -> list[str]:
    """Return calibration errors as text: one, or those before and after calibrating.

    >>> error_lines({"uncalibrated": CalibrationError(0.02, 0.01, 0.03, 0.015, 0.025)})
    ['0.02000 [0.01000, 0.03000]: no significant miscalibration (perfectly calibrated predictions: about 0.01500)']
    """
    if len(errors) == 1:
        return [str(error) for error in errors.values()]
    titles = {"uncalibrated": "before calibration", "calibrated": "after calibration"}
    return [f"{titles[stage]:<18} {error}" for stage, error in errors.items()]


def measure_calibration(
    labels: NDArray[Any],
    probabilities: NDArray[np.float32],
    weights: NDArray[np.float32] | None = None,
    bins: int = DEFAULT_BINS,
) -> CalibrationError:
    """Measure :func:`fm2.evaluation.metrics.calibration_error` with its uncertainty.

    The interval is a bootstrap over rows: the sum of the errors in a bin is drawn from its normal limit, 2,000 times
    with a fixed seed. Noise makes absolute errors larger, so the interval is the basic bootstrap interval, which
    subtracts this bias, extended to contain the measured error.

    >>> random = np.random.default_rng(0)
    >>> p = random.random(10_000)
    >>> str(measure_calibration(random.random(10_000) < p, p))
    '0.01564 [0.00430, 0.01673]: no significant miscalibration (perfectly calibrated predictions: about 0.01416)'
    """
    p, y = probabilities.astype(np.float64), labels.astype(np.float64)
    w = np.ones(len(p)) if weights is None else weights.astype(np.float64)
    values, index = np.unique(p, return_inverse=True)
    mass = np.bincount(index, w, len(values))
    middle = np.cumsum(mass) - mass / 2
    bin_of = np.minimum((middle * bins / w.sum()).astype(np.int64), bins - 1)[index]
    sums, masses = np.bincount(bin_of, w * (p - y), bins), np.bincount(bin_of, w, bins)
    mean = sums / np.where(masses > 0, masses, 1)
    total = sums / w.sum()
    deviation = np.sqrt(np.bincount(bin_of, (w * (p - y - mean[bin_of])) ** 2, bins)) / w.sum()
    error = float(np.abs(total).sum())
    noise = np.random.default_rng(SEED).normal(0, deviation, (DRAWS, bins))
    draws = np.abs(total + noise).sum(1)
    low, high = 2 * error - np.quantile(draws, [(1 + LEVEL) / 2, (1 - LEVEL) / 2])
    chance = float(np.sqrt(2 / np.pi) * deviation.sum())
    limit = float(np.quantile(np.abs(noise).sum(1), LEVEL))
    return CalibrationError(error, max(0.0, min(float(low), error)), max(float(high), error), chance, limit)
