"""Training on several workers: embedding tables are sharded over them, dense parameters are replicated."""

from fm2.distributed.ray import fit, train_loop_per_worker
from fm2.distributed.train import train

__all__ = ["fit", "train", "train_loop_per_worker"]
