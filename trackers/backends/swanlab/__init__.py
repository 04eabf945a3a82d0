"""SwanLab as a tracker."""
