"""Trackers for TensorBoard and MLflow."""

from __future__ import annotations

from fm2.errors import Fm2Error, suggest
from fm2.training.trackers.mlflow import MLflow
from fm2.training.trackers.tensorboard import TensorBoard
from fm2.training.tracking import Tracker, figures

__all__ = ["MLflow", "TensorBoard", "Tracker", "figures", "tracker"]

_KINDS: dict[str, type[TensorBoard | MLflow]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def tracker(text: str) -> Tracker:
    """Create the tracker that ``fm2 train --track`` names: tensorboard[:DIR] or mlflow[:URI].

    >>> type(tracker("tensorboard:logs")).__name__
    'TensorBoard'
    """
    name, _, location = text.partition(":")
    if name not in _KINDS:
        raise Fm2Error(f"train: unknown tracker '{name}'; {suggest(name, _KINDS)}")
    return _KINDS[name](location or None)
