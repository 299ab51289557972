"""The one loop that fits any model, its optimizers, metrics and checkpoints."""
