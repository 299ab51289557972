"""Each model's own defaults; those of networks are declared with them."""

from __future__ import annotations

import math
from typing import Any

from fm2.models.networks import NETWORKS

# Chosen on validation rows of two real logs so small (110 and 24 thousand training rows) that features need holding
# back by how rarely they occur: by benchmarks/quality.py search, but for the family's dimension, where 8 does as well
# as the 16 that was found.
_FAMILY: dict[str, Any] = {
    "dim": 8,
    "linear": "features",
    "embedding_std": 0.05,
    "matrix_std": 0.3,
    "optimizer": "adam",
    "learning_rate": 0.002,
    "dense_learning_rate": 0.004,
    "batch_size": 256,
    "epochs": 50,
    "l2": 0.03,
    "l2_power": 0.5,
    "field_dropout": 0.2,
    "ema_decay": 0.998,
}

DEFAULTS: dict[str, dict[str, Any]] = {
    "lr": {
        "optimizer": "adam",
        "learning_rate": 0.001,
        "batch_size": 256,
        "epochs": 50,
        "l2": 0.003,
        "l2_power": 0.5,
        "ema_decay": 0.998,
    },
    "poly2": {
        "optimizer": "adagrad",
        "learning_rate": 0.001,
        "initial_accumulator": 0.1,
        "batch_size": 4096,
        "epochs": 50,
    },
    "fm": {**_FAMILY, "linear": "both", "dense_learning_rate": 0.008, "embedding_std": 0.03, "matrix_std": 0.03},
    "ffm": {
        "dim": 4,
        "embedding_std": 0.03,
        "optimizer": "adagrad",
        "learning_rate": 0.02,
        "initial_accumulator": 0.1,
        "batch_size": 4096,
        "epochs": 50,
        "l2": 0.005,
    },
    "fwfm": {**_FAMILY},
    "fvfm": {**_FAMILY, "embedding_std": 0.03},
    "fmfm": {**_FAMILY, "matrix_std": 0.03},
}

# Above so many training rows there is less to hold back: larger batches at higher rates that fall to zero over a few
# epochs. Chosen by about 25 trials by hand of FmFM and FFM on validation rows of generated logs of a million rows; the
# others of the family have FmFM's. benchmarks/quality.py search --generated looks around them.
MANY_ROWS = 500_000
_LARGE_FAMILY: dict[str, Any] = {
    "learning_rate": 0.004,
    "dense_learning_rate": 0.008,
    "schedule": "linear",
    "batch_size": 1024,
    "epochs": 4,
    "l2": 0.0075,
    "field_dropout": 0.05,
}
LARGE: dict[str, dict[str, Any]] = {
    "lr": {"learning_rate": 0.006, "schedule": "linear", "batch_size": 1024, "epochs": 4, "l2": 0.00025},
    "poly2": {},
    "fm": {**_LARGE_FAMILY, "dense_learning_rate": 0.016},
    "ffm": {"l2": 0.002},
    "fwfm": _LARGE_FAMILY,
    "fvfm": _LARGE_FAMILY,
    "fmfm": _LARGE_FAMILY,
}

# Below so many training rows a batch is smaller, so that an epoch still has some 64 steps: on 1,000 rows of four fields
# batches of 16 instead of 256 took FmFM's log loss from .66 to .57, LR's from .68 to .61 (means of three draws).
FEW_ROWS, STEPS, LEAST_BATCH = 16_384, 64, 16


# The real logs have 23 and 39 fields. Of fewer, a dropped one takes more of the interactions with it; and first field
# matrices that small take so long to be seen that a training may stop before. On generated logs of 4, 6, 10 and 15
# fields this took FmFM's test log loss from .4646, .4779, .4749 and .4998 to .4611, .4711, .4686 and .4971.
USUAL_FIELDS, MOST_FIELDS = 23, 39

# An epoch of Criteo's small log, on which DeepLight becomes sparse within six epochs. With as many steps on a log of
# 5,000 rows it did so after 35, when it had long overfitted.
USUAL_STEPS = 430


def defaults(model: str, rows: int = 0, fields: int = 0, batch_size: int = 0) -> dict[str, Any]:
    """Give a model's defaults for so many training rows and fields, and a batch size; 0 means that they are not known.

    >>> [defaults("fmfm", rows)["batch_size"] for rows in (0, 10, 1_000, 10_000, 100_000, 1_000_000)]
    [256, 16, 16, 128, 256, 1024]
    >>> [defaults("fmfm", fields=fields)["field_dropout"] for fields in (0, 2, 6, 12, 23, 39)]
    [0.2, 0.009, 0.045, 0.1, 0.2, 0.2]
    >>> [defaults("deeplight", rows)["warm_up"] for rows in (0, 1_000, 10_000, 100_000, 1_000_000)]
    [800, 116, 145, 727, 800]
    >>> defaults("deeplight", 100_000, batch_size=1024)["warm_up"]
    182
    """
    if model in NETWORKS:
        few, many = NETWORKS[model].settings(), NETWORKS[model].settings_of_large_logs()
    else:
        few, many = DEFAULTS[model], LARGE[model]
    if rows > MANY_ROWS:
        return few | many
    if 0 < rows < FEW_ROWS and few["batch_size"] == FEW_ROWS // STEPS:
        few = few | {"batch_size": 1 << max(rows // STEPS, LEAST_BATCH).bit_length() - 1}
    if "warm_up" in few and rows:
        few = few | _for_few_steps(few, rows / (batch_size or few["batch_size"]))
    return few | (_for_few_fields(model, few, fields) if 0 < fields < USUAL_FIELDS else {})


def _for_few_steps(usual: dict[str, Any], steps: float) -> dict[str, Any]:
    """Let weights be pruned in as many epochs as on the log that the steps were chosen on."""
    part = min(steps / USUAL_STEPS, 1.0)
    return {
        "warm_up": round(usual["warm_up"] * part),
        "prune_every": max(round(usual["prune_every"] * part), 1),
        "damping_steps": round(usual["damping_steps"] * part, 4),
    }


def _for_few_fields(model: str, usual: dict[str, Any], fields: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "field_dropout" in usual:
        found["field_dropout"] = round(usual["field_dropout"] * (fields - 1) / (USUAL_FIELDS - 1), 3)
    if model == "fmfm":
        pairs = max(fields * (fields - 1), 2)
        scale = usual["matrix_std"] * math.sqrt(MOST_FIELDS * (MOST_FIELDS - 1) / pairs)
        found |= {"embedding_std": 0.1, "matrix_std": round(scale, 3)}
    return found


MODELS = (*DEFAULTS, *NETWORKS)


# Learning rates for those who choose another optimizer than the model's own, and say no more.
RATES = {"adagrad": 0.05, "adam": 0.002, "ftrl": 0.05}
