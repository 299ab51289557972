"""``fm2.prepare_with_trees``: prepare a log with a field of gradient-boosted trees, if that improves a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.manifest import MANIFEST
from fm2.data.prepare import prepare, resolve_schema
from fm2.data.tree_fitting import require_lightgbm
from fm2.errors import Fm2Error
from fm2.evaluation import metrics
from fm2.evaluation.significance import compare_log_loss
from fm2.files import atomic_directory, check_output, temporary_directory, write_errors
from fm2.remote.paths import writes
from fm2.schema import Schema
from fm2.studies.crosses.auto import DEFAULT_MODEL, LEAST_GAIN
from fm2.training.loop import TrainingProgress
from fm2.training.train import train


@dataclass(frozen=True)
class TreeGain:
    """The validation log loss of a model without trees, and with them; the standard error of the difference."""

    model: str
    without: float
    with_trees: float
    error: float = 0.0

    @property
    def helps(self) -> bool:
        """Whether the trees lower the log loss by 0.05% and by a standard error."""
        return self.without - self.with_trees > max(LEAST_GAIN * self.without, self.error)

    def __str__(self) -> str:
        losses = (
            f"validation log loss of {self.model} {self.without:.5f} without trees, {self.with_trees:.5f} with them"
        )
        return f"{'added' if self.helps else 'did not add'} trees: {losses}"


@writes("out")
def prepare_with_trees(
    source: Any,
    schema: Schema | str | Path,
    out: str | Path,
    *,
    model: str = DEFAULT_MODEL,
    overwrite: bool = False,
    seed: int = 0,
    threads: int = 0,
    watch: Callable[[str], None] = lambda step: None,
    callback: Callable[[TrainingProgress], None] = lambda progress: None,
    **options: Any,
) -> tuple[Dataset, TreeGain]:
    """Prepare a log like :func:`fm2.prepare`, with a field of trees if these lower the validation loss of ``model``.

    The log is prepared without and with :meth:`Schema.with_trees`, and the model is trained on both. The trees are kept
    if they lower the validation log loss by 0.05% and by a standard error of the difference. ``options`` are those of
    :func:`fm2.prepare`. ``watch`` receives the name of each step, and ``callback`` the progress of both trainings.
    """
    if isinstance(schema, Dataset | Encoder):
        raise Fm2Error("prepare: trees cannot be added to the schema of a dataset, which fm2 prepare --like reuses")
    schema, out = resolve_schema(schema), Path(out)
    check_output("prepare", out.resolve(), "dataset", MANIFEST, overwrite=overwrite)
    schemas = {"plain": schema, "trees": schema.with_trees()}
    require_lightgbm()
    settings: dict[str, Any] = {"threads": threads} if threads else {}
    with write_errors(out.parent, "prepare"):
        out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_directory(out) as folder:
        probabilities: dict[str, NDArray[np.float32]] = {}
        for name, candidate in schemas.items():
            data, run = Path(folder, name), Path(folder, f"{name}-run")
            watch(f"preparing {'with' if name == 'trees' else 'without'} trees")
            dataset = prepare(source, candidate, data, seed=seed, threads=threads, **options)
            if not len(dataset.validation):
                raise Fm2Error("prepare: whether trees help is measured on validation rows; the log has none")
            watch(f"training {model} {'with' if name == 'trees' else 'without'} trees")
            trained = train(model, dataset, run, seed=seed, callback=callback, **settings)
            probabilities[name] = trained.probabilities(dataset.validation.encoded)
        rows = dataset.validation
        losses = {name: metrics.log_loss(rows.labels, each, rows.weights) for name, each in probabilities.items()}
        difference = compare_log_loss(rows.labels, probabilities["trees"], probabilities["plain"], rows.weights)
        gain = TreeGain(model, losses["plain"], losses["trees"], difference.standard_error)
        with atomic_directory(out, "prepare", "dataset", MANIFEST, overwrite) as directory:
            for path in Path(folder, "trees" if gain.helps else "plain").iterdir():
                path.rename(directory / path.name)
    return Dataset.open(out), gain
