"""Tracker that copies a run's files to an object store."""
