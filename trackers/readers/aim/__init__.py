"""Aim's stores as a source."""
