"""Versions of artifacts, over all runs of a project: what the runs' records say, numbered and found by name."""
