"""Alerts: the rules that raise them, the destinations that they go to, and what is sent there."""

PROJECT_FILE = "alerts.txt"
"""In a project's directory: the rules of all its runs (:mod:`trackers.alerts.project_rules`)."""
