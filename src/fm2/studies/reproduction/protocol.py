"""Preparation and training settings of a reproduction: fm2's defaults, the paper's text, or the authors' code."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fm2.data.presets import paper_schema
from fm2.errors import not_found
from fm2.models.registry import specs
from fm2.schema import Schema
from fm2.studies.reproduction.published import SAMPLES, K

if TYPE_CHECKING:
    from fm2.compression.dimensions import Weighting  # imports torch

Protocol = Literal["fm2", "paper", "authors"]

TITLES: dict[Protocol, str] = {
    "fm2": "fm2's defaults",
    "paper": "the paper's optimizer",
    "authors": "the settings of the authors' code",
}
# How PCA weights the features in table 8.
WEIGHTINGS: dict[Protocol, Weighting] = {"fm2": "counts", "paper": "features", "authors": "authors"}

HIDDEN = [200, 200, 200]  # the perceptron whose FLOPs the paper counts

# What the paper and its code agree on.
_PAPER: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate": 1e-4,
    "dense_learning_rate": 1e-4,
    "batch_size": 1024,
    "epochs": 20,
    "l2": 1e-5,
    "l2_power": 0.0,
    "linear_l2_scale": 1.0,
    "ema_decay": 0.0,
    "schedule": "constant",
    "evaluations_per_epoch": 1,
    "patience": 1,
    "field_dropout": 0.0,
    "unknown_dropout": 0.0,
    "embedding_std": 0.01,
    "linear_std": 0.01,
    "matrix_std": 0.01,
}
# Without sparse gradients, Adam updates all rows of the tables, and the L2 penalty covers all parameters.
_AUTHORS = _PAPER | {"optimizer": "dense_adam", "dense_l2": 1e-5, "linear_std": 1.0, "metric": "auc"}
# The linear part has a vector per field (section 4.5), except in FM.
_PER_MODEL: dict[str, dict[str, Any]] = {
    "fm": {"linear": "features"},
    "fwfm": {"linear": "fields", "matrix_std": 1.0},
    "fvfm": {"linear": "fields"},
    "fmfm": {"linear": "fields"},
}

# How a training differs from the authors' code, whatever the protocol is ...
_ALWAYS = (
    "Rows are split at random; the authors' code leaves the split to the reader. It then reads rows in the order "
    "of the file, because its shuffle buffer has one row; fm2 shuffles them in every epoch.",
    "fm2 evaluates the best epoch; the authors' code evaluates the one after it.",
    "AUC is exact; theirs is an integral over 200 thresholds.",
    f"K is {K} for all models; in their code FmFM and Deep & Cross have 20 dimensions.",
    "FvFM has a vector per pair of fields; in their code it has a weight per pair and so is FwFM.",
    "LR has one weight per feature; theirs is a softmax over two classes with two. FFM counts each pair once; theirs "
    "counts it twice.",
    "Initial weights are normally distributed or zero; those of their LR, FM, FFM and Deep & Cross are Glorot-uniform "
    "for each field's table.",
    "The cross layers of Deep & Cross add their input, as in its own paper; those in their code do not.",
    "Other networks are not part of their code; the paper quotes figures from other papers.",
)
# ... if it follows their code ...
_AUTHORS_ONLY = (
    "L2 covers the bias of all models but LR, Poly2 and FFM; theirs covers that of LR and FM. TensorFlow's Adam adds "
    "its epsilon before the bias correction, PyTorch's after it.",
)
# ... if it follows the paper's text, or neither.
_PAPER_ONLY = (
    "Empty cells are a feature of their own; in their code they share the id of unknown values.",
    "Early stopping uses the validation log loss; theirs uses AUC.",
    "Adam updates, and L2 covers, the embedding rows of a batch; in their code all rows, and L2 also covers the field "
    "matrices and linear vectors.",
    "The linear vectors start with standard deviation 0.01; in their code with 1.",
    "PCA weights the features that occur in training equally; theirs all features, without the unknown one, and keeps "
    "at least 2 dimensions.",
)
_FM2_ONLY = (
    "The vocabulary is that of the training rows; theirs includes the test rows, and numbers have no threshold.",
    _PAPER_ONLY[0],
    "The optimizer and all settings but K are fm2's; PCA weights features by their frequency.",
)


def differences(protocol: Protocol) -> list[str]:
    """Return how a reproduction differs from the authors' code."""
    own = {"authors": _AUTHORS_ONLY, "paper": _PAPER_ONLY, "fm2": _FM2_ONLY}[protocol]
    return [*_ALWAYS, *own]


def check_source(source: str | Path) -> None:
    """Raise an error if the log does not exist."""
    if not Path(source).is_file():
        raise not_found("reproduce", source, "the paper uses the train files of the Kaggle challenges")


def schema_of(log: str, protocol: Protocol) -> Schema:
    """Return the schema of a log with the paper's thresholds, or that of its code, which keeps rare numeric values.

    >>> [schema_of("criteo", protocol).fields[0].min_count for protocol in ("fm2", "paper")]
    [8, 1]
    >>> schema_of("criteo", "authors").fields[20].missing_is_unknown
    True
    """
    schema = paper_schema(log)
    if protocol == "fm2":
        return schema
    fields = [dataclasses.replace(f, min_count=1) if f.kind == "numeric" else f for f in schema.fields]
    if protocol == "authors":
        fields = [dataclasses.replace(field, missing_is_unknown=True) for field in fields]
    return Schema(fields, schema.label, schema.columns, schema.missing)


def common_settings(protocol: Protocol) -> dict[str, Any]:
    """Return the settings of all models: K = 16, and the paper's or the authors' optimizer if requested."""
    return {"dim": K} | {"fm2": {}, "paper": _PAPER, "authors": _AUTHORS}[protocol]


def settings_per_model(protocol: Protocol, log: str, models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of single models. Deep models have the perceptron whose FLOPs the paper counts."""
    if protocol == "fm2":
        return {}
    with_hidden = [spec.name for spec in specs() if spec.deep and "hidden" in spec.option_names]
    own: dict[str, dict[str, Any]] = {name: {"hidden": HIDDEN} for name in with_hidden}
    own |= {name: dict(values) for name, values in _PER_MODEL.items()}
    if protocol == "authors":
        own["fvfm"]["matrix_std"] = 1.0
        own["dcn"] = {"hidden": [K * SAMPLES[log].fields] * 4, "cross_layers": 4}
    return {name: values for name, values in own.items() if name in models}
