"""Paired tests, compared with their definitions and with the bootstrap."""

import itertools
import time

import numpy as np
import pytest
import scipy.stats

from fm2 import Fm2Error
from fm2.evaluation import metrics, student
from fm2.evaluation.significance import (
    Difference,
    Estimates,
    auc_estimates,
    compare_auc,
    compare_log_loss,
    log_loss_estimates,
)


def draw(rows, models=2, seed=0, digits=2):
    """Return labels and correlated predictions; few digits make many ties."""
    random = np.random.default_rng(seed)
    logits = random.normal(-1, 1, rows)
    labels = (random.random(rows) < metrics.sigmoid(logits)).astype(np.uint8)
    predictions = [metrics.sigmoid(logits + random.normal(0, 0.3 + 0.2 * m, rows)) for m in range(models)]
    return labels, [np.round(p, digits).clip(0.01, 0.99) for p in predictions], random


def delong(labels, predictions, weights=None):
    """Compute DeLong's covariance literally, from the table that compares every click with every other row."""
    w = np.ones(len(labels)) if weights is None else weights
    click, other = labels == 1, labels == 0
    aucs, of_clicks, of_others = [], [], []
    for p in predictions:
        wins = (p[click][:, None] > p[other]) + 0.5 * (p[click][:, None] == p[other])
        v10 = wins @ w[other] / w[other].sum()
        v01 = w[click] @ wins / w[click].sum()
        auc = w[click] @ v10 / w[click].sum()
        aucs.append(auc)
        of_clicks.append(w[click] * (v10 - auc) / w[click].sum())
        of_others.append(w[other] * (v01 - auc) / w[other].sum())
    m, n = np.count_nonzero(w[click]), np.count_nonzero(w[other])
    s10, s01 = np.array(of_clicks), np.array(of_others)
    return np.array(aucs), s10 @ s10.T * m / (m - 1) + s01 @ s01.T * n / (n - 1)


