"""Reports in Markdown: of runs of any source (``trackers report``), and of benchmark results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trackers.analysis import report_media
from trackers.analysis.benchmark_results import TOLERANCE, Result
from trackers.analysis.comparability import WORK, work
from trackers.analysis.compare import compare
from trackers.analysis.comparison import (
    FEW_RUNS,
    SHOWN_SETTINGS,
    Comparison,
    a_line_each,
    differing_settings,
    side_by_side,
)
from trackers.analysis.figures import best_of
from trackers.analysis.groups import headline
from trackers.analysis.run_stats import RunStats
from trackers.analysis.statistics import deviation, mean
from trackers.analysis.tables import MISSING, TextTable, escape_markdown, fitting_time, format_value, plain, render
from trackers.benchmark.speed import MEASURED, STATED, Speed
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.records import finite, plain_name
from trackers.support.redaction import mask_addresses

if TYPE_CHECKING:
    from trackers.analysis.curves import PlottedRun


FEW = 5
"""A result of fewer step times says little."""
_NOT_CONFIG = frozenset({"num_gpus"})


class Winner(NamedTuple):
    """result: None where nobody wins. reason: one sentence, for either case."""

    result: Result | None
    reason: str


def winner(results: Sequence[Result]) -> Winner:
    """Who makes the most tokens, or where nobody counts them samples, per second on each GPU, and why.

    Nobody where the work isn't the same, or the difference is one of chance, or unknown.
    """
    speeds = [(result.tokens_per_s_per_gpu, result) for result in results if result.tokens_per_s_per_gpu is not None]
    what = "tokens/s per GPU"
    if not speeds:
        each = [(result.samples_per_s / (result.gpus or 1), result) for result in results if result.samples_per_s]
        counted = any(result.gpus for _, result in each)
        speeds, what = each, "samples/s per GPU" if counted else "samples/s" if each else what
    speeds.sort(key=lambda pair: -pair[0])
    if not speeds:
        return Winner(None, "No result has tokens/s or samples/s, or the batch size that would give them.")
    speed, first = speeds[0]
    if len(speeds) == 1:
        others = f"; {len(results) - 1} others don't say theirs" if len(results) > 1 else ""
        return Winner(None, f"Only {first.name} says its {what} ({format_value(speed)}){others}.")
    known = {id(result) for _, result in speeds}
    unlike = differences([result for result in results if id(result) in known])
    if unlike:
        return Winner(None, f"Not the same work, by the same clock, so none wins: {'; '.join(unlike)}.")
    slower, second = speeds[1]
    percent = (speed / slower - 1) * 100
    if percent < TOLERANCE * 100:
        return Winner(None, f"{first.name} and {second.name} differ by {percent:.1f} %, which is no difference.")
    return Winner(
        first, f"{format_value(speed)} {what}, {percent:.1f} % more than {second.name} ({format_value(slower)})."
    )


def differences(results: Sequence[Result]) -> list[str]:
    """What makes the work of results differ: settings, numbers of GPUs, clocks; what some don't say isn't compared."""
    texts, part = [], "micro_batch_size"  # how many samples go through a GPU at once is no other work
    configs = [{name: v for name, v in result.config.items() if name.rpartition(".")[2] != part} for result in results]
    for _, names in WORK:
        values = dict.fromkeys(value for config in configs if (value := work(config, names)) is not None)
        if len(values) > 1:
            settings = list(dict.fromkeys(name for pairs in values for name, _ in pairs))
            for name in settings:
                distinct = dict.fromkeys(dict(pairs)[name] for pairs in values if name in dict(pairs))
                if len(distinct) > 1:
                    texts.append(f"{name} differs ({', '.join(distinct)})")
    for what, kinds in (
        ("numbers of GPUs differ", dict.fromkeys(format_value(result.gpus) for result in results if result.gpus)),
        ("clocks differ", dict.fromkeys(result.clock for result in results if result.clock)),
    ):
        if len(kinds) > 1:
            texts.append(f"{what} ({', '.join(kinds)})")
    return texts


def warnings(results: Sequence[Result]) -> list[str]:
    """Why the comparison may mislead."""
    texts = []
    texts += [f"{text}: the results are not of the same work" for text in differences(results)]
    kinds = {result.memory_kind or "unknown" for result in results if result.memory_peak_gb is not None}
    if len(kinds) > 1:
        texts.append(f"memory is of different kinds ({', '.join(sorted(kinds))}) and can't be compared: "
                     "device counts all that is in use there, torch what PyTorch allocated")  # fmt: skip
    few = [result.name for result in results if result.step_s is not None and 0 < len(result.step_times) < FEW]
    if few:
        texts.append(f"fewer than {FEW} step times: {', '.join(few)}")
    return texts + [f"{result.name}: {text}" for result in results for text in result.remarks]


def benchmark_markdown(results: Sequence[Result], *, when: str) -> str:
    """The report.

    Args:
        when: the time at its top.
    """
    first = winner(results)
    title = escape_markdown(first.result.name) if first.result is not None else "none"
    parts = [
        "# Benchmark comparison\n",
        f"{len(results)} result{'s' if len(results) != 1 else ''}, compared {escape_markdown(when)}.\n",
        f"## Winner: {title}\n\n{escape_markdown(first.reason)}\n",
    ]
    texts = warnings(results)
    if texts:
        parts.append("## Warnings\n\n" + "".join(f"- {escape_markdown(text)}\n" for text in texts))
    for heading, columns in _SECTIONS:
        parts.append(_whole_section(heading, results, columns))
    names = list(dict.fromkeys(name for result in results for name in result.config if name not in _NOT_CONFIG))
    settings = [(name.replace("_", " "), _setting(name)) for name in names]
    parts.insert(-_AFTER_CONFIGURATION, _whole_section("Configuration", results, settings))
    return "\n".join(parts)


_Columns = Sequence[tuple[str, Callable[[Result], Any]]]


def _whole_section(heading: str, results: Sequence[Result], columns: _Columns) -> str:
    rows = [[result.name, *(read(result) for _, read in columns)] for result in results]
    if all(cell is None for row in rows for cell in row[1:]):
        return f"## {heading}\n\nNo result says it.\n"
    return f"## {heading}\n\n" + _table(["result", *(title for title, _ in columns)], rows)


def _table(heads: list[str], rows: list[list[Any]], **fields: Any) -> str:
    """A table in Markdown; columns that have texts alone are aligned at the left. fields: of the table."""
    texts = [column for column in range(len(heads)) if all(isinstance(row[column], str | None) for row in rows)]
    return render(TextTable(heads, rows, more_texts=frozenset(texts), **fields), "markdown")


def _section(heading: str, results: Sequence[Result], columns: _Columns) -> str:
    """The columns of which some run has a value; "" where none has."""
    present = [(title, read) for title, read in columns if any(read(result) is not None for result in results)]
    rows = [[result.name, *(read(result) for _, read in present)] for result in results]
    return f"## {heading}\n\n" + _table(["run", *(title for title, _ in present)], rows) if present else ""


def _setting(name: str) -> Callable[[Result], Any]:
    return lambda result: result.config.get(name)


def _of(field: str) -> Callable[[Result], Any]:
    return lambda result: getattr(result, field) or None


def _version(name: str) -> Callable[[Result], Any]:
    return lambda result: result.versions.get(name)


_SECTIONS: tuple[tuple[str, _Columns], ...] = (
    ("Hardware", (("platform", lambda result: None if result.platform == "unknown" else result.platform),
                  ("GPU", _of("gpu")), ("GPUs", _of("gpus")),
                  ("memory GB", _of("gpu_memory_gb")), ("PyTorch", _version("pytorch")), ("CUDA", _version("cuda")),
                  ("ROCm", _version("rocm")))),
    ("Throughput", (("tokens/s", _of("tokens_per_s")), ("tokens/s/GPU", _of("tokens_per_s_per_gpu")),
                    ("samples/s", _of("samples_per_s")), ("tokens/s/core", _of("tokens_per_s_per_core")))),
    ("Step time", (("steps", _of("steps")), ("avg s", _of("step_s")), ("min s", _of("step_min_s")),
                   ("max s", _of("step_max_s")), ("std s", lambda result: result.step_std_s))),
    ("Memory per GPU", (("kind", _of("memory_kind")), ("avg GB", _of("memory_avg_gb")),
                        ("peak GB", _of("memory_peak_gb")), ("reserved avg GB", _of("reserved_avg_gb")),
                        ("reserved peak GB", _of("reserved_peak_gb")))),
    ("Variance", (("std of step times, % of mean", lambda result: result.variation_percent),
                  ("last loss", lambda result: next((at for at in reversed(result.losses) if at is not None), None)))),
    ("Timestamps", (("time", _of("timestamp")), ("file", _of("path")))),
)  # fmt: skip
_COLUMNS = dict(_SECTIONS)
_AFTER_CONFIGURATION = len(_SECTIONS) - 1
"""The configuration comes after the hardware."""


_VERSIONS = ("pytorch", "cuda", "rocm")


def markdown(runs: Sequence[PlottedRun], *, when: str, title: str = "", pictures: bool = False) -> str:
    """The report: results and which run has the best, curves, the settings that differ, tables; then speed and
    hardware, as far as they were measured, what makes the comparison unfair, sessions, and where the runs are.

    Args:
        when: the time at its top. title: its headline; default how many runs there are. pictures: put logged pictures
            into it.
    """
    known = [run.facts for run in runs]
    comparison = compare(known)
    comparison.keys.sort(
        key=lambda key: (plain_name(key) == key, group_of(key) != "validation")
    )  # what was asked for first
    labels = [run.label for run in runs]
    results = measured_results(runs)
    count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    parts = [
        f"# {escape_markdown(title) or f'Report of {count}'}\n",
        f"{count}, compared {escape_markdown(when)}.\n",
        f"## Results\n\n{_leaders(comparison, known, labels)}{_metrics(comparison, known)}",
        *_curves(runs, comparison),
        *_differing(comparison, known, labels),
        *report_media.sections(runs, pictures=pictures),
        *_measured(results),
        *_warnings([*warnings(results), *comparison.warnings]),
    ]
    parts += _of_readers(runs)
    parts.append(_section("Runs", results, _RUNS))
    return "\n".join(part for part in parts if part)


LEADERS = 6
"""Maximum number of metrics of which the best run is named."""
CURVES, CURVE_RUNS, POINTS = 6, 12, 32
"""Maximum numbers of metrics and runs whose curves are drawn as text, and of signs in one."""
BARS = "▁▂▃▄▅▆▇█"
_RUNS: _Columns = (("time", _of("timestamp")), ("file", _of("path")))


def _warnings(texts: Sequence[str]) -> Iterator[str]:
    unique = list(dict.fromkeys(texts))
    if unique:
        yield "## What makes it unfair\n\n" + "".join(f"- {escape_markdown(text)}\n" for text in unique)


def _leaders(comparison: Comparison, known: Sequence[RunStats], labels: Sequence[str]) -> str:
    """Which run has the best value of each metric, a line each."""
    lines = []
    for key in [key for key in comparison.keys if key in comparison.goals][:LEADERS]:
        what = headline(known, key)
        values = [run["metrics"].get(key, {}).get(what) for run in comparison.runs]
        best = best_of(values, comparison.goals[key])
        if best:
            names = ", ".join(escape_markdown(labels[index]) for index in sorted(best))
            word = "Smallest" if comparison.goals[key] == "min" else "Largest"
            lines.append(f"- {word} {escape_markdown(key)}: **{names}**, {format_value(values[min(best)])}\n")
    return "".join(lines) + ("\n" if lines else "")


def _metrics(comparison: Comparison, known: Sequence[RunStats]) -> str:
    """Of several runs a line each, the best first: settings that differ, and what isn't the same in all."""
    if not comparison.keys and not comparison.differing:
        return "No metrics of training or validation.\n"
    if len(known) == 1:
        table = side_by_side(comparison, comparison.keys, [], ("final", "best", "last", "min", "max"), quantities=False)
        return render(table, "markdown")
    figures = {key: headline(known, key) for key in comparison.keys}
    first = next((key for key in comparison.keys if key in comparison.goals), None)
    if first is not None:
        largest = comparison.goals[first] == "max"

        def place(run: dict[str, Any]) -> tuple[bool, float]:
            number = finite(run["metrics"].get(first, {}).get(figures[first]))
            return (number is None, 0.0 if number is None else -number if largest else number)

        comparison = msgspec.structs.replace(comparison, runs=sorted(comparison.runs, key=place))
    settings = comparison.differing[:SHOWN_SETTINGS]
    table = a_line_each(comparison, comparison.keys, settings, figures, quantities=False)
    table.headers[3 : 3 + len(settings)] = settings
    kept, same = [0], []
    for column, title in enumerate(table.headers):
        values = {format_value(row[column]) for row in table.rows}
        if column and len(values) > 1:
            kept.append(column)
        elif column and values != {MISSING}:
            same.append(f"{escape_markdown(title)} {escape_markdown(values.pop())}")
    rows = [[row[column] for column in kept] for row in table.rows]
    tones = {(row, kept.index(column)): tone for (row, column), tone in table.tones.items() if column in kept}
    words = _table([table.headers[column] for column in kept], rows, texts=2 if 1 in kept else 1, tones=tones)
    return words + (f"\nThe same in all: {', '.join(same)}.\n" if same else "")


