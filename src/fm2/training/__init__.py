"""Training: one loop for all models, the backends that update weights, and trackers."""
