"""GPUs and the host, read through the vendors' own libraries: one schema, one file for each source."""
