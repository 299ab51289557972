"""How a model's defaults depend on the size and the click rate of the log. The values are in the declarations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fm2.data.label_variance import informative_rows, label_variance
from fm2.models.choices import Interaction

Values = Mapping[str, Any]

# Settings that suit most networks on small logs. Weights are averaged over four times as many steps as those of
# factorization machines: this lowered the log loss on Criteo's later rows by .0003 (AutoInt's by .0008), averaged over
# several seeds. On the validation rows, which select the best state, it makes no difference.
SMALL_LOG: Values = {
    "dim": 8,
    "embedding_std": 0.05,
    "optimizer": "adam",
    "learning_rate": 0.002,
    "dense_learning_rate": 0.001,
    "batch_size": 256,
    "epochs": 100,
    "l2": 0.03,
    "l2_power": 0.5,
    "field_dropout": 0.2,
    "ema_decay": 0.9995,
}
# Changes on large logs, from a few trials of DeepFM and DCN on a million generated rows: doubling and tripling the
# rates (from .004 and .001) raised the validation AUC by .003 and .001.
LARGE_LOG: Values = {
    "learning_rate": 0.008,
    "dense_learning_rate": 0.003,
    "batch_size": 1024,
    "l2": 0.0075,
    "field_dropout": 0.05,
    "ema_decay": 0.998,
}

# Learning rates for an optimizer other than the model's default one.
RATES = {"adagrad": 0.05, "adam": 0.002, "dense_adam": 0.002, "ftrl": 0.05}

# Up to SOME_ROWS training rows the defaults for small logs apply, from MANY_ROWS on those for large logs: less
# regularization, larger batches and higher rates. Between the two they change gradually.
SOME_ROWS, MANY_ROWS = 200_000, 1_000_000

# Up to FEW_ROWS training rows, some models have defaults of their own: more regularization, lower rates and averages
# over fewer steps. From ENOUGH_ROWS on, those for small logs apply. With the latter on 2,000 rows of census income,
# Criteo and movies, the test log loss of FmFM was .3370, .5227 and .6184 instead of .3313, .5209 and .6088.
ENOUGH_ROWS = 65_536

# Below this many training rows batches are smaller, so that an epoch still has about 64 steps. On 1,000 rows of four
# fields, batches of 16 instead of 256 lowered FmFM's log loss from .66 to .57 and LR's from .68 to .61 (three draws).
FEW_ROWS, STEPS, SMALLEST_BATCH = 16_384, 64, 16

# The defaults were found on logs of 23 and 39 fields. With fewer fields, a dropped field removes a larger share of the
# interactions, and field matrices of the usual initial size take so long to grow that training may stop too early. On
# generated logs of 4, 6, 10 and 15 fields, scaling both lowered FmFM's test log loss from .4646, .4779, .4749 and
# .4998 to .4611, .4711, .4686 and .4971.
USUAL_FIELDS, MOST_FIELDS = 23, 39

# With fewer fields, some models also learn with higher rates: by the ratio of the numbers of pairs of fields, up to the
# rate that the model declares. Without it, FFM was still improving after 50 epochs on a log of 10 fields.
#
# Factorization machines then have larger embeddings for large vocabularies: FmFM for each field, the others for all
# fields. Test log loss before and after both on logs of benchmarks/panel.py, FmFM: user_item .4170 and .3946,
# few_fields .4366 and .4325, movies .5709 and .5582, numbers .4606 and .4603, adult .2740 and .2739, drift .4081 and
# .4092; FwFM: user_item .4063 and .3864.
SMALLEST_DIM, LARGEST_DIM, DIM_FACTOR = 2, 32, 3.3
WIDEST = 312  # sum of all fields' dimensions, as with 39 fields of 8: FmFM's time grows with its square

# The best penalty of ridge regression is proportional to the number of features per row. LR's default l2 suits the
# usual density, that of Avazu's log; Criteo's is twice, that of census income a seventh of it.
USUAL_DENSITY, LOWEST_L2_FACTOR, HIGHEST_L2_FACTOR = 0.1, 0.02, 2.0

# If clicks are rare, the rules above apply to fewer rows, and an l2 that does not depend on counts, such as FFM's, is
# proportional to the variance of the labels, like the curvature of the loss. Test log loss against the true
# probabilities on rare_clicks of benchmarks/panel.py, with 0.5% clicks, before and after: FFM .02873 and .02791, FwFM
# .02833 and .02812, LR .02824 and .02819, FM .02841 and .02841.

# Adagrad's first steps are long if its sums of squared gradients begin near zero, so features that occur a few times
# overfit. Larger initial sums shorten these steps; small logs, where all features are rare, then learn too little.
# Validation and test log loss of FFM with 0.1, and with 1 on logs of benchmarks/panel.py (one seed): user_item .3978
# .3903, and .3940 .3882; drift .3555 .4027, and .3546 .3994; movies .5439 .5731, and .5390 .5659; numbers .4538 .4586,
# and .4536 .4582; criteo_inferred .4779 .4824, and .4781 .4824; few_fields .4312 .4324, and .4317 .4326; movies_users
# .5577 .5600, and .5603 .5589. With 24,000 to 29,000 training rows, both are worse: avazu .4197 .4093, and .4204 .4102;
# adult .2797 .2780, and .2811 .2796. The two limits were chosen to leave these two logs alone.
FEW_GRADIENTS, MANY_GRADIENTS = 30_000, 100_000
LARGEST_ACCUMULATOR = 1.0

# Steps per epoch on Criteo's small log, where DeepLight becomes sparse within six epochs. With that many steps it took
# 35 epochs on a log of 5,000 rows, long after it had overfitted.
USUAL_STEPS = 430


def adapt_defaults(
    few: Values,
    small: Values,
    large: Values,
    rows: int,
    field_sizes: Sequence[int],
    click_rate: float,
    batch_size: int,
    interaction: Interaction | None,
    highest_rate: float | None,
    l2_by_density: bool,
    accumulator_by_rows: bool,
) -> dict[str, Any]:
    """Return the default settings for a log with ``rows`` training rows (0: unknown) and fields of these sizes.

    ``click_rate`` is that of the training rows (0: unknown). ``small`` are the settings for small logs. ``few``
    replaces some of them on logs with few rows, and ``large`` on large logs. ``interaction`` is that of a factorization
    machine, in which fields interact in no other way. On logs with few fields, learning rates are higher: on small logs
    up to ``highest_rate``, on others by the same factor. With ``l2_by_density``, l2 is proportional to the number of
    features per row. With ``accumulator_by_rows``, Adagrad's initial sums grow with the rows.
    """
    values = dict(small)
    all_rows, variance = rows, label_variance(click_rate)
    rows = informative_rows(rows, click_rate)  # 0: unknown
    varying = [size for size in field_sizes if size > 1]  # fields with only the unknown feature do not count
    if 0 < rows < ENOUGH_ROWS:
        share = max(_share(rows, FEW_ROWS, ENOUGH_ROWS), 0.0)
        values |= {name: interpolate(name, value, small[name], share) for name, value in few.items()}
    if rows > SOME_ROWS:
        share = _share(rows, SOME_ROWS, MANY_ROWS)
        values |= {name: interpolate(name, small.get(name), value, share) for name, value in large.items()}
    if 0 < rows < FEW_ROWS and values["batch_size"] == FEW_ROWS // STEPS:
        values["batch_size"] = 1 << max(rows // STEPS, SMALLEST_BATCH).bit_length() - 1
    if "warm_up" in values and rows:
        values |= _for_few_steps(values, all_rows / (batch_size or values["batch_size"]))
    if l2_by_density and rows and field_sizes:
        density = sum(varying) / rows / USUAL_DENSITY
        values["l2"] = float(f"{values['l2'] * min(max(density, LOWEST_L2_FACTOR), HIGHEST_L2_FACTOR):.4g}")
    if variance < 1 and values.get("l2") and not values.get("l2_power"):
        values["l2"] = float(f"{values['l2'] * variance:.4g}")
    if accumulator_by_rows and rows > FEW_GRADIENTS:
        name, share = "initial_accumulator", _share(rows, FEW_GRADIENTS, MANY_GRADIENTS)
        values[name] = interpolate(name, values[name], LARGEST_ACCUMULATOR, share)
    if 0 < len(varying) < USUAL_FIELDS:
        highest_factor = highest_rate / small["learning_rate"] if highest_rate else 1.0
        values |= _for_few_fields(values, field_sizes, interaction, highest_factor)
    return values


def _share(rows: int, few: int, many: int) -> float:
    """Return where the number of rows is between two others, on a log scale: from 0 to 1, which is also the limit."""
    return min(math.log(rows / few) / math.log(many / few), 1.0)


def interpolate(name: str, small: Any, large: Any, share: float) -> Any:
    """Return a setting between its values for small and for large logs, by its logarithm unless one of them is zero.

    Only batch sizes and settings that are no integers change gradually. The others change on large logs.

    >>> interpolate("l2", 0.03, 0.0075, 0.5), interpolate("batch_size", 256, 1024, 0.5), interpolate("l2", 0.03, 0, 0.5)
    (0.015, 512, 0.015)
    >>> interpolate("schedule", "constant", "linear", 0.5), interpolate("epochs", 50, 4, 1.0)
    ('constant', 4)
    """
    gradual = name == "batch_size" or any(isinstance(value, float) for value in (small, large))
    if small is None or not gradual or not all(type(value) in (int, float) for value in (small, large)):
        return large if share == 1 or small is None else small
    value = small * (large / small) ** share if small and large else small + (large - small) * share
    return 1 << round(math.log2(value)) if name == "batch_size" else float(f"{value:.4g}")


def _for_few_steps(usual: Values, steps: float) -> dict[str, Any]:
    """Prune weights within as many epochs as on the log that the defaults were found on."""
    share = min(steps / USUAL_STEPS, 1.0)
    return {
        "warm_up": round(usual["warm_up"] * share),
        "prune_every": max(round(usual["prune_every"] * share), 1),
        "damping_steps": round(usual["damping_steps"] * share, 4),
    }


def _for_few_fields(
    usual: Values, field_sizes: Sequence[int], interaction: Interaction | None, highest_factor: float
) -> dict[str, Any]:
    fields, changes = sum(size > 1 for size in field_sizes), dict[str, Any]()
    pairs = max(fields * (fields - 1) / 2, 1)
    if highest_factor > 1:
        factor = min(USUAL_FIELDS * (USUAL_FIELDS - 1) / 2 / pairs, highest_factor)
        rates = [name for name in ("learning_rate", "dense_learning_rate") if name in usual]
        changes |= {name: float(f"{usual[name] * factor:.4g}") for name in rates}
    if "field_dropout" in usual:
        changes["field_dropout"] = round(usual["field_dropout"] * (fields - 1) / (USUAL_FIELDS - 1), 3)
    if interaction:
        changes["dim"] = max(usual["dim"], min(WIDEST // fields, max(map(dim_of, field_sizes))))
    if interaction == "matrix":
        scale = usual["matrix_std"] * math.sqrt(MOST_FIELDS * (MOST_FIELDS - 1) / 2 / pairs)
        dims = [dim_of(size) for size in field_sizes]
        share = min(WIDEST / sum(dim for dim, size in zip(dims, field_sizes, strict=True) if size > 1), 1.0)
        dims = [
            max(round(dim * share), SMALLEST_DIM) if size > 1 else SMALLEST_DIM
            for dim, size in zip(dims, field_sizes, strict=True)
        ]
        changes |= {"embedding_std": 0.1, "matrix_std": round(scale, 3), "dim": dims}
    return changes


def dim_of(size: int) -> int:
    """Return the embedding dimension for a field with so many features: proportional to the fourth root.

    >>> [dim_of(size) for size in (2, 20, 300, 3_000, 100_000)]
    [4, 7, 14, 24, 32]
    """
    return min(max(round(DIM_FACTOR * math.sqrt(math.sqrt(size))), SMALLEST_DIM), LARGEST_DIM)
