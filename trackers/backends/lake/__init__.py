"""A lake of runs as a tracker."""
