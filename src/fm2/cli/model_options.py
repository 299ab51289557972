"""The training options of ``fm2 train`` and ``fm2 compare``: shared by all models, or options of some."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any, get_args

from fm2.artifacts.settings import model_options, read_dim
from fm2.cli.command import Argument, input_path
from fm2.models.choices import Metric, Optimizer, Schedule
from fm2.models.options import Option
from fm2.models.registry import model_names, models_that_take

MODEL, OPTIMIZATION, REGULARIZATION = "Model", "Optimization", "Regularization"
EVALUATION, RUN = "Evaluation and early stopping", "Execution"
COMMON_NETWORKS, SOME_NETWORKS = "Options of most networks", "Options of some networks"

# Name, type, help text and group of every setting that is not an option of single models.
SHARED: tuple[tuple[str, Any, str, str], ...] = (
    ("embedding_std", float, "standard deviation of the initial embeddings", MODEL),
    (
        "optimizer",
        Optimizer,
        "optimizer of the embedding tables (dense_adam: of all their rows, each step)",
        OPTIMIZATION,
    ),
    ("learning_rate", float, "learning rate of the embedding tables", OPTIMIZATION),
    ("dense_learning_rate", float, "learning rate of all other parameters", OPTIMIZATION),
    ("learning_rate_scale", float, "factor for both learning rates, e.g. for fine-tuning", OPTIMIZATION),
    ("schedule", Schedule, "learning rate schedule", OPTIMIZATION),
    ("batch_size", int, "rows per step", OPTIMIZATION),
    ("epochs", int, "maximum number of epochs", OPTIMIZATION),
    ("initial_accumulator", float, "initial value of Adagrad's squared-gradient sums", OPTIMIZATION),
    ("positive_weight", float, "weight of clicks (positive rows) in the loss", OPTIMIZATION),
    ("l2", float, "L2 regularization of the embedding rows in a batch (dense_adam: of all rows)", REGULARIZATION),
    ("l2_power", float, "divide the L2 penalty by the feature's count raised to this power", REGULARIZATION),
    ("linear_l2_scale", float, "factor of the L2 penalty for the weights of the linear part", REGULARIZATION),
    ("dense_l2", float, "L2 regularization of all parameters outside the embedding tables", REGULARIZATION),
    ("l1", float, "L1 regularization (FTRL only)", REGULARIZATION),
    ("weight_decay", float, "decoupled weight decay of the networks' matrices, as in AdamW", REGULARIZATION),
    ("dropout", float, "dropout rate of embedding elements", REGULARIZATION),
    ("field_dropout", float, "dropout rate of entire fields", REGULARIZATION),
    ("value_dropout", float, "dropout rate of single values of multi-valued fields", REGULARIZATION),
    (
        "unknown_dropout",
        float,
        "maximum share of values replaced by the unknown value, in fields with far more unknown values in "
        "validation rows than in training rows (default: 0.3)",
        REGULARIZATION,
    ),
    ("ema_decay", float, "decay of the exponential moving average of the weights; 0 disables it", REGULARIZATION),
    ("metric", Metric, "validation metric that selects the best model (default: log_loss)", EVALUATION),
    ("evaluations_per_epoch", int, "evaluations on the validation split per epoch (default: 4)", EVALUATION),
    ("patience", int, "evaluations without improvement before early stopping (default: 8)", EVALUATION),
    ("seed", int, "random seed of initialization, shuffling and dropout (default: 0)", RUN),
    ("threads", int, "number of threads (default: all cores)", RUN),
    ("device", str, "cpu (native code) or a torch device (default: cpu)", RUN),
)
METRICS: tuple[str, ...] = get_args(Metric)
DIM = input_path("--dim", "embedding dimension: 16; one per field: 4,8,...; or a JSON file", "K", group=MODEL)


def model_argument(auto: str = "") -> Argument:
    """Return the positional argument that names the model to train; ``auto`` explains the choice of this name."""
    listing = f"{', '.join(model_names(deep=False))}; networks: {', '.join(model_names(deep=True))}"
    if not auto:
        return Argument("model", listing, metavar="MODEL", choices=model_names())
    return Argument("model", f"{listing}; auto: {auto}", metavar="MODEL", choices=[*model_names(), "auto"])


def training_options(without: Collection[str] = ()) -> list[Argument]:
    """Return an option for every setting except those in ``without``. Defaults depend on the model."""
    shared = [_shared_option(*setting) for setting in SHARED if setting[0] not in without]
    own = sorted(map(_model_option, _model_options()), key=lambda option: option.group)  # "most networks" before "some"
    return [DIM, *shared, *own]


def chosen_settings(options: argparse.Namespace, fields: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings given on the command line; ``fields`` are the dataset's, for dimensions by field."""
    names = (*(setting[0] for setting in SHARED), *(option.name for option in _model_options()))
    values = {name: getattr(options, name, None) for name in names}
    dim = {} if options.dim is None else {"dim": read_dim(options.dim, fields)}
    return {name: value for name, value in values.items() if value is not None} | dim


def _shared_option(name: str, kind: Any, help: str, group: str) -> Argument:
    choices = get_args(kind)
    return Argument(_flag(name), help, str if choices else kind, choices=choices, group=group)


def _model_options() -> list[Option]:
    """Return the options of all models, including those that a program registered, each once."""
    shared = {setting[0] for setting in SHARED}
    return [option for name, option in model_options().items() if name not in shared]


def _model_option(option: Option) -> Argument:
    """Return an option of some models; its help names them unless most networks have it."""
    users, networks = models_that_take(option.name), model_names(deep=True)
    common = 2 * len(set(users) & set(networks)) > len(networks)
    group = COMMON_NETWORKS if common else SOME_NETWORKS if set(users) <= set(networks) else MODEL
    help = option.help if common else f"{option.help} ({', '.join(users)})"
    if option.kind is bool:
        return Argument(_flag(option.name), help, action=argparse.BooleanOptionalAction, group=group)
    if option.kind is tuple:
        return Argument(_flag(option.name), help, _widths, metavar="N,N", group=group)
    return Argument(_flag(option.name), help, option.kind, choices=option.choices, group=group)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _widths(text: str) -> list[int]:
    """Parse layer widths such as 400,400.

    >>> _widths("400,200"), _widths("none")
    ([400, 200], [])
    """
    try:
        return [] if text == "none" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers like 400,400, or none, got '{text}'") from None
