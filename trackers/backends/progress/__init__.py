"""``progress.txt`` as a tracker."""
