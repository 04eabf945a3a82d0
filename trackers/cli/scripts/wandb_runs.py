"""The scripts that query W&B: ``query_wandb_gpu``, ``query_wandb_gpu_full``, ``inspect_wandb_keys``,
``compare_wandb_runs``.

MB and GB are 2^20 and 2^30 bytes, as ``nvidia-smi`` has them. ``memoryAllocatedBytes`` is what GPUs had in use;
W&B's ``gpu.{i}.memory`` is how busy their memory's bandwidth was, in percent, and isn't shown as memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trackers.analysis.gpu_report import (
    COMPUTE,
    MEMORY,
    MEMORY_FRACTION,
    POWER,
    TEMPERATURE,
    GpuSeries,
    Stats,
    as_json,
    average,
    stats,
)
from trackers.analysis.tables import plain
from trackers.cli.scripts import called
from trackers.errors import NotFound, UsageError, examples
from trackers.metrics.groups import grouped
from trackers.readers import registry
from trackers.readers.reader import SourceRun
from trackers.records import Metrics, Record, Summary, Text, name_floats

HISTORY, SYSTEM = "query_wandb_gpu", "query_wandb_gpu_full"
KEYS, COMPARE = "inspect_wandb_keys", "compare_wandb_runs"
RULE = "-" * 80
MIB, GIB = float(1 << 20), float(1 << 30)

NOTHING = """No GPU metrics found in this run
Check that GPU monitoring was on during training: GPUs must be visible to it, and nvidia-ml-py installed there
(pip install nvidia-ml-py; for AMD, amdsmi), and W&B's system metrics not switched off.
{other}
{keys} lists what the run has."""
TRY_FULL = SYSTEM, "looks at W&B's system metrics alone."
TRY_HISTORY = HISTORY, "looks at what the trainer logged."
TITLES = {
    "GPU-related keys": ("gpu",),
    "Training metrics keys": ("training", "validation"),
    "Final keys": ("final",),
    "System keys": ("system",),
}
"""Titles printed above groups."""
NEWEST = 5
LABELS = {"gpu/memory_util_avg": "GPU Memory Util", "gpu/compute_util_avg": "GPU Compute Util"}
FIELDS = {"gpu/memory_util_avg": "memory", "gpu/compute_util_avg": COMPUTE}
"""W&B's own fields that stand for these where the trainer didn't log them."""


def parser(name: str, text: str) -> argparse.ArgumentParser:
    """A parser with the flags that all of them have."""
    argument_parser = argparse.ArgumentParser(
        prog=called(name),
        description=text,
        epilog=f"Example: {called(name)} --entity my-team --project gpt2 --run-name baseline",
    )
    add = argument_parser.add_argument
    add("--entity", help="user or team; default that of your login")
    add("--project", help="W&B's project; required except with --offline")
    add("--offline", metavar="DIR", help="read W&B's offline files there, without a server")
    add("--json", action="store_true", help="print JSON")
    return argument_parser


class WandbQuery:
    """Reads runs as the flags say.

    Raises:
        UsageError: neither --project nor --offline. MissingPackage: wandb isn't installed.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        if not options.project and not options.offline:
            raise UsageError("give --project (and --entity), or --offline DIR")
        self._reader: Any = registry.load(registry.WANDB_FILE if options.offline else "wandb")()

    def run(self, name: str | None, id: str | None) -> SourceRun:
        """One run: by id, by name, or the newest where neither is given.

        Raises:
            NotFound: there is no such run, or several have that name.
        """
        options, reader = self._options, self._reader
        if options.offline:
            return self._offline(name, id)
        entity, project = self._address()
        if not name and not id:
            newest: SourceRun = reader.newest(entity, project)
            return newest
        label = id or name or ""
        filters = {"name": id} if id else {"$or": [{"display_name": name}, {"config.run_name": name}]}
        runs: list[SourceRun] = reader.find(entity, project, filters, label)
        return runs[0]

    def newest(self, count: int) -> list[SourceRun]:
        """The newest runs, at most ``count``."""
        if self._options.offline:
            return self._local()[:count]
        runs: list[SourceRun] = self._reader.find(*self._address(), {})
        return runs[:count]

    def records(self, run: SourceRun) -> Iterator[Record]:
        """All records of a run: its complete history, and its system metrics."""
        records: Iterator[Record] = self._reader.read(run)
        return records

    def system(self, run: SourceRun) -> Iterator[Record]:
        """The system metrics; of an offline run, all records."""
        records: Iterator[Record] = self._reader.read(run) if self._options.offline else self._reader.system(run)
        return records

    def keys(self, run: SourceRun) -> list[str] | None:
        """Names of everything in a run, where that can be had without its history; else None."""
        if self._options.offline:
            return None
        names: list[str] = self._reader.keys(run)
        return names

    def _address(self) -> tuple[str, str]:
        entity, project = self._options.entity, self._options.project
        address: tuple[str, str, str] = self._reader.address(f"{entity}/{project}" if entity else project)
        return address[0], address[1]

    def _local(self) -> list[SourceRun]:
        project = self._options.project
        runs: list[SourceRun] = self._reader.runs(self._options.offline)
        return [run for run in runs if not project or run.project == project]

    def _offline(self, name: str | None, id: str | None) -> SourceRun:
        runs = self._local()
        matching = [run for run in runs if (run.id == id if id else not name or run.name == name)]
        hint = examples(f"{run.name} ({run.id})" for run in runs)
        if not matching:
            raise NotFound(f"{self._options.offline}: no run {id or name or 'of that project'!r}; there are {hint}")
        if name and not id and len(matching) > 1:
            listed = ", ".join(run.id for run in matching)
            raise NotFound(f"{len(matching)} runs are called {name!r}: {listed}; name one by --run-id")
        return matching[0]


