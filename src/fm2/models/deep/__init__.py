"""Deep networks on top of embeddings, each as in its own paper."""

from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP

__all__ = ["MLP", "DeepModel"]
