"""Make a trained model smaller: fewer dimensions, fewer pairs of fields, a spectrum of lower rank."""
