"""The candidates of a race: settings around a model's defaults, and the models that ``auto`` chooses from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.data.label_variance import label_variance
from fm2.errors import Fm2Error
from fm2.models.defaults import WIDEST
from fm2.models.registry import get_spec, specs
from fm2.training.resolve import log_for_defaults, resolve_settings

AUTO = "auto"  # in place of a model's name: the race chooses the model
EFFORTS = (1, 2, 3)
NUMBER = {2: 6, 3: 16}  # of candidates, including the defaults, by effort
LOWEST_DIM, HIGHEST_DIM = 2, 64

Factors = Mapping[str, float]


def _rates(factor: float) -> dict[str, float]:
    return {"learning_rate": factor, "dense_learning_rate": factor}


# Factors of the defaults; effort 2 tries the first five. Larger embeddings with higher rates helped most on logs with
# large vocabularies, more l2 on the log of movies. Settings that a model does not use, that are zero or that the user
# chose stay as they are; entries that then equal an earlier one are skipped, and so are too wide ones.
FACTORS: tuple[Factors, ...] = (
    {"dim": 2, **_rates(2.5)},
    {"dim": 4, **_rates(2.5)},
    {"l2": 2},
    {"l2": 0.3},
    _rates(2.5),
    {"dim": 2, **_rates(2.5), "l2": 2},
    {"dim": 2, **_rates(2.5), "field_dropout": 0},
    {"dim": 2, **_rates(5)},
    {"l2": 4},
    {**_rates(0.5), "l2": 2},
    {"dim": 2},
    _rates(0.5),
    {"dim": 0.5},
    {"field_dropout": 0},
    {"dim": 2, **_rates(2.5), "l2": 0.3},
    {"hidden": 2},
    {"dim": 4, **_rates(2.5), "l2": 2},
    {"embedding_std": 2, "linear_std": 2, "matrix_std": 2},
    {**_rates(2.5), "l2": 0.3},
    {**_rates(2.5), "l2": 2},
    _rates(5),
    {"embedding_std": 0.5, "linear_std": 0.5, "matrix_std": 0.5},
    {"initial_accumulator": 0.1},
    {"initial_accumulator": 10},
    {**_rates(5), "l2": 2},
    {**_rates(0.5), "l2": 0.3},
    _rates(0.25),
    {"l2": 0.1},
)

# How strongly rare features should be regularized in comparison with frequent ones depends on the log, and no rule was
# found that predicts it. Models that train in seconds therefore try several ways on logs of this size, and keep what
# the validation rows prefer. Smaller logs have too few of them to tell; larger ones need less regularization. A penalty
# that is proportional to the counts suits logs of numbers and frequent values: FmFM's test log loss was .4578 instead
# of .4597 on numbers, and .2734 instead of .2750 on adult. On generated logs of 1.2 million rows, the best variant's
# was .4046 instead of .4070 (users and items) and .3827 instead of .3867 (drifting ads).
FEWEST_ROWS, MOST_ROWS = 20_000, 2_000_000
# With fewer rows, simpler field matrices must be better by this share of the loss: with 3,000 validation rows on avazu,
# diagonal matrices were chosen by chance, and FmFM's test log loss was .4098 instead of .4083. With 9,000 to 20,000,
# they lowered it from .4006 to .3972 on drift, .3801 to .3748 on user_item, .5605 to .5572 on movies, .4303 to .4300 on
# few_fields and .4599 to .4575 on numbers. On criteo_inferred and movies_users, the matrices stayed full.
FEWEST_FOR_MATRICES, LEAST_GAIN = 50_000, 0.01
USUAL_COUNT = 100
DIAGONAL_STD = 0.3  # of the initial field matrices, as in FwFM and FvFM


def other_penalty(
    defaults: Settings, fixed: Collection[str], power: float, factor: float, click_rate: float = 0.0
) -> dict[str, Any] | None:
    """Return the changes to another ``l2_power``, with which features that occur a hundred times have the same penalty.

    With a ``power`` of 1, all features have the same total penalty, however often they occur: rarer ones more than
    before, and more frequent ones less. With 0, it is proportional to how often they occur. The penalty is multiplied
    by ``factor`` and, with a power of 0 and rare clicks, by the variance of the labels, as in the default settings.
    There is no field dropout. Return None if the model does not use ``l2`` and ``l2_power``, or if the user has
    ``fixed`` one of the three settings.

    >>> other_penalty(Settings.of("lr"), (), 1, 2)
    {'l2_power': 1.0, 'l2': 0.05}
    >>> other_penalty(Settings.of("fmfm"), (), 0, 1), other_penalty(Settings.of("fmfm"), ("l2",), 0, 1)
    ({'l2_power': 0.0, 'l2': 0.00143, 'field_dropout': 0.0}, None)
    """
    values = defaults.used()
    if {"l2_power", "l2", "field_dropout"} & {*fixed} or not values.get("l2") or not 0 < values.get("l2_power", 0) < 1:
        return None
    stronger = factor * USUAL_COUNT ** (power - values["l2_power"]) * (1 if power else label_variance(click_rate))
    changes = {"l2_power": float(power), "l2": _scale("l2", values["l2"], stronger)}
    return changes | ({"field_dropout": 0.0} if values.get("field_dropout") else {})


def simpler_models(
    defaults: Settings, fixed: Collection[str], click_rate: float = 0.0, scalar_form: Settings | None = None
) -> list[dict[str, Any]]:
    """Return the changes that make an FmFM a simpler model of its family, with the other forms of L2.

    On logs without evidence for full matrices, these overfit. The embeddings of a model with ``scalar`` matrices have
    the same dimension in all fields: otherwise, coordinates that a field lacks would not interact with it. The last
    two models have the rates, the dimension and the initial weights of FwFM, ``scalar_form``, so that FmFM can become
    about the same model: on a log of restaurants with 22,000 training rows, FmFM's test log loss is .361 instead of
    .406. With FmFM's own rates, that of user_item of benchmarks/panel.py is .3772 instead of .3795.

    >>> form = Settings.of("fwfm", dim=12)
    >>> simpler_models(Settings.of("fmfm", dim=[4, 12]), (), 0.0, form)[2:]  # doctest: +NORMALIZE_WHITESPACE
    [{'l2_power': 1.0, 'l2': 0.143, 'field_dropout': 0.0, 'matrices': 'scalar', 'matrix_std': 0.3, 'dim': 12},
     {'dim': 12, 'linear_std': 0.3, 'matrix_std': 0.3, 'l2_power': 1.0, 'l2': 0.143, 'field_dropout': 0.0,
      'matrices': 'scalar'},
     {'dim': 12, 'linear_std': 0.3, 'matrix_std': 0.3, 'matrices': 'scalar'}]
    >>> simpler_models(Settings.of("fwfm"), ()), simpler_models(Settings.of("fmfm"), ("matrices",))
    ([], [])
    """
    if "matrices" in fixed or defaults.used().get("matrices") != "full":
        return []
    equal, by_count = (other_penalty(defaults, fixed, power, 1, click_rate) for power in (1, 0))
    if equal is None or by_count is None:
        return []
    initial = {} if "matrix_std" in fixed else {"matrix_std": DIAGONAL_STD}
    scalar: dict[str, Any] = {"matrices": "scalar", **initial}
    if isinstance(defaults.dim, tuple) and "dim" not in fixed:
        scalar["dim"] = min(max(defaults.dim), max(WIDEST // len(defaults.dim), min(defaults.dim)))
    diagonal = {"matrices": "diagonal", **initial}
    models = [{**equal, **diagonal}, {**by_count, **diagonal}, {**equal, **scalar}]
    if scalar_form is not None:
        own = defaults.used()
        values = {name: value for name, value in scalar_form.used().items() if name in own and name not in fixed}
        form = {name: value for name, value in values.items() if name != "model" and value != own[name]}
        of_form = [{**form, **equal, "matrices": "scalar"}, {**form, "matrices": "scalar"}]
        models += [model for model in of_form if model not in models]
    return models


def least_gain(changes: Mapping[str, Any], rows: int) -> float:
    """Return by which share of the loss a variant must be better than others on a log with so many training rows.

    >>> [least_gain({"matrices": "scalar"}, rows) for rows in (30_000, 300_000)], least_gain({"l2": 0.1}, 30_000)
    ([0.01, 0.0], 0.0)
    """
    return LEAST_GAIN if "matrices" in changes and rows < FEWEST_FOR_MATRICES else 0.0


def default_candidates(
    defaults: Settings, rows: int, fixed: Collection[str], click_rate: float = 0.0, field_sizes: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Return the changes of a model's settings that an ordinary training on such a log compares: the first is none.

    >>> default_candidates(Settings.of("lr"), rows=100_000, fixed=())
    [{}, {'l2_power': 1.0, 'l2': 0.025}, {'l2_power': 1.0, 'l2': 0.05}, {'l2_power': 0.0, 'l2': 0.00025}]
    >>> default_candidates(Settings.of("lr"), rows=1_000, fixed=()), default_candidates(Settings.of("ffm"), 100_000, ())
    ([{}], [{}])
    """
    if not FEWEST_ROWS <= rows <= MOST_ROWS:
        return [{}]
    spec = get_spec(defaults.model)
    others = [other_penalty(defaults, fixed, power, factor, click_rate) for power, factor in spec.other_penalties]
    form = Settings.of(spec.scalar_form, rows, field_sizes, click_rate) if spec.scalar_form else None
    return [
        {},
        *(other for other in others if other is not None),
        *simpler_models(defaults, fixed, click_rate, form),
    ]


