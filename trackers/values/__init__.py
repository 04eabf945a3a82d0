"""Conversion of the values passed to ``log`` into the values of records."""
