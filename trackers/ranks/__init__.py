"""Processes that train together: who launched them, and how a rank's values reach the main rank."""
