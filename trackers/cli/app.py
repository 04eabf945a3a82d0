"""The program and its commands, each in a module of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from trackers._version import __version__
from trackers.cli import (
    archive,
    bench_export,
    best,
    compare,
    config,
    copy,
    diff,
    doctor,
    gpu,
    gpu_report,
    keys,
    plot,
    prune,
    report,
    runs,
    sql,
    sync,
)

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


runs.register(app)
sync.register(app)
keys.register(app)
copy.register(app)
gpu_report.register(app)
compare.register(app)
plot.register(app)
report.register(app)
best.register(app)
diff.register(app)
sql.register(app)
bench_export.register(app)
gpu.register(app)
config.register(app)
archive.register(app)
prune.register(app)
doctor.register(app)
