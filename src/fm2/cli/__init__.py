"""The command line: a thin layer of options over the public functions."""
