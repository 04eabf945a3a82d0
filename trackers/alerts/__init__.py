"""Alerts: the rules that raise them, the destinations that they go to, and what is sent there."""
