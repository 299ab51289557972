"""The models: a torch module and a torch-free declaration for each.

Torch modules are imported on first use, so importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fm2.models.base import GatheredModel, Model
    from fm2.models.deep import MLP, DeepModel
    from fm2.models.embedding import FlatEmbedding
    from fm2.models.family import FM, FactorizationMachine, FieldMatrixInteraction, FmFM, FvFM, FwFM
    from fm2.models.ffm import FFM
    from fm2.models.options import Option
    from fm2.models.poly2 import LR, Poly2
    from fm2.models.registry import build, get_spec, register
    from fm2.models.spec import ModelSpec

__all__ = [
    "FFM",
    "FM",
    "LR",
    "MLP",
    "DeepModel",
    "FactorizationMachine",
    "FieldMatrixInteraction",
    "FlatEmbedding",
    "FmFM",
    "FvFM",
    "FwFM",
    "GatheredModel",
    "Model",
    "ModelSpec",
    "Option",
    "Poly2",
    "build",
    "get_spec",
    "register",
]

_MODULES = {
    "fm2.models.base": ("GatheredModel", "Model"),
    "fm2.models.deep": ("MLP", "DeepModel"),
    "fm2.models.embedding": ("FlatEmbedding",),
    "fm2.models.family": ("FM", "FactorizationMachine", "FieldMatrixInteraction", "FmFM", "FvFM", "FwFM"),
    "fm2.models.ffm": ("FFM",),
    "fm2.models.options": ("Option",),
    "fm2.models.poly2": ("LR", "Poly2"),
    "fm2.models.registry": ("build", "get_spec", "register"),
    "fm2.models.spec": ("ModelSpec",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'fm2.models' has no attribute '{name}'")
