"""The commands that train models and use them: ``fm2 train``, ``fm2 evaluate``, ``fm2 predict``, ``fm2 export``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fm2.errors import Fm2Error
from fm2.models.choices import Metric, Optimizer, Schedule
from fm2.models.options import Option
from fm2.models.registry import model_names, specs

if TYPE_CHECKING:
    from fm2.engine.scorer import Scorer
    from fm2.training.run import Run

SPLITS = ("train", "validation", "test")


def add_train(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 train``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train a model on a prepared data set",
        description="Train a model; the best state that validation saw is kept.",
        epilog="Options not given are the model's own defaults. Ctrl-C stops cleanly; --resume goes on.",
    )
    command.add_argument("model", metavar="MODEL", choices=model_names(), help=named_models())
    command.add_argument("data", metavar="DATA", help="a directory that fm2 prepare made")
    command.add_argument("--out", required=True, metavar="RUN", help="the directory of the run")
    command.add_argument("--settings", metavar="FILE", help="a TOML file of settings; options come before it")
    command.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    command.add_argument("--from", dest="start", metavar="RUN", help="go on from this run's model, on new data")
    command.add_argument("--overwrite", action="store_true", help="replace a run that is there already")
    command.add_argument("--row-weights", metavar="FILE", help="an .npy file: how much each row of the log counts")
    command.add_argument(
        "--track",
        action="append",
        default=[],
        metavar="TRACKER",
        help="tensorboard[:DIR] or mlflow[:URI] follows the training; may be given again",
    )
    command.add_argument("--json", action="store_true", help="print the best model's metrics as JSON")
    add_settings(command)
    command.set_defaults(run=_train, interrupted=_what_is_kept)
    return command


def add_settings(command: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add the options that are settings of a training, but for some."""
    groups = {title: command.add_argument_group(title) for title in _GROUPS}
    groups["the model"].add_argument(
        "--dim", metavar="K", help="embedding dimension: 16, or one per field: 4,8,..., or a JSON file"
    )
    for name, kind, text in (option for option in _OPTIONS if option[0] not in without):
        choices = get_args(kind) or None
        shown = None if choices else name.upper() if kind is str else "N"
        group = next((groups[title] for title, names in _GROUPS.items() if name in names), command)
        group.add_argument(_flag(name), type=str if choices else kind, choices=choices, metavar=shown, help=text)
    most, some = (command.add_argument_group(f"options of {which} networks") for which in ("most", "some"))
    for option in _NETWORK_OPTIONS.values():
        of_networks = most if _is_common(option) else some
        _add_option(groups["the model"] if option.name in _GROUPS["the model"] else of_networks, option)


def given_settings(options: argparse.Namespace, fields: tuple[str, ...]) -> dict[str, Any]:
    """Give those settings of a training that were among the options; ``fields`` are those of the data."""
    from fm2.artifacts.settings import read_dim

    given = {name: getattr(options, name, None) for name in (*_SHARED, *_NETWORK_OPTIONS)}
    dim = {} if options.dim is None else {"dim": read_dim(options.dim, fields)}
    return {name: value for name, value in given.items() if value is not None} | dim


def named_models() -> str:
    """Name all models for a help text."""
    return f"{', '.join(model_names(deep=False))}; networks: {', '.join(model_names(deep=True))}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _widths(text: str) -> list[int]:
    """Understand a list of whole numbers."""
    try:
        return [] if text == "none" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of whole numbers like 400,400, nor none") from None


def _add_option(group: Any, option: Option) -> None:
    """Add an option of networks, whose help says which, unless most have it."""
    text = option.help if _is_common(option) else f"{option.help} ({', '.join(_users(option))})"
    if option.kind is bool:
        group.add_argument(_flag(option.name), action=argparse.BooleanOptionalAction, help=text)
    else:
        kind, shown = (_widths, "N,N") if option.kind is tuple else (option.kind, "N")
        shown_as = None if option.choices else shown
        group.add_argument(_flag(option.name), type=kind, choices=option.choices or None, metavar=shown_as, help=text)


def _users(option: Option) -> list[str]:
    return [spec.name for spec in specs() if option.name in spec.option_names]


def _is_common(option: Option) -> bool:
    return 2 * len(_users(option)) > len(model_names(deep=True))


def _what_is_kept(settings: argparse.Namespace) -> str:
    if not Path(settings.out, "settings.toml").exists():
        return "nothing was written yet"
    return "--resume goes on from here, and the best model so far, if there is one, is kept"


