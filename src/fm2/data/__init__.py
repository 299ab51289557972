"""Raw logs in, encoded memory-mapped rows out."""
