"""Translate the computations of models to ONNX. This needs torch and the package onnx."""
