"""A store of runs as a tracker."""
