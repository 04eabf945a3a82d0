"""Tests of trackers.alerts."""
