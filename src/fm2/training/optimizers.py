"""The optimizers of the embedding tables, and Adam for all other parameters."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch.optim.adam import adam

from fm2._native import Optimizer
from fm2.artifacts.arrays import Arrays, Stored
from fm2.artifacts.settings import Settings
from fm2.models import FlatEmbedding, Model
from fm2.training import tables
from fm2.training.backend import Floats, to_numpy

FTRL_BETA = 1.0
ADAM: dict[str, Any] = {
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
    "fused": True,
}


def make_optimizer(settings: Settings) -> Optimizer:
    """Create the optimizer for the embedding tables."""
    rate, l2 = settings.learning_rate, settings.l2
    if settings.optimizer == "ftrl":
        return tables.ftrl(rate, FTRL_BETA, l1=settings.l1, l2=l2)
    if settings.optimizer == "adam":
        return tables.adam(rate, l2=l2)
    return tables.adagrad(rate, l2=l2)


def table_settings(settings: Settings, table: FlatEmbedding) -> Settings:
    """Return the settings of a table: the penalty of features' weights in a linear part has a scale of its own.

    >>> settings = Settings.of("fm", l2=0.1, linear_l2_scale=0.5)
    >>> [table_settings(settings, FlatEmbedding([3], 1, linear=linear)).l2 for linear in (False, True)]
    [0.1, 0.05]
    """
    return dataclasses.replace(settings, l2=settings.l2 * settings.linear_l2_scale) if table.linear else settings


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


class DenseOptimizer:
    """Torch's Adam for a model's dense parameters, with a moving average of parameters and statistics.

    It calls Adam as a function, because torch's class takes three times as long for few parameters. ``dense_l2``
    applies to all parameters. Weights decay as in AdamW, but only those of matrices.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        tables = {f"{name}.weight" for name in model.tables}
        self._parameters = {name: value for name, value in model.named_parameters() if name not in tables}
        self._averaged = {**self._parameters, **model.statistics()}
        self._rate, self._weight_decay = settings.dense_learning_rate, settings.weight_decay
        self._adam = {**ADAM, "weight_decay": settings.dense_l2}  # Adam's weight decay is an L2 penalty
        self._decay = float(np.float32(settings.ema_decay))  # rounded as in native code
        values = [parameter.detach() for parameter in self._parameters.values()]
        self._first, self._second = ([torch.zeros_like(value) for value in values] for _ in range(2))
        self._counts = [torch.zeros((), device=value.device) for value in values]
        self._average = [torch.zeros_like(value) for value in self._averaged.values()] if self._decay else []
        self._steps = 0

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the dense parameters."""
        return list(self._parameters.values())

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the parameters by their gradients, and clear the gradients."""
        values = [parameter.detach() for parameter in self._parameters.values()]
        gradients = [cast("torch.Tensor", parameter.grad) for parameter in self._parameters.values()]
        if self._weight_decay:
            matrices = [value for value in values if value.ndim > 1]
            torch._foreach_mul_(matrices, 1 - self._rate * rate * self._weight_decay)
        adam(values, gradients, self._first, self._second, [], self._counts, lr=self._rate * rate, **self._adam)
        for parameter in self._parameters.values():
            parameter.grad = None
        self._steps += 1
        if self._average:
            torch._foreach_lerp_(self._average, self._values(), 1 - self._decay)

    def clear(self, name: str, mask: torch.Tensor) -> None:
        """Set the masked weights of a parameter to zero, together with their average and moments."""
        index = list(self._parameters).index(name)
        for values in (self._values(), self._first, self._second, self._average):
            if values:
                values[index].masked_fill_(mask, 0)

    def _values(self) -> list[torch.Tensor]:
        return [value.detach() for value in self._averaged.values()]

    @contextlib.contextmanager
    def using_averages(self) -> Iterator[None]:
        """Replace parameters and statistics by their averages within a context."""
        current = [value.data for value in self._averaged.values()]
        for value, average in zip(self._averaged.values(), self.averages().values(), strict=True):
            value.data = average
        try:
            yield
        finally:
            for value, data in zip(self._averaged.values(), current, strict=True):
                value.data = data

    def averages(self) -> dict[str, torch.Tensor]:
        """Return the parameters and statistics by name, averaged if averaging is on."""
        values = self._values()
        if self._average and self._steps:
            values = [average / (1 - self._decay**self._steps) for average in self._average]
        return dict(zip(self._averaged, values, strict=True))

    def state(self) -> Arrays:
        """Return parameters, statistics, averages and moments by name."""
        return {name: to_numpy(value) for name, value in self._state().items()}

    def load(self, arrays: Stored, steps: int) -> None:
        """Restore what :meth:`state` returned after this number of steps."""
        self._steps = steps
        for count in self._counts:
            count.fill_(steps)
        for name, value in self._state().items():
            value.copy_(torch.from_numpy(arrays[name]))

    def _state(self) -> dict[str, torch.Tensor]:
        state = {f"dense.{name}": value.detach() for name, value in self._averaged.items()}
        kinds = {"first": self._first, "second": self._second, "average": self._average}
        for kind, values in kinds.items():  # statistics come last and have no moments
            state |= {f"dense.{name}.{kind}": value for name, value in zip(self._averaged, values, strict=False)}
        return state
