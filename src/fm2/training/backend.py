"""What the loop asks of whatever moves a model's weights."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.adam import adam

from fm2.artifacts.arrays import Arrays, Saved, Stored
from fm2.artifacts.settings import Settings
from fm2.models import Model

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]


class Backend(ABC):
    """Takes steps, one batch each, and scores rows with the weights as they are, or as they are on average.

    ``rate`` is what the schedule multiplies the learning rates with.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.steps = 0

    @abstractmethod
    def step(self, ids: Ids, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float) -> float:
        """Learn from the rows ``ids[order]``; give their mean loss, weighted if there are weights."""

    @abstractmethod
    def logits(self, ids: Ids) -> Floats:
        """Score rows with the weights that :meth:`weights` gives."""

    @abstractmethod
    def weights(self) -> Saved:
        """Give the model's parameters by name, averaged where averaging is on."""

    @abstractmethod
    def state(self) -> Arrays:
        """Give everything that the next step depends on, beside the number of steps."""

    @abstractmethod
    def load(self, state: Stored, steps: int) -> None:
        """Go back to what :meth:`state` gave after so many steps."""


class DenseOptimizer:
    """Torch's Adam for the parameters that are in no table; beside them, their moving average and the statistics'.

    It is Adam as a function: torch's class takes three times as long where parameters are few. Weights decay as in
    AdamW, those of matrices alone.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        sparse = {f"{name}.weight" for name in model.tables}
        self._parameters = {name: value for name, value in model.named_parameters() if name not in sparse}
        self._kept = {**self._parameters, **model.statistics()}
        self._rate, self._weight_decay = settings.dense_learning_rate, settings.weight_decay
        self._decay = float(np.float32(settings.ema_decay))  # as native code has it
        values = [parameter.detach() for parameter in self._parameters.values()]
        self._first, self._second = ([torch.zeros_like(value) for value in values] for _ in range(2))
        self._counts = [torch.zeros((), device=value.device) for value in values]
        self._average = [torch.zeros_like(value) for value in self._kept.values()] if self._decay else []
        self._steps = 0

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the parameters by their gradients, and clear these."""
        values = [parameter.detach() for parameter in self._parameters.values()]
        slopes = [cast("torch.Tensor", parameter.grad) for parameter in self._parameters.values()]
        if self._weight_decay:
            matrices = [value for value in values if value.ndim > 1]
            torch._foreach_mul_(matrices, 1 - self._rate * rate * self._weight_decay)
        adam(
            values,
            slopes,
            self._first,
            self._second,
            [],
            self._counts,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._rate * rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        for parameter in self._parameters.values():
            parameter.grad = None
        self._steps += 1
        if self._average:
            torch._foreach_lerp_(self._average, self._values(), 1 - self._decay)

    def clear(self, name: str, gone: torch.Tensor) -> None:
        """Set some weights of a parameter to zero, with their average and moments."""
        at = list(self._parameters).index(name)
        for values in (self._values(), self._first, self._second, self._average):
            if values:
                values[at].masked_fill_(gone, 0)

    def _values(self) -> list[torch.Tensor]:
        return [value.detach() for value in self._kept.values()]

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the averages in the place of parameters and statistics for a while."""
        own = [value.data for value in self._kept.values()]
        for value, average in zip(self._kept.values(), self.averages().values(), strict=True):
            value.data = average
        try:
            yield
        finally:
            for value, data in zip(self._kept.values(), own, strict=True):
                value.data = data

    def averages(self) -> dict[str, torch.Tensor]:
        """Give the parameters and statistics by name, averaged where averaging is on."""
        values = self._values()
        if self._average and self._steps:
            values = [average / (1 - self._decay**self._steps) for average in self._average]
        return dict(zip(self._kept, values, strict=True))

    def state(self) -> Arrays:
        """Give parameters, statistics, averages and moments by name."""
        return {name: to_numpy(value) for name, value in self._parts().items()}

    def load(self, arrays: Stored, steps: int) -> None:
        """Go back to what :meth:`state` gave after so many steps."""
        self._steps = steps
        for count in self._counts:
            count.fill_(steps)
        for name, value in self._parts().items():
            value.copy_(torch.from_numpy(arrays[name]))

    def _parts(self) -> dict[str, torch.Tensor]:
        """Give all that has to be remembered, beside the number of steps."""
        parts = {f"dense.{name}": value.detach() for name, value in self._kept.items()}
        kinds = {"first": self._first, "second": self._second, "average": self._average}
        for kind, values in kinds.items():  # of the moments, statistics have none; they are the last
            parts |= {f"dense.{name}.{kind}": value for name, value in zip(self._kept, values, strict=False)}
        return parts


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Give a tensor's values; the memory is shared where the tensor is on the CPU."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