def _options() -> tuple[tuple[str, Any, str], ...]:
    return (
        ("embedding_std", float, "deviation of the first embeddings"),
        ("optimizer", Optimizer, "what moves the tables"),
        ("learning_rate", float, "how far a step moves the tables"),
        ("dense_learning_rate", float, "how far a step moves all other parameters"),
        ("weight_decay", float, "of networks' matrices, as AdamW has it"),
        ("learning_rate_scale", float, "multiplies both rates, as when a trained model is trained on"),
        ("schedule", Schedule, "how the learning rates fall"),
        ("batch_size", int, "rows per step"),
        ("epochs", int, "passes over the training rows, at most"),
        ("l2", float, "L2 on the rows of the tables that a batch touches"),
        ("l2_power", float, "divide it by a feature's count to this power"),
        ("l1", float, "L1, of FTRL"),
        ("initial_accumulator", float, "what Adagrad's sums of squares begin with"),
        ("dropout", float, "share of embedding elements dropped in training"),
        ("field_dropout", float, "share of whole fields dropped in training"),
        ("ema_decay", float, "decay of the average of the weights; 0 for none"),
        ("positive_weight", float, "weight of rows with a click"),
        ("metric", Metric, "what decides which state is the best"),
        ("evaluations_per_epoch", int, "how many in an epoch"),
        ("patience", int, "evaluations without a better one before it stops"),
        ("seed", int, "of first weights, shuffling and dropout"),
        ("threads", int, "how many (default: all processors)"),
        ("device", str, "cpu (native code) or one of torch's"),
    )


# Where help shows them; what is in no group stands with the options of the run.
_GROUPS = {
    "the model": ("linear", "hash_bits", "embedding_std", "matrix_std"),
    "learning": (
        "optimizer",
        "learning_rate",
        "dense_learning_rate",
        "learning_rate_scale",
        "schedule",
        "batch_size",
        "epochs",
        "initial_accumulator",
        "positive_weight",
    ),
    "holding back (regularization)": ("l2", "l2_power", "l1", "weight_decay", "dropout", "field_dropout", "ema_decay"),
    "evaluating and stopping": ("metric", "evaluations_per_epoch", "patience"),
}
_OPTIONS = _options()
_SHARED = [name for name, _, _ in _OPTIONS]
_NETWORK_OPTIONS = {option.name: option for spec in specs() for option in spec.options if option.name not in _SHARED}


def _train(settings: argparse.Namespace) -> None:
    from fm2.artifacts.settings import Settings, read_changes
    from fm2.data.dataset import Dataset

    dataset = Dataset.open(settings.data)
    _check_places(settings)
    changes = read_changes(Path(settings.settings), settings.model) if settings.settings else {}
    changes |= given_settings(settings, dataset.schema.names)
    chosen = None if settings.resume else Settings.of(settings.model, **changes)

    from fm2.training.progress import ProgressLine
    from fm2.training.resolve import slow_path_warning
    from fm2.training.trackers import tracker
    from fm2.training.train import train  # torch, which takes seconds: only now that there is something to train

    note = slow_path_warning(chosen) if chosen else None
    if note:
        print(f"fm2: {note}", file=sys.stderr)
    trackers = [tracker(text) for text in settings.track]
    with ProgressLine() as watch:
        run = train(
            settings.model,
            dataset,
            settings.out,
            resume=settings.resume,
            start=settings.start,
            overwrite=settings.overwrite,
            row_weights=settings.row_weights,
            callback=watch,
            trackers=trackers,
            **changes,
        )
    print(f"fm2: {watch.closing()}", file=sys.stderr)
    weighed = settings.row_weights or changes.get("positive_weight", 1) != 1
    if run.metrics["rig"] < 0 and not weighed:
        print("fm2: this is worse than the click rate alone would be; see --learning-rate and --l2", file=sys.stderr)
    _show(run.metrics, f"{settings.model} in {settings.out}, on validation", settings.json)


def _check_places(settings: argparse.Namespace) -> None:
    """Refuse what is not there, or there already, while that takes no time."""
    from fm2.artifacts.model_file import check_model
    from fm2.artifacts.run_directory import check_directory, check_resumed

    check_directory(Path(settings.out), settings.resume, settings.overwrite)
    if settings.resume:
        check_resumed(Path(settings.out))
    if settings.start:
        check_model(Path(settings.start))
    if settings.row_weights and not Path(settings.row_weights).is_file():
        raise Fm2Error(f"train: the row weights: {settings.row_weights} is no file")


