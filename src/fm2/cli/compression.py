"""Commands that make trained models smaller: ``shrink``, ``prune``, ``cut``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.cli import shared
from fm2.cli.command import Argument, command, flag, output_path
from fm2.errors import printable

if TYPE_CHECKING:
    from fm2.compression.dimensions import Basis
    from fm2.compression.prune import Pair
    from fm2.data.dataset import Dataset
    from fm2.training.run import Run

SHOWN_PAIRS = 10
NEGLIGIBLE = 0.01  # effect on the logit, as a standard deviation


def _arguments(*specific: Argument, scale: str) -> Sequence[Argument]:
    """Return the arguments of a command: those that all three share, and its own. ``scale`` is a default."""
    return (
        shared.RUN,
        shared.MODEL_DATA,
        output_path("--out", "run directory to create", "RUN2"),
        *specific,
        shared.SETTINGS,
        shared.RESUME,
        shared.OVERWRITE,
        shared.ROW_WEIGHTS,
        Argument("--learning-rate-scale", f"factor for the learning rates of RUN (default: {scale})", float),
        Argument("--epochs", "maximum number of epochs", int),
        Argument("--patience", "evaluations without improvement before early stopping", int),
        Argument("--seed", "random seed of initialization, shuffling and dropout", int),
        Argument("--threads", "number of threads (default: as for RUN)", int),
        shared.JSON,
    )


@command(
    "shrink",
    "retrain an FmFM with fewer dimensions per field",
    description="Determine with PCA how many dimensions each field of a trained FmFM needs, and train it again with "
    "these dimensions.",
    example="fm2 shrink run data --out small --variance 0.9",
    notes="Several variances produce a table: one run each in RUN2/variance-V, and RUN2/table.json.",
    interrupted=shared.CONTINUE,
    arguments=_arguments(
        Argument(
            "--variance",
            "fraction of the variance to keep, or several: 0.8,0.9,0.95",
            shared.numbers(float, "a number, or several like 0.8,0.95"),
            metavar="V",
            default="0.95",
        ),
        Argument(
            "--weighting",
            "weight features by count, equally, by count and interaction strength, or as in the paper's code",
            choices=("counts", "features", "interactions", "authors"),
            default="counts",
        ),
        flag("--warm", "start from the projected model instead of from scratch"),
        scale="1, with --warm 0.1",
    ),
)
def shrink(options: argparse.Namespace) -> None:
    variances = options.variance
    run, dataset, settings = _open("shrink", options, several=len(variances) > 1)

    from fm2.compression.retraining import measure
    from fm2.compression.shrink import compare, shrink
    from fm2.training.progress import TrainingDisplay

    with TrainingDisplay() as watch:

        def print_bases(bases: list[Basis]) -> None:
            watch.restart()
            _print_dimensions(run, dataset.schema.names, bases, sys.stderr if options.json else sys.stdout)

        settings |= {**shared.pick(options, "weighting", "warm"), "on_bases": print_bases, "watch": watch}
        if len(variances) > 1:
            rows = compare(run, dataset, options.out, variances, **settings)
        else:
            small = shrink(run, dataset, options.out, variance=variances[0], **settings)
            rows = [
                {"variance": None, "run": str(run.path), **measure(run, dataset)},
                {"variance": variances[0], "run": options.out, **measure(small, dataset)},
            ]
    _print_models("variance", rows, options.json)


@command(
    "prune",
    "remove weak field pairs",
    description="Keep the strongest field pairs of an FwFM, FvFM or FmFM, and continue training without the others.",
    example="fm2 prune run data --out pruned --keep 0.3",
    interrupted=shared.CONTINUE,
    arguments=_arguments(Argument("--keep", "fraction of the field pairs to keep", float, default=0.3), scale="0.1"),
)
def prune(options: argparse.Namespace) -> None:
    run, dataset, settings = _open("prune", options)

    from fm2.compression.prune import prune
    from fm2.compression.retraining import measure
    from fm2.training.progress import TrainingDisplay

    def print_pairs(strengths: dict[Pair, float], pruned: list[Pair]) -> None:
        _print_strengths(dataset.schema.names, strengths, pruned, sys.stderr if options.json else sys.stdout)

    with TrainingDisplay() as watch:
        small = prune(run, dataset, options.out, keep=options.keep, on_pairs=print_pairs, watch=watch, **settings)
    rows = [
        {"keep": None, "run": str(run.path), **measure(run, dataset)},
        {"keep": options.keep, "run": options.out, **measure(small, dataset)},
    ]
    _print_models("keep", rows, options.json)


@command(
    "cut",
    "approximate field matrices by a low-rank spectrum",
    description="Truncate the spectrum of an FwFM, FvFM or FmFM, weighted by the data, and continue training the "
    "result: an FM with signs.",
    example="fm2 cut run data --out rank16 --rank 16",
    notes="Several ranks produce a table: one run each in RUN2/rank-R, RUN2/table.json and a chart, RUN2/table.svg.",
    interrupted=shared.CONTINUE,
    arguments=_arguments(
        Argument(
            "--rank",
            "number of dimensions to keep, or several: 8,16,32",
            shared.numbers(int, "an integer, or several like 8,16"),
            metavar="R",
            default="16",
        ),
        Argument(
            "--no-training", "skip the training after the cut", action="store_false", dest="training", default=True
        ),
        scale="0.02",
    ),
)
def cut(options: argparse.Namespace) -> None:
    ranks = options.rank
    run, dataset, settings = _open("cut", options, several=len(ranks) > 1)

    from fm2.compression.cut import Baseline, compare, cut_and_measure
    from fm2.training.progress import TrainingDisplay

    with TrainingDisplay() as watch:

        def announce_training(bare: Run) -> None:
            rank = bare.model.tables["embedding"].dims[0]
            watch.restart(f"fm2: rank {rank}: training ..." if options.training else None)

        settings |= {"training": options.training, "on_cut": announce_training, "watch": watch}
        settings["on_rank"] = lambda rank: watch.restart(f"fm2: rank {rank}: computing the spectrum ...")
        if len(ranks) > 1:
            rows = compare(run, dataset, options.out, ranks, **settings)
        else:
            baseline = Baseline(run, dataset)
            small = cut_and_measure(baseline, options.out, rank=ranks[0], **settings)
            rows = [{"rank": None, **baseline.row()}, {"rank": ranks[0], "run": options.out, **small}]
    _print_models("rank", rows, options.json)


def _open(operation: str, options: argparse.Namespace, several: bool = False) -> tuple[Run, Dataset, dict[str, Any]]:
    """Open the run and the dataset, and return the settings that the three commands share.

    With ``several`` runs, each is checked when it starts.
    """
    from fm2.artifacts.model_file import check_model
    from fm2.artifacts.run_directory import check_run_output
    from fm2.artifacts.settings import read_changes
    from fm2.cpu import check_threads
    from fm2.data.dataset import Dataset

    check_threads(operation, options.threads or 0)
    path = Path(options.run_path)
    check_model(path)
    dataset = Dataset.open(options.data)
    if not several:
        check_run_output(operation, Path(options.out), options.resume, options.overwrite, source=path)

    from fm2.training.run import Run  # after the checks: importing torch takes seconds

    run = Run.open(path, options.threads or 0)
    settings = read_changes(Path(options.settings), run.model.name) if options.settings else {}
    training = shared.pick(options, "learning_rate_scale", "epochs", "patience", "seed", "threads")
    settings |= {name: value for name, value in training.items() if value is not None}
    settings |= shared.pick(options, "resume", "overwrite", "row_weights")
    return run, dataset, settings


def _print_dimensions(run: Run, names: tuple[str, ...], bases: list[Basis], file: Any) -> None:
    """Print the old and the new dimension of every field."""
    old, sizes = run.model.tables["embedding"].dims, run.model.field_sizes
    shown = [printable(name) for name in names]
    width = max(len("field"), *map(len, shown))
    print(f"{'field':<{width}} {'features':>10} {'old':>5} {'new':>5}", file=file)
    for name, size, before, basis in zip(shown, sizes, old, bases, strict=True):
        print(f"{name:<{width}} {size:>10,} {before:>5} {basis.dim:>5}", file=file)
    old_mean = sum(old) / len(old)
    new_mean = sum(basis.dim for basis in bases) / len(bases)
    print(f"{'mean':<{width + 11}} {old_mean:>5.2f} {new_mean:>5.2f}", file=file)


def _print_strengths(names: tuple[str, ...], strengths: dict[Pair, float], pruned: list[Pair], file: Any) -> None:
    """Print how many pairs are kept, and the strongest ones."""
    total = max(sum(value**2 for value in strengths.values()), 1e-300)
    lost = sum(strengths[pair] ** 2 for pair in pruned) / total
    kept = len(strengths) - len(pruned)
    print(f"kept {kept:,} of {len(strengths):,} field pairs with {1 - lost:.1%} of the variance", file=file)
    for i, j in sorted(strengths, key=lambda pair: -strengths[pair])[: min(SHOWN_PAIRS, kept)]:
        print(f"  {printable(names[i])} × {printable(names[j])}: {strengths[i, j]:.3g}", file=file)
    if max(strengths.values(), default=0.0) < NEGLIGIBLE:
        shared.warn(
            "the model has learned no interactions, so the choice of pairs is arbitrary; train it with a smaller --l2 "
            "or a larger --matrix-std"
        )


def _print_models(kept: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print the original model and the smaller ones; for cuts, also the scores before further training."""
    if as_json:
        print(json.dumps(rows))
        return
    cut = any("cut" in row for row in rows)
    errors = f" {'max err':>7} {'MSE':>8}"
    more = f"{errors} | untrained: {'AUC':>7} {'log loss':>9}{errors}" if cut else ""
    print(f"{kept:>8} {'dimension':>10} {'FLOPs':>10} {'AUC':>8} {'log loss':>9}{more}   on {rows[0]['split']}")
    for row in rows:
        share = "before" if row[kept] is None else f"{row[kept]:g}"
        line = f"{share:>8} {row['dimension']:>10.2f} {row['flops']:>10,} {_quality(row)}"
        print(f"{line} |           {_quality(row['cut'])}" if "cut" in row else line)
    if cut:
        print("max err, MSE: maximum and mean squared difference from the original model's logits")


def _quality(row: dict[str, Any]) -> str:
    errors = f" {row['worst_error']:>7.3f} {row['mean_square_error']:>8.5f}" if "worst_error" in row else ""
    return f"{row['auc']:>8.5f} {row['log_loss']:>9.5f}{errors}"


COMMANDS = (shrink, prune, cut)
