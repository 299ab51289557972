"""The interface between models and the trainer: sparse tables, dense parameters, and logits computed from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.embedding import FlatEmbedding
from fm2.models.registry import get_spec, spec_of_class
from fm2.models.rows import Rows
from fm2.models.sparse import SparseNetwork
from fm2.models.spec import ModelSpec


class Model(nn.Module, ABC):
    """Base class of all models: ``forward`` maps rows to logits [rows].

    Rows are a tensor of ids [rows, fields], local to their field, or :class:`fm2.models.rows.TensorRows` if there are
    multi-valued fields.

    A model has two kinds of parameters. ``tables`` are sparse: a batch touches few of their rows, so they have an
    optimizer of their own. ``dense_parameters()`` are all other parameters. ``forward`` runs on any device with
    autograd; the trainer can also gather and update the table rows of a :class:`GatheredModel` itself.

    ``config`` holds plain values from which ``fm2.models.build`` constructs the same model, without its weights.
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
        """The number of features of each field, including the unknown feature."""
        return list(self.config["field_sizes"])

    @property
    def tables(self) -> dict[str, FlatEmbedding]:
        """The sparse tables by name."""
        return {name: child for name, child in self.named_children() if isinstance(child, FlatEmbedding)}

    def dense_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that are not in a table, including the bias."""
        sparse = {id(table.weight) for table in self.tables.values()}
        return [parameter for parameter in self.parameters() if id(parameter) not in sparse]

    @property
    def n_parameters(self) -> int:
        """The number of parameters without the bias, as in section 3.3 of the paper.

        The paper's formulas include a weight per feature for every model, although its FwFM, FvFM and FmFM have a
        vector per field instead (section 4.5); ``linear="features"`` reproduces the formulas. The paper's estimates for
        Criteo correspond to other dimensions than it states: 10 for FM (14.63 M) and 17 for FFM (859 M), both with
        1.33 M features. With the stated 16, and its 1,327,180 features, the numbers are 22.56 M and 808 M.
        """
        return sum(parameter.numel() for parameter in self.parameters()) - self.bias.numel()

    def statistics(self) -> dict[str, Tensor]:
        """Return the state that is saved with the parameters, such as the running means of batch normalization."""
        learned = {name for name, _ in self.named_parameters()}
        return {name: value for name, value in self.state_dict(keep_vars=True).items() if name not in learned}

    def learned(self) -> dict[str, Tensor]:
        """Return the parameters and the statistics by name: everything that a model file stores."""
        return {**dict(self.named_parameters()), **self.statistics()}

    def begin_step(self, seed: int, step: int) -> None:
        """Prepare for a training step; its random numbers depend only on the seed and the step."""
        if not self.training:
            self.train()

    def take_part(self, rows: NDArray[np.uint32], total: int) -> None:
        """Prepare for a step on these of the ``total`` rows of a batch."""

    def end_step(self, step: int) -> Mapping[str, Tensor]:
        """Return masks, by parameter name, of the weights that are pruned after this step.

        The trainer sets these weights, their averages and their optimizer state to zero. The model itself ensures that
        they receive no gradient afterwards.
        """
        return {}

    def is_settled(self, step: int) -> bool:
        """Return whether the model has its final structure; until then, the latest state counts as the best."""
        return True

    @abstractmethod
    def forward(self, rows: Rows) -> Tensor:
        """Return the logits [rows] of rows."""

    def flops_by_plan(self) -> dict[str, int]:
        """Return the number of operations per prediction by plan: as trained, then as compiled."""
        count = self.spec.count_flops
        return count(self.config) if count else {"network": self.flops()}

    def flops(self) -> int:
        """Return the number of floating-point operations per prediction, counted as in section 4.2 of the paper.

        A model whose ModelSpec has no ``count_flops`` overrides this method.
        """
        if self.spec.count_flops is None:
            raise NotImplementedError(f"{type(self).__name__} has no method flops(), and its ModelSpec no count_flops")
        return next(iter(self.flops_by_plan().values()))

    def field_matrix(self, i: int, j: int) -> Tensor:
        """Return the field matrix of fields ``i`` and ``j``, D_i × D_j."""
        raise Fm2Error(f"{self.name}: the model has no field matrices; use fm, fwfm, fvfm or fmfm")


class GatheredModel(Model):
    """Base class of models that compute a row's logit from the table rows of its ids alone.

    The trainer gathers the rows of each table natively, passes them to ``score(**rows)``, one tensor [rows, width] per
    table, and calls ``backward()`` on the loss. The tensors' ``grad`` then holds the gradients of the table rows.
    """

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        """Return the logits [rows] from the gathered embeddings [rows, D] and linear weights [rows, fields], if any."""
        assert embedding is not None
        logits = self.network(embedding) + self.bias
        return logits if linear is None else logits + linear.sum(1)

    def network(self, embedding: Tensor) -> Tensor:
        """Return the logits [rows] without bias and linear weights from concatenated embeddings [rows, D]."""
        raise NotImplementedError(f"{type(self).__name__} has neither a method network() nor score()")

    def for_scoring(self) -> GatheredModel:
        """Return the fastest model that scores rows as this one does with its current weights."""
        return self

    def sparse_network(self) -> SparseNetwork | None:
        """Return what :meth:`network` computes as sparse matrices, if it is faster to score with these."""
        return None

    def forward(self, rows: Rows) -> Tensor:
        return self.score(**{name: table(rows) for name, table in self.tables.items()})
