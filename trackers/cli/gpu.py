"""``trackers gpu``: what this machine's GPUs do; ``trackers gpu-report``: what a run's GPUs did."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, SourceArgument, open_runs, printable, show_number

app = typer.Typer(
    name="gpu", help="Show what the GPUs of this machine do, until Ctrl-C; or record it: gpu record.",
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback()
def gpu(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one reading and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between readings.")] = 1.0,
    scope: Annotated[
        str, typer.Option(help="node: all GPUs here; job: those in CUDA_VISIBLE_DEVICES and similar.")
    ] = "node",
    detail: Annotated[
        str, typer.Option(help="Further values: basic, full, or groups such as activity,links; off: none.")
    ] = "off",
    as_json: AsJson = False,
) -> None:
    """Show what the GPUs of this machine do, until Ctrl-C. With --json: a line of JSON for each reading.

    Example: trackers gpu --once
    """
    if context.invoked_subcommand is not None:
        return
    from trackers.hardware.gpus.detect import Gpus
    from trackers.hardware.monitor import MachineView
    from trackers.metrics import gpu_details as details

    if scope not in ("node", "job"):
        print(f"trackers: --scope {scope!r} isn't known: node or job", file=sys.stderr)
        raise typer.Exit(2)
    groups = details.parse(detail)
    gpus = Gpus(lambda text: print(f"trackers: {text}", file=sys.stderr), scope=scope, details=groups)
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
        console.print(_tables(view))
        return
    with Live(_tables(view), console=console, auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval)
            view.read()
            live.update(_tables(view), refresh=True)


def _tables(view: Any) -> Any:
    from rich.console import Group

    details = view.details_table()
    return view.table() if details is None else Group(view.table(), "", details)


def gpu_report(source: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """Each GPU's memory, utilisation, power, temperature and energy: now, average over time, maximum; and over all.

    The maximum over all GPUs is that of their sum over time. Exit code 1 where no run has GPU metrics.

    Example: trackers gpu-report wandb:team/gpt2/4f9kq2ab
    """
    import msgspec

    from trackers.analysis import gpu_report as analysis
    from trackers.readers import helpers

    reader, runs = open_runs(source, directory)
    reports = helpers.those_of(runs, lambda run: (run, analysis.gpu_report(reader.read(run), f"run {run.name!r}")))
    if as_json:
        shown = [
            {"source": run.source, "id": run.id, "name": run.name, "note": run.note, **msgspec.to_builtins(report)}
            for run, report in reports
        ]
        print(json.dumps(shown, indent=2))
        return
    for number, (run, report) in enumerate(reports):
        if number:
            print()
        print(f"{printable(run.name)}  ({printable(run.source)})")
        if run.note:
            print(f"Note: {printable(run.note)}")
        _show_report(report)


def _show_report(report: Any) -> None:
    for name, gpu in report.gpus.items():
        print(f"GPU {printable(name)}:")
        _figures(gpu)
    if report.total is not None:
        print(f"All {len(report.gpus)} GPUs together:")
        _figures(report.total, list(report.gpus.values()))
    if report.logged:
        print("Logged during training, over all GPUs:")
        width = max(map(len, report.logged))
        for name, stats in report.logged.items():
            print(f"  {printable(name):<{width}}  {_three(stats, show_number)}")


def _figures(gpu: Any, parts: Sequence[Any] = ()) -> None:
    """parts: the GPUs that it is the sum of; where some lack a figure, that is said."""
    shows: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("memory", "memory", lambda value: f"{value / 1e9:.2f} GB"),
        ("memory, of its own", "memory_percent", lambda value: f"{value:.1f} %"),
        ("utilisation", "utilization", lambda value: f"{value:.1f} %"),
        ("power", "power", lambda value: f"{value:.1f} W"),
        ("temperature", "temperature", lambda value: f"{value:.0f} °C"),
    )
    for label, field, show in shows:
        stats = getattr(gpu, field)
        if stats is not None:
            known = sum(getattr(part, field) is not None for part in parts)
            coverage = f" (of {known} GPUs)" if known < len(parts) else ""
            print(f"  {label:<19} {_three(stats, show)}{coverage}")
    if gpu.energy_j is not None:
        how = " (power over time)" if gpu.energy_from == "power" else ""
        print(f"  {'energy':<19} {gpu.energy_j / 3.6e6:.4g} kWh, {gpu.energy_j:,.0f} J{how}")


def _three(stats: Any, show: Callable[[float], str]) -> str:
    return f"current {show(stats.current)}, average {show(stats.average)}, maximum {show(stats.maximum)}"
