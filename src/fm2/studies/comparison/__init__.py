"""Several models trained and tested alike, in one table; and which models there are."""
