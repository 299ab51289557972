"""Commands that train many models: ``models``, ``compare``, ``tune``, ``crosses``, ``report``, ``reproduce``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.cli import shared
from fm2.cli.command import NOTHING_WRITTEN, Argument, command, flag, input_path, output_path
from fm2.errors import Fm2Error
from fm2.field import CROSS_MIN_COUNT

if TYPE_CHECKING:
    from fm2.studies.comparison.results import Comparison
    from fm2.training.progress import TrainingDisplay

JOBS = (shared.JOBS, shared.ENGINE, shared.ADDRESS)
SEEDS = Argument("--seeds", "number of random seeds, and so of runs, per model (default: 1)", int)


@command(
    "models",
    "list all models",
    description="List the models that can be trained and compared.",
    example="fm2 models",
    arguments=(shared.JSON,),
)
def models(options: argparse.Namespace) -> None:
    from fm2.studies.comparison.catalog import catalog, print_catalog

    if options.json:
        print(json.dumps(catalog(), ensure_ascii=False))
    else:
        print_catalog()


def _compare_arguments() -> Sequence[Argument]:
    from fm2.cli.model_options import training_options

    return (
        shared.DATA,
        output_path("--out", "directory to create", "DIR"),
        Argument(
            "--models",
            "comma-separated models, e.g. lr,fm,fmfm; or shallow (the paper's seven), deep or all (default: shallow)",
            metavar="LIST",
        ),
        SEEDS,
        input_path("--truth", ".npy file with the true probability of each row (fm2 generate)", "FILE"),
        shared.RESUME,
        shared.OVERWRITE,
        input_path(
            "--settings",
            "TOML files with settings for all models; for one model, in a table [MODEL] or with model = NAME",
            "FILE",
            many=True,
            default=[],
        ),
        *JOBS,
        shared.JSON,
        *training_options(without=["seed"]),
    )


@command(
    "compare",
    "train several models and compare them",
    description="Train several models on one dataset, evaluate them on its test split and print a table.",
    example="fm2 compare data --models lr,fm,fmfm --out comparison",
    notes="DIR/compare.json and DIR/compare.csv contain the table and are updated after every run; DIR/MODEL-SEED are "
    "ordinary runs. Training options apply to all models that have them. With the same options, fm2 train makes the "
    "same model: on 20,000 to 2 million training rows, both keep the best of several variants. If a run fails, its row "
    "contains the error, and the exit code is 1. Ctrl-C stops cleanly; --resume continues with the same options.",
    arguments=_compare_arguments,
    interrupted=shared.CONTINUE,
)
def compare(options: argparse.Namespace) -> None:
    from fm2.cli.model_options import chosen_settings
    from fm2.data.dataset import Dataset
    from fm2.studies.comparison.catalog import chosen

    dataset = Dataset.open(options.data)
    names = options.models and chosen(options.models)
    common, own = read_settings_files("compare", [Path(file) for file in options.settings])
    from_options = chosen_settings(options, dataset.schema.names)
    for settings in own.values():  # options override all files
        for name in from_options:
            settings.pop(name, None)

    from fm2.studies.comparison.compare import compare  # after the checks: importing torch takes seconds

    with _display(options) as watch:
        reporter = RunReporter(watch, options.debug)
        comparison = compare(
            dataset,
            options.out,
            names,
            model_settings=own,
            watch=watch,
            on_start=reporter.begin,
            on_result=reporter.end,
            **shared.pick(options, "seeds", "resume", "overwrite", "truth", "jobs", "engine", "address"),
            **(common | from_options),
        )
    _print_comparison(comparison, options.json)


def read_settings_files(operation: str, files: list[Path]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read TOML files of settings; return the settings of all models, and those of single models."""
    from fm2.artifacts.settings import read_settings
    from fm2.models.registry import get_spec

    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for file in files:
        settings = read_settings(file, operation)
        tables = {name: settings.pop(name) for name in list(settings) if isinstance(settings[name], dict)}
        model = settings.pop("model", None)
        if model is None:
            common |= settings
        else:
            tables[str(model)] = settings | tables.get(str(model), {})
        for name, table in tables.items():
            get_spec(name, f"{operation}: {file}")
            own[name] = own.get(name, {}) | table
    return common, own


def _display(options: argparse.Namespace) -> TrainingDisplay:
    """Return the display of one training after the other, or of several at once."""
    from fm2.studies.execution.display import RunsDisplay
    from fm2.studies.execution.jobs import Jobs
    from fm2.training.progress import TrainingDisplay

    return TrainingDisplay() if Jobs("", options.jobs, options.engine).is_sequential else RunsDisplay()


class RunReporter:
    """Prints a line on standard error when a run starts and when it ends."""

    def __init__(self, watch: TrainingDisplay, debug: bool = False) -> None:
        self._watch, self._debug = watch, debug

    def begin(self, run: str) -> None:
        """Print which run starts."""
        self._watch.restart(f"fm2: {run} ...")

    def end(self, row: dict[str, Any], error: Exception | None) -> None:
        """Print the result of a run."""
        scores = "" if error else f"AUC {row['auc']:.5f}, log loss {row['log_loss']:.5f}, {row['seconds']:.0f} s"
        self._watch.restart(f"fm2: {row['run']}: {scores or 'failed: ' + row['error']}", row["run"])
        if error is not None and self._debug:
            import traceback

            traceback.print_exception(error)


