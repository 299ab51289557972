"""Calibrations are increasing maps that correct probabilities; the calibration error has a meaningful interval."""

from __future__ import annotations

import numpy as np
import pytest

from fm2 import Field, Fm2Error
from fm2.artifacts.calibration import Calibration
from fm2.evaluation.calibration import fit_calibration, fit_shifts, measure_calibration
from fm2.evaluation.metrics import auc, calibration_error, log_loss_of_logits, sigmoid


def rows(count: int, seed: int = 0, slope: float = 0.5, shift: float = -1.0):
    """Return logits, and labels whose true logits are a line of them."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=count).astype(np.float32) * 1.5
    return logits, random.random(count) < sigmoid(slope * logits + shift)


def literal(calibration: Calibration, logits, features=None):
    """Apply a calibration as its documentation says."""
    x, y = calibration.knots.T
    first, last = (y[1] - y[0]) / (x[1] - x[0]), (y[-1] - y[-2]) / (x[-1] - x[-2])
    z = logits.astype(np.float64)
    mapped = np.where(z < x[0], y[0] + first * (z - x[0]), np.interp(z, x, y))
    mapped = np.where(z > x[-1], y[-1] + last * (z - x[-1]), mapped)
    return mapped if features is None else mapped + calibration.shifts.astype(np.float64)[features]


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_a_calibration_recovers_the_true_probabilities(method):
    calibration = fit_calibration(*rows(100_000), method=method)
    logits, labels = rows(100_000, seed=1)
    calibrated = calibration.apply_by(logits, None)
    best = log_loss_of_logits(labels, 0.5 * logits - 1)
    assert log_loss_of_logits(labels, calibrated) == pytest.approx(best, abs=2e-4)
    assert log_loss_of_logits(labels, logits) > best + 0.1
    after = measure_calibration(labels, sigmoid(calibrated))
    assert after.error < 1.5 * after.chance


@pytest.mark.parametrize("method", ["isotonic", "platt"])
@pytest.mark.parametrize("seed", range(5))
def test_a_calibration_keeps_the_order_of_all_logits(method, seed):
    """Even where the click rate does not increase with the logit."""
    random = np.random.default_rng(seed)
    logits = np.round(random.normal(size=3000) * 10 ** random.uniform(-2, 2), 1).astype(np.float32)
    labels = random.random(3000) < sigmoid(0.3 * logits / logits.std() + np.sin(5 * logits))
    calibration = fit_calibration(logits, labels, method=method)
    assert (np.diff(calibration.knots, axis=0) > 0).all()
    wide = np.unique(np.concatenate([logits, random.normal(size=5000) * 100]).astype(np.float32))
    calibrated = calibration.apply_by(wide, None)
    assert (np.diff(calibrated) > 0).all()
    np.testing.assert_allclose(calibrated, literal(calibration, wide), rtol=1e-12, atol=1e-12)
    assert auc(labels, calibration.apply_by(logits, None).argsort().argsort() / 3000) == pytest.approx(
        auc(labels, logits.argsort().argsort() / 3000), abs=1e-3
    )


def test_calibrated_predictions_stay_as_they_are():
    """The knots of isotonic regression compare mean predictions with click rates."""
    logits, labels = rows(200_000, slope=1, shift=0)
    calibration = fit_calibration(logits, labels)
    usual = np.linspace(-3, 3, 100, dtype=np.float32)
    np.testing.assert_allclose(calibration.apply_by(usual, None), usual, atol=0.25)


def test_platt_is_a_logistic_regression_with_weights():
    logits, labels = rows(5000)
    weights = np.random.default_rng(2).integers(1, 4, 5000).astype(np.float32)
    repeated = np.repeat(logits, weights.astype(int)), np.repeat(labels, weights.astype(int))
    weighted = fit_calibration(logits, labels, weights, method="platt").knots
    np.testing.assert_allclose(weighted, fit_calibration(*repeated, method="platt").knots, atol=2e-3)
    (_, intercept), (_, line) = weighted
    p = sigmoid((line - intercept) * logits + intercept)
    residuals = weights * (p - labels)
    assert abs(residuals.sum()) < 2e-3 * weights.sum()  # the score equations, up to Platt's targets
    assert abs(residuals @ logits) < 2e-3 * weights.sum()


def test_click_rates_with_impressions_are_rows_with_counts():
    logits, labels = rows(4000)
    pairs = labels.reshape(2, -1)
    rates, impressions = pairs.mean(0), np.full(2000, 2, np.float32)
    grouped = fit_calibration(logits[:2000], rates, impressions, method="platt")
    single = fit_calibration(np.tile(logits[:2000], 2), pairs.ravel(), method="platt")
    np.testing.assert_allclose(grouped.knots, single.knots, atol=0.01)


def test_separable_rows_have_a_finite_slope():
    logits = np.linspace(-1, 1, 100, dtype=np.float32)
    knots = fit_calibration(logits, logits > 0, method="platt").knots
    assert np.isfinite(knots).all()
    fit_calibration(logits, logits > 0)


@pytest.mark.parametrize(
    ("logits", "labels", "method", "message"),
    [
        ([0, 1, 2, 3], [1, 1, 0, 0], "platt", "the click rate does not increase with the logit (the fitted slope is -"),
        ([0, 1, 2, 3], [1, 1, 0, 0], "isotonic", "the click rate does not increase with the logit"),
        ([1, 1], [0, 1], "isotonic", "all logits are equal"),
        ([0, 1], [1, 1], "platt", "the rows must have both clicks and other rows"),
        ([0, np.inf], [0, 1], "platt", "logits that are not finite"),
        ([0, 1], [0, 1], "isotone", "unknown method 'isotone'; did you mean 'isotonic'?"),
    ],
)
def test_rows_that_cannot_calibrate_are_an_error(logits, labels, method, message):
    with pytest.raises(Fm2Error) as raised:
        fit_calibration(np.array(logits, np.float32), np.array(labels), method=method)
    assert str(raised.value).startswith("calibrate: ")
    assert message in str(raised.value)


def test_shifts_are_the_modes_of_their_posteriors():
    """The gradient of the penalized log-likelihood is zero, and the variance of the prior is a fixed point."""
    random = np.random.default_rng(3)
    features = np.minimum(random.geometric(0.05, 20_000), 80).astype(np.int32)
    true, logits = random.normal(size=81) * 0.7, random.normal(size=20_000)
    labels = (random.random(20_000) < sigmoid(logits + true[features])).astype(np.float64)
    shifts = fit_shifts(logits, labels, np.ones(20_000), features, 100)
    p = sigmoid(logits + shifts[features])
    present = np.unique(features)
    precision = np.bincount(features, p * (1 - p), 100)[present]
    variance = 0.49
    for _ in range(100):
        variance = np.mean(shifts[present] ** 2 + 1 / (precision + 1 / variance))
    gradient = np.bincount(features, labels - p, 100)[present] - shifts[present] / variance
    np.testing.assert_allclose(gradient, 0, atol=0.02)
    assert variance == pytest.approx(0.49, rel=0.5)
    assert not shifts[81:].any()
    assert not shifts[0]
    count = np.bincount(features, minlength=100)[present]
    assert np.corrcoef(shifts[present][count > 300], true[present][count > 300])[0, 1] > 0.95


def test_shifts_of_values_without_an_effect_vanish():
    logits, labels = rows(20_000, slope=1, shift=0)
    features = np.random.default_rng(4).integers(0, 500, 20_000).astype(np.int32)
    calibration = fit_calibration(logits, labels, field=2, features=features, size=500)
    assert calibration.field == 2
    assert np.abs(calibration.shifts).max() < 0.1
    np.testing.assert_allclose(
        calibration.apply_by(logits, features), literal(calibration, logits, features), rtol=1e-12, atol=1e-12
    )


def test_features_outside_the_field_are_an_error():
    calibration = Calibration(np.array([[0.0, 0.0], [1.0, 1.0]]), 0, np.zeros(3, np.float32))
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match="out of range"):
            calibration.apply_by(np.zeros(1, np.float32), np.array([wrong], np.int32))


def test_a_calibration_by_a_multi_valued_field_is_refused():
    arrays = {
        "calibration.knots": np.array([[0.0, 0.0], [1.0, 1.0]]),
        "calibration.field": np.array([1], np.int32),
        "calibration.shifts": np.zeros(3, np.float32),
    }
    single, several = Field("user"), Field("tags", multivalued=True)
    assert Calibration.from_sections(arrays, [4, 3], [several, single]).field == 1
    with pytest.raises(ValueError, match="field 'tags' has several values per row"):
        Calibration.from_sections(arrays, [4, 3], [single, several])


@pytest.mark.parametrize("weighted", [False, True])
def test_the_measured_error_is_the_metric(weighted):
    random = np.random.default_rng(5)
    p = np.round(random.random(3000), 2)
    labels = random.random(3000) < p**2
    weights = random.random(3000).astype(np.float32) if weighted else None
    measured = measure_calibration(labels, p, weights)
    assert measured.error == pytest.approx(calibration_error(labels, p, weights), rel=1e-6)
    assert measured.low < measured.error < measured.high
    assert measured == measure_calibration(labels, p, weights)  # no randomness


def test_the_interval_contains_the_true_error():
    """With 20 bins of a miscalibrated prediction; the true error of the bins is their mean difference."""
    p = (np.arange(4000) + 0.5) / 4000
    true = 0.8 * p + 0.05
    expected = np.abs((p - true).reshape(20, -1).mean(1)).mean()
    random = np.random.default_rng(6)
    measured = [measure_calibration(random.random(4000) < true, p) for _ in range(300)]
    coverage = np.mean([each.low <= expected <= each.high for each in measured])
    assert 0.9 < coverage <= 1
    assert np.mean([each.high - each.low for each in measured]) < expected


def test_perfect_predictions_have_the_error_by_chance():
    random = np.random.default_rng(7)
    p = random.random(5000)
    measured = [measure_calibration(random.random(5000) < p, p) for _ in range(200)]
    errors, chance = np.mean([(each.error, each.chance) for each in measured], axis=0)
    assert errors == pytest.approx(chance, rel=0.05)


def test_the_verdict_is_wrong_for_one_in_twenty_perfect_predictions():
    random = np.random.default_rng(8)
    p = random.random(3000)
    verdicts = [measure_calibration(random.random(3000) < p, p).verdict for _ in range(120)]
    assert set(verdicts) == {"miscalibrated", "no significant miscalibration"}
    assert 0.01 < verdicts.count("miscalibrated") / 120 < 0.1
    assert measure_calibration(random.random(3000) < 0.9 * p, p).verdict == "miscalibrated"
