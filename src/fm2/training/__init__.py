"""The one loop that fits any model, its optimisers, metrics and checkpoints."""
