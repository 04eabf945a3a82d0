"""Comet as a tracker."""