def _curves(runs: Sequence[PlottedRun], comparison: Comparison) -> Iterator[str]:
    """Curves as text, those of one metric on one scale; a page has charts in their place."""
    import numpy as np

    lines = []
    for key in [key for key in comparison.keys if any(key in run.keys for run in runs)][:CURVES]:
        drawn = []
        for run in runs[:CURVE_RUNS]:
            y = np.asarray(run.points(key).values if key in run.keys else [], np.float64)
            parts = [part[np.isfinite(part)] for part in np.array_split(y, max(1, min(POINTS, len(y))))]
            drawn.append((run, [float(part.mean()) if len(part) else None for part in parts]))
        values = [value for _, means in drawn for value in means if value is not None]
        if len(values) < 2:
            continue
        low, high = min(values), max(values)
        width = max(len(run.label) for run, _ in drawn)
        lines += ["", f"    {plain(key)} ({format_value(low)} to {format_value(high)})"]
        for run, means in drawn:
            if any(value is not None for value in means):
                lines.append(f"    {plain(run.label):<{width}}  {''.join(_bar(value, low, high) for value in means)}")
    if lines:
        more = [f"    and {len(runs) - CURVE_RUNS} more runs"] if len(runs) > CURVE_RUNS else []
        yield "\n".join([CURVES_HEADING, "", "```text", *lines[1:], *more, "```", ""])


