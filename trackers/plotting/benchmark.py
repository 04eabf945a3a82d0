"""Comparison of benchmark results in six panels: tokens/s per GPU, step time, throughput, memory, loss, learning rate.

Below them are the results' settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from trackers.analysis.benchmark_results import Result
from trackers.analysis.curves import PlottedRun
from trackers.analysis.tables import show
from trackers.metrics import roles
from trackers.plotting.curve_math import line
from trackers.plotting.figure import Bar, Panel, Picture
from trackers.plotting.presets import PlotOptions
from trackers.support.optional import need

KINDS = {"torch": "allocated", "": "kind unknown"}
"""Display names of kinds of memory; others are shown unchanged."""
SETTINGS = (("global_batch_size", "global batch"), ("micro_batch_size", "micro batch"), ("sequence_length", "sequence"),
            ("max_steps", "steps"))  # fmt: skip
LOSS, RATE = "Training loss", "Learning rate"
LISTED = 8
"""Maximum number of runs whose settings are listed below the panels."""


class GpuMemory(msgspec.Struct):
    """Memory of one GPU, GB. kind: device, torch, reserved, or "" if unknown."""

    kind: str
    peak_gb: float
    average_gb: float | None = None


class Measured(msgspec.Struct):
    """One benchmark. None where it doesn't say. losses, rates: x (step) and y, both arrays.

    step_s, step_low_s, step_high_s: a step's mean, shortest and longest time. settings: in a few words.
    """

    label: str
    style: int
    per_gpu: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    memory: list[GpuMemory] = []
    losses: tuple[Any, Any] = ((), ())
    rates: tuple[Any, Any] = ((), ())
    settings: str = ""


def of_result(result: Result, style: int) -> Measured:
    """A benchmark result."""
    memory = [
        GpuMemory(kind, peak, average)
        for kind, peak, average in (
            (result.memory_kind, result.memory_peak_gb, result.memory_avg_gb),
            ("reserved", result.reserved_peak_gb, result.reserved_avg_gb),
        )
        if peak is not None
    ]
    if result.reserved_peak_gb is not None and memory[0].kind == "":
        memory[0].kind = "torch"  # nobody else reserves
    return Measured(
        result.name, style, result.tokens_per_s_per_gpu, result.tokens_per_s, result.samples_per_s, result.step_s,
        result.step_min_s, result.step_max_s, memory, _listed(result.losses), _listed(result.rates),
        _settings(result.gpus, result.gpu, result.config),
    )  # fmt: skip


def of_run(run: PlottedRun) -> Measured:
    """Any run, as ``compare`` measures it."""
    import numpy as np

    facts, speed, use = run.facts, run.facts.speed, run.facts.use
    found = Measured(run.label, run.style, None, speed.tokens_per_s, speed.samples_per_s)
    if speed.tokens_per_s is not None:
        found.per_gpu = speed.tokens_per_s / (facts.gpus or 1)
    found.step_s = 1 / speed.steps_per_s if speed.steps_per_s else None
    if use.memory_gb is not None:
        found.memory = [GpuMemory(use.memory_kind, use.memory_gb)]
    named = run.of_role(roles.STEP_TIME)
    if named is not None:
        times = run.points(named[0]).values * named[1]
        usual = times[1:][np.isfinite(times[1:])]  # as everywhere the first step, which warms up, doesn't count
        if len(usual):
            found.step_low_s, found.step_high_s = float(usual.min()), float(usual.max())
    for name, keys in (("losses", roles.LOSSES), ("rates", roles.LEARNING_RATES)):
        key = run.first(keys)
        if key is not None:
            setattr(found, name, run.curve(key, "step"))
    stated = {"global_batch_size": speed.batch, "sequence_length": speed.length}
    found.settings = _settings(facts.gpus, facts.gpu_name, {**facts.config, **{k: v for k, v in stated.items() if v}})
    return found


def benchmark(runs: Sequence[PlottedRun], view: PlotOptions) -> Picture:
    """The six panels of any runs."""
    return six([of_run(run) for run in runs], view)


def of_results(results: Sequence[Result]) -> Picture:
    """The six panels of benchmark results.

    Raises:
        MissingPackage: no NumPy.
    """
    need("numpy", "a plot")
    return six([of_result(result, style) for style, result in enumerate(results)], PlotOptions())


def six(found: Sequence[Measured], view: PlotOptions) -> Picture:
    """The picture. Throughput is in tokens where any says them, else in samples."""
    tokens = any(one.tokens_per_s is not None for one in found)
    panels = [
        _bars("Tokens/s per GPU", ((one, one.per_gpu) for one in found)),
        _bars("Seconds a step (mean; min to max)", ((one, one.step_s) for one in found), whiskers=True),
        _bars("Tokens/s, all GPUs" if tokens else "Samples/s, all GPUs",
              ((one, one.tokens_per_s if tokens else one.samples_per_s) for one in found)),
        _memory(found),
        _curves(LOSS, "loss", ((one, one.losses) for one in found), view),
        _curves(RATE, "learning rate", ((one, one.rates) for one in found), view),
    ]  # fmt: skip
    about = [f"{one.label}: {one.settings}" for one in found if one.settings]
    more = [f"and {len(about) - LISTED} more"] if len(about) > LISTED else []
    return Picture(panels, 3, [(one.label, one.style) for one in found], about=[*about[:LISTED], *more])


def _memory(found: Sequence[Measured]) -> Panel:
    """A bar for each kind of memory of each run. Kinds stand apart and are named: they can't be compared."""
    pairs = [(one, memory) for one in found for memory in one.memory]
    kinds = list(dict.fromkeys(memory.kind for _, memory in pairs))
    words = [KINDS.get(kind, kind) for kind in kinds]
    bars = [
        Bar(one.label, memory.peak_gb, memory.average_gb, None if memory.average_gb is None else memory.peak_gb,
            one.style, words[kinds.index(memory.kind)] if len(kinds) > 1 else "")
        for one, memory in sorted(pairs, key=lambda pair: kinds.index(pair[1].kind))
    ]  # fmt: skip
    of = f", {words[0]}" if len(kinds) == 1 and kinds[0] else ""
    whiskers = "; average to peak" if any(memory.average_gb is not None for _, memory in pairs) else ""
    return Panel(f"Peak memory of one GPU (GB{of}{whiskers})", bars=bars, empty="no result says it")


