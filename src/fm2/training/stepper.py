"""What the loop asks of whatever moves a model's weights."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2.models import Model
from fm2.training.checkpoints import Arrays, Saved, Stored
from fm2.training.settings import Settings

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]


class Stepper(ABC):
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


class DenseOptimiser:
    """Torch's Adam for the parameters that are in no table, with their moving average beside them."""

    def __init__(self, parameters: dict[str, torch.nn.Parameter], settings: Settings) -> None:
        self.parameters, self._decay, self._rate = parameters, float(np.float32(settings.average)), settings.dense_rate
        self._optimiser = torch.optim.Adam(parameters.values(), lr=settings.dense_rate, fused=True)
        self._average = [torch.zeros_like(parameter) for parameter in parameters.values()] if self._decay else []
        self._steps = 0

    def step(self, rate: float) -> None:
        """Move the parameters by their gradients, and clear these."""
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate * rate
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._steps += 1
        if self._average:
            torch._foreach_lerp_(self._average, [p.detach() for p in self.parameters.values()], 1 - self._decay)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the averages in the parameters' place for a while."""
        own = [parameter.data for parameter in self.parameters.values()]
        for parameter, average in zip(self.parameters.values(), self.averages().values(), strict=True):
            parameter.data = average
        try:
            yield
        finally:
            for parameter, data in zip(self.parameters.values(), own, strict=True):
                parameter.data = data

    def averages(self) -> dict[str, torch.Tensor]:
        """Give the parameters by name, averaged where averaging is on."""
        values = [parameter.detach() for parameter in self.parameters.values()]
        if self._average and self._steps:
            values = [average / (1 - self._decay**self._steps) for average in self._average]
        return dict(zip(self.parameters, values, strict=True))

    def state(self) -> Arrays:
        """Give parameters, averages and moments by name."""
        arrays: dict[str, NDArray[Any]] = {f"dense.{name}": to_numpy(p) for name, p in self.parameters.items()}
        arrays |= {
            f"dense.{name}.average": to_numpy(a) for name, a in zip(self.parameters, self._average, strict=False)
        }
        for index, name in enumerate(self.parameters):
            moments: dict[str, Any] = self._optimiser.state_dict()["state"].get(index, {})
            arrays |= {f"dense.{name}.{moment}": to_numpy(torch.as_tensor(value)) for moment, value in moments.items()}
        return arrays

    def load(self, arrays: Stored, steps: int) -> None:
        """Go back to what :meth:`state` gave after so many steps."""
        self._steps = steps
        saved = self._optimiser.state_dict()
        with torch.no_grad():
            for index, (name, parameter) in enumerate(self.parameters.items()):
                parameter.copy_(torch.from_numpy(arrays[f"dense.{name}"]))
                if self._average:
                    self._average[index].copy_(torch.from_numpy(arrays[f"dense.{name}.average"]))
                moments = ("step", "exp_avg", "exp_avg_sq")
                if f"dense.{name}.step" in arrays:
                    saved["state"][index] = {m: torch.from_numpy(arrays[f"dense.{name}.{m}"]) for m in moments}
        self._optimiser.load_state_dict(saved)


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Give a tensor's values; the memory is shared where the tensor is on the CPU."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
