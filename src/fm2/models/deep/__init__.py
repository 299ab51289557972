"""Networks: embeddings, and something deep above them. Each follows its own paper."""

from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP

__all__ = ["MLP", "DeepModel"]
