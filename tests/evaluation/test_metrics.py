"""The metrics compared with their definitions, row by row and pair by pair, on data with many ties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fm2.errors import Fm2Error
from fm2.evaluation import metrics

LABELS = [0, 1, 0, 1, 1, 0, 0, 1]
PROBABILITIES = [0.1, 0.1, 0.3, 0.3, 0.9, 0.9, 0.2, 0.7]


@st.composite
def predictions(draw):
    """Rows of both classes, with few distinct probabilities and weights."""
    probability = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0])
    row = st.tuples(st.integers(0, 1), probability, st.integers(1, 3))
    rows = draw(st.lists(row, min_size=1, max_size=30))
    rows += [(0, draw(probability), 1), (1, draw(probability), 2)]
    return [np.array(column) for column in zip(*draw(st.permutations(rows)), strict=True)]


def auc_by_pairs(labels, probabilities, weights):
    won = total = 0.0
    for label, p, weight in zip(labels, probabilities, weights, strict=True):
        for other, q, other_weight in zip(labels, probabilities, weights, strict=True):
            if label == 1 and other == 0:
                won += weight * other_weight * ((p > q) + 0.5 * (p == q))
                total += weight * other_weight
    return won / total


def log_loss_by_rows(labels, probabilities, weights):
    loss, smallest = 0.0, np.finfo(np.float64).eps
    for label, p, weight in zip(labels, probabilities, weights, strict=True):
        p = min(max(p, smallest), 1 - smallest)
        loss -= weight * (math.log(p) if label else math.log1p(-p))
    return loss / sum(weights)


@given(predictions())
@settings(deadline=None)
def test_metrics_follow_their_definitions(rows):
    labels, probabilities, weights = rows
    figures = metrics.evaluate(labels, probabilities, weights)
    rate = weights @ labels / weights.sum()
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    loss = log_loss_by_rows(labels, probabilities, weights)
    assert figures["auc"] == pytest.approx(auc_by_pairs(labels, probabilities, weights), rel=1e-12)
    assert figures["log_loss"] == pytest.approx(loss, rel=1e-12)
    assert figures["rig"] == pytest.approx(1 - loss / entropy, rel=1e-9, abs=1e-12)
    assert figures["calibration"] == pytest.approx(weights @ probabilities / (weights @ labels), rel=1e-12)


@given(predictions(), st.integers(1, 8))
@settings(deadline=None)
def test_a_weight_equals_a_repetition_and_the_order_does_not_matter(rows, bins):
    labels, probabilities, weights = rows
    repeated = np.repeat(np.stack([labels, probabilities]), weights, axis=1)[:, ::-1]
    figures = metrics.evaluate(labels, probabilities, weights, bins)
    assert metrics.evaluate(*repeated, bins=bins) == pytest.approx(figures, rel=1e-12, abs=1e-15)


def calibration_error_by_rows(labels, probabilities, bins):
    """Assign rows to bins by rank; rows with equal probabilities share the middle of their ranks."""
    rows = len(labels)
    surplus = [0.0] * bins
    for label, p in zip(labels, probabilities, strict=True):
        below, equal = sum(q < p for q in probabilities), sum(q == p for q in probabilities)
        surplus[int((2 * below + equal) * bins / (2 * rows))] += p - label
    return sum(map(abs, surplus)) / rows


@given(predictions(), st.integers(1, 8))
@settings(deadline=None)
def test_calibration_error_follows_its_definition(rows, bins):
    labels, probabilities, _ = rows
    expected = calibration_error_by_rows(labels, probabilities, bins)
    assert metrics.calibration_error(labels, probabilities, bins=bins) == pytest.approx(expected, abs=1e-12)


def test_bins_of_distinct_probabilities_have_equal_mass():
    probabilities = np.linspace(0.01, 0.99, 100)
    labels = np.arange(100) % 2
    expected = np.abs((probabilities - labels).reshape(10, 10).sum(1)).sum() / 100
    assert metrics.calibration_error(labels, probabilities, bins=10) == pytest.approx(expected, rel=1e-12)


def test_each_metric_equals_that_of_evaluate():
    figures = metrics.evaluate(LABELS, PROBABILITIES)
    for name, value in figures.items():
        assert getattr(metrics, name)(LABELS, PROBABILITIES) == value


def test_log_loss_of_extreme_logits_is_exact():
    logits = np.array([-800.0, -3.0, 0.0, 5.0, 800.0, 40.0])
    labels = np.array([0, 1, 0, 1, 1, 0])
    moderate = np.abs(logits) < 10
    by_probability = metrics.log_loss(labels[moderate], 1 / (1 + np.exp(-logits[moderate])))
    assert metrics.log_loss_of_logits(labels[moderate], logits[moderate]) == pytest.approx(by_probability, rel=1e-12)
    assert metrics.log_loss_of_logits(labels[[0, 4]], logits[[0, 4]]) == 0.0
    assert metrics.log_loss_of_logits(labels[[5, 5]], logits[[5, 5]].astype(np.float32), [1, 3]) == pytest.approx(40)


def test_a_certain_but_wrong_prediction_has_a_finite_loss():
    assert metrics.log_loss([1, 0], np.array([0.0, 1.0])) == pytest.approx(
        -math.log(np.finfo(np.float64).eps), rel=1e-3
    )
    assert metrics.log_loss([1], np.float32([0.0])) == pytest.approx(-math.log(np.finfo(np.float32).eps), rel=1e-6)


def test_millions_of_rows_are_counted_exactly():
    clicks, others = np.full(2_000_000, 0.75), np.full(3_000_000, 0.25)
    others[:1_500_000] = 0.75
    labels = np.concatenate([np.ones(len(clicks), np.uint8), np.zeros(len(others), np.uint8)])
    assert metrics.auc(labels, np.concatenate([clicks, others]).astype(np.float32)) == 0.75


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_an_error_unless_the_metric_is_defined(label):
    labels, probabilities = [label] * 3, [0.2, 0.4, 0.6]
    with pytest.raises(Fm2Error, match=f"AUC needs rows with and without a click, but all labels are {label}"):
        metrics.evaluate(labels, probabilities)
    with pytest.raises(Fm2Error, match=f"relative information gain needs .* all labels are {label}"):
        metrics.rig(labels, probabilities)
    assert metrics.log_loss(labels, probabilities) > 0
    assert metrics.calibration_error(labels, probabilities, bins=1) == pytest.approx(abs(0.4 - label))
    if label:
        assert metrics.calibration(labels, probabilities) == pytest.approx(0.4)
    else:
        with pytest.raises(Fm2Error, match="calibration needs clicks"):
            metrics.calibration(labels, probabilities)


@pytest.mark.parametrize(
    ("labels", "probabilities", "weights", "message"),
    [
        ([0, 1], [0.5, math.nan], None, "the probability of row 1 is nan"),
        ([0, 1], [0.5, math.inf], None, "the probability of row 1 is inf"),
        (
            [0, 1],
            [0.5, 1.5],
            None,
            r"probabilities must be between 0 and 1, got 0.5 to 1.5; log_loss_of_logits takes logits",
        ),
        ([0, 2], [0.5, 0.5], None, "the label of row 1 is 2, expected 0 or 1"),
        ([0, math.nan], [0.5, 0.5], None, "the label of row 1 is nan"),
        ([0, 1], [0.5], None, r"shapes \[\[2\], \[1\]\]"),
        ([0, 1], [0.5, 0.5], [1], r"shapes \[\[2\], \[2\], \[1\]\]"),
        ([[0, 1]], [[0.5, 0.5]], None, "expected one label, prediction and weight per row"),
        ([0, 1], [0.5, 0.5], [1, -1], "weights must not be negative or all 0, got -1.0 to 1.0"),
        ([0, 1], [0.5, 0.5], [1, math.nan], "weights must not be negative or all 0, got nan to nan"),
        ([0, 1], [0.5, 0.5], [0, 0], "weights must not be negative or all 0, got 0.0 to 0.0"),
        ([], [], None, "metrics: no rows"),
    ],
)
def test_invalid_input_is_an_error(labels, probabilities, weights, message):
    with pytest.raises(Fm2Error, match=message):
        metrics.evaluate(labels, probabilities, weights)


def test_invalid_logits_and_bins_are_an_error():
    with pytest.raises(Fm2Error, match="the logit of row 0 is nan"):
        metrics.log_loss_of_logits([1], [math.nan])
    with pytest.raises(Fm2Error, match="bins must be at least 1, got 0"):
        metrics.calibration_error(LABELS, PROBABILITIES, bins=0)
