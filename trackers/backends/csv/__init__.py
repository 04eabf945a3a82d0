"""The CSV table as a tracker."""