def count_variants(model: str, dataset: Dataset, changes: Mapping[str, Any]) -> int:
    """Return how many variants of a new model an ordinary training compares."""
    rows, sizes, click_rate = log_for_defaults(dataset)
    return len(default_candidates(resolve_settings(model, dataset, changes), rows, changes, click_rate, sizes))


def settings_around(
    defaults: Settings,
    rows: int,
    field_sizes: Sequence[int],
    fixed: Collection[str],
    number: int,
    click_rate: float = 0.0,
) -> list[dict[str, Any]]:
    """Return changes of a model's settings for a log with so many training rows and fields.

    The first ones are the variants of an ordinary training, of which the first is empty: the defaults. Up to
    ``number`` - 1 others follow. ``fixed`` settings never change.

    >>> settings_around(Settings.of("lr"), rows=9_000, field_sizes=[9, 9], fixed=(), number=4)
    [{}, {'l2_power': 1.0, 'l2': 0.025}, {'learning_rate': 0.0125}, {'l2': 0.005}]
    >>> fixed = ("learning_rate", "dense_learning_rate")
    >>> settings_around(Settings.of("fmfm", dim=[4, 8]), 9_000, [9, 9], (*fixed, "l2"), number=3)
    [{}, {'dim': [8, 16]}, {'dim': [16, 32]}]
    >>> settings_around(Settings.of("fmfm"), 9_000, [9] * 39, (*fixed, "l2_power"), number=3)
    [{}, {'dim': 16}, {'l2': 0.072}]
    """
    untuned = get_spec(defaults.model).untuned
    values = {name: value for name, value in defaults.used().items() if name not in fixed and name not in untuned}
    candidates, fields = default_candidates(defaults, rows, fixed, click_rate, field_sizes), len(field_sizes)
    most = len(candidates) + number - 1
    other = other_penalty(defaults, fixed, 1, 1)
    if other is not None and other not in candidates:
        candidates.append(other)
    widest = max(WIDEST, 2 * _width(values.get("dim", 0), fields))
    for factors in FACTORS:
        scaled = {name: _scale(name, values[name], factor) for name, factor in factors.items() if name in values}
        changes = {name: value for name, value in scaled.items() if value != values[name]}
        if changes not in candidates and _width(changes.get("dim", 0), fields) <= widest:
            candidates.append(changes)
    return candidates[:most]


