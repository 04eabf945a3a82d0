"""Formats of files that both a backend and a reader know."""
