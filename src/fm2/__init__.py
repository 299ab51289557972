"""fm2: click-through-rate prediction with field-matrixed factorization machines.

Importing it needs numpy and the native module alone; what a function needs beyond that is imported when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fm2.errors import Fm2Error, needs
from fm2.machine import cpu_info
from fm2.schema import Field, Schema

if TYPE_CHECKING:
    from fm2.comparison.comparing import compare
    from fm2.compression.cutting import cut
    from fm2.compression.pruning import prune
    from fm2.compression.shrinking import shrink
    from fm2.data.dataset import Dataset
    from fm2.data.generation import generate
    from fm2.data.preparation import prepare
    from fm2.engine.compilation import compile
    from fm2.engine.scoring import Scorer, load
    from fm2.estimators import (
        FFMClassifier,
        FMClassifier,
        FmFMClassifier,
        FvFMClassifier,
        FwFMClassifier,
        LRClassifier,
        Poly2Classifier,
    )
    from fm2.reporting.writing import report
    from fm2.reproduction.reproducing import reproduce
    from fm2.training.fitting import train
    from fm2.training.onnx_export import export
    from fm2.training.run import Run
    from fm2.training.trackers import Tracker
    from fm2.tuning.search import tune

__version__ = "0.1.0"

_LATER = {
    "Dataset": "fm2.data.dataset",
    "Run": "fm2.training.run",
    "Scorer": "fm2.engine.scoring",
    "Tracker": "fm2.training.trackers",
    "compare": "fm2.comparison.comparing",
    "compile": "fm2.engine.compilation",
    "cut": "fm2.compression.cutting",
    "export": "fm2.training.onnx_export",
    "generate": "fm2.data.generation",
    "load": "fm2.engine.scoring",
    "prepare": "fm2.data.preparation",
    "prune": "fm2.compression.pruning",
    "report": "fm2.reporting.writing",
    "reproduce": "fm2.reproduction.reproducing",
    "shrink": "fm2.compression.shrinking",
    "train": "fm2.training.fitting",
    "tune": "fm2.tuning.search",
}

__all__ = [
    "Dataset",
    "FFMClassifier",
    "FMClassifier",
    "Field",
    "Fm2Error",
    "FmFMClassifier",
    "FvFMClassifier",
    "FwFMClassifier",
    "LRClassifier",
    "Poly2Classifier",
    "Run",
    "Schema",
    "Scorer",
    "Tracker",
    "compare",
    "compile",
    "cpu_info",
    "cut",
    "export",
    "generate",
    "load",
    "prepare",
    "prune",
    "report",
    "reproduce",
    "shrink",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(needs(_LATER[name], "train", f"fm2.{name}"), name)
    if name.endswith("Classifier"):  # those of the networks too, which are made by their declarations
        found = needs("fm2.estimators", "sklearn", f"fm2.{name}").CLASSIFIERS
        if name in found:
            return found[name]
    raise AttributeError(f"module 'fm2' has no attribute '{name}'")


def __dir__() -> list[str]:
    from fm2.networks import NETWORKS

    return sorted([*__all__, *(f"{network.title}Classifier" for network in NETWORKS.values()), "__version__"])
