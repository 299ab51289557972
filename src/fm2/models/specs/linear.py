"""LR and Poly2: sums of weights."""

from __future__ import annotations

from fm2.models import complexity
from fm2.models.options import HASH_BITS
from fm2.models.spec import Config, ModelSpec, RowwiseTraining

LINEAR_KERNEL = RowwiseTraining("polynomial", ("adagrad", "ftrl"))


def _n_features(config: Config) -> int:
    return sum(config["field_sizes"])


def _n_fields(config: Config) -> int:
    return len(config["field_sizes"])


LR = ModelSpec(
    "lr",
    "LR",
    "logistic regression, a weight per feature",
    source="Richardson et al., 2007",
    torch_class="fm2.models.lr:LR",
    deep=False,
    options=(),
    settings=("dense_learning_rate",),
    arguments={},
    defaults={
        "optimizer": "adam",
        "learning_rate": 0.001,
        "batch_size": 256,
        "epochs": 50,
        "l2": 0.003,
        "l2_power": 0.5,
        "ema_decay": 0.998,
    },
    large_defaults={"learning_rate": 0.006, "schedule": "linear", "batch_size": 1024, "epochs": 4, "l2": 0.00025},
    untuned=("dense_learning_rate",),  # only the bias uses it
    dimensions="none",
    count_parameters=_n_features,
    count_flops=lambda config: {"sums": complexity.lr(_n_fields(config))},
    rowwise=LINEAR_KERNEL,
    forward_backward="fused",
    compile_plan="sums",
)

POLY2 = ModelSpec(
    "poly2",
    "Poly2",
    "a weight per feature and, hashed, per pair of features",
    source="Chang et al., 2010",
    torch_class="fm2.models.poly2:Poly2",
    deep=False,
    options=(HASH_BITS,),
    settings=(),
    arguments={},
    defaults={
        "optimizer": "adagrad",
        "learning_rate": 0.001,
        "initial_accumulator": 0.1,
        "batch_size": 4096,
        "epochs": 50,
    },
    large_defaults={},
    untuned=("batch_size",),  # the kernel learns row by row
    dimensions="none",
    no_warm_start="it hashes the ids of pairs, and new data changes the ids; train a new model",
    count_parameters=lambda config: _n_features(config) + 2 ** int(config["hash_bits"]),
    count_flops=lambda config: {"sums": complexity.poly2(_n_fields(config))},
    rowwise=LINEAR_KERNEL,
    forward_backward=None,
    compile_plan="sums",
)

SPECS = (LR, POLY2)
