"""The terminal as a tracker: lines of progress while training runs."""
