"""The native optimizers that settings ask for, and their initial state."""

from __future__ import annotations

from typing import Any

import numpy as np

from fm2.artifacts.settings import Settings
from fm2.training import tables
from fm2.training.tables import Floats, Optimizer

FTRL_BETA = 1.0


def make_optimizer(settings: Settings) -> Optimizer:
    """Create the optimizer for the embedding tables."""
    rate, l2 = settings.learning_rate, settings.l2
    if settings.optimizer == "ftrl":
        return tables.ftrl(rate, FTRL_BETA, l1=settings.l1, l2=l2)
    if settings.optimizer == "adam":
        return tables.adam(rate, l2=l2)
    return tables.adagrad(rate, l2=l2)


def initial_state(settings: Settings, weights: Floats, l2_scale: Floats | float = 1.0, regularized: bool = True) -> Any:
    """Return the optimizer's initial state of some weights.

    FTRL derives weights from its state, so the state has to reproduce the initial weights.
    """
    if settings.optimizer == "adagrad":
        return settings.initial_accumulator
    if settings.optimizer == "adam":
        return 0.0
    l1, l2 = (settings.l1, settings.l2) if regularized else (0.0, 0.0)
    pull = FTRL_BETA / settings.learning_rate + l2 * l2_scale
    return -weights * pull - np.sign(weights) * np.float32(l1)
