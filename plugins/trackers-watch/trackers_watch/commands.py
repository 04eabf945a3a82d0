"""``trackers watch``: runs live in a terminal."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

import typer

from trackers.cli import completion
from trackers.cli.common import RunsDir, resolve_conditions
from trackers.cli.roots import runs_root

AXES = {"step": "step", "time": "relative"}

app = typer.Typer()


@app.command()
def watch(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE…]",
            help="As for `trackers compare`; default every run of --dir, of which those that are running are drawn.",
            autocompletion=completion.runs,
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "--keys",
            help="Metrics, a,b; patterns as in val_*. Default losses first.",
            autocompletion=completion.metrics,
        ),
    ] = "",
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="|".join(AXES),
            help="Time counts since the run began.",
            autocompletion=completion.words_of(lambda: AXES, many=False),
        ),
    ] = "step",
    smooth: Annotated[float, typer.Option(min=0, max=0.999, help="Weight of the past, 0 (none) to below 1.")] = 0.0,
    log_y: Annotated[bool, typer.Option("--log-y", help="Logarithmic y axis.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Where there is no terminal: between lines on a run.")
    ] = 10.0,
    directory: RunsDir = None,
) -> None:
    """Show runs in the terminal, live: curves, status, delivery, hardware. q or Ctrl-C ends it, ? shows the keys.

    Where the output goes to a file or a pipe, each run gets a plain line when it has changed, and the command ends
    when no run is running any more.

    Example: trackers watch; trackers watch latest --metrics "*loss,lr" --log-y
    """
    from trackers.errors import UsageError
    from trackers.support.optional import need
    from trackers.ui.catalogue import Catalogue
    from trackers_watch.looking import ViewOptions

    if x not in AXES:
        raise UsageError(f"--x {x!r} isn't known: {', '.join(AXES)}")
    patterns = [name.strip() for name in metrics.split(",") if name.strip()]
    options = ViewOptions(patterns, AXES[x], smooth, log_y)
    has_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    on_screen = has_terminal and os.environ.get("TERM", "dumb") != "dumb"
    if on_screen:
        need("textual", "watching runs in a terminal")
    catalogue = Catalogue(resolve_conditions(sources or [], directory), runs_root(directory))
    catalogue.open()
    try:
        if on_screen:
            from trackers_watch.app import WatchApp

            WatchApp(catalogue, options, named=bool(sources)).run()
        else:
            from trackers.journal.naming import none_in
            from trackers_watch.lines import write

            write(catalogue, options, sys.stdout, interval, named=bool(sources), pause=time.sleep,
                  none=none_in(runs_root(directory)))  # fmt: skip
    except KeyboardInterrupt:
        pass
    finally:
        catalogue.close()
