"""From settings to the initial model and the backend that trains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.settings import Settings
from fm2.models import DeepModel, GatheredModel, Model, build, get_spec
from fm2.training.backend import Backend, Floats
from fm2.training.native_backend import NativeBackend
from fm2.training.resolve import trains_rowwise
from fm2.training.rowwise_backend import RowwiseBackend
from fm2.training.torch_backend import TorchBackend

# Operations per step from which several threads are faster than one.
THREADED_OPERATIONS, THREADED_NETWORK_OPERATIONS = 100e6, 500e6


def make_model(
    settings: Settings,
    field_sizes: Sequence[int],
    initialized: bool = True,
    fixed: Mapping[str, Any] | None = None,
) -> Model:
    """Build the model that the settings describe; unless it is ``initialized``, its weights are zero.

    ``fixed`` is added to its config: what training never changes, such as pruned pairs of fields.
    """
    config = get_spec(settings.model).config(settings.to_dict(), field_sizes)
    return build(config | dict(fixed or {}), seed=settings.seed if initialized else None)


def make_backend(model: Model, settings: Settings, counts: NDArray[np.int64], initialized: bool = True) -> Backend:
    """Choose the backend: the model's row-by-row kernel, native code for batches on the CPU, or torch.

    ``counts`` are the features' frequencies, which regularization may depend on.
    """
    if trains_rowwise(settings):
        return RowwiseBackend(model, settings, initialized)
    l2_scale = np.maximum(counts, 1).astype(np.float32) ** np.float32(-settings.l2_power)
    if settings.device == "cpu" and isinstance(model, GatheredModel):
        return NativeBackend(model, settings, l2_scale)
    return TorchBackend(model, settings, {name: _per_weight(model, name, l2_scale) for name in model.tables})


def _per_weight(model: Model, name: str, values: Floats) -> Floats:
    """Repeat a value per feature for every weight of a table; 1 for tables that are not indexed by features."""
    table = model.tables[name]
    if list(table.field_sizes) != model.field_sizes:
        return np.ones(table.weight.numel(), np.float32)
    return np.repeat(values, np.repeat(table.dims, table.field_sizes))


def count_torch_threads(model: Model, settings: Settings) -> int:
    """Return the number of threads for torch: one if a batch's products are too small to share."""
    if isinstance(model, DeepModel):
        worthwhile = 3 * settings.batch_size * model.flops() > THREADED_NETWORK_OPERATIONS
        return model.share_threads(settings.threads) if worthwhile else 1
    operations = settings.batch_size * sum(table.width for table in model.tables.values()) ** 2
    autograd = model.spec.forward_backward == "autograd"
    return settings.threads if autograd and operations > THREADED_OPERATIONS else 1