def _curves(title: str, y_label: str, values: Iterable[tuple[Measured, tuple[Any, Any]]], view: PlotOptions) -> Panel:
    lines = [line(one.label, *curve, view.scale(), style=one.style) for one, curve in values]
    return Panel(title, "step", y_label, lines, log_x=view.log_x, log_y=view.log_y, empty="no result says it")


def _bars(title: str, values: Iterable[tuple[Measured, float | None]], *, whiskers: bool = False) -> Panel:
    bars = [
        Bar(one.label, value, one.step_low_s if whiskers else None, one.step_high_s if whiskers else None, one.style)
        for one, value in values
        if value is not None
    ]
    return Panel(title, bars=bars, empty="no result says it")


def _settings(gpus: int | None, gpu: str, config: Mapping[str, Any]) -> str:
    """The settings of a benchmark result, in a line."""
    machine = f"{gpus} × {gpu or 'GPU'}" if gpus else gpu
    said = [f"{word} {show(config[name])}" for name, word in SETTINGS if config.get(name) is not None]
    return ", ".join(filter(None, [machine, *said]))


def _listed(values: Sequence[float | None]) -> tuple[Any, Any]:
    """Values by their place, counted from 1; those that a file doesn't have are left out."""
    import numpy as np

    there = [(place, value) for place, value in enumerate(values, 1) if value is not None]
    return np.array([place for place, _ in there], np.float64), np.array([value for _, value in there], np.float64)
