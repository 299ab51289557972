"""Serving over HTTP: ``fm2 serve`` answers requests with compiled models. Needs NumPy and granian."""