@pytest.mark.parametrize("digits", [1, 2, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_auc_covariance_matches_the_definition(digits, weighted):
    labels, predictions, random = draw(500, models=4, digits=digits)
    weights = random.integers(0, 4, 500).astype(float) if weighted else None
    estimates = auc_estimates(labels, predictions, weights)
    aucs, covariance = delong(labels, predictions, weights)
    np.testing.assert_allclose(estimates.values, aucs, rtol=1e-12)
    np.testing.assert_allclose(estimates.covariance, covariance, rtol=1e-9, atol=1e-18)
    np.testing.assert_allclose(estimates.values, [metrics.auc(labels, p, weights) for p in predictions], rtol=1e-12)


def test_without_weights_it_is_delongs_formula():
    labels, (a, b), _ = draw(300)
    v10, v01 = [], []
    for p in (a, b):
        wins = (p[labels == 1][:, None] > p[labels == 0]) + 0.5 * (p[labels == 1][:, None] == p[labels == 0])
        v10.append(wins.mean(axis=1))
        v01.append(wins.mean(axis=0))
    covariance = np.cov(v10) / (labels == 1).sum() + np.cov(v01) / (labels == 0).sum()
    expected = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert compare_auc(labels, a, b).standard_error == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_log_loss_matches_the_paired_t_statistic(weighted):
    labels, (a, b), random = draw(400)
    weights = random.random(400) if weighted else np.ones(400)
    losses = [-(labels * np.log(p) + (1 - labels) * np.log(1 - p)) for p in (a, b)]
    share = weights / weights.sum()
    gap = losses[0] - losses[1]
    value = share @ gap
    error = np.sqrt((share**2) @ (gap - value) ** 2 * 400 / 399)
    difference = compare_log_loss(labels, a, b, weights if weighted else None)
    assert difference.value == pytest.approx(value, rel=1e-9)
    assert difference.standard_error == pytest.approx(error, rel=1e-9)
    if not weighted:
        assert error == pytest.approx(np.std(gap, ddof=1) / np.sqrt(400), rel=1e-9)


def test_the_values_are_those_of_the_metrics():
    labels, predictions, random = draw(1000, models=3)
    predictions = [p.astype(np.float32) for p in predictions]
    predictions[0][:2] = [0, 1]
    weights = random.random(1000)
    estimates = log_loss_estimates(labels, predictions, weights)
    np.testing.assert_allclose(estimates.values, [metrics.log_loss(labels, p, weights) for p in predictions])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("compare", "metric"), [(compare_auc, metrics.auc), (compare_log_loss, metrics.log_loss)])
def test_the_standard_error_matches_the_bootstrap(compare, metric, weighted):
    labels, (a, b), random = draw(2000)
    weights = random.exponential(1, 2000) if weighted else np.ones(2000)
    gaps = []
    for _ in range(400):
        rows = random.integers(0, 2000, 2000)
        gaps.append(metric(labels[rows], a[rows], weights[rows]) - metric(labels[rows], b[rows], weights[rows]))
    difference = compare(labels, a, b, weights)
    assert difference.standard_error == pytest.approx(np.std(gaps), rel=0.15)
    assert difference.value == pytest.approx(metric(labels, a, weights) - metric(labels, b, weights))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    random, covered = np.random.default_rng(1), 0
    for _ in range(300):
        labels = (random.random(400) < 0.3).astype(int)
        shared = random.normal(0, 1, 400)
        a, b = (labels + shared + random.normal(0, 1, 400) for _ in range(2))  # equally good
        low, high = compare_auc(labels, a, b).interval()
        covered += low <= 0 <= high
    assert 0.91 <= covered / 300 <= 0.985


def test_equal_predictions_do_not_differ():
    labels, (a, _), _ = draw(200)
    for difference in (compare_auc(labels, a, a), compare_log_loss(labels, a, a)):
        assert (difference.value, difference.standard_error, difference.p_value) == (0, 0, 1)
        assert difference.interval() == (0, 0)
    assert Difference(0.1, 0).p_value == 0


def test_rounding_is_no_difference():
    labels, (a, _), _ = draw(200)
    difference = compare_log_loss(labels, a.astype(np.float32), a)
    assert 0 < abs(difference.value) < 1e-6
    assert difference.p_value > 0.01


def test_logits_and_probabilities_have_the_same_auc_test():
    labels, (a, b), _ = draw(200)
    logits = [np.log(p / (1 - p)) for p in (a, b)]
    assert compare_auc(labels, *logits).standard_error == pytest.approx(compare_auc(labels, a, b).standard_error)


def test_an_integer_weight_counts_a_row_several_times_in_the_value():
    labels, (a, b), random = draw(300)
    weights = random.integers(1, 4, 300)
    repeated = [np.repeat(array, weights) for array in (labels, a, b)]
    assert compare_auc(labels, a, b, weights).value == pytest.approx(compare_auc(*repeated).value)


def test_averages_are_means_over_seeds():
    labels, predictions, _ = draw(500, models=4)
    each = log_loss_estimates(labels, predictions)
    means = each.averages([[0, 1], [2, 3]])
    losses = np.array([metrics.row_losses(labels, p) for p in predictions])
    gap = losses[:2].mean(axis=0) - losses[2:].mean(axis=0)
    difference = means.difference(0, 1)
    assert difference.value == pytest.approx(gap.mean())
    assert difference.standard_error == pytest.approx(gap.std(ddof=1) / np.sqrt(500))


def test_click_rates_have_tests():
    _, (a, b), random = draw(600)
    impressions, rates = random.integers(1, 9, 600), random.random(600).round(1)
    loss = compare_log_loss(rates, rates.clip(0.01, 0.99), b, impressions)
    assert loss.value < 0 < loss.standard_error
    auc = compare_auc(rates, a, b, impressions)
    assert auc.value == pytest.approx(metrics.auc(rates, a, impressions) - metrics.auc(rates, b, impressions))
    gaps = []
    for _ in range(400):
        rows = random.integers(0, 600, 600)
        chosen = [(rates[rows], p[rows], impressions[rows]) for p in (a, b)]
        gaps.append(metrics.auc(*chosen[0]) - metrics.auc(*chosen[1]))
    assert auc.standard_error == pytest.approx(np.std(gaps), rel=0.15)


@pytest.mark.parametrize("freedom", [1, 1.7, 4, 30, 1e4, 1e9])
def test_students_t_is_that_of_scipy(freedom):
    for t in (0.1, 1.0, 2.5, 40.0):
        assert student.two_sided(t, freedom) == pytest.approx(2 * scipy.stats.t.sf(t, freedom), rel=1e-6, abs=1e-300)
    for confidence in (0.5, 0.95, 0.9999):
        assert student.quantile(confidence, freedom) == pytest.approx(
            scipy.stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-6
        )


def trained(random, seeds, rows, models, between_seeds):
    """Draw the estimates of equally good models with several seeds each, and labels whose noise all of them share."""
    covariance = 0.5 + 0.5 * np.eye(models)
    values = random.multivariate_normal(np.zeros(models), covariance) / np.sqrt(rows)
    runs = values[:, None] + random.normal(0, between_seeds, (models, seeds))
    variances = runs.var(axis=1, ddof=1) / seeds if seeds > 1 else None
    return Estimates(runs.mean(axis=1), covariance / rows, variances, [seeds] * models)


@pytest.mark.parametrize(("seeds", "between_seeds"), [(2, 0.05), (5, 0.05)])
def test_intervals_cover_the_variation_over_seeds(seeds, between_seeds):
    random, covered, fixed = np.random.default_rng(2), 0, 0
    for _ in range(400):
        estimates = trained(random, seeds, 1000, 2, between_seeds)
        low, high = estimates.difference(0, 1).interval()
        covered += low <= 0 <= high
        low, high = Estimates(estimates.values, estimates.covariance).difference(0, 1).interval()
        fixed += low <= 0 <= high
    assert 0.92 <= covered / 400 <= 0.99
    assert fixed / 400 < 0.92  # the rows alone do not explain the differences


def test_all_pairs_together_have_the_confidence():
    random, single, together = np.random.default_rng(3), 0, 0
    confidence = trained(random, 1, 1000, 8, 0).simultaneous()  # it depends on the covariances only
    for _ in range(300):
        estimates = trained(random, 1, 1000, 8, 0)
        pairs = [estimates.difference(a, b) for a, b in itertools.combinations(range(8), 2)]
        single += all(low <= 0 <= high for low, high in (pair.interval() for pair in pairs))
        together += all(low <= 0 <= high for low, high in (pair.interval(confidence) for pair in pairs))
    assert single / 300 < 0.65
    assert 0.91 <= together / 300 <= 0.985


def test_two_models_and_models_that_predict_the_same_need_no_wider_intervals():
    labels, (a, b), _ = draw(300)
    assert auc_estimates(labels, [a, b]).simultaneous() == 0.95
    assert auc_estimates(labels, [a, a]).simultaneous() == 0.95
    assert auc_estimates(labels, [a, b, a]).simultaneous() == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: auc_estimates([0.5, 0, 0], [[0.1, 0.2, 0.3]]), "at least 2 rows with a click"),
        (lambda: auc_estimates([0, 0, 1], [[0.1, 0.2, 0.3]]), "at least 2 rows with a click"),
        (lambda: auc_estimates([0, 0, 0], [[0.1, 0.2, 0.3]]), "at least 2 rows with a click"),
        (lambda: auc_estimates([1, 1, 0, 0], [[0.1] * 4], [1, 1, 1, 0]), "at least 2 rows without a click"),
        (lambda: auc_estimates([0, 1], []), "no predictions"),
        (lambda: log_loss_estimates([0], [[0.5]]), "at least 2 rows"),
        (lambda: compare_auc([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], [0.1]), r"shapes \[\[4\], \[1\]\]"),
        (lambda: compare_log_loss([0, 1], [0.1, 1.2], [0.1, 0.2]), "between 0 and 1"),
        (lambda: compare_auc([0, 1], [0.1, np.nan], [0.1, 0.2]), "row 1 is nan"),
        (lambda: Difference(1, 1).interval(95), "confidence must be between 0 and 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(Fm2Error, match=message):
        call()


def test_many_models_on_many_rows_take_seconds():
    labels, predictions, _ = draw(200_000, models=8, digits=9)
    begin = time.process_time()
    auc_estimates(labels, predictions)
    log_loss_estimates(labels, predictions)
    assert time.process_time() - begin < 10
