"""The logistic loss of a batch, against torch's in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fm2
from fm2 import _native
from fm2.training.tables import log_loss

rng = np.random.default_rng(6)


@pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rates", [False, True])
def test_log_loss_and_its_gradient(level: str, weighted: bool, rates: bool) -> None:
    logits = np.concatenate([rng.normal(0, 8, 1000), [0, -0.0, 1e-4, -1e-4, 30, -30, 86, -86, 1000, -1000]]).astype(
        np.float32
    )
    labels = rng.random(len(logits)).astype(np.float32)  # click rates
    if not rates:
        labels = np.round(labels)
    weights = rng.random(len(logits)).astype(np.float32) if weighted else None
    slopes = np.empty_like(logits)
    loss = _native.log_loss(logits, labels, weights, slopes, level)
    z = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    share = torch.ones_like(z) / len(z) if weights is None else torch.tensor(weights / weights.sum(dtype=np.float64))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        z, torch.tensor(labels).double(), share, reduction="sum"
    )
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(slopes, z.grad, rtol=1e-6, atol=3e-7 / len(z))
    assert np.isnan(log_loss(np.array([np.nan], dtype=np.float32), np.ones(1, dtype=np.float32))[0])


def test_mismatched_rows_and_zero_weights_raise_errors() -> None:
    rows = np.zeros(10, dtype=np.float32)
    for labels, weights in [(rows[:9], None), (rows, rows[:9]), (rows, rows), (rows, rows - 1)]:
        with pytest.raises(ValueError, match="log_loss"):
            log_loss(rows, labels, weights)
    with pytest.raises(TypeError):
        log_loss(rows.astype(np.float64), rows)
