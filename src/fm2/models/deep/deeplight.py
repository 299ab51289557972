"""DeepLight (Deng et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models import complexity
from fm2.models.base import GatheredModel
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import Linear
from fm2.models.deep.light_scoring import PAYS, LightScoring
from fm2.models.deep.mlp import MLP
from fm2.models.deep.sparsity import Schedule, hold_zeros, smallest, zeros
from fm2.models.family.diagonal import Scalar
from fm2.models.initial import fill_normal


class DeepLight(DeepModel):
    """A field-weighted factorization machine and a perceptron that share their embeddings, and become sparse.

        Σ_i w_i + Σ_{i<j} r[i,j] <v_i, v_j> + MLP(v)

    with a weight w per feature; the authors' runs have <v_i, u_i> for it, a vector u per field.

    After ``warm_up`` steps, once in ``prune_every`` steps, the weights nearest to zero are pruned: of each hidden
    layer, of the pairs' weights r, and of all embeddings. After k further steps their share is S (1 - D^(k / Ω)), first
    quickly, then more slowly, so that what is left can make up for it. S is ``network_sparsity``, ``pair_sparsity`` and
    ``embedding_sparsity``; D is ``damping``, Ω ``damping_steps``. What is pruned stays zero (in the paper's code it may
    grow again between two prunings), in averages too: the zeros themselves are all there is to save, and a trained
    model that is trained on keeps them.

    Trained, the model scores by sparse products where these are quicker: see :class:`LightScoring`.

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
                raise Fm2Error(f"deeplight: {name} is 0; what begins at zero would stay there, as what is pruned does")
        self.scale = matrix_std
        self.interaction = Scalar(self.dims)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)
        self.schedule = Schedule(warm_up, prune_every, damping, damping_steps)
        layers = {f"mlp.layers.{at}.weight": network_sparsity for at in range(len(self.mlp.layers))}
        self._targets = {"embedding.weight": embedding_sparsity, "interaction.weight": pair_sparsity, **layers}
        for weight in self._dense():
            hold_zeros(weight)

    def _dense(self) -> list[Tensor]:
        """List what is pruned beside the embeddings: the pairs' weights, and the hidden layers'."""
        return [self.interaction.weight, *(cast("Linear", layer).weight for layer in self.mlp.layers)]

    def draw(self, source: torch.Generator) -> None:
        """Draw the pairs' weights."""
        fill_normal(self.interaction.weight, self.scale, source)

    def network(self, embedding: Tensor) -> Tensor:
        if self.training:  # so that a number that is zero has no gradient, and stays zero
            embedding = embedding * (embedding != 0)
        return self.interaction(embedding) + self.mlp(embedding)

    def end_step(self, step: int) -> Mapping[str, Tensor]:
        """Prune, if it is time to."""
        if not self.schedule.is_due(step):
            return {}
        share, parameters = self.schedule.share(step), dict(self.named_parameters())
        return {name: smallest(parameters[name], target * share) for name, target in self._targets.items() if target}

    def is_settled(self, step: int) -> bool:
        """Tell whether the model is as sparse as it was asked to become."""
        return not any(self._targets.values()) or self.schedule.is_settled(step)

    def sparsity(self) -> dict[str, float]:
        """Give the shares of weights that are zero."""
        pairs, *layers = self._dense()
        parts: dict[str, list[Tensor]] = {"network": layers, "pairs": [pairs], "embeddings": [self.embedding.weight]}
        counts = {name: (sum(map(zeros, part)), sum(map(torch.numel, part))) for name, part in parts.items()}
        return {name: pruned / max(1, whole) for name, (pruned, whole) in counts.items()}

    def for_scoring(self) -> GatheredModel:
        """Give a form with sparse products, if there are enough zeros for it to be quicker."""
        return LightScoring(self) if self.sparsity()["network"] >= PAYS else self

    def flops(self) -> int:
        """Count the operations of one prediction: FwFM with its linear part, and perceptron, without what is zero."""
        pruned, *layers = (zeros(weight) for weight in self._dense())
        return complexity.fwfm(len(self.dims), self.dims[0], pruned) + self.mlp.flops() - 2 * sum(layers)
