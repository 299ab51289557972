"""``fm2.prepare_with_trees``: prepare a log with a field of gradient-boosted trees, if that improves a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.manifest import MANIFEST
from fm2.data.prepare import prepare, resolve_schema
from fm2.data.tree_boosting import require_lightgbm
from fm2.errors import Fm2Error
from fm2.evaluation import metrics
from fm2.evaluation.metrics import sigmoid
from fm2.evaluation.significance import compare_log_loss
from fm2.files import atomic_directory, check_output, temporary_directory, write_errors
from fm2.models.registry import get_spec, specs
from fm2.remote.paths import writes
from fm2.schema import Schema
from fm2.studies.crosses.auto import DEFAULT_MODEL, LEAST_GAIN
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train
from fm2.training.tree_fields import with_and_without_trees


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
    callback: Callable[[TrainingProgress], None] | None = None,
    **options: Any,
) -> tuple[Dataset, TreeGain]:
    """Prepare a log like :func:`fm2.prepare`, with a field of trees if these lower the validation loss of ``model``.

    The log is prepared with :meth:`Schema.with_trees`, and the model is trained. The trees are kept if they lower its
    validation log loss by 0.05% and by a standard error of the difference; otherwise, the log is prepared again without
    them. ``options`` are those of :func:`fm2.prepare`. ``watch`` receives the name of each step, and ``callback`` the
    progress of the training, as in :func:`fm2.train`.
    """
    if isinstance(schema, Dataset | Encoder):
        raise Fm2Error("prepare: trees cannot be added to the schema of a dataset, which fm2 prepare --like reuses")
    schema, out = resolve_schema(schema), Path(out)
    check_output("prepare", out.resolve(), "dataset", MANIFEST, overwrite=overwrite)
    with_trees = schema.with_trees()
    if not get_spec(model).logit_exponents:
        models = ", ".join(spec.name for spec in specs() if spec.logit_exponents)
        raise Fm2Error(f"prepare: whether trees help is measured with one of {models}, got '{model}'")
    require_lightgbm()
    options |= {"seed": seed, "threads": threads}
    settings: dict[str, Any] = {"threads": threads} if threads else {}
    with write_errors(out.parent, "prepare"):
        out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_directory(out) as folder:
        data = Path(folder, "data")
        watch("preparing with trees")
        dataset = prepare(source, with_trees, data, **options)
        if not len(dataset.validation):
            raise Fm2Error("prepare: whether trees help is measured on validation rows; the log has none")
        watch(f"training {model}")
        shown = options.get("progress")
        run = train(model, dataset, Path(folder, "run"), seed=seed, callback=callback, progress=shown, **settings)
        gain = _measure_gain(run, dataset)
        if not gain.helps:
            watch("preparing without trees")
            prepare(source, schema, data, overwrite=True, **options)
        with atomic_directory(out, "prepare", "dataset", MANIFEST, overwrite) as directory:
            for path in data.iterdir():
                path.rename(directory / path.name)
    return Dataset.open(out), gain


def _measure_gain(run: Run, dataset: Dataset) -> TreeGain:
    """Compare the model with and without its trees on the validation rows."""
    rows = dataset.validation
    blended, own = (sigmoid(logits) for logits in with_and_without_trees(run, rows.encoded))
    without, with_trees = (metrics.log_loss(rows.labels, each, rows.weights) for each in (own, blended))
    difference = compare_log_loss(rows.labels, blended, own, rows.weights)
    return TreeGain(run.model.name, without, with_trees, difference.standard_error)
