"""Choice of a picture's panels: named metrics, or a preset for training, validation, GPUs or benchmark results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from trackers.analysis import gpu_report
from trackers.analysis.benchmark_results import Result
from trackers.analysis.curves import X_AXES, PlottedRun, matching_metrics
from trackers.analysis.groups import labelled
from trackers.analysis.tables import fitting_time, format_value
from trackers.errors import NotFound, UsageError
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.metrics.styles import styles_of_groups
from trackers.plotting.curve_math import Curve, Scale, band, line
from trackers.plotting.figure import Bar, Distribution, Panel, Picture

KEYS = 6
"""Default number of metrics drawn."""
WARMUP = 5
"""Number of first steps left out of the distribution of step times."""
HISTOGRAM = 30
_X = {"step": "step", "tokens": "tokens"}
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
_GPU_FIELDS = (
    (gpu_report.COMPUTE, "utilisation (%)", 1.0), (gpu_report.MEMORY, "memory (GB)", 1e-9),
    (gpu_report.POWER, "power (W)", 1.0), (gpu_report.TEMPERATURE, "temperature (°C)", 1.0),
)  # fmt: skip


_GPU_ENDS: dict[str, tuple[float | None, float | None]] = {
    gpu_report.COMPUTE: (0.0, 100.0), gpu_report.MEMORY: (0.0, None), gpu_report.POWER: (0.0, None),
    gpu_report.TEMPERATURE: (0.0, 100.0),
}  # fmt: skip
"""Ends that the axes of fields have at least."""


class PlotOptions(msgspec.Struct):
    """The user's options. x: one of X_AXES. by: seed, group, tag or config.KEY, "" for a line each run."""

    x: str = "step"
    by: str = ""
    smooth: float | None = None
    log_x: bool = False
    log_y: bool = False

    def scale(self) -> Scale:
        """How curves are thinned and smoothed."""
        return Scale(self.smooth, self.log_x, self.log_y and not self.by)  # a mean has all values

    def check(self) -> None:
        """Raises UsageError for what can't be."""
        if self.x not in X_AXES:
            raise UsageError(f"--x {self.x!r} isn't known: {', '.join(X_AXES)}")
        if self.smooth is not None and not 0 <= self.smooth < 1:
            raise UsageError(f"--smooth {self.smooth:g} isn't from 0 (none) to below 1")


def metrics(runs: Sequence[PlottedRun], view: PlotOptions, patterns: Sequence[str] = ()) -> Picture:
    """A panel for each metric.

    Raises:
        NotFound: no run has such a metric. UsageError: the view can't be had.
    """
    keys = matching_metrics(runs, patterns) if patterns else usual(Counter(key for run in runs for key in run.keys))
    if not keys:
        raise NotFound("these runs have no metrics to plot")
    notes = []
    if not patterns and len(keys) > KEYS:
        notes.append(f"{len(keys) - KEYS} more metrics: --keys 'a,b'")
        keys = keys[:KEYS]
    return _picture(runs, [_curves(runs, key, key, view) for key in keys], view, notes=notes)


def training(runs: Sequence[PlottedRun], view: PlotOptions) -> Picture:
    """Three panels: loss, distribution of step times, model FLOPs utilisation."""
    panels = [
        _curves(runs, _metric_getter(roles.LOSSES), "Training loss", view),
        step_times([(run.label, run.style, _step_ms(run)) for run in runs]),
        _curves(
            runs, _metric_getter(roles.MFUS), "Model FLOPs utilization", view, keep=lambda y: ~(y <= 0), unit="MFU (%)"
        ),
    ]
    return _picture(runs, panels, view, columns=3)


def validation(runs: Sequence[PlottedRun], view: PlotOptions) -> Picture:
    """Training against validation loss, in one panel; training's is dashed."""
    ours = _curves(runs, _metric_getter(roles.VALIDATION_LOSSES), "Training and validation loss", view)
    theirs = _curves(runs, _metric_getter(roles.LOSSES), "", view)
    for curve in theirs.lines:
        curve.dashed, curve.hidden = True, True
    ours.lines += theirs.lines
    ours.y_label = "loss"
    return _picture(runs, [ours], view, columns=1, dashed="training" if theirs.lines else "")


