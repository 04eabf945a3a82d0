"""The scripts that are installed beside ``trackers``, and their entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from trackers.cli.common import run_program


def run(name: str, program: Callable[[Sequence[str]], int]) -> None:
    """Run a program with the command line's arguments and exit with its code."""
    run_program(name, lambda: program(sys.argv[1:]))
