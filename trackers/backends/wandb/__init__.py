"""Tracker that delivers runs to Weights & Biases."""
