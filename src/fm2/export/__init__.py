"""Trained models in other formats: ONNX."""