CURVES_HEADING = "## Curves"


def _bar(value: float | None, low: float, high: float) -> str:
    if value is None:
        return "×"
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0
    return BARS[min(len(BARS) - 1, max(0, round(share * (len(BARS) - 1))))]


def _differing(comparison: Comparison, known: Sequence[RunStats], labels: Sequence[str]) -> Iterator[str]:
    """Settings that differ and have no room in the results; of a single run all, as far as there is room."""
    if len(known) > 1:
        names, heading = comparison.differing[SHOWN_SETTINGS:], "More settings that differ"
        if not comparison.differing and any(run.config for run in known):
            yield "## Settings that differ\n\nNone.\n"
    else:
        names, heading = list(known[0].config), "Settings"
    if not names:
        return
    rows = [[name, *(run.config.get(name) for run in known)] for name in names[:SETTINGS]]
    table = TextTable(["setting", *labels], rows)
    if len(known) > FEW_RUNS:
        rows = [[label, *(run.config.get(name) for name in names[:SETTINGS])]
                for label, run in zip(labels, known, strict=True)]  # fmt: skip
        table = TextTable(["run", *names[:SETTINGS]], rows)
    more = f"\n{len(names) - SETTINGS} more: `trackers compare --config '*'`\n" if len(names) > SETTINGS else ""
    yield f"## {heading}\n\n" + render(table, "markdown") + more


