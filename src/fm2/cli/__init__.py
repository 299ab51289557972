"""The command line: a thin, table-driven layer over the public functions."""
