"""A pruned network as plain arrays, for scoring without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.models.choices import Activation


@dataclass(frozen=True)
class SparseMatrix:
    """The nonzero elements of a matrix, row by row: row r has the elements ``begins[r]`` to ``begins[r + 1]``."""

    shape: tuple[int, int]
    begins: NDArray[np.uint32]
    columns: NDArray[np.uint32]
    values: NDArray[np.float32]


@dataclass(frozen=True)
class SparseNetwork:
    """Pair terms and a perceptron: Σ_{i<j} r[i,j] <v_i, v_j> + last · activation(… activation(W₁ v + b₁) …) + b.

    ``biases`` are those of the layers, one after the other, and b.
    """

    pairs: SparseMatrix
    layers: Sequence[SparseMatrix]
    biases: NDArray[np.float32]
    last: NDArray[np.float32]
    activation: Activation
