"""The files of a run: model file, checkpoint, settings, history, and when a directory may be written to. No torch."""