def _one_run(name: str, text: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, WandbQuery, SourceRun]:
    """The options, and the one run that they name."""
    argument_parser = parser(name, text)
    argument_parser.add_argument("--run-name", help="by its name; default the newest run")
    argument_parser.add_argument("--run-id", help="by its id")
    options = argument_parser.parse_args(arguments)
    query = WandbQuery(options)
    return options, query, query.run(options.run_name, options.run_id)


def head(run: SourceRun) -> str:
    """The first lines of what is printed of a run."""
    lines = [f"Run: {run.name} ({run.id})", f"State: {run.native.get('state') or run.status}"]
    where = run.native.get("url")
    lines.append(f"URL: {where}" if where else f"File: {', '.join(run.native['paths'])}")
    if run.note:
        lines.append(f"Note: {run.note}")
    return "\n".join([*map(plain, lines), RULE])


def described(run: SourceRun) -> dict[str, Any]:
    """The same for machines."""
    state = run.native.get("state") or run.status
    return {"id": run.id, "name": run.name, "state": state, "url": run.native.get("url")}


def history(arguments: Sequence[str]) -> int:
    """``query_wandb_gpu``: memory and utilisation, by what was logged during training, else by system metrics.

    Returns:
        1 where the run has no GPU metrics.
    """
    text = "GPU metrics of a W&B run: memory and utilisation of each GPU, and in all."
    options, query, run = _one_run(HISTORY, text, arguments)
    gpus = GpuSeries().gather(query.records(run))
    if not gpus.series and not gpus.others:
        return _nothing(head(run), TRY_FULL)
    if options.json:
        print(json.dumps({**described(run), **_as_json(gpus)}, indent=2))
        return 0
    print(head(run))
    for gpu in gpus.names:
        print(f"\nGPU {gpu}:")
        _section(gpus.stats(gpu, MEMORY), "Memory Used", lambda value: f"{value / MIB:.1f} MB ({value / GIB:.2f} GB)")
        _section(gpus.stats(gpu, MEMORY_FRACTION), "Memory Allocated (%)", _percent)
        _section(gpus.stats(gpu, COMPUTE), "GPU Utilization (%)", _percent)
    _total(gpus)
    if gpus.others:
        print("\nLOGGED BY THE TRAINER, OVER ALL GPUs:")
        for name, points in sorted(gpus.others.items()):
            _section(stats(points), name, lambda value: f"{value:.4g}")
    return 0


