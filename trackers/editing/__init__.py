"""Changing runs that exist: their name, tags, notes, group and results; deleting them, and bringing them back."""
