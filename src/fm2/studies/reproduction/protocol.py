"""How the paper did it: its data sets, its models' sizes, its optimizer; or its data and sizes with our defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from fm2.data.presets import PRESETS
from fm2.errors import Fm2Error
from fm2.models.registry import specs
from fm2.schema import Schema
from fm2.studies.reproduction.published import K

Protocol = Literal["fm2", "paper"]

HIDDEN = [200, 200, 200]  # the perceptron whose operations the paper counts

# Of the paper's own code. Its L2 goes over whole tables; ours over the rows that a batch touches.
_PAPER: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate": 1e-4,
    "batch_size": 1024,
    "epochs": 20,
    "l2": 1e-5,
    "l2_power": 0.0,
    "ema_decay": 0.0,
    "schedule": "constant",
    "evaluations_per_epoch": 1,
    "patience": 1,
    "field_dropout": 0.0,
    "dense_learning_rate": 1e-4,
    "embedding_std": 0.01,
    "matrix_std": 0.01,
}
# A vector per field for the linear part, and FwFM's weights and vectors from N(0, 1). The code draws the linear vectors
# of FvFM and FmFM so too; here they have the deviation of the field matrices.
_PAPER_OWN: dict[str, dict[str, Any]] = {
    "fm": {"linear": "features"},
    "fwfm": {"linear": "fields", "matrix_std": 1.0},
    "fvfm": {"linear": "fields"},
    "fmfm": {"linear": "fields"},
}


def check_source(source: str | Path) -> None:
    """Refuse a file that is not there."""
    if not Path(source).is_file():
        raise Fm2Error(f"reproduce: there is no file {source}; the paper's logs are Kaggle's, named train.txt or so")


def schema_of(log: str, protocol: Protocol) -> Schema:
    """Give the schema of a data set: the preset's, or the paper's code's, which counts no numbers out.

    >>> [schema_of("criteo", protocol).fields[0].min_count for protocol in ("fm2", "paper")]
    [8, 1]
    """
    schema = PRESETS[log]()
    if protocol == "fm2":
        return schema
    fields = [dataclasses.replace(f, min_count=1) if f.kind == "numeric" else f for f in schema.fields]
    return Schema(fields, schema.label, schema.columns, schema.missing)


def preparation(protocol: Protocol) -> dict[str, Any]:
    """Give the options of ``fm2.prepare``: the paper's code counts values over all rows, test included."""
    return {"fractions": (0.8, 0.1, 0.1), "split": "random", "vocabulary": "all" if protocol == "paper" else "train"}


def common_settings(protocol: Protocol) -> dict[str, Any]:
    """Give the settings of all models; K = 16 for all that have embeddings."""
    return {"dim": K} | (_PAPER if protocol == "paper" else {})


def own_settings(protocol: Protocol, models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Give the settings of single models; networks have the perceptron whose operations the paper counts."""
    if protocol == "fm2":
        return {}
    deep = {spec.name: {"hidden": HIDDEN} for spec in specs() if spec.deep and "hidden" in spec.option_names}
    return {name: own for name, own in (_PAPER_OWN | deep).items() if name in models}


def weighting(protocol: Protocol) -> Literal["counts", "features"]:
    """Tell how features count in the PCA of table 8: all alike, as in the paper, or by frequency, our default."""
    return "features" if protocol == "paper" else "counts"
