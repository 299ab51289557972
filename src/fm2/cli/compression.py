"""The commands that make trained models smaller: ``fm2 shrink``, ``fm2 prune``, ``fm2 cut``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fm2.errors import Fm2Error

if TYPE_CHECKING:
    from fm2.compression.dimensions import Basis
    from fm2.compression.prune import Pair
    from fm2.data.dataset import Dataset
    from fm2.training.run import Run

Number = TypeVar("Number", int, float)
SHOWN_PAIRS, NOTHING = 10, 0.01  # a deviation of the logit that is none
OPTIONS = (
    (
        "learning_rate_scale",
        float,
        "multiplies the first run's learning rates (default: 0.1 where it trains on, 0.02 for cuts, else 1)",
    ),
    ("epochs", int, "passes over the training rows, at most"),
    ("patience", int, "evaluations without a better one before it stops"),
    ("seed", int, "of first weights, shuffling and dropout"),
    ("threads", int, "how many (default: the first run's)"),
)


def add_shrink(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 shrink``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "shrink",
        help="train an FmFM again, with fewer dimensions",
        description="Find by PCA how many dimensions each field of a trained FmFM needs, and train it anew so.",
        epilog="Several variances make a table: a run for each in RUN2/variance-V, and RUN2/table.json.",
    )
    _add_common(command)
    command.add_argument(
        "--variance", default="0.95", metavar="V", help="share to keep, or several: 0.8,0.9,0.95 (default: %(default)s)"
    )
    command.add_argument(
        "--weighting",
        choices=("counts", "features", "interactions"),
        default="counts",
        help="features count by frequency, or all alike, or by frequency and what other fields see of them "
        "(default: %(default)s)",
    )
    command.add_argument("--warm", action="store_true", help="begin with the first model projected, not from scratch")
    command.set_defaults(run=_shrink, command="shrink")
    return command


def add_prune(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 prune``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "prune",
        help="leave out pairs of fields that hardly matter",
        description="Keep the strongest pairs of fields of an FwFM, FvFM or FmFM, and train on without the others.",
    )
    _add_common(command)
    command.add_argument(
        "--keep", type=float, default=0.3, metavar="S", help="share of the pairs to keep (default: %(default)s)"
    )
    command.set_defaults(run=_prune, command="prune")
    return command


def add_cut(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 cut``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "cut",
        help="turn field matrices into an FM with signs, through their spectrum",
        description="Cut the spectrum of an FwFM, FvFM or FmFM where the data is, and train on as an FM with signs.",
        epilog="Several ranks make a table: a run for each in RUN2/rank-R, RUN2/table.json and a picture, "
        "RUN2/table.svg.",
    )
    _add_common(command)
    command.add_argument(
        "--rank", default="16", metavar="R", help="dimensions to keep, or several: 8,16,32 (default: %(default)s)"
    )
    command.add_argument("--no-training", dest="training", action="store_false", help="leave the cut as it is")
    command.set_defaults(run=_cut, command="cut")
    return command


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_path", metavar="RUN", help="a directory that fm2 train made")
    command.add_argument("data", metavar="DATA", help="the data set it was trained on, or one of another day")
    command.add_argument("--out", required=True, metavar="RUN2", help="the directory of the new run")
    command.add_argument("--settings", metavar="FILE", help="a TOML file of settings; options come before it")
    command.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    command.add_argument("--overwrite", action="store_true", help="replace a run that is there already")
    command.add_argument("--row-weights", metavar="FILE", help="an .npy file: how much each row of the log counts")
    for name, kind, text in OPTIONS:
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=text)
    command.add_argument("--json", action="store_true", help="print the table of models as JSON")
    command.set_defaults(interrupted="the same command with --resume goes on from here")


def _shrink(settings: argparse.Namespace) -> None:
    variances = _numbers(float, "shrink: --variance", settings.variance, "a number or several like 0.8,0.95")
    run, dataset, options = _open(settings, several=len(variances) > 1)

    from fm2.compression.retraining import measure
    from fm2.compression.shrink import compare, shrink
    from fm2.training.progress import ProgressLine

    with ProgressLine() as watch:

        def tell(bases: list[Basis]) -> None:
            _show_dimensions(run, dataset.schema.names, bases, settings.json)
            watch.restart()

        options |= {"weighting": settings.weighting, "warm": settings.warm, "on_bases": tell, "watch": watch}
        if len(variances) > 1:
            rows = compare(run, dataset, settings.out, variances, **options)
        else:
            small = shrink(run, dataset, settings.out, variance=variances[0], **options)
            rows = [
                {"variance": None, "run": str(run.path), **measure(run, dataset)},
                {"variance": variances[0], "run": settings.out, **measure(small, dataset)},
            ]
    _show_models("variance", rows, settings.json)


def _prune(settings: argparse.Namespace) -> None:
    run, dataset, options = _open(settings)

    from fm2.compression.prune import prune
    from fm2.compression.retraining import measure
    from fm2.training.progress import ProgressLine

    def tell(strengths: dict[Pair, float], pruned: list[Pair]) -> None:
        _show_strengths(dataset.schema.names, strengths, pruned, settings.json)

    with ProgressLine() as watch:
        small = prune(run, dataset, settings.out, keep=settings.keep, on_pairs=tell, watch=watch, **options)
    rows = [
        {"keep": None, "run": str(run.path), **measure(run, dataset)},
        {"keep": settings.keep, "run": settings.out, **measure(small, dataset)},
    ]
    _show_models("keep", rows, settings.json)


def _cut(settings: argparse.Namespace) -> None:
    ranks = _numbers(int, "cut: --rank", settings.rank, "a whole number or several like 8,16")
    run, dataset, options = _open(settings, several=len(ranks) > 1)

    from fm2.compression.cut import Baseline, compare, cut_and_measure
    from fm2.training.progress import ProgressLine, say

    with ProgressLine() as watch:

        def tell(bare: Run) -> None:
            if settings.training:
                say(f"fm2: rank {bare.model.tables['embedding'].dims[0]}: training on ...")
            watch.restart()

        options |= {"on_rank": lambda rank: say(f"fm2: rank {rank}: cutting the spectrum ...")}
        options |= {"training": settings.training, "on_cut": tell, "watch": watch}
        if len(ranks) > 1:
            rows = compare(run, dataset, settings.out, ranks, **options)
        else:
            baseline = Baseline(run, dataset)
            small = cut_and_measure(baseline, settings.out, rank=ranks[0], **options)
            rows = [{"rank": None, **baseline.row()}, {"rank": ranks[0], "run": settings.out, **small}]
    _show_models("rank", rows, settings.json)


def _numbers(kind: Callable[[str], Number], option: str, text: str, expected: str) -> list[Number]:
    """Understand numbers between commas."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise Fm2Error(f"{option} is '{text}', not {expected}") from None


