"""The words that settings may have; apart, so that the command line knows them without torch."""

from __future__ import annotations

from typing import Literal

Linear = Literal["features", "fields", "both"]
Optimizer = Literal["adagrad", "adam", "ftrl"]
Schedule = Literal["constant", "linear", "cosine"]
Metric = Literal["log_loss", "auc", "rig"]
Activation = Literal["relu", "gelu", "silu", "tanh"]
Arrangement = Literal["parallel", "serial"]
