"""W&B as a tracker."""