def gpu(runs: Sequence[PlottedRun], view: PlotOptions) -> Picture:
    """A row for each GPU: utilisation, memory, power, temperature over time, as far as they were sampled.

    Raises:
        NotFound: no run has samples of single GPUs.
    """
    by_gpu: dict[str, dict[str, list[tuple[PlottedRun, str, float]]]] = {}
    for run in runs:
        for key in run.keys:
            sample = gpu_report.sampled(key)
            if sample is not None:
                by_gpu.setdefault(sample[0], {}).setdefault(sample[1], []).append((run, key, sample[2]))
    fields = [field for field in _GPU_FIELDS if any(field[0] in samples for samples in by_gpu.values())]
    if not fields:
        raise NotFound("no run has samples of single GPUs (system.gpu.0.gpu, …); `trackers keys SOURCE` lists a run's")
    seconds = [run.points(key).times.max() - run.began for samples in by_gpu.values() for members in samples.values()
               for run, key, _ in members]  # fmt: skip
    unit, size = _unit(seconds)
    scale = msgspec.structs.replace(view, log_x=False, log_y=False).scale()
    panels = []
    for name in sorted(by_gpu, key=_numbers):
        for field, title, factor in fields:
            lines = []
            for run, key, to_wandb in by_gpu[name].get(field, []):
                points = run.points(key)
                x, y = (points.times - run.began) / size, points.values * (to_wandb * factor)
                lines.append(line(run.label, x, y, scale, style=run.style))
            low, high = _GPU_ENDS.get(field, (None, None))
            panels.append(
                Panel(f"GPU {name}", f"time ({unit})", title, lines, empty="not sampled", floor=low, ceiling=high)
            )
    return _picture(runs, panels, PlotOptions(), columns=len(fields), aligned=True)


def sessions(runs: Sequence[PlottedRun], view: PlotOptions) -> Picture:
    """Session logs: loss, learning rate, and each GPU's utilisation and memory."""
    timed = msgspec.structs.replace(view, x="time")
    use = [(name, gpu_report.COMPUTE, "utilisation") for name in _gpus(runs)]
    use += [(name, gpu_report.MEMORY_FRACTION, "memory") for name in _gpus(runs)]
    panels = [_curves(runs, _metric_getter(roles.LOSSES), "Training loss", view),
              _curves(runs, "learning_rate", "Learning rate", view)]  # fmt: skip
    panels += [
        _curves(runs, f"system.gpu.{name}.{field}", f"GPU {name} {title} (%)", timed) for name, field, title in use
    ]
    for panel in panels[2:]:
        panel.floor, panel.ceiling = 0.0, 100.0
    return _picture(runs, panels, view, columns=2 if len(panels) <= 4 else 3)


def _gpus(runs: Sequence[PlottedRun]) -> list[str]:
    names = {sample[0] for run in runs for key in run.keys if (sample := gpu_report.sampled(key)) is not None}
    return sorted(names, key=_numbers)


PANELS: dict[str, Callable[[Sequence[PlottedRun], PlotOptions], Picture]] = {
    "training": training, "validation": validation, "gpu": gpu,
}  # fmt: skip
"""Presets by name; the one for benchmark results is in :mod:`trackers.plotting.presets`."""


def _metric_getter(names: Sequence[str]) -> Callable[[PlottedRun], str | None]:
    return lambda run: run.first(names)


