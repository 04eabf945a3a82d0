"""Programs with arguments of their own: scripts in ``scripts/`` of a checkout, and commands of ``trackers``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from trackers.cli.common import run_program

COMMANDS = {
    "monitor_gpu": "gpu record",
    "inspect_wandb_keys": "wandb keys",
    "query_wandb_gpu": "wandb gpu",
    "query_wandb_gpu_full": "wandb gpu-full",
    "compare_wandb_runs": "wandb compare",
    "compare_results": "benchmark compare",
    "extract_primus_metrics": "benchmark extract",
    "run_primus_with_benchmark": "benchmark run",
}
"""The commands that the scripts are."""


def run(name: str, program: Callable[[Sequence[str]], int]) -> None:
    """Run a program with the command line's arguments and exit with its code."""
    run_program(name, lambda: program(sys.argv[1:]))


def called(name: str, command: str = "") -> str:
    """How a program was called: as a command, or as the file in ``scripts/``.

    Args:
        command: of another distribution's.
    """
    if not _is_command():
        return f"{name}.sh" if name.startswith("run_") else f"{name}.py"
    return f"trackers {command or COMMANDS[name]}"


def speaker(name: str) -> str:
    """What its messages begin with."""
    return "trackers" if _is_command() else name


def _is_command() -> bool:
    return os.path.basename(sys.argv[0]) in ("trackers", "trackers-relay", "__main__.py")
