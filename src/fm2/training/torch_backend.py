"""Training with torch alone, on any device. On a CPU it is slower than native code, and the reference for its tests."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fm2.artifacts.arrays import Arrays, Stored
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.models import GatheredModel, Model
from fm2.models.rows import Rows, TensorLists, TensorRows, to_tensors
from fm2.training.backend import Backend, Floats, to_numpy
from fm2.training.hidden import Hidden, hide
from fm2.training.optimizers import DenseOptimizer, table_settings
from fm2.training.unknown import UnknownFeatures


def check_device(name: str) -> torch.device:
    """Return a device, or raise an error if it is not available."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise Fm2Error(f"train: device '{name}' is not available: {error}") from error
    return device


class TorchBackend(Backend):
    """Uses autograd for everything, and torch's sparse Adagrad or Adam for the touched rows of the tables.

    With ``dense_adam``, every step updates all rows: those that are not in the batch have the gradient of the L2
    penalty, and keep moving by their momentum, as in libraries without sparse gradients.

    ``l2_scale`` multiplies the l2 of every element of each table. The averages of tables with ``unknown`` features have
    these shrunk.
    """

    def __init__(
        self,
        model: Model,
        settings: Settings,
        l2_scale: dict[str, Floats],
        numbers: Sequence[int] = (),
        unknown: Mapping[str, UnknownFeatures] | None = None,
        hidden: Hidden | None = None,
    ) -> None:
        super().__init__(model, settings, numbers, hidden)
        self._unknown = unknown or {}
        self._device = check_device(settings.device)
        model.to(self._device)
        for table in model.tables.values():
            table.sparse = settings.optimizer != "dense_adam"
        tables = {f"{name}.weight": table.weight for name, table in model.tables.items()}
        self._tables = tables
        penalties = {name: table_settings(settings, table).l2 for name, table in model.tables.items()}
        self._l2 = {f"{name}.weight": self._tensor(scale * penalties[name]) for name, scale in l2_scale.items()}
        self._dense = DenseOptimizer(model, settings)
        self._sparse = self._make_optimizer(list(tables.values()))
        self._average = {n: torch.zeros_like(w) for n, w in tables.items()} if settings.ema_decay else {}
        self._random = torch.Generator(self._device)

    def _make_optimizer(self, tables: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        if self.settings.optimizer == "adagrad":
            squares = self.settings.initial_accumulator
            return torch.optim.Adagrad(tables, lr=self.settings.learning_rate, initial_accumulator_value=squares)
        if self.settings.optimizer == "adam":
            return torch.optim.SparseAdam(tables, lr=self.settings.learning_rate)
        if self.settings.optimizer == "dense_adam":
            return torch.optim.Adam(tables, lr=self.settings.learning_rate, foreach=False)
        raise Fm2Error(f"train: the optimizer {self.settings.optimizer} requires device cpu")

    def _tensor(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self._device)

    def step(
        self, rows: EncodedRows, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float
    ) -> float:
        with warnings.catch_warnings():
            # Torch warns about every sparse tensor, even its own optimizers', that its indices are not checked.
            warnings.filterwarnings("ignore", "Sparse invariant checks")
            return self._step(rows, order, labels, weights, rate)

    def _step(
        self, rows: EncodedRows, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float
    ) -> float:
        self.steps += 1
        self.model.begin_step(self.settings.seed, self.steps)
        seen = hide(rows[order], self.hidden, np.random.default_rng([self.settings.seed, self.steps]))
        logits = self._forward(to_tensors(seen, self._device))
        weight = None if weights is None else self._tensor(weights)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, self._tensor(labels), weight, reduction="sum"
        )
        loss = losses / (len(labels) if weights is None else float(weights.sum()))
        loss.backward()  # type: ignore[no-untyped-call]
        self._add_l2()
        for group in self._sparse.param_groups:
            group["lr"] = self.settings.learning_rate * rate
        self._sparse.step()
        self._sparse.zero_grad(set_to_none=True)
        self._dense.step(rate)
        for name, average in self._average.items():
            average.lerp_(self._tables[name].detach(), 1 - self.settings.ema_decay)
        for name, mask in self.model.end_step(self.steps).items():
            self._clear(name, mask)
        return float(loss.detach())

    @torch.no_grad()
    def _clear(self, name: str, mask: Tensor) -> None:
        """Set weights to zero, together with the optimizer's state and the average."""
        weight = self._tables.get(name)
        if weight is None:
            self._dense.clear(name, mask)
            return
        state = [value for value in self._sparse.state[weight].values() if isinstance(value, Tensor)]
        for values in (weight, *state, *([self._average[name]] if self._average else [])):
            if values.shape == weight.shape:  # unlike the number of steps
                values.masked_fill_(mask, 0)

    def _forward(self, rows: Rows) -> Tensor:
        self._random.manual_seed(self.settings.seed * 1_000_003 + self.steps)
        if self.settings.value_dropout and isinstance(rows, TensorRows):
            values = {field: lists for field, lists in rows.lists.items() if field not in self.numbers}
            rows = rows.replace_weights({field: self._drop_values(lists) for field, lists in values.items()})
        if not isinstance(self.model, GatheredModel) or not (self.settings.dropout or self.settings.field_dropout):
            return cast("Tensor", self.model(rows))
        gathered = {name: table(rows) for name, table in self.model.tables.items()}
        return self.model.score(**{name: self._drop(name, values) for name, values in gathered.items()})

    def _drop_values(self, lists: TensorLists) -> Tensor:
        """Return the weights of a multi-valued field's values, some of them dropped."""
        dropped = self.settings.value_dropout
        kept = torch.rand(len(lists), generator=self._random, device=self._device) >= dropped
        return lists.weight * kept / (1 - dropped)

    def _drop(self, name: str, rows: Tensor) -> Tensor:
        """Drop elements and entire fields of gathered embeddings, but no linear weights."""
        if name != "embedding":
            return rows
        dims = torch.tensor(self.model.tables[name].dims, device=self._device)
        fields = torch.rand(len(rows), len(dims), generator=self._random, device=self._device)
        kept = (fields >= self.settings.field_dropout).repeat_interleave(dims, 1)
        kept &= torch.rand(rows.shape, generator=self._random, device=self._device) >= self.settings.dropout
        return rows * kept / ((1 - self.settings.dropout) * (1 - self.settings.field_dropout))

    def _add_l2(self) -> None:
        if not self.settings.l2:
            return
        for name, weight in self._tables.items():
            gradient = weight.grad
            if gradient is None:
                continue
            if not gradient.is_sparse:
                gradient.addcmul_(weight.detach(), self._l2[name])
            else:
                touched = gradient._indices()[0]
                gradient._values().add_(weight.detach()[touched] * self._l2[name][touched])

    @torch.no_grad()
    def score(self, rows: EncodedRows) -> Floats:
        self.model.eval()
        logits: Tensor = torch.func.functional_call(self.model, self._averaged(), (to_tensors(rows, self._device),))
        return to_numpy(logits)

    def _averaged(self) -> dict[str, Tensor]:
        total = 1 - self.settings.ema_decay**self.steps
        tables = {name: average / total for name, average in self._average.items()} if total else {}
        for name, unknown in self._unknown.items():
            if tables:
                tables[f"{name}.weight"] = self._shrink(tables[f"{name}.weight"], unknown)
        return {**self._dense.averages(), **(tables or self._tables)}

    def _shrink(self, average: Tensor, unknown: UnknownFeatures) -> Tensor:
        values = to_numpy(average)
        unknown.shrink(values)
        return torch.from_numpy(values).to(self._device)

    def weights(self) -> Arrays:
        return {name: to_numpy(value) for name, value in self._averaged().items()}

    def state(self) -> Arrays:
        arrays = self._dense.state()
        arrays |= {f"table.{name}": to_numpy(weight) for name, weight in self._tables.items()}
        arrays |= {f"table.{name}.average": to_numpy(average) for name, average in self._average.items()}
        for index, entry in self._sparse.state_dict()["state"].items():
            arrays |= {f"sparse.{index}.{key}": to_numpy(torch.as_tensor(value)) for key, value in entry.items()}
        return arrays

    def load(self, state: Stored, steps: int) -> None:
        self.steps = steps
        self._dense.load(state, steps)
        with torch.no_grad():
            for name, weight in self._tables.items():
                weight.copy_(self._tensor(state[f"table.{name}"]))
            for name, average in self._average.items():
                average.copy_(self._tensor(state[f"table.{name}.average"]))
        saved = self._sparse.state_dict()
        for key, value in state.items():
            if key.startswith("sparse."):
                _, index, name = key.split(".")
                entry = saved["state"].setdefault(int(index), {})
                is_count = name == "step" and self.settings.optimizer == "adam"
                entry[name] = int(value) if is_count else self._tensor(value)
        self._sparse.load_state_dict(saved)
