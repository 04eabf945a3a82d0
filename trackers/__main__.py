"""``python -m trackers``."""

from trackers.cli import main

main()
