"""The commands that set models side by side: ``fm2 models``, ``fm2 compare``."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.cli.training import add_settings, given_settings
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec
from fm2.studies.comparison.catalog import as_dicts, chosen, print_catalog

if TYPE_CHECKING:
    from fm2.studies.comparison.results import Comparison
    from fm2.training.progress import ProgressLine


def add_models(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 models``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "models", help="list the models there are", description="List the models that can be trained and compared."
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_models)
    return command


def _models(settings: argparse.Namespace) -> None:
    if settings.json:
        print(json.dumps(as_dicts(), ensure_ascii=False))
    else:
        print_catalog()


def add_compare(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 compare``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="train and test several models alike",
        usage="fm2 compare DATA --out DIR [options]",
        description="Train models on one data set, measure all on its test rows, and print one table.",
        epilog="The table is in DIR/compare.json and DIR/compare.csv too, and grows with every model; DIR/MODEL-SEED "
        "are ordinary runs. Options of a training are for all models that have them. A model that fails has the reason "
        "in its row, and the exit code is 1 at the end. Ctrl-C stops cleanly; --resume goes on, and needs no options "
        "again.",
    )
    command.add_argument("data", metavar="DATA", help="a directory that fm2 prepare made")
    command.add_argument(
        "--models",
        metavar="LIST",
        help="lr,fm,fmfm or so; all, shallow (the paper's seven) or deep (default: shallow); fm2 models lists them",
    )
    command.add_argument("--out", required=True, metavar="DIR", help="the directory of the comparison")
    command.add_argument("--seeds", type=int, metavar="N", help="trainings of each model (default: 1)")
    command.add_argument("--truth", metavar="FILE", help="an .npy file: each row's true probability (fm2 generate)")
    command.add_argument("--resume", action="store_true", help="go on; what is finished is not trained again")
    command.add_argument("--overwrite", action="store_true", help="replace a comparison that is there already")
    command.add_argument(
        "--settings",
        nargs="+",
        default=[],
        metavar="FILE",
        help="TOML files of settings: of all models, of one in its table [MODEL], or of a file's own model = ...",
    )
    command.add_argument("--json", action="store_true", help="print the table as JSON")
    add_settings(command, without=["seed"])
    command.set_defaults(run=_compare, interrupted="the same command with --resume goes on from here")
    return command


def _compare(settings: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset

    dataset = Dataset.open(settings.data)
    if settings.models is not None:
        settings.models = chosen(settings.models)
    common, own = read_files("compare", [Path(file) for file in settings.settings])
    options = given_settings(settings, dataset.schema.names)
    own = {model: {name: value for name, value in some.items() if name not in options} for model, some in own.items()}
    asked = {name: getattr(settings, name) for name in ("models", "seeds", "resume", "overwrite", "truth")}

    from fm2.studies.comparison.compare import compare  # torch, which takes seconds: only now that there is work for it
    from fm2.training.progress import ProgressLine

    with ProgressLine() as watch:
        teller = Teller(watch, settings.debug)
        comparison = compare(
            dataset,
            settings.out,
            **asked,
            own=own,
            watch=watch,
            begin=teller.begin,
            tell=teller.tell,
            **(common | options),
        )
    show(comparison, settings.json)


def read_files(operation: str, files: list[Path]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read files of settings: those of all models, and those of single ones."""
    from fm2.artifacts.settings import read_settings

    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for file in files:
        found = read_settings(file, operation)
        tables = {name: found.pop(name) for name in list(found) if isinstance(found[name], dict)}
        model = found.pop("model", None)
        if model is not None:
            tables, found = {**tables, model: found}, {}
        for name, table in tables.items():
            get_spec(name, f"{operation}: {file}")
            own[name] = own.get(name, {}) | table
        common |= found
    return common, own


class Teller:
    """Says on standard error which training begins, and what came of it."""

    def __init__(self, watch: ProgressLine, debug: bool = False) -> None:
        self._watch, self._debug = watch, debug

    def begin(self, run: str) -> None:
        """Say which training begins."""
        self._watch.clear()
        print(f"fm2: {run} ...", file=sys.stderr, flush=True)
        self._watch.restart()

    def tell(self, row: dict[str, Any], error: Exception | None) -> None:
        """Say what came of it."""
        self._watch.clear()
        if error is not None and self._debug:
            traceback.print_exception(error)
        quality = "" if error else f"AUC {row['auc']:.5f}, log loss {row['log_loss']:.5f}, {row['seconds']:.0f} s"
        print(f"fm2: {row['run']}: {quality or 'failed, ' + row['error']}", file=sys.stderr, flush=True)


def show(comparison: Comparison, as_json: bool) -> None:
    """Print the table, and say where it is; what failed is an error."""
    from fm2.studies.comparison.plan import left_out, named
    from fm2.studies.comparison.printing import caption, lines
    from fm2.studies.comparison.results import CSV, JSON

    if as_json:
        print((comparison.path / JSON).read_text(encoding="utf-8"), end="")
    else:
        print("\n".join(lines(comparison)))
        print(f"{caption(comparison)}\n{comparison.path / JSON}, {comparison.path / CSV}")
    for name, without in left_out(comparison.models, comparison.settings).items():
        what = named(name, comparison.settings[name])
        print(f"fm2: {what} is not for {', '.join(without)}: trained without it", file=sys.stderr)
    if comparison.failed:
        names = ", ".join(row["run"] for row in comparison.failed)
        raise Fm2Error(f"compare: {len(comparison.failed)} of {len(comparison.rows)} trainings failed: {names}")