def system(arguments: Sequence[str]) -> int:
    """``query_wandb_gpu_full``: memory, utilisation, power and temperature by W&B's system metrics.

    Returns:
        1 where the run has none.
    """
    text = "GPU metrics of a W&B run's system metrics: memory, utilisation, power and temperature of each GPU."
    options, query, run = _one_run(SYSTEM, text, arguments)
    gpus = GpuSeries().gather(query.system(run), others="\0")
    if not gpus.series:  # delivered from elsewhere: the samples lie in the history
        gpus = GpuSeries().gather(query.records(run), others="\0")
    if not gpus.series:
        return _nothing(head(run), TRY_HISTORY)
    if options.json:
        print(json.dumps({**described(run), **_as_json(gpus)}, indent=2))
        return 0
    print(head(run))
    print(f"\nDetected {len(gpus.names)} active GPU{'s' if len(gpus.names) != 1 else ''}")
    for gpu in gpus.names:
        print(f"\nGPU {gpu}:")
        _memory(gpus.stats(gpu, MEMORY), gpus.stats(gpu, MEMORY_FRACTION))
        _section(gpus.stats(gpu, COMPUTE), "GPU Utilization", _percent)
        _section(gpus.stats(gpu, POWER), "Power", lambda value: f"{value:.1f} W")
        _section(gpus.stats(gpu, TEMPERATURE), "Temperature", lambda value: f"{value:.0f}°C")
    _total(gpus)
    return 0


def _section(figures: Stats | None, title: str, show: Callable[[float], str]) -> None:
    if figures is not None:
        print(f"  {title}:")
        print(f"    Current:  {show(figures.current)}")
        print(f"    Average:  {show(figures.average)}")
        print(f"    Maximum:  {show(figures.maximum)}")


def _memory(used: Stats | None, fraction: Stats | None) -> None:
    """Memory in GB with its percentage, or whichever of them was sampled."""
    if used is None:
        _section(fraction, "Memory Allocated", _percent)
        return
    print("  Memory Allocated:")
    for label, name in (("Current", "current"), ("Average", "average"), ("Maximum", "maximum")):
        percent = f" ({getattr(fraction, name):.1f}%)" if fraction is not None else ""
        print(f"    {label}:  {getattr(used, name) / GIB:.2f} GB{percent}")


def _total(gpus: GpuSeries) -> None:
    memory = gpus.total(MEMORY)
    if memory is not None:
        count = sum(MEMORY in fields for fields in gpus.series.values())
        print(f"\nTOTAL ACROSS ALL {count} GPUs:")
        print(f"  Current Total Memory:  {memory.current / GIB:.1f} GB")
        print(f"  Average Total Memory:  {memory.average / GIB:.1f} GB")
        print(f"  Maximum Total Memory:  {memory.maximum / GIB:.1f} GB")


def _percent(value: float) -> str:
    return f"{value:.1f}%"


def _nothing(head: str, other: tuple[str, str]) -> int:
    name, does = other
    print(head)
    print(NOTHING.format(other=f"{called(name)} {does}", keys=called(KEYS)), file=sys.stderr)
    return 1


def _as_json(gpus: GpuSeries) -> dict[str, Any]:
    """All figures of all fields, in W&B's units: bytes, percent, W, °C."""
    each = {gpu: as_json({field: gpus.stats(gpu, field) for field in gpus.series[gpu]}) for gpu in gpus.names}
    total = as_json({MEMORY: gpus.total(MEMORY), POWER: gpus.total(POWER)})
    others = as_json({name: stats(points) for name, points in sorted(gpus.others.items())})
    content: dict[str, Any] = name_floats({"gpus": each, "total": total, "logged": others})
    return content


