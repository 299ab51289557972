"""The models the paper compares, as torch modules from ids to logits. ``base`` says what a trainer may rely on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fm2.errors import Fm2Error
from fm2.models.base import GatheredModel, Model
from fm2.models.deep import MLP, DeepModel
from fm2.models.embedding import FlatEmbedding
from fm2.models.family import FM, FactorizationMachine, FieldMatrixInteraction, FmFM, FvFM, FwFM
from fm2.models.ffm import FFM
from fm2.models.initial import Seed
from fm2.models.lr import LR
from fm2.models.poly2 import Poly2
from fm2.networks import NETWORKS

__all__ = [
    "FFM",
    "FM",
    "LR",
    "MLP",
    "MODELS",
    "DeepModel",
    "FactorizationMachine",
    "FieldMatrixInteraction",
    "FlatEmbedding",
    "FmFM",
    "FvFM",
    "FwFM",
    "GatheredModel",
    "Model",
    "Poly2",
    "build",
]

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
