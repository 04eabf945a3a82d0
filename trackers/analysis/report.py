"""``trackers report``: a Markdown report of runs of any source; session logs have a section of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trackers.analysis import benchmark_report, compare_tables, sessions
from trackers.analysis.benchmark_results import Result
from trackers.analysis.comparability import WORK
from trackers.analysis.compare import compare
from trackers.analysis.comparison import differing_settings
from trackers.analysis.groups import headline
from trackers.analysis.statistics import deviation, mean
from trackers.analysis.tables import escape_markdown, plain, render
from trackers.benchmark.speed import MEASURED, STATED, Speed
from trackers.errors import NotFound
from trackers.metrics import roles

if TYPE_CHECKING:
    from trackers.analysis.curves import PlottedRun

SESSION = "session:"
_VERSIONS = ("pytorch", "cuda", "rocm")


def markdown(runs: Sequence[PlottedRun], *, when: str, title: str = "") -> str:
    """The report: metrics, then the comparison of benchmark results (winner with its reason, hardware, configuration,
    throughput, step times, memory, variance, timestamps), then the comparison of those runs that are sessions.

    Args:
        when: the time at its top. title: its headline; default how many runs there are.
    """
    found = compare([run.facts for run in runs])
    results = _results(runs)
    text = benchmark_report.markdown(results, when=when)
    count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    text = text.replace("# Benchmark comparison\n", f"# {escape_markdown(title) or f'Report of {count}'}\n", 1)
    head, winner = text.split("## Winner", 1)  # what people trained for comes first
    parts = [head.rstrip() + "\n", "## Metrics\n", _metrics(runs), f"## Winner{winner}", *_warnings(found.warnings)]
    summed = [session for run in runs if (session := _session(run)) is not None]
    if summed:
        lines = [*sessions.comparison(summed), "", "", "COMMUNICATION", sessions.RULE, "",
                 *sessions.communication(summed)]  # fmt: skip
        parts += ["## Sessions\n", "\n".join(["```text", *map(plain, lines), "```", ""])]
    return "\n".join(parts)


def _warnings(texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield "## What makes it unfair\n\n" + "".join(f"- {escape_markdown(text)}\n" for text in texts)


def _metrics(runs: Sequence[PlottedRun]) -> str:
    known = [run.facts for run in runs]
    found = compare(known)
    settings = compare_tables.chosen_settings(found, None)
    if not found.keys:
        return "No metrics of training or validation.\n"
    if len(runs) <= compare_tables.FEW:
        table = compare_tables.side_by_side(found, found.keys, settings, ("final", "best", "last", "min", "max"))
    else:
        table = compare_tables.a_line_each(
            found, found.keys, settings, {key: headline(known, key) for key in found.keys}
        )
    return render(table, "markdown")


def _results(runs: Sequence[PlottedRun]) -> list[Result]:
    """Runs as results of benchmarks, measured as ``compare`` measures them; of settings those that differ or matter."""
    configs = [run.facts.config for run in runs]
    shown = differing_settings(configs) if len(runs) > 1 else list(configs[0])
    shown += [
        name
        for name in dict.fromkeys(key for config in configs for key in config)
        if name not in shown and name.rpartition(".")[2] in (*roles.BATCHES, *roles.LENGTHS, "model", "model_name")
    ]
    matters = {name for _, names in WORK for name in names}
    shown.sort(key=lambda name: name.rpartition(".")[2] not in matters)
    return [_result(run, shown[:SETTINGS]) for run in runs]


SETTINGS = 24
"""Maximum number of settings in a report."""


def _result(run: PlottedRun, settings: Sequence[str]) -> Result:
    import numpy as np

    facts = run.facts
    step_s = 1 / facts.speed.steps_per_s if facts.speed.steps_per_s else None
    found = Result(
        name=run.label,
        path=run.data.run.source,
        platform=str(facts.config.get("platform") or "unknown"),
        timestamp=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts.created)) if facts.created else "",
        gpu=facts.gpu_name,
        gpus=facts.gpus,
        versions=_versions(facts.config),
        config={name: facts.config[name] for name in settings if name in facts.config},
        steps=facts.steps,
        step_s=step_s,
        samples_per_s=facts.speed.samples_per_s,
        tokens_per_s=facts.speed.tokens_per_s,
        clock=_clock(facts.speed),
        memory_kind=facts.use.memory_kind,
        memory_peak_gb=facts.use.memory_gb,
        remarks=list(facts.speed.remarks),
    )
    if facts.speed.tokens_per_s is not None:
        found.tokens_per_s_per_gpu = facts.speed.tokens_per_s / (facts.gpus or 1)
    named = run.of_role(roles.STEP_TIME)
    if named is not None:  # as everywhere the first step, which warms up, doesn't count
        values = run.points(named[0]).values[1:] * named[1]
        times = [float(value) for value in values[np.isfinite(values) & (values > 0)]]
        if times:
            found.step_times = list(times)
            found.step_min_s, found.step_max_s, found.step_std_s = min(times), max(times), deviation(times)
            if found.step_std_s is not None:
                found.variation_percent = found.step_std_s / mean(times) * 100
    loss = run.first(roles.LOSSES)
    if loss is not None and len(points := run.points(loss).values):
        found.losses = [float(points[-1])]
    return found


def _clock(speed: Speed) -> str:
    """By what clock its samples or tokens per second are: a result that states them has measured its steps."""
    basis = speed.tokens_basis or speed.samples_basis or speed.basis
    return MEASURED if basis == STATED else basis


def _versions(config: dict[str, Any]) -> dict[str, str]:
    named = {name: config.get(f"{name}_version", config.get(f"gpu_info.{name}_version")) for name in _VERSIONS}
    return {name: str(value) for name, value in named.items() if value is not None}


def _session(run: PlottedRun) -> sessions.SessionSummary | None:
    """A session's own figures; None of a run that is none."""
    source = run.data.run.source
    if not source.startswith(SESSION):
        return None
    try:
        return sessions.read(Path(source[len(SESSION) :]))
    except NotFound:  # gone since it was read
        return None
