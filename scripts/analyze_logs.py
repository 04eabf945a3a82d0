#!/usr/bin/env python3
"""Analyze the sessions of multi-GPU training: comparison, communication, report. Needs the extra ``session``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import run
from trackers.errors import MissingPackage

NAME = "analyze_logs"


def main(arguments: list[str]) -> int:
    """Run the program of the distribution trackers-session."""
    try:
        from trackers_session import commands
    except ImportError:
        raise MissingPackage("it is a distribution of its own: pip install 'trackers-relay[session]'") from None
    return commands.main(arguments)


if __name__ == "__main__":
    run(NAME, main)
