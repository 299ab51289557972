"""The files of a run: settings, history, model file, checkpoint. Nothing here needs torch."""
