"""DVCLive as a tracker."""
