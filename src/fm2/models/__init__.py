"""The models: torch modules from ids to logits, and one torch-free declaration for each.

The modules are imported when they are first used, so that importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fm2.models.base import GatheredModel, Model
    from fm2.models.construction import MODELS, build
    from fm2.models.deep import MLP, DeepModel
    from fm2.models.embedding import FlatEmbedding
    from fm2.models.family import FM, FactorizationMachine, FieldMatrixInteraction, FmFM, FvFM, FwFM
    from fm2.models.ffm import FFM
    from fm2.models.lr import LR
    from fm2.models.poly2 import Poly2

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

_MODULES = {
    "fm2.models.base": ("GatheredModel", "Model"),
    "fm2.models.construction": ("MODELS", "build"),
    "fm2.models.deep": ("MLP", "DeepModel"),
    "fm2.models.embedding": ("FlatEmbedding",),
    "fm2.models.family": ("FM", "FactorizationMachine", "FieldMatrixInteraction", "FmFM", "FvFM", "FwFM"),
    "fm2.models.ffm": ("FFM",),
    "fm2.models.lr": ("LR",),
    "fm2.models.poly2": ("Poly2",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'fm2.models' has no attribute '{name}'")
