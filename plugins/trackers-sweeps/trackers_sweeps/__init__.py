"""Sweeps on one machine: points of a space of parameters, each trained by a process of its own."""
