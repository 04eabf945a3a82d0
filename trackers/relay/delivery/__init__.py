"""Delivery of a run's records to one tracker."""
