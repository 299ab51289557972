"""Studies of many runs: compare, tune, reproduce and report."""
