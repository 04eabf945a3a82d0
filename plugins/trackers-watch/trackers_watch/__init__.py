"""Runs live in a terminal: ``trackers watch``."""
