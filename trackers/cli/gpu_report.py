"""``trackers gpu-report``: what a run's GPUs did, from any source."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import typer

from trackers.cli.common import AsJson, RunsDir, printable, show_number
from trackers.cli.keys import SourceArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gpu-report", rich_help_panel="Sources")(gpu_report)


def gpu_report(source: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """Each GPU's memory, utilisation, power, temperature and energy: now, average over time, maximum; and over all.

    The maximum over all GPUs is that of their sum over time. Exit code 1 where no run has GPU metrics.

    Example: trackers gpu-report wandb:team/gpt2/4f9kq2ab
    """
    import msgspec

    from trackers.analysis import gpu_report as analysis
    from trackers.readers import helpers, registry

    reader, runs = registry.open_source(source, directory)
    found = helpers.those_of(runs, lambda run: (run, analysis.gpu_report(reader.read(run), f"run {run.name!r}")))
    if as_json:
        shown = [
            {"source": run.source, "id": run.id, "name": run.name, "note": run.note, **msgspec.to_builtins(report)}
            for run, report in found
        ]
        print(json.dumps(shown, indent=2))
        return
    for number, (run, report) in enumerate(found):
        if number:
            print()
        print(f"{printable(run.name)}  ({printable(run.source)})")
        if run.note:
            print(f"Note: {printable(run.note)}")
        _show(report)


def _show(report: Any) -> None:
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
            of = f" (of {known} GPUs)" if known < len(parts) else ""
            print(f"  {label:<19} {_three(stats, show)}{of}")
    if gpu.energy_j is not None:
        how = " (power over time)" if gpu.energy_from == "power" else ""
        print(f"  {'energy':<19} {gpu.energy_j / 3.6e6:.4g} kWh, {gpu.energy_j:,.0f} J{how}")


def _three(stats: Any, show: Callable[[float], str]) -> str:
    return f"current {show(stats.current)}, average {show(stats.average)}, maximum {show(stats.maximum)}"
