"""Trained models compiled to one file, and the file at work: scoring, ranking, explaining. Needs numpy alone."""
