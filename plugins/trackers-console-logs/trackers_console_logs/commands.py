"""``trackers benchmark extract`` and ``run``: the programs of :mod:`trackers_console_logs.benchmark`."""

from __future__ import annotations

import typer

from trackers.cli import programs

PROGRAMS = "trackers_console_logs.benchmark"

extract, run = typer.Typer(), typer.Typer()
programs.add(extract, "extract", PROGRAMS, "extract", "Make a benchmark result of a Primus or Megatron log.")
programs.add(run, "run", PROGRAMS, "run", "Run a training, keep its output, and extract its benchmark result.")
