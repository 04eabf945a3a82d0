"""Alerts: the rules that raise them, the places that they go to, and what is sent there."""
