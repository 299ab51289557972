"""How good predictions are: metrics, calibration, and scoring a split. Nothing here needs torch."""
