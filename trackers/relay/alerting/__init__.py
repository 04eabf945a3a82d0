"""Alerts of a run: found in its journal beside training, and sent."""
