"""The training JSON log as a tracker."""
