"""Measuring a model: metrics, calibration, and scoring a split of a data set. No torch."""
