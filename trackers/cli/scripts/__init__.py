"""Entry points of the scripts that are installed beside ``trackers``."""
