"""Document 0's six panels: tokens/s per GPU, throughput, step time, memory, and steps' times and losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from trackers.analysis.benchmark_results import Result
from trackers.naming import roles
from trackers.plotting.panels import Bar, Panel, Picture
from trackers.plotting.presets import View
from trackers.plotting.runs import PlottedRun
from trackers.plotting.series import line


class Measured(msgspec.Struct):
    """One benchmark. None where it doesn't say. times, losses: x (step) and y, both arrays; times in s.

    step_s, step_low_s, step_high_s: a step's mean, shortest and longest time. memory_gb: peak of one GPU.
    """

    label: str
    style: int
    per_gpu: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    memory_gb: float | None = None
    times: tuple[Any, Any] = ((), ())
    losses: tuple[Any, Any] = ((), ())


def of_result(result: Result, style: int) -> Measured:
    """A result of document 0's."""
    return Measured(
        result.name, style, result.tokens_per_s_per_gpu, result.tokens_per_s, result.samples_per_s, result.step_s,
        result.step_min_s, result.step_max_s, result.memory_peak_gb, _listed(result.step_times),
        _listed(result.losses),
    )  # fmt: skip


def of_run(run: PlottedRun) -> Measured:
    """Any run, as ``compare`` measures it."""
    import numpy as np

    speed = run.facts.speed
    found = Measured(run.label, run.style, None, speed.tokens_per_s, speed.samples_per_s)
    if speed.tokens_per_s is not None:
        found.per_gpu = speed.tokens_per_s / (run.facts.gpus or 1)
    found.step_s = 1 / speed.steps_per_s if speed.steps_per_s else None
    found.memory_gb = run.facts.use.memory_gb
    named = run.of_role(roles.STEP_TIME)
    if named is not None:
        x, y = run.curve(named[0], "step")
        y = y * named[1]
        found.times = x, y
        usual = y[1:][np.isfinite(y[1:])]  # as everywhere the first step, which warms up, doesn't count
        if len(usual):
            found.step_low_s, found.step_high_s = float(usual.min()), float(usual.max())
    loss = run.first(roles.LOSSES)
    if loss is not None:
        found.losses = run.curve(loss, "step")
    return found


def benchmark(runs: Sequence[PlottedRun], view: View) -> Picture:
    """The six panels of any runs."""
    return six([of_run(run) for run in runs], view)


def of_results(results: Sequence[Result]) -> Picture:
    """The six panels of document 0's results."""
    return six([of_result(result, style) for style, result in enumerate(results)], View())


def six(found: Sequence[Measured], view: View) -> Picture:
    """The picture. Throughput is in tokens where any says them, else in samples."""
    tokens = any(one.tokens_per_s is not None for one in found)
    scale = view.scale()
    panels = [
        _bars("Tokens/s per GPU", ((one, one.per_gpu) for one in found)),
        _bars("Tokens/s, all GPUs" if tokens else "Samples/s, all GPUs",
              ((one, one.tokens_per_s if tokens else one.samples_per_s) for one in found)),
        _bars("Seconds a step (mean; min to max)", ((one, one.step_s) for one in found), whiskers=True),
        _bars("Peak memory of one GPU (GB)", ((one, one.memory_gb) for one in found)),
        Panel("Step time", "step", "s", [line(one.label, *one.times, scale, style=one.style) for one in found],
              log_x=view.log_x, log_y=view.log_y),
        Panel("Training loss", "step", "loss", [line(one.label, *one.losses, scale, style=one.style) for one in found],
              log_x=view.log_x, log_y=view.log_y),
    ]  # fmt: skip
    return Picture(panels, 3, [(one.label, one.style) for one in found])


def _bars(title: str, values: Iterable[tuple[Measured, float | None]], *, whiskers: bool = False) -> Panel:
    bars = [
        Bar(one.label, value, one.step_low_s if whiskers else None, one.step_high_s if whiskers else None, one.style)
        for one, value in values
        if value is not None
    ]
    return Panel(title, bars=bars, empty="no result says it")


def _listed(values: Sequence[float | None]) -> tuple[Any, Any]:
    """Values by their place, counted from 1; those that a file doesn't have are left out."""
    import numpy as np

    there = [(place, value) for place, value in enumerate(values, 1) if value is not None]
    return np.array([place for place, _ in there], np.float64), np.array([value for _, value in there], np.float64)
