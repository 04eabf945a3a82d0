"""Aim as a tracker, a source and a destination of copies."""
