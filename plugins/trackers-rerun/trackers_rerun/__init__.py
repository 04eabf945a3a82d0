"""A run again: its code, its environment and its command, in a directory of their own."""
