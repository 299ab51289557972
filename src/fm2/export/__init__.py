"""Export trained models to other runtimes: ONNX."""
