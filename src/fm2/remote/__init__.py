"""Remote storage: URLs of object stores and other file systems, through fsspec, which is imported only for a URL."""
