"""fm2: click-through-rate prediction with field-matrixed factorization machines.

Importing it needs numpy and the native module alone; what a function needs beyond that is imported when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fm2.cpu import cpu_info
from fm2.errors import Fm2Error, Fm2Warning, require
from fm2.schema import Field, Schema

if TYPE_CHECKING:
    from fm2.compression.cut import cut
    from fm2.compression.prune import prune
    from fm2.compression.shrink import shrink
    from fm2.data.dataset import Dataset
    from fm2.data.prepare import prepare
    from fm2.data.rows import EncodedRows, Lists
    from fm2.data.synthetic.generate import generate
    from fm2.engine.compile import compile
    from fm2.engine.scorer import Scorer, load
    from fm2.engine.verify import verify
    from fm2.estimators import (
        FFMClassifier,
        FMClassifier,
        FmFMClassifier,
        FvFMClassifier,
        FwFMClassifier,
        LRClassifier,
        Poly2Classifier,
    )
    from fm2.evaluation.prediction import predict_files
    from fm2.export.onnx import export_onnx
    from fm2.export.onnx_inputs import onnx_inputs
    from fm2.studies.ablation.ablate import ablate
    from fm2.studies.comparison.compare import compare
    from fm2.studies.crosses.auto import prepare_with_crosses
    from fm2.studies.crosses.rank import rank_crosses
    from fm2.studies.reporting.report import report
    from fm2.studies.reproduction.reproduce import reproduce
    from fm2.studies.trees import prepare_with_trees
    from fm2.studies.tuning.search import tune
    from fm2.training.calibrate import calibrate, remove_calibration
    from fm2.training.run import Run
    from fm2.training.tracking import Tracker
    from fm2.training.train import train

__version__ = "0.1.0"

_LATER = {
    "Dataset": "fm2.data.dataset",
    "EncodedRows": "fm2.data.rows",
    "Lists": "fm2.data.rows",
    "Run": "fm2.training.run",
    "Scorer": "fm2.engine.scorer",
    "Tracker": "fm2.training.tracking",
    "ablate": "fm2.studies.ablation.ablate",
    "calibrate": "fm2.training.calibrate",
    "compare": "fm2.studies.comparison.compare",
    "compile": "fm2.engine.compile",
    "cut": "fm2.compression.cut",
    "export_onnx": "fm2.export.onnx",
    "generate": "fm2.data.synthetic.generate",
    "load": "fm2.engine.scorer",
    "onnx_inputs": "fm2.export.onnx_inputs",
    "predict_files": "fm2.evaluation.prediction",
    "prepare": "fm2.data.prepare",
    "prepare_with_crosses": "fm2.studies.crosses.auto",
    "prepare_with_trees": "fm2.studies.trees",
    "prune": "fm2.compression.prune",
    "rank_crosses": "fm2.studies.crosses.rank",
    "remove_calibration": "fm2.training.calibrate",
    "report": "fm2.studies.reporting.report",
    "reproduce": "fm2.studies.reproduction.reproduce",
    "shrink": "fm2.compression.shrink",
    "train": "fm2.training.train",
    "tune": "fm2.studies.tuning.search",
    "verify": "fm2.engine.verify",
}

__all__ = [
    "Dataset",
    "EncodedRows",
    "FFMClassifier",
    "FMClassifier",
    "Field",
    "Fm2Error",
    "Fm2Warning",
    "FmFMClassifier",
    "FvFMClassifier",
    "FwFMClassifier",
    "LRClassifier",
    "Lists",
    "Poly2Classifier",
    "Run",
    "Schema",
    "Scorer",
    "Tracker",
    "ablate",
    "calibrate",
    "compare",
    "compile",
    "cpu_info",
    "cut",
    "export_onnx",
    "generate",
    "load",
    "onnx_inputs",
    "predict_files",
    "prepare",
    "prepare_with_crosses",
    "prepare_with_trees",
    "prune",
    "rank_crosses",
    "remove_calibration",
    "report",
    "reproduce",
    "shrink",
    "train",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(require(_LATER[name], "train", f"fm2.{name}"), name)
    if name.endswith("Classifier"):  # generated from the models' declarations
        return getattr(require("fm2.estimators", "sklearn", f"fm2.{name}"), name)
    raise AttributeError(f"module 'fm2' has no attribute '{name}'")


def __dir__() -> list[str]:
    from fm2.models.registry import specs

    return sorted({*__all__, *(f"{spec.class_name}Classifier" for spec in specs()), "__version__"})