def keys(arguments: Sequence[str]) -> int:
    """Run the program; 1 where the run has no names."""
    options, query, run = _one_run(KEYS, "List every metric of a W&B run, by group.", arguments)
    names = _names(query, run)
    groups = grouped(names)
    listed = {title: sorted(name for part in parts for name in groups[part]) for title, parts in TITLES.items()}
    if options.json:
        print(json.dumps({**described(run), "total": len(names), "keys": groups}, indent=2))
    else:
        print(head(run))
        print(f"\nTotal unique keys: {len(names)}")
        for title, group in listed.items():
            if group:
                print("\n".join([f"\n{title}:", *(f"  - {plain(name)}" for name in group)]))
    if not names:
        print("No keys found in this run: nothing was logged, or not yet", file=sys.stderr)
        return 1
    return 0


def _names(query: WandbQuery, run: SourceRun) -> list[str]:
    names = query.keys(run)
    if names is None:
        seen: set[str] = set()
        for record in query.records(run):
            if isinstance(record, (Metrics, Text, Summary)):
                seen.update(record.values)
        names = list(seen)
    return sorted(set(names))


def compare(arguments: Sequence[str]) -> int:
    """Run the program; 1 where none of the runs has such metrics, or a run isn't there."""
    argument_parser = parser(COMPARE, "Compare the GPU metrics of several W&B runs, averaged over time.")
    argument_parser.add_argument(
        "--run-name", nargs="+", action="extend", default=[], help=f"runs; default the {NEWEST} newest"
    )
    argument_parser.add_argument("--run-id", nargs="+", action="extend", default=[], help="runs by id")
    argument_parser.add_argument(
        "--keys", nargs="+", default=list(LABELS), help=f"metrics; default {', '.join(LABELS)}"
    )
    options = argument_parser.parse_args(arguments)
    query = WandbQuery(options)
    chosen = [(name, None) for name in options.run_name] + [(None, id) for id in options.run_id]
    runs, missing = [], 0
    for name, id in chosen:
        try:
            runs.append(query.run(name, id))
        except NotFound as error:
            print(f"Run not found: {plain(str(name or id))} ({plain(str(error))})", file=sys.stderr)
            missing += 1
    if not chosen:
        runs = query.newest(NEWEST)
    measured = []
    for run in runs:
        try:
            measured.append((run, _averages(query, run, options.keys)))
        except NotFound as error:
            print(f"Run can't be read: {plain(run.name)} ({plain(str(error))})", file=sys.stderr)
            missing += 1
    if options.json:
        listed = [{**described(run), "averages": name_floats(averages)} for run, averages in measured]
        print(json.dumps(listed, indent=2))
    else:
        for run, averages in measured:
            _print_averages(run, averages)
    return 0 if any(averages for _, averages in measured) and not missing else 1


def _averages(query: WandbQuery, run: SourceRun, keys: Sequence[str]) -> dict[str, float]:
    gpus = GpuSeries().gather(query.records(run), others="")
    averages = {}
    for key in keys:
        if key in gpus.others:
            averages[key] = stats(gpus.others[key]).average
        elif key in FIELDS:
            series = [average(fields[FIELDS[key]]) for fields in gpus.series.values() if FIELDS[key] in fields]
            if series:
                averages[key] = sum(series) / len(series)
    return averages


def _print_averages(run: SourceRun, averages: dict[str, float]) -> None:
    print(f"{plain(run.name)}:")
    for key, value in averages.items():
        label = LABELS.get(key)
        print(f"  {label}: {value:.2f}%" if label else f"  {plain(key)}: {value:.6g}")
    if not averages:
        print("  No GPU metrics found in this run")
    print()