def _curves(
    runs: Sequence[PlottedRun],
    key: str | Callable[[PlottedRun], str | None],
    title: str,
    view: PlotOptions,
    *,
    keep: Callable[[Any], Any] | None = None,
    unit: str = "",
) -> Panel:
    """One metric of all runs, each where it has it; over time where no value of it has a step."""
    import numpy as np

    names = {run.label: name for run in runs if (name := key(run) if callable(key) else key) in run.keys and name}
    having = [run for run in runs if run.label in names]
    axis = "time" if having and all(run.stepless(names[run.label]) for run in having) else view.x
    pairs = {run.label: run.curve(names[run.label], axis) for run in having}
    label = _X.get(axis, "")
    if axis == "time":
        size_unit, size = _unit([float(x.max()) for x, _ in pairs.values() if len(x)])
        pairs, label = {name: (x / size, y) for name, (x, y) in pairs.items()}, f"time ({size_unit})"
    if keep is not None:
        pairs = {name: (x[keep(y)], y[keep(y)]) for name, (x, y) in pairs.items()}
    lines = [line(run.label, *pairs[run.label], view.scale(), style=run.style) for run in having]
    panel = Panel(title, label, unit or (title if isinstance(key, str) else "loss"), _banded(runs, lines, view),
                  log_x=view.log_x, log_y=view.log_y)  # fmt: skip
    if names:
        highest = max((float(y[np.isfinite(y)].max(initial=0.0)) for _, y in pairs.values()), default=0.0)
        panel.floor, panel.ceiling = roles.bounds(names.values(), highest)
    if view.log_x or view.log_y:
        panel.empty = "nothing above zero, which a logarithmic axis needs"
    return panel


def _banded(runs: Sequence[PlottedRun], lines: list[Curve], view: PlotOptions) -> list[Curve]:
    if not view.by:
        return lines
    by_label = {curve.label: curve for curve in lines}
    bands = []
    groups = grouped(runs, view.by)
    styles = styles_of_groups(groups)
    for label, members in groups.items():
        curves = [by_label[run.label] for run in members if run.label in by_label]
        if curves:
            bands.append(band(label, curves, style=styles[label], log_x=view.log_x, log_y=view.log_y))
    return bands


def grouped(runs: Sequence[PlottedRun], by: str) -> dict[str, list[PlottedRun]]:
    """Runs by seed, group, tag or setting, as ``compare --by`` has them."""
    groups: dict[str, list[PlottedRun]] = {}
    by_facts = {id(run.facts): run for run in runs}
    for label, known in labelled([run.facts for run in runs], by):
        groups.setdefault(label, []).append(by_facts[id(known)])
    return groups


def _picture(
    runs: Sequence[PlottedRun],
    panels: list[Panel],
    view: PlotOptions,
    *,
    columns: int | None = None,
    dashed: str = "",
    notes: Sequence[str] = (),
    aligned: bool = False,
) -> Picture:
    legend = [(run.label, run.style) for run in runs]
    notes = list(notes)
    if view.by:
        members = grouped(runs, view.by)
        styles = styles_of_groups(members)
        legend = [(f"{label} (n = {len(group)})", styles[label]) for label, group in members.items()]
        notes.append("lines: means; bands: ± 1 standard deviation")
    return Picture(
        panels, columns or min(3, len(panels)), legend, dashed, notes, title=titled(runs, view.by), aligned=aligned
    )


def titled(runs: Sequence[PlottedRun], by: str = "") -> str:
    """What a picture of runs is called: the run, or its project and how many there are."""
    if len(runs) == 1:
        return runs[0].label
    projects = list(dict.fromkeys(run.data.run.project for run in runs if run.data.run.project))
    where = f"{projects[0]}: " if len(projects) == 1 else ""
    return f"{where}{len(runs)} runs" + (", means over seeds" if by == "seed" else f", means by {by}" if by else "")