def _print_comparison(comparison: Comparison, as_json: bool) -> None:
    """Print the table and where it is stored; raise an error if a run failed."""
    from fm2.studies.comparison.plan import ignored_settings, setting_title
    from fm2.studies.comparison.printing import caption, lines
    from fm2.studies.comparison.results import CSV, JSON

    if as_json:
        print((comparison.path / JSON).read_text(encoding="utf-8"), end="")
    else:
        print("\n".join(lines(comparison)))
        print(f"{caption(comparison)}\nsaved as {comparison.path / JSON} and {comparison.path / CSV}")
    for name, without in ignored_settings(comparison.models, comparison.settings).items():
        setting = setting_title(name, comparison.settings[name])
        shared.warn(f"{setting} does not apply to {', '.join(without)}; ignored there")
    if comparison.failed:
        names = ", ".join(row["run"] for row in comparison.failed)
        raise Fm2Error(f"compare: {len(comparison.failed)} of {len(comparison.rows)} runs failed: {names}")


def _tune_arguments() -> Sequence[Argument]:
    from fm2.cli.model_options import METRICS, model_argument

    return (
        model_argument(),
        shared.DATA,
        output_path("--out", "directory to create", "DIR"),
        Argument("--trials", "total number of trials", int, default=20),
        Argument("--timeout", "stop the search after this time", float, metavar="SECONDS"),
        Argument("--metric", "validation metric to optimize (default: log_loss)", choices=METRICS),
        Argument("--fix", "setting of all trials; can be repeated", metavar="NAME=VALUE", action="append", default=[]),
        input_path("--space", "TOML file with the search space (default: the model's)", "FILE"),
        shared.ROW_WEIGHTS,
        shared.RESUME,
        Argument("--seed", "random seed of the search and of all trials (default: 0)", int),
        Argument("--generation", "number of trials that are proposed, and can be trained, at once (default: 4)", int),
        *JOBS,
        shared.THREADS,
        shared.JSON,
    )


def _kept_after_interrupt(options: argparse.Namespace) -> str:
    if not Path(options.out, "tune.json").exists():
        return NOTHING_WRITTEN
    best = Path(options.out, "best.toml")
    kept = f"; the best settings so far are in {best}" if best.exists() else ""
    return f"continue with --resume{kept}"


@command(
    "tune",
    "search for the best settings of a model",
    description="Train a model with many settings and keep those with the best validation score.",
    example="fm2 tune fmfm data --trials 30 --out tuning",
    notes="DIR/best.toml has the best settings, for fm2 train --settings, and DIR/best is the best run. Ctrl-C keeps "
    "all finished trials; --resume continues.",
    arguments=_tune_arguments,
    interrupted=_kept_after_interrupt,
)
def tune(options: argparse.Namespace) -> None:
    from fm2.studies.tuning.plan import read_fixed
    from fm2.studies.tuning.printing import describe, show
    from fm2.studies.tuning.search import tune

    with _display(options) as watch:
        tuning = tune(
            options.model,
            options.data,
            options.out,
            fix=read_fixed(options.fix),
            watch=watch,
            on_trial=lambda trials: watch.restart(describe(trials), f"trial {trials[-1].number}"),
            **shared.pick(options, "trials", "metric", "space", "seed", "threads", "timeout", "resume", "row_weights"),
            **shared.pick(options, "generation", "jobs", "engine", "address"),
        )
    if options.json:
        print(json.dumps([asdict(trial) for trial in tuning.trials]))
    else:
        show(tuning, options.model, options.data)


@command(
    "report",
    "write an HTML report of trained models",
    description="Write a self-contained HTML page about a run, or about all models of a comparison.",
    example="fm2 report comparison --out report.html",
    notes="The page has the paper's charts for your data. An existing HTML page is replaced; any other "
    "file is an error.",
    arguments=(
        input_path("source", "directory of fm2 train, fm2 compare or fm2 ablate", "RUN_OR_COMPARISON"),
        output_path("--out", "HTML file to write, e.g. report.html", "FILE"),
        input_path("--data", "dataset (default: the one that a comparison was made with)", "DATA"),
        input_path(
            "--shrink", "directory of fm2 shrink with several variances (default: searched next to the source)", "DIR"
        ),
        input_path("--ablation", "directory of fm2 ablate (default: searched next to the source)", "DIR"),
        shared.THREADS,
    ),
)
def report(options: argparse.Namespace) -> None:
    from fm2.studies.reporting.report import report

    replaced = shared.replaces(options.out)
    out = report(options.source, options.out, **shared.pick(options, "data", "shrink", "ablation", "threads"))
    if out.is_file():  # a pipe receives the page alone
        print(f"wrote {out.stat().st_size:,} bytes to {out}{replaced}; open it in a browser")


