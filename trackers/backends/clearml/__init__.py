"""ClearML as a tracker."""