def _scale(name: str, value: Any, factor: float) -> Any:
    """Multiply a number or a list of numbers; integers stay integers, and dimensions stay within bounds.

    >>> _scale("l2", 0.03, 0.3), _scale("dim", [3, 20, 100], 4), _scale("hidden", [256, 128], 2)
    (0.009, [12, 64, 100], [512, 256])
    """
    if isinstance(value, list | tuple):
        return [_scale(name, part, factor) for part in value]
    if isinstance(value, float):
        return float(f"{value * factor:.3g}")
    if name == "dim":
        return min(max(round(value * factor), min(LOWEST_DIM, value)), max(HIGHEST_DIM, value))
    return max(round(value * factor), 1)


def _width(dim: Any, fields: int) -> int:
    return sum(dim) if isinstance(dim, list) else dim * fields


def models_to_race(dataset: Dataset, changes: Mapping[str, Any], effort: int) -> list[str]:
    """Return the models that ``auto`` tries at this effort: those that can use all settings that the user chose."""
    models, errors = [], []
    for spec in specs():
        if spec.auto_effort is not None and spec.auto_effort <= effort:
            try:
                settings = resolve_settings(spec.name, dataset, changes)
            except Fm2Error as error:
                errors.append(error)
                continue
            dims = settings.dim if isinstance(settings.dim, tuple) else (settings.dim,)
            if len(set(dims)) == 1 or spec.dimensions == "per_field":
                models.append(spec.name)
    if not models:
        raise errors[0] if errors else Fm2Error("train: no model that auto tries can use these settings")
    return models


def check_effort(effort: object) -> None:
    """Raise an error unless this is an effort."""
    if isinstance(effort, bool) or effort not in EFFORTS:
        raise Fm2Error(f"train: effort must be 1, 2 or 3, got {effort!r}")
