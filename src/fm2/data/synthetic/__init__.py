"""Generated logs whose true click probabilities are known."""
