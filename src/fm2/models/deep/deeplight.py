"""DeepLight (Deng et al., "DeepLight: deep lightweight feature interactions for accelerating CTR prediction", 2021)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models import complexity
from fm2.models.base import GatheredModel
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, BatchNorm, Linear
from fm2.models.family.diagonal import Scalar
from fm2.models.initial import fill_normal
from fm2.models.sparse import SparseMatrix, SparseNetwork

SETTLED = 0.99


@dataclass(frozen=True)
class Schedule:
    """The fraction 1 - D^(k / Ω) of the target sparsity that is reached after k steps of pruning.

    k counts the steps after ``warm_up``, D is ``damping`` and Ω ``damping_steps``. Weights are pruned every ``every``
    steps.
    """

    warm_up: int
    every: int
    damping: float
    damping_steps: float

    def is_due(self, step: int) -> bool:
        """Return whether weights are pruned after this step."""
        return step > self.warm_up and (step - self.warm_up) % self.every == 0

    def share(self, step: int) -> float:
        """Return the fraction of the target sparsity that is reached after this step."""
        pruning_steps = max(0, step - self.warm_up) // self.every * self.every
        return 1 - math.pow(self.damping, pruning_steps / self.damping_steps)

    def is_settled(self, step: int) -> bool:
        """Return whether 99% of the target sparsity is reached; it approaches 100% without ever reaching it."""
        return self.share(step) >= SETTLED


def smallest(weight: Tensor, share: float) -> Tensor:
    """Return a mask of the fraction ``share`` of weights with the smallest magnitudes, including zeros.

    The largest weight is never included.
    """
    magnitudes = weight.detach().abs()
    count = min(round(share * magnitudes.numel()), magnitudes.numel() - 1)
    if count <= 0:
        return torch.zeros_like(magnitudes, dtype=torch.bool)
    return magnitudes <= magnitudes.view(-1).kthvalue(count).values


def keep_zeros(weight: Tensor) -> None:
    """Register a hook that sets the gradient of zero weights to zero, so that they stay zero."""
    weight.register_hook(lambda gradient: gradient * (weight.detach() != 0))  # type: ignore[no-untyped-call]


def count_zeros(weight: Tensor) -> int:
    """Return the number of weights that are zero."""
    return weight.numel() - int(weight.detach().count_nonzero())


class DeepLight(DeepModel):
    """An FwFM and a multi-layer perceptron with shared embeddings, pruned during training (Deng et al., 2021).

        logit = b + Σ_i w_i + Σ_{i<j} r[i,j] <v_i, v_j> + MLP([v_1, …, v_n])

    w is a weight per feature; the authors' runs use <v_i, u_i> with a vector u per field instead.

    After ``warm_up`` steps, the weights with the smallest magnitudes are pruned every ``prune_every`` steps: those of
    each hidden layer, the pairs' weights r, and the embeddings. k steps later, the sparsity is S (1 - D^(k / Ω)): it
    rises quickly at first and then more slowly, so that the remaining weights can adapt. S is ``network_sparsity``,
    ``pair_sparsity`` or ``embedding_sparsity``, D is ``damping`` and Ω ``damping_steps``.

    Pruned weights stay zero, also in averages and after a warm start; in the authors' code, they can grow again until
    the next pruning. A trained model scores with sparse matrix products where they are faster: :class:`LightScoring`.

    >>> model = DeepLight([10, 20, 5], dims=4, hidden=[8])
    >>> model.n_parameters == 35 + 35 * 4 + 3 + (12 * 8 + 8) + (8 + 1)
    True
    >>> model.sparsity()
    {'network': 0.0, 'pairs': 0.0, 'embeddings': 0.0}
    """

    def assemble(
        self,
        matrix_std: float,
        network_sparsity: float,
        pair_sparsity: float,
        embedding_sparsity: float,
        warm_up: int,
        prune_every: int,
        damping: float,
        damping_steps: float,
        **mlp: Any,
    ) -> None:
        for name in ("embedding_std", "matrix_std"):
            if not self.config[name]:
                raise Fm2Error(f"deeplight: {name} must not be 0, because weights that are zero stay zero")
        self.scale = matrix_std
        self.interaction = Scalar(self.dims)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)
        self.schedule = Schedule(warm_up, prune_every, damping, damping_steps)
        layers = {f"mlp.layers.{index}.weight": network_sparsity for index in range(len(self.mlp.layers))}
        self.embedding.keep_zeros = True
        self._targets = {"embedding.weight": embedding_sparsity, "interaction.weight": pair_sparsity, **layers}
        self._keep_zeros()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or unpickled model; torch does not copy the hooks of parameters."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._keep_zeros()

    def _keep_zeros(self) -> None:
        for weight in self.prunable_weights():
            keep_zeros(weight)

    def prunable_weights(self) -> list[Tensor]:
        """Return the weights that are pruned besides the embeddings: those of the pairs and of the hidden layers."""
        return [self.interaction.weight, *(cast("Linear", layer).weight for layer in self.mlp.layers)]

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial weights of the pairs."""
        fill_normal(self.interaction.weight, self.scale, source)

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding) + self.mlp(embedding)

    def end_step(self, step: int) -> Mapping[str, Tensor]:
        """Return masks of the weights to prune if pruning is due after this step."""
        if not self.schedule.is_due(step):
            return {}
        share = self.schedule.share(step)
        targets = {name: target for name, target in self._targets.items() if target}
        return {name: smallest(self.get_parameter(name), target * share) for name, target in targets.items()}

    def is_settled(self, step: int) -> bool:
        """Return whether the target sparsity is reached."""
        return not any(self._targets.values()) or self.schedule.is_settled(step)

    def sparsity(self) -> dict[str, float]:
        """Return the fraction of weights that are zero, by part of the model."""
        pairs, *layers = self.prunable_weights()
        parts: dict[str, list[Tensor]] = {"network": layers, "pairs": [pairs], "embeddings": [self.embedding.weight]}
        return {
            name: sum(map(count_zeros, weights)) / max(1, sum(map(torch.numel, weights)))
            for name, weights in parts.items()
        }

    def for_scoring(self) -> GatheredModel:
        """Return a model with sparse matrix products if there are enough zeros for it to be faster."""
        return LightScoring(self) if self.sparsity()["network"] >= MIN_SPARSITY else self

    def sparse_network(self) -> SparseNetwork | None:
        """Return the nonzero weights if there are enough zeros for sparse products to be faster."""
        scoring = self.for_scoring()
        return scoring.sparse_network() if scoring is not self else None

    def flops(self) -> int:
        """Return the number of operations per prediction: FwFM with its linear part, and perceptron; zeros are free."""
        pruned_pairs, *layer_zeros = map(count_zeros, self.prunable_weights())
        fwfm = complexity.fwfm(len(self.dims), self.dims[0], pruned_pairs)
        return fwfm + self.mlp.flops() - 2 * sum(layer_zeros)