def _open(settings: argparse.Namespace, several: bool = False) -> tuple[Run, Dataset, dict[str, Any]]:
    """Open run and data, and give the options that all commands have; ``several`` runs have places of their own."""
    from fm2.artifacts.model_file import check_model
    from fm2.artifacts.run_directory import check_run_output
    from fm2.artifacts.settings import read_changes
    from fm2.cpu import check_threads
    from fm2.data.dataset import Dataset

    check_threads(settings.command, settings.threads or 0)
    path = Path(settings.run_path)
    check_model(path)
    dataset = Dataset.open(settings.data)
    if not several:
        check_run_output(settings.command, Path(settings.out), settings.resume, settings.overwrite, source=path)

    from fm2.training.run import Run  # torch, which takes seconds: only now that there is something to do

    run = Run.open(path, settings.threads or 0)
    options = read_changes(Path(settings.settings), run.model.name) if settings.settings else {}
    given = {name: getattr(settings, name) for name, _, _ in OPTIONS}
    options |= {name: value for name, value in given.items() if value is not None}
    options |= {name: getattr(settings, name) for name in ("resume", "overwrite", "row_weights")}
    return run, dataset, options


def _show_dimensions(run: Run, names: tuple[str, ...], bases: list[Basis], aside: bool) -> None:
    """Print a table of fields, to standard error if it stands ``aside``."""
    file = sys.stderr if aside else sys.stdout
    old, sizes = run.model.tables["embedding"].dims, run.model.field_sizes
    width = max(len("field"), *(len(name) for name in names))
    print(f"{'field':<{width}} {'features':>10} {'old':>5} {'new':>5}", file=file)
    for name, size, before, basis in zip(names, sizes, old, bases, strict=True):
        print(f"{name:<{width}} {size:>10,} {before:>5} {basis.dim:>5}", file=file)
    average, now = sum(old) / len(old), sum(basis.dim for basis in bases) / len(bases)
    print(f"{'on average':<{width + 11}} {average:>5.2f} {now:>5.2f}", file=file)


def _show_strengths(names: tuple[str, ...], strengths: dict[Pair, float], pruned: list[Pair], aside: bool) -> None:
    """Print how much is kept, and the strongest pairs, to standard error if it stands ``aside``."""
    file = sys.stderr if aside else sys.stdout
    lost = sum(strengths[pair] ** 2 for pair in pruned) / max(sum(value**2 for value in strengths.values()), 1e-300)
    kept = len(strengths) - len(pruned)
    print(f"{kept:,} of {len(strengths):,} pairs kept, with {1 - lost:.1%} of the variance", file=file)
    for i, j in sorted(strengths, key=lambda pair: -strengths[pair])[: min(SHOWN_PAIRS, kept)]:
        print(f"  {names[i]} × {names[j]}: {strengths[i, j]:.3g}", file=file)
    if max(strengths.values(), default=0.0) < NOTHING:
        print(
            "fm2: no pair of fields matters to this model: it has learned no interactions, and which are left out is "
            "chance; train it with less --l2 or more --matrix-scale",
            file=sys.stderr,
        )


def _show_models(kept: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print the first model and the smaller ones, by what was kept of it; of cuts also how they began."""
    if as_json:
        print(json.dumps(rows))
        return
    cut = any("cut" in row for row in rows)
    errors = f" {'worst':>7} {'square':>8}"
    more = f"{errors} | as cut: {'AUC':>7} {'log loss':>9}{errors}" if cut else ""
    print(f"{kept:>8} {'dimension':>10} {'FLOPs':>10} {'AUC':>8} {'log loss':>9}{more}   on {rows[0]['split']}")
    for row in rows:
        share = "before" if row[kept] is None else f"{row[kept]:g}"
        line = f"{share:>8} {row['dimension']:>10.2f} {row['flops']:>10,} {_quality(row)}"
        print(f"{line} |        {_quality(row['cut'])}" if "cut" in row else line)
    if cut:
        print("worst, square: largest and mean square error of a logit against the first model's")


def _quality(row: dict[str, Any]) -> str:
    found = f"{row['auc']:>8.5f} {row['log_loss']:>9.5f}"
    return f"{found} {row['worst_error']:>7.3f} {row['mean_square_error']:>8.5f}" if "worst_error" in row else found
