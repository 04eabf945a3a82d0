"""``query_wandb_gpu`` and ``query_wandb_gpu_full``: what a run's GPUs did, by its history or W&B's system metrics.

MB and GB are 2^20 and 2^30 bytes, as ``nvidia-smi`` has them. ``memoryAllocatedBytes`` is what GPUs had in use;
W&B's ``gpu.{i}.memory`` is how busy their memory's bandwidth was, in percent, and isn't shown as memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
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
    stats,
)
from trackers.cli.scripts import wandb_query
from trackers.cli.scripts.wandb_query import Query
from trackers.records import name_floats

HISTORY, SYSTEM = "query_wandb_gpu", "query_wandb_gpu_full"
MIB, GIB = float(1 << 20), float(1 << 30)

NOTHING = """No GPU metrics found in this run
Check that GPU monitoring was on during training: GPUs must be visible to it, and nvidia-ml-py installed there
(pip install nvidia-ml-py; for AMD, amdsmi), and W&B's system metrics not switched off.
{other}
inspect_wandb_keys.py lists what the run has."""
TRY_FULL = "query_wandb_gpu_full.py looks at W&B's system metrics alone."
TRY_HISTORY = "query_wandb_gpu.py looks at what the trainer logged."


def history(arguments: Sequence[str]) -> int:
    """``query_wandb_gpu``: memory and utilisation, by what was logged during training, else by system metrics.

    Returns:
        1 where the run has no GPU metrics.
    """
    made = wandb_query.parser(HISTORY, "GPU metrics of a W&B run: memory and utilisation of each GPU, and in all.")
    wandb_query.choose_one(made)
    options = made.parse_args(arguments)
    query = Query(options)
    run = query.run(options.run_name, options.run_id)
    gpus = GpuSeries().gather(query.records(run))
    if not gpus.series and not gpus.others:
        return _nothing(wandb_query.head(run), TRY_FULL)
    if options.json:
        print(json.dumps({**wandb_query.described(run), **_as_json(gpus)}, indent=2))
        return 0
    print(wandb_query.head(run))
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
    made = wandb_query.parser(SYSTEM, text)
    wandb_query.choose_one(made)
    options = made.parse_args(arguments)
    query = Query(options)
    run = query.run(options.run_name, options.run_id)
    gpus = GpuSeries().gather(query.system(run), others="\0")
    if not gpus.series:  # delivered from elsewhere: the samples lie in the history
        gpus = GpuSeries().gather(query.records(run), others="\0")
    if not gpus.series:
        return _nothing(wandb_query.head(run), TRY_HISTORY)
    if options.json:
        print(json.dumps({**wandb_query.described(run), **_as_json(gpus)}, indent=2))
        return 0
    print(wandb_query.head(run))
    print(f"\nDetected {len(gpus.names)} active GPU{'s' if len(gpus.names) != 1 else ''}")
    for gpu in gpus.names:
        print(f"\nGPU {gpu}:")
        _memory(gpus.stats(gpu, MEMORY), gpus.stats(gpu, MEMORY_FRACTION))
        _section(gpus.stats(gpu, COMPUTE), "GPU Utilization", _percent)
        _section(gpus.stats(gpu, POWER), "Power", lambda value: f"{value:.1f} W")
        _section(gpus.stats(gpu, TEMPERATURE), "Temperature", lambda value: f"{value:.0f}°C")
    _total(gpus)
    return 0


def _section(found: Stats | None, title: str, show: Callable[[float], str]) -> None:
    if found is not None:
        print(f"  {title}:")
        print(f"    Current:  {show(found.current)}")
        print(f"    Average:  {show(found.average)}")
        print(f"    Maximum:  {show(found.maximum)}")


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
    found = gpus.total(MEMORY)
    if found is not None:
        count = sum(MEMORY in fields for fields in gpus.series.values())
        print(f"\nTOTAL ACROSS ALL {count} GPUs:")
        print(f"  Current Total Memory:  {found.current / GIB:.1f} GB")
        print(f"  Average Total Memory:  {found.average / GIB:.1f} GB")
        print(f"  Maximum Total Memory:  {found.maximum / GIB:.1f} GB")


def _percent(value: float) -> str:
    return f"{value:.1f}%"


def _nothing(head: str, other: str) -> int:
    print(head)
    print(NOTHING.format(other=other), file=sys.stderr)
    return 1


def _as_json(gpus: GpuSeries) -> dict[str, Any]:
    """All figures of all fields, in W&B's units: bytes, percent, W, °C."""
    each = {gpu: as_json({field: gpus.stats(gpu, field) for field in gpus.series[gpu]}) for gpu in gpus.names}
    total = as_json({MEMORY: gpus.total(MEMORY), POWER: gpus.total(POWER)})
    others = as_json({name: stats(points) for name, points in sorted(gpus.others.items())})
    found: dict[str, Any] = name_floats({"gpus": each, "total": total, "logged": others})
    return found