def _measured(results: Sequence[Result]) -> Iterator[str]:
    """Speed with its winner, and hardware: what some run says of them."""
    _, sign, size = fitting_time(result.step_s for result in results)

    def time_of(field: str) -> Callable[[Result], Any]:
        def shown(result: Result) -> Any:
            value = getattr(result, field)
            return None if value is None else value / size

        return shown

    fields = (("avg", "step_s"), ("min", "step_min_s"), ("max", "step_max_s"), ("std", "step_std_s"))
    times = [("steps", _of("steps")), *((f"{word} {sign}", time_of(field)) for word, field in fields),
             ("std, % of mean", lambda result: result.variation_percent), ("clock", _of("clock"))]  # fmt: skip
    speed = [_section("Throughput", results, _COLUMNS["Throughput"])]
    if any(result.step_s is not None for result in results):
        speed.append(_section("Step time", results, times))
    if any(speed):
        first = winner(results)
        if len(results) > 1:
            name = f"Fastest: **{escape_markdown(first.result.name)}**" if first.result is not None else "No winner"
            yield f"## Speed\n\n{name}. {escape_markdown(first.reason)}\n"
        yield from speed
    yield _section("Memory per GPU", results, _COLUMNS["Memory per GPU"])
    yield _section("Hardware", results, _COLUMNS["Hardware"])