def step_times(samples: Iterable[tuple[str, int, Any]]) -> Panel:
    """How often steps took how long. Each run: label, style, milliseconds of its steps, the warm-up left out."""
    import numpy as np

    runs = [(label, style, ms[np.isfinite(ms) & (ms >= 0)]) for label, style, ms in samples]
    runs = [(label, style, ms) for label, style, ms in runs if len(ms)]
    panel = Panel("Step times", "ms a step", "steps", empty="no step times")
    if not runs:
        return panel
    pooled = np.concatenate([ms for _, _, ms in runs])
    low, usual, high = (float(np.quantile(pooled, part)) for part in (0, 0.99, 1))
    end = usual * 1.5 if high > 3 * usual > 0 else high
    beyond = int((pooled > end).sum())
    _, unit, size = fitting_time([end / 1000])
    pooled, low, end = pooled / (size * 1000), low / (size * 1000), end / (size * 1000)
    runs = [(label, style, ms / (size * 1000)) for label, style, ms in runs]
    panel.x_label = f"{unit} a step"
    if beyond:
        panel.title += f" ({beyond} above {end:.4g} {unit} not shown)"
    edges = np.histogram_bin_edges(pooled[pooled <= end], HISTOGRAM, (low, end if end > low else low + 1))
    panel.distributions = [Distribution(label, edges, np.histogram(ms, edges)[0], style) for label, style, ms in runs]
    return panel


def _step_ms(run: PlottedRun) -> Any:
    import numpy as np

    metric = run.of_role(roles.STEP_TIME)
    return run.points(metric[0]).values[WARMUP:] * metric[1] * 1000 if metric is not None else np.zeros(0)


def usual(counts: Mapping[str, int]) -> list[str]:
    """Losses first, then what else training and validation logged; never what says only how fast it was.

    Args:
        counts: number of runs by metric.
    """
    names = [name for name in counts if group_of(name) in ("training", "validation") and roles.role_of(name) is None]
    first = (*roles.LOSSES, *roles.VALIDATION_LOSSES)
    names = [name for name in names if not name.startswith("perf/")] or list(counts)
    return sorted(names, key=lambda name: (name not in first, -counts[name], roles.direction(name) is None))


def _unit(seconds: Sequence[float]) -> tuple[str, float]:
    longest = max((value for value in seconds if math.isfinite(value)), default=0.0)
    return next(((unit, size) for unit, size in _UNITS if longest >= 3 * size), _UNITS[-1])


def _numbers(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.replace("node", "").split(".")]


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
        result.step_min_s, result.step_max_s, memory, _indexed(result.losses), _indexed(result.rates),
        _settings(result.gpus, result.gpu, result.config),
    )  # fmt: skip


def of_run(run: PlottedRun) -> Measured:
    """Any run, as ``compare`` measures it."""
    import numpy as np

    facts, speed, use = run.facts, run.facts.speed, run.facts.use
    measured = Measured(run.label, run.style, None, speed.tokens_per_s, speed.samples_per_s)
    if speed.tokens_per_s is not None:
        measured.per_gpu = speed.tokens_per_s / (speed.gpus or facts.gpus or 1)
    measured.step_s = 1 / speed.steps_per_s if speed.steps_per_s else None
    if use.memory_gb is not None:
        measured.memory = [GpuMemory(use.memory_kind, use.memory_gb)]
    named = run.of_role(roles.STEP_TIME)
    if named is not None:
        times = run.points(named[0]).values * named[1]
        usual = times[1:][np.isfinite(times[1:])]  # as everywhere the first step, which warms up, doesn't count
        if len(usual):
            measured.step_low_s, measured.step_high_s = float(usual.min()), float(usual.max())
    for name, keys in (("losses", roles.LOSSES), ("rates", roles.LEARNING_RATES)):
        key = run.first(keys)
        if key is not None:
            setattr(measured, name, run.curve(key, "step"))
    stated = {"global_batch_size": speed.batch, "sequence_length": speed.length}
    measured.settings = _settings(
        facts.gpus, facts.gpu_name, {**facts.config, **{k: v for k, v in stated.items() if v}}
    )
    return measured


def benchmark(runs: Sequence[PlottedRun], view: PlotOptions) -> Picture:
    """The six panels of any runs."""
    picture = six([of_run(run) for run in runs], view)
    picture.title = titled(runs)
    return picture


def of_results(results: Sequence[Result]) -> Picture:
    """The six panels of benchmark results."""
    return six([of_result(result, style) for style, result in enumerate(results)], PlotOptions())


