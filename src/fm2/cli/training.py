"""Commands that train and apply models: ``train``, ``calibrate``, ``evaluate``, ``predict``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.cli import shared, workers
from fm2.cli.command import NOTHING_WRITTEN, Argument, command, flag, input_path, output_path
from fm2.errors import Fm2Error, not_found

if TYPE_CHECKING:
    from fm2.data.dataset import Dataset
    from fm2.engine.scorer import Scorer
    from fm2.training.run import Run
    from fm2.training.tracking import Tracker

SPLITS = ("train", "validation", "test")
NOTICEABLE, LARGE = 0.5, 1e9  # seconds, bytes
INTERVAL = "95% bootstrap confidence interval"
TRAINED_MODEL = input_path("path", "run directory (fm2 train) or compiled model (fm2 compile)", "MODEL")


def _train_arguments() -> Sequence[Argument]:
    from fm2.cli.model_options import model_argument, training_options

    return (
        model_argument(auto="try several models and keep the best one"),
        shared.DATA,
        output_path("--out", "run directory to create", "RUN"),
        shared.SETTINGS,
        shared.RESUME,
        input_path("--from", "warm start: continue from this run's model on new data", "RUN", dest="start"),
        shared.OVERWRITE,
        Argument(
            "--effort",
            "1: only the model's variants, at most eight (default); 2 or 3: also 5 or 15 other settings",
            int,
            default=1,
        ),
        shared.ROW_WEIGHTS,
        flag("--no-verify", "do not compare the checksums of DATA"),
        Argument("--workers", "train with this many processes, each with a part of the tables", int),
        Argument("--time-limit", "seconds to wait for a worker that does not respond (default: 300)", float),
        Argument(
            "--track",
            "log metrics to tensorboard[:DIR] or mlflow[:URI]; can be repeated",
            metavar="TRACKER",
            action="append",
            default=[],
        ),
        shared.JSON,
        *training_options(),
    )


def _kept_after_interrupt(options: argparse.Namespace) -> str:
    if not Path(options.out, "settings.toml").exists():
        return NOTHING_WRITTEN
    if Path(options.out, "race").is_dir():
        return "continue the race with --resume"
    return "continue with --resume; the best model so far is kept"


@command(
    "train",
    "train a model on a dataset",
    description="Train a model and keep the weights with the best validation score.",
    example="fm2 train fmfm data --out run",
    notes="Defaults depend on the model and the size of the log. Ctrl-C writes a checkpoint; --resume continues.",
    arguments=_train_arguments,
    interrupted=_kept_after_interrupt,
)
def train(options: argparse.Namespace) -> None:
    from fm2.artifacts.model_file import check_model
    from fm2.artifacts.run_directory import check_run_output
    from fm2.artifacts.settings import Settings
    from fm2.data.dataset import Dataset
    from fm2.training.candidates import AUTO, check_effort

    check_effort(options.effort)
    worker = workers.is_worker()
    if worker or options.workers is not None:
        workers.check_options(options)
    elif options.time_limit is not None:
        shared.warn("train: --time-limit has no effect without --workers")
    dataset = Dataset.open(options.data)
    if worker:
        _train_worker(options, dataset)
        return
    check_run_output("train", Path(options.out), options.resume, options.overwrite)
    if options.start:
        check_model(Path(options.start))
    if options.row_weights and not Path(options.row_weights).is_file():
        raise not_found("train: row weights", options.row_weights)
    changes = _changes(options, dataset)
    settings = None if options.resume or options.model == AUTO else Settings.of(options.model, **changes)
    if options.workers is not None:
        shared.report_step(_first_step(options, dataset, changes))
        workers.launch(options, settings)
        return
    if not options.no_verify:
        _verify(dataset)
    trackers = _trackers(options.track)
    shared.report_step(_first_step(options, dataset, changes))

    from fm2.training.progress import TrainingDisplay  # after the checks: importing torch takes seconds
    from fm2.training.race_record import Record
    from fm2.training.resolve import slow_path_warning
    from fm2.training.train import train

    warning = slow_path_warning(settings) if settings else None
    if warning:
        shared.warn(warning)
    with TrainingDisplay() as watch:
        run = train(
            options.model,
            dataset,
            options.out,
            callback=watch,
            trackers=trackers,
            verify=not options.no_verify,
            **shared.pick(options, "resume", "start", "overwrite", "effort", "row_weights"),
            **changes,
        )
    race = Record.read(run.path) if watch.raced else None
    shared.warn(race.summary() if race else watch.summary())
    weighted = options.row_weights or changes.get("positive_weight", 1) != 1
    if run.metrics["rig"] < 0 and not weighted:
        shared.warn("worse than predicting the mean click rate; try other values of --learning-rate and --l2")
    _print_metrics(run.metrics, f"{run.model.name} in {options.out}, validation", options.json)


def _changes(options: argparse.Namespace, dataset: Dataset) -> dict[str, Any]:
    """Return the settings of the settings file, and of the options, which override it."""
    from fm2.artifacts.settings import read_changes
    from fm2.cli.model_options import chosen_settings

    changes = read_changes(Path(options.settings), options.model) if options.settings else {}
    return changes | chosen_settings(options, dataset.schema.names)


def _trackers(names: list[str]) -> list[Tracker]:
    if not names:
        return []
    from fm2.training.trackers import tracker  # imports torch, which takes seconds

    return [tracker(name) for name in names]


def _first_step(options: argparse.Namespace, dataset: Dataset, changes: dict[str, Any]) -> str:
    """Return what a training does, and how long the model takes to appear."""
    from fm2.training.candidates import AUTO, count_variants

    step = f"{'resuming' if options.resume else 'training'} {options.model} on {len(dataset.train):,} rows"
    if options.resume or options.start or options.effort > 1 or options.model == AUTO:
        return step
    variants = count_variants(options.model, dataset, changes)
    if options.workers is not None:
        compared = f"; one process would compare {variants} variants" if variants > 1 else ""
        return f"{step} with {options.workers} workers{compared}"
    return f"{step} in {variants} variants; the best one is kept at the end" if variants > 1 else step


def _train_worker(options: argparse.Namespace, dataset: Dataset) -> None:
    scores = workers.train_worker(options, _changes(options, dataset))
    if scores is not None:
        _print_metrics(scores, f"{options.model} in {options.out}, validation", options.json)


def _verify(dataset: Dataset) -> None:
    """Compare the checksums of a dataset; if that takes long, say so, and print how long it took."""
    began = time.perf_counter()
    size = sum(entry["bytes"] for entry in dataset.manifest["files"].values())
    if size > LARGE:
        shared.report_step(f"verifying {size / 1e6:,.0f} MB of {dataset.path}")
    dataset.verify()
    seconds = time.perf_counter() - began
    if seconds > NOTICEABLE:
        shared.warn(f"verified {size / 1e6:,.1f} MB of {dataset.path} in {seconds:.1f} s; --no-verify skips this")


@command(
    "calibrate",
    "calibrate the probabilities of a trained model",
    description="Fit a calibration of a run's probabilities and store it in the run, or remove it.",
    example="fm2 calibrate run data --method isotonic",
    notes="Predictions, compiled and exported models use the calibration; compile again after calibrating. Both "
    "methods keep the order of the predictions; --by keeps it among rows with the same value.",
    arguments=(
        dataclasses.replace(shared.RUN, location="update"),
        dataclasses.replace(shared.MODEL_DATA, optional=True),
        Argument(
            "--method", "increasing map of the logits, or a line", choices=("isotonic", "platt"), default="isotonic"
        ),
        Argument("--by", "also shift the logit by the value of this field", metavar="FIELD"),
        Argument(
            "--split", "split to fit on; test rows are then no longer unseen", choices=SPLITS, default="validation"
        ),
        flag("--remove", "remove the calibration of the run; takes no DATA"),
        shared.JSON,
    ),
    interrupted="the calibration was not changed",
)
def calibrate(options: argparse.Namespace) -> None:
    from fm2.artifacts.calibration import delete_calibration
    from fm2.artifacts.model_file import check_model
    from fm2.data.dataset import Dataset

    if options.remove == bool(options.data):
        raise Fm2Error("calibrate: " + ("--remove takes no DATA" if options.remove else "DATA is required"))
    if options.remove:
        delete_calibration(Path(options.run_path))
        print(json.dumps({"removed": True}) if options.json else f"removed the calibration of {options.run_path}")
        return
    dataset = Dataset.open(options.data)
    check_model(Path(options.run_path))

    from fm2.training.calibrate import calibrate  # after the checks: importing torch takes seconds

    fitted = calibrate(options.run_path, dataset, **shared.pick(options, "method", "by", "split"))
    stages = {"before": (fitted.log_loss_before, fitted.before), "after": (fitted.log_loss_after, fitted.after)}
    if options.json:
        measured = {stage: {"log_loss": log_loss, **vars(error)} for stage, (log_loss, error) in stages.items()}
        print(json.dumps({"rows": fitted.rows, "knots": len(fitted.calibration.knots), **measured}))
        return
    print(f"calibrated {options.run_path} on {options.split} ({fitted.rows:,} rows); on these rows, with {INTERVAL}s:")
    for stage, (log_loss, error) in stages.items():
        print(f"  {stage:<7} log loss {log_loss:.5f}, calibration error {error}")


@command(
    "evaluate",
    "evaluate a trained or compiled model",
    description="Evaluate a trained or compiled model on a split of a dataset.",
    example="fm2 evaluate run data --split test",
    arguments=(
        TRAINED_MODEL,
        shared.MODEL_DATA,
        Argument("--split", "split to evaluate", choices=SPLITS, default="test"),
        flag("--uncalibrated", "ignore the calibration (fm2 calibrate)"),
        shared.THREADS,
        shared.JSON,
    ),
)
def evaluate(options: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset
    from fm2.evaluation.calibration import error_lines
    from fm2.evaluation.evaluate import mostly_unknown, score_calibrated
    from fm2.evaluation.id_mapping import make_id_map

    dataset = Dataset.open(options.data)
    model = _open_model("evaluate", options)
    same_data = make_id_map(model.encoder, dataset, model.path) is None
    if not same_data and not dataset.manifest["settings"].get("like"):
        shared.warn(
            f"{options.data} was not prepared with --like: values that are too rare in it count as unknown, even if "
            "the model knows them"
        )
    totals = dataset.manifest["splits"][options.split]
    size = ", ".join(f"{totals[name]:,} {name}" for name in ("rows", "impressions") if name in totals)
    if model.negative_rate != 1:
        shared.warn(f"trained on {model.negative_rate:g} of the rows without a click; the bias is corrected for that")
    scores = score_calibrated(model, dataset, options.split)
    calibration = None if options.uncalibrated else model.calibration
    metrics, errors = scores.metrics(calibration), scores.calibration_errors(calibration)
    _warn_unknown(mostly_unknown(model, dataset, options.split))
    if options.json:
        for stage, error in errors.items() if calibration else ():
            metrics |= {f"{stage}_{name}": value for name, value in vars(error).items()}
        print(json.dumps(metrics))
        return
    metrics.pop("calibration_error")  # it follows, with its interval
    _print_metrics(metrics, f"{options.path}, {options.split} ({size})", as_json=False)
    print(f"expected calibration error [{INTERVAL}]:")
    for line in error_lines(errors):
        print(f"  {line}")


def _open_model(operation: str, options: argparse.Namespace) -> Run | Scorer:
    """Open a run or a compiled model."""
    from fm2.artifacts.model_file import MODEL, check_model
    from fm2.cpu import check_threads

    check_threads(operation, options.threads)
    if Path(options.path).is_file() and Path(options.path).name != MODEL:
        from fm2.engine.scorer import load

        return load(options.path, threads=options.threads)
    if not Path(options.path).exists():
        raise not_found(f"{operation}: model", options.path, "fm2 train writes a run, fm2 compile a compiled model")
    check_model(Path(options.path))

    from fm2.training.run import Run  # after the checks: importing torch takes seconds

    return Run.open(options.path, options.threads)


@command(
    "predict",
    "predict click probabilities for raw rows",
    description="Predict the click probability of every row, in the order of the input.",
    example="fm2 predict model.fm2 new.csv --out predictions.csv --keep user,ad",
    notes="Input files may have any format that fm2 prepare reads; the label column is optional. The extension of "
    "--out selects the format: .csv or .csv.gz (with a header), .parquet, .npy (float32), .txt or none: text with one "
    "probability per line. An existing file of predictions is replaced; any other file is an error.",
    arguments=(
        TRAINED_MODEL,
        Argument("input", "files with raw rows", metavar="INPUT", many=True),
        output_path("--out", "output file; - writes CSV to standard output", "FILE"),
        Argument("--keep", "input columns to copy to CSV or Parquet, e.g. user,ad", metavar="COLUMNS"),
        shared.THREADS,
    ),
)
def predict(options: argparse.Namespace) -> None:
    from fm2.data.sources import find_files
    from fm2.evaluation.prediction import predict_files
    from fm2.evaluation.prediction_files import check_keep

    for source in options.input:
        find_files(source)  # report missing files before a model is loaded
    out = None if options.out in ("-", "/dev/stdout") else Path(options.out)
    keep = [name.strip() for name in options.keep.split(",")] if options.keep is not None else []
    check_keep(out, keep)
    replaced = "" if out is None else shared.replaces(options.out)
    predicted = predict_files(_open_model("predict", options), options.input, out, keep=keep)
    _warn_unknown(predicted.mostly_unknown())
    if out is not None and out.is_file():  # a pipe receives the probabilities alone
        print(f"wrote {predicted.rows:,} probabilities to {options.out}{replaced}")


def _warn_unknown(shares: dict[str, float]) -> None:
    for name, share in shares.items():
        shared.warn(f"field '{name}': {share:.0%} of the values are unknown to the model")


def _print_metrics(metrics: dict[str, Any], title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(metrics))
        return
    print(f"{title}:")
    for name, value in metrics.items():
        print(f"  {name.replace('_', ' '):<18} {value:.5f}")


COMMANDS = (train, calibrate, evaluate, predict)
