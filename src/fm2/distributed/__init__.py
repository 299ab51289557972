"""Training on several workers: embedding tables are sharded over them, dense parameters are replicated."""
