"""The protocol between the training loop and whatever updates a model's weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2._native import Dropout
from fm2.artifacts.arrays import Arrays, Saved, Stored
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.models import Model
from fm2.training.hidden import Hidden

Floats = NDArray[np.float32]


class Backend(ABC):
    """Takes training steps, one batch each, and scores rows with the current, possibly averaged, weights."""

    def __init__(
        self, model: Model, settings: Settings, numbers: Sequence[int] = (), hidden: Hidden | None = None
    ) -> None:
        """``numbers`` are the fields whose lists are the features of one number, which ``value_dropout`` keeps.

        Training steps hide the ``hidden`` features.
        """
        self.model, self.settings, self.numbers, self.hidden = model, settings, list(numbers), hidden or Hidden()
        self.steps = 0
        self._hiding = Dropout()
        fields = range(len(model.field_sizes))
        if self.hidden:
            own, parts = self.hidden.probabilities, self.hidden.parts
            self._hiding.hide([own.get(index) for index in fields], [list(parts.get(index, ())) for index in fields])

    def make_dropout(self, element: float = 0.0, field: float = 0.0) -> Dropout:
        """Return what native code drops and hides in the rows of a training step."""
        dropout = Dropout(element, field, self.settings.seed, self.settings.value_dropout, self.numbers)
        dropout.hide_like(self._hiding)
        return dropout

    @abstractmethod
    def step(
        self, rows: EncodedRows, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float
    ) -> float:
        """Learn from the rows ``rows[order]`` and return their mean loss, weighted if there are ``weights``.

        ``rate`` multiplies the learning rates; the schedule determines it.
        """

    def announce(self, rows: EncodedRows, order: NDArray[np.int64] | None) -> None:  # noqa: B027
        """Learn which rows the step after the next one takes; None if that is not known."""

    @abstractmethod
    def score(self, rows: EncodedRows) -> Floats:
        """Return the logits of rows, computed with the weights that :meth:`weights` returns."""

    @abstractmethod
    def weights(self) -> Saved:
        """Return the model's parameters by name, averaged if averaging is on."""

    @abstractmethod
    def state(self) -> Arrays:
        """Return everything that the next step depends on, except the number of steps."""

    @abstractmethod
    def load(self, state: Stored, steps: int) -> None:
        """Restore what :meth:`state` returned after this number of steps."""


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's values; a CPU tensor shares its memory with the array."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
