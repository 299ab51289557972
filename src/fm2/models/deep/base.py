"""What all networks share: the embeddings, a linear part if there is one, and first weights that a seed decides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fm2.errors import Fm2Error, suggest
from fm2.models.base import GatheredModel
from fm2.models.deep.dropout import Noise
from fm2.models.embedding import FlatEmbedding, per_field
from fm2.models.initial import Seed, fill_normal, generator, initialize_all
from fm2.models.registry import spec_of_class
from fm2.models.spec import ModelSpec


class DeepModel(GatheredModel):
    """A network from embeddings side by side to logits: ``bias + linear part + network(embedding)``.

    A network is a class with a ModelSpec that makes its parts in :meth:`assemble`, puts them together
    in :meth:`network`, and counts what that costs in :meth:`flops`. Its keywords are the options that its declaration
    has; what is not given is the declaration's default, and all of them are in ``config``.

    A model that is ``wide`` has a weight per feature, in the table ``linear``; where it is declared as an option, that
    decides.
    """

    wide: bool = True

    def __init__(
        self,
        field_sizes: Sequence[int],
        dims: int | Sequence[int] = 8,
        *,
        embedding_std: float = 0.01,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        spec, every = spec_of_class(type(self)), per_field(dims, len(field_sizes))
        if spec.dimensions != "per_field" and len(set(every)) > 1:
            raise Fm2Error(
                f"{spec.name}: all fields need the same dimension, got {', '.join(map(str, every))}: {spec.equal_dims}"
            )
        options = self._completed(spec, options)
        super().__init__(
            {
                "model": spec.name,
                "field_sizes": list(field_sizes),
                "dims": list(every),
                "embedding_std": embedding_std,
                **{name: list(value) if isinstance(value, tuple) else value for name, value in options.items()},
            }
        )
        self.dims = every
        self.embedding = FlatEmbedding(field_sizes, every)
        self.noise = Noise()
        self.wide = options.pop("wide", self.wide)
        self.assemble(**options)
        self.linear = FlatEmbedding(field_sizes, 1) if self.wide else None
        source = generator(seed)
        fill_normal(self.embedding.weight, embedding_std, source)
        initialize_all(self, source)

    @staticmethod
    def _completed(spec: ModelSpec, given: dict[str, Any]) -> dict[str, Any]:
        """Return all options, with defaults for those that are not given."""
        for name in given:
            if name not in spec.option_names:
                raise Fm2Error(f"{spec.name}: unknown option '{name}'; {suggest(name, spec.option_names)}")
        try:
            return {option.name: option.checked(given.get(option.name, option.default)) for option in spec.options}
        except ValueError as error:
            raise Fm2Error(f"{spec.name}: {error}") from error

    @abstractmethod
    def assemble(self, *args: Any, **options: Any) -> None:
        """Make the parts from the declared options; ``embedding``, ``dims`` and ``noise`` are there already.

        Parameters are drawn later: by the parts themselves where they have a method ``draw``.
        """

    @abstractmethod
    def network(self, embedding: Tensor) -> Tensor:
        """Give the logits [rows], but for bias and linear part, from gathered embeddings [rows, D]."""

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        """Give the logits [rows] from the gathered embeddings [rows, D] and, if there are any, linear weights."""
        assert embedding is not None
        logits = self.network(embedding) + self.bias
        return logits if linear is None else logits + linear.sum(1)

    def by_field(self, embedding: Tensor) -> Tensor:
        """Give gathered embeddings of equal dimensions as [rows, fields, K]."""
        return embedding.view(-1, len(self.dims), self.dims[0])

    def begin_step(self, seed: int, step: int) -> None:
        """Get ready to learn from a batch: what is dropped depends on the seed and the step alone."""
        super().begin_step(seed, step)
        self.noise.restart(seed, step)

    def share_threads(self, threads: int) -> int:
        """Take threads for parts that are native code, and tell how many are left for torch: here, all of them."""
        return threads

    def linear_flops(self) -> int:
        """Count the linear part's operations, two per field as in the paper."""
        return 2 * len(self.dims) if self.wide else 0
