"""``trackers wandb …``, ``trackers benchmark …``, ``trackers gpu record``: the programs of ``trackers.cli.scripts``."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from trackers.cli import gpu

SCRIPTS = "trackers.cli.scripts"
_PASSED: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
_HELP = {"help_option_names": ["-h", "--help"]}

wandb = typer.Typer(
    name="wandb", help="Runs in W&B through its own API: their metrics, GPUs, comparisons.", no_args_is_help=True,
    context_settings=_HELP,
)  # fmt: skip
benchmark = typer.Typer(
    name="benchmark", help="Benchmark results: recorded, extracted, compared.", no_args_is_help=True,
    context_settings=_HELP,
)  # fmt: skip


def add(group: typer.Typer, name: str, module: str, function: str, about: str) -> None:
    """Add a program to a group of commands. It parses its arguments, ``--help`` too.

    Args:
        module, function: what is run.
        about: a sentence.
    """

    def program(context: typer.Context) -> None:
        code = getattr(importlib.import_module(module), function)(context.args)
        raise typer.Exit(code)

    program.__doc__ = about
    group.command(name, context_settings=_PASSED)(program)


add(wandb, "keys", f"{SCRIPTS}.wandb_runs", "keys", "List every metric of runs in W&B, by group.")
add(wandb, "gpu", f"{SCRIPTS}.wandb_runs", "history", "Show GPU memory and utilisation of runs in W&B.")
add(wandb, "gpu-full", f"{SCRIPTS}.wandb_runs", "system", "Show all that W&B's system metrics have of runs' GPUs.")
add(wandb, "compare", f"{SCRIPTS}.wandb_runs", "compare", "Compare the GPU metrics of runs in W&B.")
add(benchmark, "compare", f"{SCRIPTS}.compare_results", "main", "Compare benchmark results: table, report and plot.")
add(
    gpu.app,
    "record",
    f"{SCRIPTS}.monitor_gpu",
    "main",
    "Record what the GPUs do, alone or beside a training; compare recordings.",
)
