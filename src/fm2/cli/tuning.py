"""The command that searches for settings: ``fm2 tune``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fm2.cli.training import named_models
from fm2.models.choices import Metric
from fm2.models.registry import model_names

if TYPE_CHECKING:
    from fm2.studies.tuning.study import Trial


def add_tune(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 tune``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "tune",
        help="search for settings that suit a data set",
        description="Train with many settings; keep those that do best on validation.",
        epilog="The best settings are DIR/best.toml, for fm2 train --settings, and the best run is DIR/best. "
        "Ctrl-C keeps all; --resume goes on.",
    )
    command.add_argument("model", metavar="MODEL", choices=model_names(), help=named_models())
    command.add_argument("data", metavar="DATA", help="a directory that fm2 prepare made")
    command.add_argument("--out", required=True, metavar="DIR", help="the directory of the search")
    command.add_argument("--trials", type=int, default=20, metavar="N", help="in all (default: %(default)s)")
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="stop after so long")
    command.add_argument("--metric", choices=get_args(Metric), help="what is best (default: log_loss)")
    command.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that all trials have; may be given again",
    )
    command.add_argument("--space", metavar="FILE", help="a TOML file of what to try in place of the model's own")
    command.add_argument("--row-weights", metavar="FILE", help="an .npy file: how much each row of the log counts")
    command.add_argument("--resume", action="store_true", help="go on with a search")
    command.add_argument("--seed", type=int, metavar="N", help="of the search and of all trainings (default: 0)")
    command.add_argument(
        "--threads", type=int, default=0, metavar="N", help="of each training (default: all processors)"
    )
    command.add_argument("--json", action="store_true", help="print the trials as JSON")
    command.set_defaults(run=_tune, interrupted=_what_is_kept)
    return command


def _what_is_kept(settings: argparse.Namespace) -> str:
    if not Path(settings.out, "tune.json").exists():
        return "nothing was written yet"
    best = Path(settings.out, "best.toml")
    kept = f"; the best so far is {best}" if best.exists() else ""
    return f"--resume goes on from here{kept}"


def _tune(settings: argparse.Namespace) -> None:
    from fm2.studies.tuning.choice import read_fixed
    from fm2.studies.tuning.printing import describe, show
    from fm2.studies.tuning.search import tune
    from fm2.training.progress import ProgressLine, say

    def tell(trials: list[Trial]) -> None:
        watch.restart()
        say(describe(trials))

    with ProgressLine() as watch:
        tuning = tune(
            settings.model,
            settings.data,
            settings.out,
            trials=settings.trials,
            metric=settings.metric,
            fix=read_fixed(settings.fix),
            space=settings.space,
            seed=settings.seed,
            threads=settings.threads,
            timeout=settings.timeout,
            resume=settings.resume,
            row_weights=settings.row_weights,
            watch=watch,
            tell=tell,
        )
    if settings.json:
        print(json.dumps([asdict(trial) for trial in tuning.trials]))
    else:
        show(tuning, settings.model, settings.data)
