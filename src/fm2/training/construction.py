"""From settings to the initial model and the backend that trains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.settings import Settings
from fm2.errors import Fm2Error
from fm2.models import DeepModel, FlatEmbedding, GatheredModel, Model, build, get_spec
from fm2.models.registry import specs
from fm2.training.backend import Backend, Floats
from fm2.training.hidden import Hidden
from fm2.training.native_backend import NativeBackend
from fm2.training.resolve import trains_rowwise
from fm2.training.rowwise_backend import RowwiseBackend
from fm2.training.torch_backend import TorchBackend
from fm2.training.unknown import UnknownFeatures

MOST_FIELDS = 1_000  # of a model that computes or stores something for every pair of fields

# Operations per step from which several torch threads are worthwhile. They wait for one another after every product: on
# a busy machine, a step of FwFM or FvFM takes five to thirty times as long with two of them as with one.
THREADED_OPERATIONS = 500e6
L2_WITHOUT_BATCHES = ("ftrl", "dense_adam")  # optimizers that apply L2 to all weights, or once for all steps


def make_model(
    settings: Settings,
    field_sizes: Sequence[int],
    initialized: bool = True,
    fixed: Mapping[str, Any] | None = None,
    owners: Sequence[int] = (),
) -> Model:
    """Build the model that the settings describe; unless it is ``initialized``, its weights are zero.

    ``fixed`` is added to its config: what training never changes, such as pruned pairs of fields. ``owners`` has, for
    each field, the index of the field whose embeddings it uses.
    """
    spec = get_spec(settings.model)
    if len(field_sizes) > MOST_FIELDS and not spec.many_fields:
        models = ", ".join(other.name for other in specs() if other.many_fields)
        raise Fm2Error(
            f"train: {spec.name} takes at most {MOST_FIELDS:,} fields, because its cost grows with their square, got "
            f"{len(field_sizes):,}; {models} take more"
        )
    config = spec.config(settings.to_dict(), field_sizes, owners)
    return build(config | dict(fixed or {}), seed=settings.seed if initialized else None)


def make_backend(
    model: Model,
    settings: Settings,
    counts: NDArray[np.int64],
    initialized: bool = True,
    mean_squares: NDArray[np.float64] | None = None,
    numbers: Sequence[int] = (),
    hidden: Hidden | None = None,
    rows: int = 0,
) -> Backend:
    """Choose the backend: the model's row-by-row kernel, native code for batches on the CPU, or torch.

    Regularization depends on the features' ``counts`` among so many training ``rows`` (0: unknown), and on the
    ``mean_squares`` of their weights in lists, 1 by default. ``numbers`` are the fields with the transform interpolate
    or linear and tree fields, to which ``value_dropout`` does not apply. Training steps hide the ``hidden`` features,
    which the counts should include.
    """
    if trains_rowwise(settings):
        return RowwiseBackend(model, settings, initialized, numbers, hidden)
    squares = counts.astype(np.float64) if mean_squares is None else counts * mean_squares
    l2_scale = {name: _l2_scale(model, table, settings, counts, squares, rows) for name, table in model.tables.items()}
    unknown = {
        name: UnknownFeatures(table, counts)
        for name, table in model.tables.items()
        if _has_features(model, table) and not table.keep_zeros
    }
    if settings.device == "cpu" and settings.optimizer != "dense_adam" and isinstance(model, GatheredModel):
        return NativeBackend(model, settings, l2_scale, numbers, unknown, hidden)
    spread = {name: table.per_weight(l2_scale[name]) for name, table in model.tables.items()}
    return TorchBackend(model, settings, spread, numbers, unknown, hidden)


def _has_features(model: Model, table: FlatEmbedding) -> bool:
    """Return whether a table has a row for every feature, unlike one of hashed pairs."""
    return list(table.field_sizes) == model.field_sizes


def _l2_scale(
    model: Model,
    table: FlatEmbedding,
    settings: Settings,
    counts: NDArray[np.int64],
    squares: NDArray[np.float64],
    rows: int,
) -> Floats:
    """Return the factor of l2 of every feature of a table; 1 for tables that are not indexed by features."""
    if not _has_features(model, table):
        return np.ones(sum(table.field_sizes), np.float32)
    return l2_scale(settings, table.per_feature(counts), table.per_feature(squares), rows)


def l2_scale(
    settings: Settings, occurrences: NDArray[np.int64], evidence: NDArray[np.float64], rows: int = 0
) -> Floats:
    """Return the factor of l2 of features from their ``occurrences`` and their ``evidence``, the sums of w².

    A value with the weight w in a list contributes w² to the curvature of the loss, as if it occurred w² times. Over an
    epoch it should have the penalty of a value outside lists with that many occurrences. L2 applies once to each batch
    in which a feature occurs, and a value that occurs in many long lists is in nearly every batch. Without this
    correction, FmFM's test log loss was .5582 instead of .5553 on movies of benchmarks/panel.py, and .5571 instead of
    .5544 on movies_users. Some optimizers apply L2 independently of batches and need none.

    >>> settings = Settings.of("lr", l2_power=1, batch_size=256)
    >>> (l2_scale(settings, np.array([100, 50]), np.array([100.0, 0.5])) * 100).round().tolist()
    [1.0, 2.0]
    >>> (l2_scale(settings, np.array([100, 20_000]), np.array([100.0, 100.0]), rows=25_600) * 1e4).round().tolist()
    [100.0, 63.0]
    """

    def batches(count: NDArray[Any]) -> NDArray[np.float64]:
        """Return the expected share of batches with a value of this count; the count itself without ``rows``."""
        return -np.expm1(count * (-settings.batch_size / rows)) if rows else count.astype(np.float64)

    occurs = evidence > 0
    scale = np.where(occurs, evidence, 1.0) ** -settings.l2_power
    if settings.optimizer not in L2_WITHOUT_BATCHES:
        scale *= np.divide(batches(evidence), batches(occurrences), out=np.ones_like(scale), where=occurs)
    return scale.astype(np.float32)


def count_torch_threads(model: Model, settings: Settings) -> int:
    """Return the number of threads for torch: one if a step has too few operations to share."""
    if 3 * settings.batch_size * model.flops() <= THREADED_OPERATIONS:
        return 1
    if isinstance(model, DeepModel):
        return model.share_threads(settings.threads)
    return settings.threads if model.spec.forward_backward == "autograd" else 1
