"""The search for settings that suit a data set better than a model's defaults."""
