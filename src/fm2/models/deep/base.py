"""The base class of all networks: embeddings, an optional linear part, and initial weights from a seed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fm2.errors import Fm2Error, suggest
from fm2.models.base import GatheredModel
from fm2.models.deep.layers import Noise, count_flops
from fm2.models.embedding import FlatEmbedding, check_owners, per_field
from fm2.models.initial import Seed, fill_normal, generator, initialize_all
from fm2.models.registry import spec_of_class
from fm2.models.spec import ModelSpec


class DeepModel(GatheredModel):
    """Base class of networks: the logit is ``bias + linear part + network(embedding)``.

    A subclass has a ModelSpec. It creates its layers in :meth:`assemble` and applies them in :meth:`network`. Its
    keyword arguments are its declared options, with their declared defaults; ``config`` contains all of them.

    ``owners`` has, for each field, the index of the field whose embeddings it uses; without it, each has its own.

    A ``wide`` model has a weight per feature, in the table ``linear``. The option ``wide``, if declared, overrides the
    class attribute.
    """

    wide: bool = True

    def __init__(
        self,
        field_sizes: Sequence[int],
        dims: int | Sequence[int] = 8,
        *,
        embedding_std: float = 0.01,
        owners: Sequence[int] = (),
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        spec = spec_of_class(type(self))
        field_dims = per_field(dims, len(field_sizes), spec.name)
        if spec.dimensions != "per_field" and len(set(field_dims)) > 1:
            raise Fm2Error(
                f"{spec.name}: the fields have dimensions {', '.join(map(str, field_dims))}; they must be equal, "
                f"because {spec.equal_dims}"
            )
        check_owners(owners, field_sizes, field_dims, spec.name)
        options = self._with_defaults(spec, options)
        super().__init__(
            {
                "model": spec.name,
                "field_sizes": list(field_sizes),
                "dims": list(field_dims),
                "embedding_std": embedding_std,
                **{name: list(value) if isinstance(value, tuple) else value for name, value in options.items()},
                **({"owners": list(owners)} if owners else {}),
            }
        )
        self.dims = field_dims
        self.embedding = FlatEmbedding(field_sizes, field_dims, owners=owners)
        self.noise = Noise()
        self.wide = options.pop("wide", self.wide)
        self.assemble(**options)
        self.linear = FlatEmbedding(field_sizes, 1, linear=True) if self.wide else None
        source = generator(seed)
        fill_normal(self.embedding.weight, embedding_std, source)
        initialize_all(self, source)

    @staticmethod
    def _with_defaults(spec: ModelSpec, options: dict[str, Any]) -> dict[str, Any]:
        """Return all declared options, checked, with defaults for those that are not passed."""
        for name in options:
            if name not in spec.option_names:
                raise Fm2Error(f"{spec.name}: unknown option '{name}'; {suggest(name, spec.option_names)}")
        try:
            return {option.name: option.checked(options.get(option.name, option.default)) for option in spec.options}
        except ValueError as error:
            raise Fm2Error(f"{spec.name}: {error}") from error

    @abstractmethod
    def assemble(self, *args: Any, **options: Any) -> None:
        """Create the modules from the declared options; ``embedding``, ``dims`` and ``noise`` already exist.

        The parameters are drawn afterwards, by each module's own ``draw`` method.
        """

    @abstractmethod
    def network(self, embedding: Tensor) -> Tensor:
        """Return the logits [rows] without bias and linear part from concatenated embeddings [rows, D]."""

    def by_field(self, embedding: Tensor) -> Tensor:
        """Reshape embeddings of equal dimension K to [rows, fields, K]."""
        return embedding.view(-1, len(self.dims), self.dims[0])

    def begin_step(self, seed: int, step: int) -> None:
        """Prepare for a training step; its dropout depends only on the seed and the step."""
        super().begin_step(seed, step)
        self.noise.restart(seed, step)

    def take_part(self, rows: NDArray[np.uint32], total: int) -> None:
        """Prepare for a step on a part of a batch, which has the dropout of the whole batch."""
        self.noise.take_part(rows, total)

    def share_threads(self, threads: int) -> int:
        """Assign threads to native modules and return the number left for torch; by default, all are left."""
        return threads

    def flops(self) -> int:
        """Return the number of operations per prediction: two per field for the linear part, and those of all layers.

        A network overrides this method if it applies a layer several times, or computes something outside of layers.
        """
        return count_flops(self) + (2 * len(self.dims) if self.wide else 0)
