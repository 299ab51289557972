"""scikit-learn's own estimator checks."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fm2 import FmFMClassifier

QUICK = {"epochs": 10, "learning_rate": 0.05, "threads": 1}
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "a row of weight two is part of one batch; the same row twice is "
    "part of two, in an order that is random"
}


@pytest.fixture(autouse=True)
def _array_interface(monkeypatch):
    """Let the check run that array interfaces change nothing, which is skipped otherwise."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


@parametrize_with_checks([FmFMClassifier(**QUICK)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
