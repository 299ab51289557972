"""What a trainer may rely on: a model is sparse tables, dense parameters, and a way from them to logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.embedding import FlatEmbedding
from fm2.models.registry import get_spec, spec_of_class
from fm2.models.spec import ModelSpec


class Model(nn.Module, ABC):
    """A model from ids [rows, fields], local to their field, to logits [rows].

    The parameters are of two kinds. ``tables`` are sparse: a batch touches few of their rows, and they want an
    optimizer of their own. ``dense_parameters()`` are all the others. ``forward(ids)`` works on any device with plain
    autograd; a ``GatheredModel`` can also be driven by a trainer that gathers and updates the rows itself.

    ``config`` holds plain values from which ``fm2.models.build`` makes the model anew, apart from what it has learned.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config if "model" in config else {"model": spec_of_class(type(self)).name, **config}
        self.bias = nn.Parameter(torch.zeros(()))

    @property
    def name(self) -> str:
        """The model's name in the registry."""
        return str(self.config["model"])

    @property
    def spec(self) -> ModelSpec:
        """The model's declaration."""
        return get_spec(self.name)

    @property
    def field_sizes(self) -> list[int]:
        """The number of features of every field, the unknown one included."""
        return list(self.config["field_sizes"])

    @property
    def tables(self) -> dict[str, FlatEmbedding]:
        """The sparse tables by name."""
        return {name: child for name, child in self.named_children() if isinstance(child, FlatEmbedding)}

    def dense_parameters(self) -> list[nn.Parameter]:
        """List the parameters that are in no table, the bias among them."""
        sparse = {id(table.weight) for table in self.tables.values()}
        return [parameter for parameter in self.parameters() if id(parameter) not in sparse]

    @property
    def n_parameters(self) -> int:
        """The number of parameters, as the paper's section 3.3 counts them: without the bias.

        The formulas there give every model a weight per feature, though the paper's own FwFM, FvFM and FmFM have a
        vector per field instead (section 4.5); ``linear="features"`` gives what they give. The estimates there for
        Criteo were made with other dimensions than the paper says: 10 for FM (14.63 M) and 17 for FFM (859 M); with 16
        they are 22.56 M and 808 M.
        """
        return sum(parameter.numel() for parameter in self.parameters()) - self.bias.numel()

    def statistics(self) -> dict[str, Tensor]:
        """Give what has to be kept beside the parameters, such as the means that a normalization has seen."""
        learned = {name for name, _ in self.named_parameters()}
        return {name: value for name, value in self.state_dict(keep_vars=True).items() if name not in learned}

    def begin_step(self, seed: int, step: int) -> None:
        """Get ready to learn from a batch; what is random in it depends on the seed and the step alone."""
        if not self.training:
            self.train()

    def end_step(self, step: int) -> Mapping[str, Tensor]:
        """Tell, after a step, which weights are zero from now on: masks of parameters by their names.

        Whoever trains the model clears these weights, their averages, and what its optimizer remembers of them. That
        they have no gradient later is the model's own care.
        """
        return {}

    def is_settled(self, step: int) -> bool:
        """Tell whether the model is by now what it was asked to become; until it is, the newest is kept as the best."""
        return True

    @abstractmethod
    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits [rows] of ids [rows, fields]."""

    def flops_by_plan(self) -> dict[str, int]:
        """Count the operations of one prediction by the plan that computes it: as trained, then as compiled."""
        count = self.spec.count_flops
        return count(self.config) if count else {"network": self.flops()}

    def flops(self) -> int:
        """Count the floating point operations of one prediction as the paper does (section 4.2).

        A model whose ModelSpec has no ``count_flops`` overrides this method.
        """
        if self.spec.count_flops is None:
            raise NotImplementedError(f"{type(self).__name__} has no method flops(), and its ModelSpec no count_flops")
        return next(iter(self.flops_by_plan().values()))

    def field_matrix(self, i: int, j: int) -> Tensor:
        """Give the matrix through which fields ``i`` and ``j`` interact, D_i × D_j, in the united framework."""
        raise Fm2Error(f"{self.name}: there are no field matrices; fm, fwfm, fvfm and fmfm have them")


class GatheredModel(Model):
    """A model that needs no more of a row than the weights its ids name, gathered from each table.

    A trainer that gathers natively calls ``score(**rows)`` with one tensor [rows, width] per table, by the table's
    name, calls ``backward()`` on the loss, and finds in the tensors' ``grad`` what to update the tables' rows with.
    """

    @abstractmethod
    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        """Give the logits [rows] from the gathered rows of the tables ``embedding`` and ``linear``."""

    def for_scoring(self) -> GatheredModel:
        """Give what scores rows as this model does with its weights as they are now, as quickly as these allow."""
        return self

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits [rows] of ids [rows, fields]."""
        return self.score(**{name: table(ids) for name, table in self.tables.items()})