def measured_results(runs: Sequence[PlottedRun]) -> list[Result]:
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
    result = Result(
        name=run.label,
        path=mask_addresses(run.data.run.source),  # of a server it may hold a login
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
        result.tokens_per_s_per_gpu = facts.speed.tokens_per_s / (facts.speed.gpus or facts.gpus or 1)
    named = run.of_role(roles.STEP_TIME)
    if named is not None:  # as everywhere the first step, which warms up, doesn't count
        values = run.points(named[0]).values[1:] * named[1]
        times = [float(value) for value in values[np.isfinite(values) & (values > 0)]]
        if times:
            result.step_times = list(times)
            result.step_min_s, result.step_max_s, result.step_std_s = min(times), max(times), deviation(times)
            if result.step_std_s is not None:
                result.variation_percent = result.step_std_s / mean(times) * 100
    loss = run.first(roles.LOSSES)
    if loss is not None and len(points := run.points(loss).values):
        result.losses = [float(points[-1])]
    return result


def _clock(speed: Speed) -> str:
    """By what clock its samples or tokens per second are: a result that states them has measured its steps."""
    basis = speed.tokens_basis or speed.samples_basis or speed.basis
    return MEASURED if basis == STATED else basis


def _versions(config: dict[str, Any]) -> dict[str, str]:
    named = {name: config.get(f"{name}_version", config.get(f"gpu_info.{name}_version")) for name in _VERSIONS}
    return {name: str(value) for name, value in named.items() if value is not None}


def _of_readers(runs: Sequence[PlottedRun]) -> Iterator[str]:
    """What the readers of these runs say of them together, each of its own kind."""
    kinds: dict[type, list[PlottedRun]] = {}
    for run in runs:
        kinds.setdefault(type(run.data.reader), []).append(run)
    for alike in kinds.values():
        section = alike[0].data.reader.section([run.data.run for run in alike])
        if section is not None:
            yield f"## {section[0]}\n"
            yield "\n".join(["```text", *map(plain, section[1]), "```", ""])