MIN_SPARSITY = 0.87  # from here on, sparse products are faster than dense ones, for one row and for many
BLOCK_ROWS = 128  # scored at once, so that a transposed block stays in the cache


class LightScoring(GatheredModel):
    """Scores rows like a trained :class:`DeepLight` whose weights are mostly zero.

    Rows are the columns of the matrices, so that a nonzero weight multiplies many adjacent numbers. Batch
    normalization is folded into the weights of its layer.
    """

    def __init__(self, model: DeepLight) -> None:
        super().__init__(model.config)
        self.embedding, self.linear, self.bias = model.embedding, model.linear, model.bias
        self._model = [model]  # a list, so that the model is not registered as a submodule
        self._layers = [self._layer(model, index) for index in range(len(model.mlp.layers))]
        self._pairs = _sparse(model.interaction.matrices()[0].detach().triu())

    @staticmethod
    def _layer(model: DeepLight, index: int) -> tuple[Tensor, Tensor]:
        """Return a layer's matrix and its bias as a column."""
        layer = cast("Linear", model.mlp.layers[index])
        if model.mlp.norms is None:
            return _sparse(layer.weight.detach()), layer.bias.detach()[:, None]
        norm = cast("BatchNorm", model.mlp.norms[index])
        scale = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        bias = norm.bias.detach() - norm.running_mean * scale
        return _sparse(layer.weight.detach() * scale[:, None]), bias[:, None]

    def network(self, embedding: Tensor) -> Tensor:
        blocks = embedding.split(BLOCK_ROWS)  # type: ignore[no-untyped-call]
        return torch.cat([self._score_columns(block.T.contiguous()) for block in blocks])

    def _score_columns(self, v: Tensor) -> Tensor:
        """Return the logits [rows] without bias and linear part of transposed embeddings [D, rows]."""
        mlp = self._model[0].mlp
        x = v
        for weight, bias in self._layers:
            x = mlp.activation((weight @ x).add_(bias))
        by_field = v.view(len(self.field_sizes), -1)
        pairs = (self._pairs @ by_field).mul_(by_field).view_as(v).sum(0)
        assert mlp.last is not None
        return torch.addmm(mlp.last.bias, mlp.last.weight, x)[0] + pairs

    def sparse_network(self) -> SparseNetwork:
        """Return the nonzero weights as arrays."""
        mlp = self._model[0].mlp
        assert mlp.last is not None
        biases = [bias[:, 0] for _, bias in self._layers] + [mlp.last.bias.detach()]
        return SparseNetwork(
            pairs=_as_arrays(self._pairs),
            layers=[_as_arrays(weight) for weight, _ in self._layers],
            biases=torch.cat(biases).numpy(),
            last=mlp.last.weight.detach()[0].numpy(),
            activation=self.config["activation"],
        )

    def flops(self) -> int:
        return self._model[0].flops()


def _sparse(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return matrix.to_sparse_csr()


def _as_arrays(matrix: Tensor) -> SparseMatrix:
    """Convert a sparse tensor."""
    rows, columns = matrix.shape
    begins, indices = matrix.crow_indices().numpy(), matrix.col_indices().numpy()
    return SparseMatrix((rows, columns), begins.astype("uint32"), indices.astype("uint32"), matrix.values().numpy())
