"""Compiled models: compile a run to one file, then score, rank and explain rows with it. Needs only NumPy."""
