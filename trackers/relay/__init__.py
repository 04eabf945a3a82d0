"""Processes that run beside training: the supervisor, and one delivery for each tracker."""
