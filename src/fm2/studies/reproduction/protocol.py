"""Preparation and training settings of a reproduction: fm2's defaults, or those of the paper's code."""

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

HIDDEN = [200, 200, 200]  # the perceptron whose FLOPs the paper counts

# From the paper's code. Its L2 penalty covers whole tables; fm2's covers the rows in a batch.
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
# The linear part has a vector per field. The paper's code draws FwFM's weights, and the linear vectors of all three,
# from N(0, 1); here, those of FvFM and FmFM have the standard deviation of the field matrices.
_PAPER_PER_MODEL: dict[str, dict[str, Any]] = {
    "fm": {"linear": "features"},
    "fwfm": {"linear": "fields", "matrix_std": 1.0},
    "fvfm": {"linear": "fields"},
    "fmfm": {"linear": "fields"},
}


def check_source(source: str | Path) -> None:
    """Raise an error if the log does not exist."""
    if not Path(source).is_file():
        raise Fm2Error(f"reproduce: file not found: {source}; the paper uses the train files of the Kaggle challenges")


def schema_of(log: str, protocol: Protocol) -> Schema:
    """Return the schema of a log: the preset, or that of the paper's code, which keeps rare numeric values.

    >>> [schema_of("criteo", protocol).fields[0].min_count for protocol in ("fm2", "paper")]
    [8, 1]
    """
    schema = PRESETS[log]()
    if protocol == "fm2":
        return schema
    fields = [dataclasses.replace(f, min_count=1) if f.kind == "numeric" else f for f in schema.fields]
    return Schema(fields, schema.label, schema.columns, schema.missing)


def common_settings(protocol: Protocol) -> dict[str, Any]:
    """Return the settings of all models: K = 16, and the paper's optimizer if requested."""
    return {"dim": K} | (_PAPER if protocol == "paper" else {})


def settings_per_model(protocol: Protocol, models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of single models. Deep models have the perceptron whose FLOPs the paper counts."""
    if protocol == "fm2":
        return {}
    deep = {spec.name: {"hidden": HIDDEN} for spec in specs() if spec.deep and "hidden" in spec.option_names}
    return {name: values for name, values in (_PAPER_PER_MODEL | deep).items() if name in models}
