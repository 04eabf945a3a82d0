"""Meaning of names of metrics and settings, whichever program chose them: used by trackers and by analysis."""
