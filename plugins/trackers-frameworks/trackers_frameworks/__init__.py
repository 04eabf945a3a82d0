"""Loggers and callbacks of frameworks for trackers, a module each: ``trackers.frameworks`` has them by name."""
