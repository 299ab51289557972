"""``fm2.shrink``: the paper's second pass, an FmFM with no more dimensions than each field needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fm2.artifacts.run_directory import check_second
from fm2.compression.dimensions import Basis, Weighting, check_shrinkable, find_bases
from fm2.compression.projection import project
from fm2.compression.retraining import as_run, compare_all, counts_of, measure, settings_of
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
    tell: Callable[[list[Basis]], None] = lambda bases: None,
    **settings: Any,
) -> Run:
    """Train an FmFM anew whose fields have as many dimensions as keep this share of their embeddings' variance.

    Features count by their frequency (``weighting="counts"``), or all alike that occur (``"features"``), or by their
    frequency and what the other fields see of them through the field matrices (``"interactions"``). The settings are
    those of the first run, changed as told. The second begins from scratch, as in section 4.1 of the paper, or if it is
    ``warm``, from the first model projected, with a tenth of its learning rates. ``tell`` is told the bases before it
    begins.
    """
    first = run if isinstance(run, Run) else Run.open(run)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    model = check_shrinkable(first, [variance], warm)
    check_second("shrink", first.path, Path(out), resume, overwrite)
    if "dim" in settings:
        raise Fm2Error("shrink: the dimensions are those that it finds; leave dim out of the settings")
    bases = find_bases(model, counts_of(first, dataset), weighting, variance)
    tell(bases)
    options: dict[str, Any] = {**settings_of(first, gently=warm), **settings}
    options |= {"resume": resume, "overwrite": overwrite, "row_weights": row_weights, "callback": watch}
    if not warm:
        return train(model.name, dataset, out, dim=[basis.dim for basis in bases], **options)
    with as_run(project(model, bases), first, Path(out).resolve().parent) as start:
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
    """Shrink by several shares of variance, each into a run of its own in ``out``, and measure all of them.

    This is the paper's table 8: the first model and each smaller one with its average dimension, its operations and
    its quality. It is written to ``table.json`` as well. ``options`` are those of :func:`shrink`.
    """
    first = run if isinstance(run, Run) else Run.open(run)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    check_shrinkable(first, variances, warm)

    def make(variance: Any, place: Path, again: bool) -> dict[str, Any]:
        changed = {**options, "warm": warm, "resume": again, "overwrite": overwrite}
        return measure(shrink(first, dataset, place, variance=variance, **changed), dataset)

    def before() -> dict[str, Any]:
        return {"run": str(first.path), **measure(first, dataset)}

    return compare_all("shrink", "variance", before, Path(out), variances, make, resume, overwrite)
