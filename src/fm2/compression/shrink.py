"""``fm2.shrink``: give each field of an FmFM only as many dimensions as it needs (section 4.1 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fm2.artifacts.run_directory import check_run_output
from fm2.compression.dimensions import Basis, Weighting, check_shrinkable, find_bases
from fm2.compression.projection import project
from fm2.compression.retraining import count_features, measure, retraining_settings, sweep, temporary_run
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train


def shrink(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    variance: float = 0.95,
    weighting: Weighting = "counts",
    warm: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    on_bases: Callable[[list[Basis]], None] = lambda bases: None,
    **settings: Any,
) -> Run:
    """Train an FmFM again, with as many dimensions per field as keep a share of its embeddings' variance.

    ``weighting`` says how features count: by their frequency (``"counts"``), all equally if they occur
    (``"features"``), or by their frequency and their effect on the logit through the field matrices
    (``"interactions"``). Training starts from scratch, as in section 4.1 of the paper. With ``warm`` it starts from the
    projected model, with a tenth of the learning rates. The settings are those of ``run``; ``settings`` override them.
    ``on_bases`` is called with the bases before training. The remaining arguments are those of :func:`fm2.train`.
    """
    first = Run.of(run)
    dataset = Dataset.of(data)
    model = check_shrinkable(first, [variance], warm)
    check_run_output("shrink", Path(out), resume, overwrite, source=first.path)
    if "dim" in settings:
        raise Fm2Error("shrink: it chooses the dimensions itself; remove dim from the settings")
    bases = find_bases(model, count_features(first, dataset, "shrink"), weighting, variance)
    on_bases(bases)
    options: dict[str, Any] = {**retraining_settings(first, low_rate=warm), **settings}
    options |= {"resume": resume, "overwrite": overwrite, "row_weights": row_weights, "callback": watch}
    if not warm:
        return train(model.name, dataset, out, dim=[basis.dim for basis in bases], **options)
    with temporary_run(project(model, bases), first, Path(out)) as start:
        return train(model.name, dataset, out, start=start, **options)


def compare(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    variances: Sequence[float],
    *,
    warm: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Shrink with several shares of variance, each to its own run in ``out``, and measure all models.

    This makes the paper's table 8: the first model and each smaller one, with average dimension, operations and
    quality. The rows are also written to ``table.json``. ``options`` are those of :func:`shrink`.
    """
    first = Run.of(run)
    dataset = Dataset.of(data)
    check_shrinkable(first, variances, warm)

    def make_row(variance: Any, path: Path, again: bool) -> dict[str, Any]:
        arguments = {**options, "warm": warm, "resume": again, "overwrite": overwrite}
        return measure(shrink(first, dataset, path, variance=variance, **arguments), dataset)

    def first_row() -> dict[str, Any]:
        return {"run": str(first.path), **measure(first, dataset)}

    return sweep("shrink", "variance", variances, Path(out), first_row, make_row, resume, overwrite)