def add_evaluate(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 evaluate``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="measure a trained model",
        description="Measure a trained or compiled model on a split of a data set.",
    )
    _add_model(command)
    command.add_argument("data", metavar="DATA", help="the data set it was trained on, or one of another day")
    command.add_argument(
        "--split", choices=SPLITS, default="test", help="the rows to measure on (default: %(default)s)"
    )
    command.add_argument("--threads", type=int, default=0, metavar="N", help="how many (default: all processors)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_evaluate, command="evaluate")
    return command


def _evaluate(settings: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset
    from fm2.evaluation.evaluate import evaluate_split, id_map, mostly_unknown

    dataset = Dataset.open(settings.data)
    model = _open_model(settings)
    other = id_map(model.encoder, dataset, model.path) is not None
    if other and not dataset.manifest["settings"].get("like"):
        print(
            f"fm2: {settings.data} was not prepared --like the model's data set: values that were too rare in it are "
            "unknown, though the model may know them",
            file=sys.stderr,
        )
    found = evaluate_split(model, dataset, settings.split)
    rows = len(dataset.split(settings.split))
    _tell_unknown(mostly_unknown(model, dataset, settings.split))
    _show(found, f"{settings.run_path}, on {settings.split} ({rows:,} rows)", settings.json)


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "run_path", metavar="MODEL", help="a directory that fm2 train made, or a file that fm2 compile made"
    )


def _open_model(settings: argparse.Namespace) -> Run | Scorer:
    """Open what is to predict: a run, or a compiled model."""
    from fm2.artifacts.model_file import check_model
    from fm2.cpu import check_threads

    check_threads(settings.command, settings.threads)
    if Path(settings.run_path).is_file():
        from fm2.engine.scorer import load

        return load(settings.run_path, threads=settings.threads)
    check_model(Path(settings.run_path))

    from fm2.training.run import Run  # torch, which takes seconds: only now that there is a model

    return Run.open(settings.run_path, settings.threads)


def add_predict(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 predict``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "predict",
        help="score raw rows with a trained model",
        description="Score raw rows: one click probability per row, in their order.",
        epilog="The rows are in any form that fm2 prepare reads; the label is not needed. "
        "Probabilities that are there already are replaced.",
    )
    _add_model(command)
    command.add_argument("input", nargs="+", metavar="INPUT", help="files with raw rows")
    command.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="one probability per line; .npy makes an array, - is standard output",
    )
    command.add_argument("--threads", type=int, default=0, metavar="N", help="how many (default: all processors)")
    command.set_defaults(run=_predict, command="predict")
    return command


def _predict(settings: argparse.Namespace) -> None:
    from fm2.data.sources import find_files
    from fm2.evaluation.prediction import predict_files

    for source in settings.input:
        find_files(source)  # what is not there is told before a model is loaded
    out = None if settings.out in ("-", "/dev/stdout") else Path(settings.out)
    done = predict_files(_open_model(settings), settings.input, out)
    _tell_unknown(done.mostly_unknown())
    if out is None or not out.is_file():
        return  # a pipe has probabilities alone
    print(f"{done.rows:,} probabilities in {settings.out}")


def _tell_unknown(shares: dict[str, float]) -> None:
    for name, share in shares.items():
        print(f"fm2: in {share:.0%} of the rows the value of '{name}' is unknown to the model", file=sys.stderr)


def add_export(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 export``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "export",
        help="write a trained model as an ONNX file",
        description="Write a trained model as an ONNX graph: ids, rows × fields, to click probabilities.",
        epilog="Raw values become ids by fm2 alone; an ONNX file has no vocabularies. One that is there already is "
        "replaced.",
    )
    command.add_argument("run_path", metavar="RUN", help="a directory that fm2 train made")
    command.add_argument("--out", required=True, metavar="FILE", help="the ONNX file to write")
    command.add_argument(
        "--ids", choices=("int64", "int32"), default="int64", help="type of ids (default: %(default)s)"
    )
    command.set_defaults(run=_export)
    return command


def _export(settings: argparse.Namespace) -> None:
    from fm2.artifacts.model_file import check_model

    check_model(Path(settings.run_path))

    from fm2.export.onnx import export_onnx  # torch

    out = export_onnx(settings.run_path, settings.out, ids=settings.ids)
    print(f"{out.stat().st_size:,} bytes in {out}")


def _show(found: dict[str, Any], title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    print(f"{title}:")
    for name, value in found.items():
        print(f"  {name.replace('_', ' '):<18} {value:.5f}")