@command(
    "reproduce",
    "reproduce the paper's tables and figures from the original logs",
    description="Reproduce the paper's tables 1 to 8 and figures 6 to 8 from its logs, next to the published ones.",
    example="fm2 reproduce criteo train.txt --out tables",
    notes="PATH is Criteo's train.txt or Avazu's train, complete or in part, plain or compressed. DIR contains the "
    "dataset, the runs, the tables as reproduction.md and reproduction.json, and reproduction.html, a page with all "
    "tables and figures. A complete log takes many hours; "
    "Ctrl-C stops cleanly, and --resume continues.",
    interrupted=shared.CONTINUE,
    arguments=(
        Argument("log", "criteo or avazu", metavar="LOG", choices=("criteo", "avazu")),
        input_path("source", "the log file", "PATH"),
        output_path("--out", "directory to create", "DIR"),
        Argument(
            "--protocol",
            "train with fm2's defaults, as the paper says, or as the authors' code does",
            choices=("fm2", "paper", "authors"),
            default="fm2",
        ),
        Argument("--models", "e.g. lr,fmfm; or all (default: the models that the authors trained)", metavar="LIST"),
        Argument(
            "--tables",
            "1 to 6 and 8 for Criteo; 1, 2, 4, 5 and 7 for Avazu (default: all)",
            shared.numbers(int, "numbers like 5,6"),
            metavar="LIST",
        ),
        SEEDS,
        input_path("--settings", "TOML files of settings, as for fm2 compare", "FILE", many=True, default=[]),
        shared.RESUME,
        shared.OVERWRITE,
        shared.THREADS,
        shared.JSON,
    ),
)
def reproduce(options: argparse.Namespace) -> None:
    from fm2.cpu import check_threads
    from fm2.studies.reproduction.protocol import check_source

    check_threads("reproduce", options.threads)
    check_source(options.source)
    common, own = read_settings_files("reproduce", [Path(file) for file in options.settings])
    if options.threads:  # the option overrides all files
        common["threads"] = options.threads
        own = {name: {**values, "threads": options.threads} for name, values in own.items()}

    from fm2.studies.reproduction.record import PAGE, REPORT  # after the checks: importing torch takes seconds
    from fm2.studies.reproduction.reproduce import reproduce
    from fm2.training.progress import TrainingDisplay

    with TrainingDisplay() as watch:
        reporter = RunReporter(watch, options.debug)
        reproduction = reproduce(
            options.log,
            options.source,
            options.out,
            model_settings=own,
            watch=watch,
            on_start=reporter.begin,
            on_result=reporter.end,
            **shared.pick(options, "protocol", "models", "tables", "seeds", "resume", "overwrite"),
            **common,
        )
    if options.json:
        print(json.dumps(reproduction.record(), ensure_ascii=False))
    else:
        print("\n".join(reproduction.lines()))
        print(f"\nsaved as {reproduction.path / PAGE} and, with figures, {reproduction.path / REPORT}")
    if reproduction.failed:
        names = ", ".join(row["run"] for row in reproduction.failed)
        raise Fm2Error(f"reproduce: failed runs: {names}; use --resume to try again")


@command(
    "crosses",
    "rank pairs of fields by what crossing them adds to a model",
    description="Rank pairs of fields by how much their combinations add to a model, measured on validation rows.",
    example="fm2 crosses data --top 20 --triples",
    notes="Two base models are trained, each on one half of the training rows, and their errors on the other half show "
    "what they do not explain. Add good crosses to the schema, [[field]] with cross = ['a', 'b'], or use fm2 prepare "
    "--crosses auto.",
    arguments=(
        shared.DATA,
        Argument("--top", "number of crosses to print", int, default=10),
        flag("--triples", "extend the best pairs by a third field"),
        Argument("--model", "base model (fm2 models)", default="lr"),
        Argument("--min-count", "ignore combinations with fewer occurrences", int, default=CROSS_MIN_COUNT),
        Argument("--rows", "rows with which gains are measured; base models use all", int, default=1_000_000),
        Argument("--seed", "random seed of the halves and the base models", int, default=0),
        shared.THREADS,
        shared.JSON,
    ),
)
def crosses(options: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset

    dataset = Dataset.open(options.data)
    shared.check_top("crosses", options.top)

    from fm2.studies.crosses.rank import rank_crosses  # after the checks: importing torch takes seconds

    ranking = rank_crosses(
        dataset,
        watch=shared.report_step,
        **shared.pick(options, "model", "triples", "min_count", "rows", "seed", "threads"),
    )
    if options.json:
        found = [{**asdict(cross), "z": cross.z} for cross in ranking.crosses[: options.top]]
        print(json.dumps({"log_loss": ranking.log_loss, "least_z": ranking.least_z, "crosses": found}))
    else:
        print("\n".join(ranking.lines(options.top)))


COMMANDS = (models, compare, tune, crosses, report, reproduce)
