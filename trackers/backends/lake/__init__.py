"""Tracker that keeps a run's rows in a lake up to date."""
