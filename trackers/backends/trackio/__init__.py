"""trackio as a tracker."""
