"""A trained model made smaller: dimensions, pairs of fields, spectrum."""
