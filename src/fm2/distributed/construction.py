"""The model and the backend of a worker, and the models and settings that several workers cannot train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.distributed.backend import DistributedBackend
from fm2.distributed.shards import sharded_tables
from fm2.distributed.workers import Workers
from fm2.errors import Fm2Error
from fm2.models import GatheredModel, Model
from fm2.models.deep.layers import BatchNorm
from fm2.models.registry import get_spec
from fm2.training import inputs
from fm2.training.backend import Floats
from fm2.training.construction import make_model
from fm2.training.hidden import Hidden, counts_with_hidden, hidden_features
from fm2.training.resolve import trains_rowwise


def check_distributed(settings: Settings) -> None:
    """Raise an error, with the reason, if several workers cannot train a model with these settings."""
    spec = get_spec(settings.model)
    reason = None
    if spec.forward_backward is None:
        reason = f"{spec.name} learns row by row, each from the weights that the previous one changed"
    elif trains_rowwise(settings):
        reason = f'{spec.name} with {settings.optimizer} learns row by row; optimizer="adam" learns from batches'
    elif settings.device != "cpu":
        reason = f"they use the CPU, not the device {settings.device}"
    elif settings.optimizer == "dense_adam":
        reason = "dense_adam updates all rows in every step; use adam or adagrad"
    elif settings.options.get("batch_norm"):
        reason = "batch_norm needs the whole batch, of which each worker has a part"
    if reason:
        raise Fm2Error(f"train: several workers cannot train this model: {reason}")


def make_distributed_backend(
    settings: Settings, dataset: Dataset, workers: Workers, row_weights: Floats | None = None
) -> DistributedBackend:
    """Build the initial model, with this worker's shards of its tables, and the backend that trains it.

    The model has the same initial weights as in a single process.
    """
    vocabularies = dataset.vocabularies
    part = slice(workers.index, None, workers.count)
    hidden = hidden_features(dataset, vocabularies, settings.unknown_dropout)
    seen = counts_with_hidden(inputs.counts_by_field(dataset, vocabularies), hidden)
    counts = [own[part].copy() for own in seen]
    means = inputs.mean_squares_by_field(dataset, vocabularies)
    squares = [own * mean[part] for own, mean in zip(counts, means, strict=True)]
    numbers = inputs.number_fields(dataset)
    sizes, rows = dataset.field_sizes, inputs.counted_rows(dataset)
    backend = shard_backend(settings, sizes, counts, squares, workers, dataset.schema.owners, numbers, hidden, rows)
    backend.model.bias.data.fill_(inputs.click_log_odds(dataset, settings.positive_weight, row_weights))
    return backend


def shard_backend(
    settings: Settings,
    field_sizes: Sequence[int],
    counts: Sequence[NDArray[np.int64]],
    squares: Sequence[NDArray[np.float64]],
    workers: Workers,
    owners: Sequence[int] = (),
    numbers: Sequence[int] = (),
    hidden: Hidden | None = None,
    rows: int = 0,
) -> DistributedBackend:
    """Build a backend from the ``counts`` of this worker's features and the sums of ``squares`` of their weights.

    ``rows`` are the training rows of all workers (0: unknown).
    """
    check_distributed(settings)
    with sharded_tables(settings, counts, squares, rows, workers.index, workers.count) as shards:
        model = make_model(settings, field_sizes, owners=owners)
    _check_model(model)
    assert isinstance(model, GatheredModel)
    by_weight = {id(shard.weight): shard for shard in shards}
    by_name = {name: by_weight[id(table.weight)] for name, table in model.tables.items()}
    return DistributedBackend(model, settings, by_name, workers, numbers, hidden)


def _check_model(model: Model) -> None:
    reason = None
    if type(model).end_step is not Model.end_step:
        reason = f"{model.name} prunes weights by their rank among all weights, of which each worker has a part"
    elif any(isinstance(part, BatchNorm) for part in model.modules()):
        reason = f"{model.name} normalizes over the whole batch, of which each worker has a part"
    elif any(list(table.field_sizes) != model.field_sizes for table in model.tables.values()):
        reason = f"{model.name} has a table that is not indexed by features"
    if reason:
        raise Fm2Error(f"train: several workers cannot train this model: {reason}")
