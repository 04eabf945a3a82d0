"""The program: its commands, by the panels that its help shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from trackers._version import __version__
from trackers.cli import analysis, config, doctor, files, gpu, plot, retention, runs, sweep, sync, ui, watch

COMMANDS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("Runs", (runs.ls, runs.show, ui.ui, watch.watch, sync.sync, sweep.run)),
    ("Sources", (runs.keys, files.files, files.get, sync.copy, gpu.gpu_report)),
    ("Analysis", (analysis.compare, plot.plot, analysis.report, analysis.best, analysis.diff, analysis.argv,
                  analysis.sql, analysis.bench_export)),
    ("Hardware", (gpu.gpu,)),
)  # fmt: skip
"""Panels and their commands; a command is called as its function, with "-" for "_"."""
KEEPING = (retention.archive, retention.restore, retention.prune)

app = typer.Typer(
    help="Log a training run once; every tracker receives all of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trackers {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Log a training run once; every tracker gets all of it."""


for panel, functions in COMMANDS:
    for function in functions:
        app.command(rich_help_panel=panel)(function)
config.register(app)
for function in KEEPING:
    app.command(rich_help_panel="Keeping")(function)
doctor.register(app)
