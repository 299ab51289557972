"""Fitting models: tables moved by native kernels, dense parameters by torch."""
