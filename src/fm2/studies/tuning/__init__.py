"""``fm2 tune``: hyperparameter search."""
