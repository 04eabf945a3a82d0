"""Instruments that measure a training loop and log the results: one file each; each can be used alone."""
