"""Keeping finished runs: sizes, archives, deletion, and loose logs."""
