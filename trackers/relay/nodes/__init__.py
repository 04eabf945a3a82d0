"""Nodes without a directory that all see: each sends what its ranks leave to a store, and the main node fetches it."""
