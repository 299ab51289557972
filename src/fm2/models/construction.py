"""From a model's configuration to the torch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fm2.errors import Fm2Error
from fm2.models.base import Model
from fm2.models.family import FM, FmFM, FvFM, FwFM
from fm2.models.ffm import FFM
from fm2.models.initial import Seed
from fm2.models.lr import LR
from fm2.models.networks import NETWORKS
from fm2.models.poly2 import Poly2

MODELS: dict[str, Callable[..., Model]] = {
    "lr": LR,
    "poly2": Poly2,
    "fm": FM,
    "ffm": FFM,
    "fwfm": FwFM,
    "fvfm": FvFM,
    "fmfm": FmFM,
    **{name: getattr(import_module(f"fm2.models.deep.{name}"), net.title) for name, net in NETWORKS.items()},
}


def build(config: Mapping[str, Any], seed: Seed = 0) -> Model:
    """Make a model from its ``config``; with a ``seed`` of None its weights are zero, to be loaded.

    >>> model = build({"model": "fmfm", "field_sizes": [5, 6], "dims": [2, 3]})
    >>> build(model.config).config == model.config
    True
    """
    name = config.get("model")
    if name not in MODELS:
        raise Fm2Error(f"model: there is no model '{name}'; there are {', '.join(MODELS)}")
    settings = {key: value for key, value in config.items() if key != "model"}
    try:
        return MODELS[name](**settings, seed=seed)
    except TypeError as wrong:
        raise Fm2Error(f"model: a setting of {name} is not understood: {wrong}") from wrong
