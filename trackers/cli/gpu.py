"""``trackers gpu``: what this machine's GPUs do, as a table that is kept up to date."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

from trackers.cli.common import AsJson


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gpu", rich_help_panel="Hardware")(gpu)


def gpu(
    once: Annotated[bool, typer.Option("--once", help="Print one reading and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between readings.")] = 1.0,
    scope: Annotated[
        str, typer.Option(help="node: all GPUs here; job: those in CUDA_VISIBLE_DEVICES and similar.")
    ] = "node",
    as_json: AsJson = False,
) -> None:
    """Show what the GPUs of this machine do, until Ctrl-C. With --json: a line of JSON for each reading.

    Example: trackers gpu --once
    """
    from trackers.hardware.gpus.detect import Gpus
    from trackers.hardware.monitor import MachineView

    if scope not in ("node", "job"):
        print(f"trackers: --scope {scope!r} isn't known: node or job", file=sys.stderr)
        raise typer.Exit(2)
    gpus = Gpus(lambda text: print(f"trackers: {text}", file=sys.stderr), scope=scope)
    view = MachineView(gpus)
    try:
        # Processor load, and what held some GPUs down, is measured between two readings.
        gpus.read()
        time.sleep(0.1)
        if as_json:
            _print_lines(view, once, interval)
        else:
            _print_table(view, once, interval)
    except KeyboardInterrupt:
        pass
    finally:
        gpus.close()
    if not gpus.gpus:
        none = "no GPU found here: no NVIDIA and no AMD driver shows one"
        if scope == "job":
            none = "no GPU of the job found here, as CUDA_VISIBLE_DEVICES and its like have it; all: --scope node"
        print(f"trackers: {none}", file=sys.stderr)
        raise typer.Exit(1)


def _print_lines(view: object, once: bool, interval: float) -> None:
    from trackers.hardware.monitor import MachineView

    assert isinstance(view, MachineView)
    while True:
        view.read()
        print(json.dumps(view.to_dict()), flush=True)
        if once:
            return
        time.sleep(interval)


def _print_table(view: object, once: bool, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from trackers.hardware.monitor import MachineView

    assert isinstance(view, MachineView)
    console = Console()
    if not console.is_terminal:
        console.width = 240
    view.read()
    if once or not console.is_terminal:
        console.print(view.table())
        return
    with Live(view.table(), console=console, auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval)
            view.read()
            live.update(view.table(), refresh=True)