def six(results: Sequence[Measured], view: PlotOptions) -> Picture:
    """The picture. Throughput is in tokens where any says them, else in samples."""
    tokens = any(result.tokens_per_s is not None for result in results)
    word, _, size = fitting_time(result.step_s for result in results)
    panels = [
        _bars("Tokens/s per GPU", ((result, result.per_gpu) for result in results)),
        _bars(f"{word} a step (mean; min to max)", ((result, result.step_s) for result in results), whiskers=size),
        _bars("Tokens/s, all GPUs" if tokens else "Samples/s, all GPUs",
              ((result, result.tokens_per_s if tokens else result.samples_per_s) for result in results)),
        _memory(results),
        _result_curves(LOSS, "loss", ((result, result.losses) for result in results), view),
        _result_curves(RATE, "learning rate", ((result, result.rates) for result in results), view),
    ]  # fmt: skip
    alike: dict[str, list[str]] = {}
    for result in results:
        if result.settings:
            alike.setdefault(result.settings, []).append(result.label)
    about = [
        settings if len(labels) == len(results) > 1 else f"{', '.join(labels)}: {settings}"
        for settings, labels in alike.items()
    ]
    more = [f"and {len(about) - LISTED} more"] if len(about) > LISTED else []
    return Picture(panels, 3, [(result.label, result.style) for result in results], about=[*about[:LISTED], *more])


def _memory(results: Sequence[Measured]) -> Panel:
    """A bar for each kind of memory of each run. Kinds stand apart and are named: they can't be compared."""
    pairs = [(result, memory) for result in results for memory in result.memory]
    kinds = list(dict.fromkeys(memory.kind for _, memory in pairs))
    words = [KINDS.get(kind, kind) for kind in kinds]
    bars = [
        Bar(result.label, memory.peak_gb, memory.average_gb, None if memory.average_gb is None else memory.peak_gb,
            result.style, words[kinds.index(memory.kind)] if len(kinds) > 1 else "")
        for result, memory in sorted(pairs, key=lambda pair: kinds.index(pair[1].kind))
    ]  # fmt: skip
    kind_note = f", {words[0]}" if len(kinds) == 1 and kinds[0] else ""
    whiskers = "; average to peak" if any(memory.average_gb is not None for _, memory in pairs) else ""
    return Panel(f"Peak memory of one GPU (GB{kind_note}{whiskers})", bars=bars, empty="no result says it")


def _result_curves(
    title: str, y_label: str, values: Iterable[tuple[Measured, tuple[Any, Any]]], view: PlotOptions
) -> Panel:
    lines = [line(result.label, *curve, view.scale(), style=result.style) for result, curve in values]
    return Panel(title, "step", y_label, lines, log_x=view.log_x, log_y=view.log_y, empty="no result says it")


def _bars(title: str, values: Iterable[tuple[Measured, float | None]], *, whiskers: float = 0.0) -> Panel:
    """whiskers: the values are times of steps, to be shown in units of so many seconds, with the extremes."""
    size = whiskers or 1.0

    def end(value: float | None) -> float | None:
        return value / size if whiskers and value is not None else None

    bars = [
        Bar(result.label, value / size, end(result.step_low_s), end(result.step_high_s), result.style)
        for result, value in values
        if value is not None
    ]
    return Panel(title, bars=bars, empty="no result says it")


def _settings(gpus: int | None, gpu: str, config: Mapping[str, Any]) -> str:
    """The settings of a benchmark result, in a line."""
    machine = f"{gpus} × {gpu or 'GPU'}" if gpus else gpu
    parts = [f"{word} {format_value(config[name])}" for name, word in SETTINGS if config.get(name) is not None]
    return ", ".join(filter(None, [machine, *parts]))


def _indexed(values: Sequence[float | None]) -> tuple[Any, Any]:
    """Indices from 1, and values; those that a file doesn't have are left out."""
    import numpy as np

    pairs = [(index, value) for index, value in enumerate(values, 1) if value is not None]
    return np.array([index for index, _ in pairs], np.float64), np.array([value for _, value in pairs], np.float64)
