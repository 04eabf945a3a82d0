"""Aim as a tracker."""
