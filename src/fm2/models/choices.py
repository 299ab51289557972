"""The values that settings and model declarations may take. No torch, so that the command line can import it."""

from __future__ import annotations

from typing import Literal

Linear = Literal["features", "fields", "both"]
# adam updates the rows of a table that a batch contains, dense_adam all of them.
Optimizer = Literal["adagrad", "adam", "dense_adam", "ftrl"]
Schedule = Literal["constant", "linear", "cosine"]
Metric = Literal["log_loss", "auc", "rig"]
Activation = Literal["relu", "gelu", "silu", "tanh"]
Arrangement = Literal["parallel", "serial"]

# The block of S that two fields share: the identity, r times the identity, a diagonal, or a full matrix.
Interaction = Literal["constant", "scalar", "vector", "matrix"]
# What training may change in the matrices of an FmFM: everything, their diagonals, or multiples of the identity.
MatrixForm = Literal["full", "diagonal", "scalar"]
# Embedding dimensions: none, one number, the same for every field, or one per field.
Dimensions = Literal["none", "scalar", "equal", "per_field"]
# How native code computes logits and gradients for models that are scored from gathered rows.
ForwardBackward = Literal["fused", "matrix", "autograd"]
# How a compiled model is scored.
CompilePlan = Literal["sums", "embedding_sum", "field_matrices", "field_aware", "network"]
