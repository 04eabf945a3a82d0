"""Comparison of benchmark results in Markdown: winner, hardware, configuration, speed, memory, variance, timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trackers.analysis.benchmark_results import TOLERANCE, Result
from trackers.analysis.comparability import WORK, work
from trackers.analysis.tables import TextTable, escape_markdown, render, show

FEW = 5
"""A result of fewer step times says little."""
_NOT_CONFIG = frozenset({"num_gpus"})


class Winner(NamedTuple):
    """result: None where nobody wins. reason: one sentence, for either case."""

    result: Result | None
    reason: str


def winner(found: Sequence[Result]) -> Winner:
    """Who makes the most tokens, or where nobody counts them samples, per second on each GPU, and why.

    Nobody where the work isn't the same, or the difference is one of chance, or unknown.
    """
    speeds = [(result.tokens_per_s_per_gpu, result) for result in found if result.tokens_per_s_per_gpu is not None]
    what = "tokens/s per GPU"
    if not speeds:
        each = [(result.samples_per_s / (result.gpus or 1), result) for result in found if result.samples_per_s]
        counted = any(result.gpus for _, result in each)
        speeds, what = each, "samples/s per GPU" if counted else "samples/s" if each else what
    speeds.sort(key=lambda pair: -pair[0])
    if not speeds:
        return Winner(None, "No result says, or lets derive, its tokens/s per GPU.")
    speed, first = speeds[0]
    if len(speeds) == 1:
        others = f"; {len(found) - 1} others don't say theirs" if len(found) > 1 else ""
        return Winner(None, f"Only {first.name} says its {what} ({show(speed)}){others}.")
    known = {id(result) for _, result in speeds}
    unlike = differences([result for result in found if id(result) in known])
    if unlike:
        return Winner(None, f"Not the same work, by the same clock, so none wins: {'; '.join(unlike)}.")
    slower, second = speeds[1]
    percent = (speed / slower - 1) * 100
    if percent < TOLERANCE * 100:
        return Winner(None, f"{first.name} and {second.name} differ by {percent:.1f} %, which is no difference.")
    return Winner(first, f"{show(speed)} {what}, {percent:.1f} % more than {second.name} ({show(slower)}).")


def differences(found: Sequence[Result]) -> list[str]:
    """What makes the work of results differ: settings, numbers of GPUs, clocks; what some don't say isn't compared."""
    texts = []
    for _, names in WORK:
        values = dict.fromkeys(value for result in found if (value := work(_sizes(result), names)) is not None)
        if len(values) > 1:
            settings = list(dict.fromkeys(name for pairs in values for name, _ in pairs))
            for name in settings:
                shown = dict.fromkeys(dict(pairs)[name] for pairs in values if name in dict(pairs))
                if len(shown) > 1:
                    texts.append(f"{name} differs ({', '.join(shown)})")
    for what, kinds in (
        ("numbers of GPUs differ", dict.fromkeys(show(result.gpus) for result in found if result.gpus)),
        ("clocks differ", dict.fromkeys(result.clock for result in found if result.clock)),
    ):
        if len(kinds) > 1:
            texts.append(f"{what} ({', '.join(kinds)})")
    return texts


def _sizes(result: Result) -> dict[str, Any]:
    """Its settings, without a part of a batch: how many samples go through a GPU at once is no other work."""
    return {name: value for name, value in result.config.items() if name.rpartition(".")[2] != "micro_batch_size"}


def warnings(found: Sequence[Result]) -> list[str]:
    """Why the comparison may mislead."""
    texts = []
    texts += [f"{text}: the results are not of the same work" for text in differences(found)]
    kinds = {result.memory_kind or "unknown" for result in found if result.memory_peak_gb is not None}
    if len(kinds) > 1:
        texts.append(f"memory is of different kinds ({', '.join(sorted(kinds))}) and can't be compared: "
                     "device counts all that is in use there, torch what PyTorch allocated")  # fmt: skip
    few = [result.name for result in found if result.step_s is not None and 0 < len(result.step_times) < FEW]
    if few:
        texts.append(f"fewer than {FEW} step times: {', '.join(few)}")
    return texts + [f"{result.name}: {text}" for result in found for text in result.remarks]


def markdown(found: Sequence[Result], *, when: str) -> str:
    """The report.

    Args:
        when: the time at its top.
    """
    first = winner(found)
    title = escape_markdown(first.result.name) if first.result is not None else "none"
    parts = [
        "# Benchmark comparison\n",
        f"{len(found)} result{'s' if len(found) != 1 else ''}, compared {escape_markdown(when)}.\n",
        f"## Winner: {title}\n\n{escape_markdown(first.reason)}\n",
    ]
    texts = warnings(found)
    if texts:
        parts.append("## Warnings\n\n" + "".join(f"- {escape_markdown(text)}\n" for text in texts))
    for heading, columns in _SECTIONS:
        parts.append(_section(heading, found, columns))
    names = list(dict.fromkeys(name for result in found for name in result.config if name not in _NOT_CONFIG))
    settings = [(name.replace("_", " "), _setting(name)) for name in names]
    parts.insert(-_AFTER_CONFIGURATION, _section("Configuration", found, settings))
    return "\n".join(parts)


_Columns = Sequence[tuple[str, Callable[[Result], Any]]]


def _section(heading: str, found: Sequence[Result], columns: _Columns) -> str:
    rows = [[result.name, *(of(result) for _, of in columns)] for result in found]
    if all(cell is None for row in rows for cell in row[1:]):
        return f"## {heading}\n\nNo result says it.\n"
    return f"## {heading}\n\n" + render(TextTable(["result", *(title for title, _ in columns)], rows), "markdown")


def _setting(name: str) -> Callable[[Result], Any]:
    return lambda result: result.config.get(name)


def _of(field: str) -> Callable[[Result], Any]:
    return lambda result: getattr(result, field) or None


def _platform(result: Result) -> str | None:
    return None if result.platform == "unknown" else result.platform


def _version(name: str) -> Callable[[Result], Any]:
    return lambda result: result.versions.get(name)


def _last_loss(result: Result) -> float | None:
    return next((loss for loss in reversed(result.losses) if loss is not None), None)


_SECTIONS: tuple[tuple[str, _Columns], ...] = (
    ("Hardware", (("platform", _platform), ("GPU", _of("gpu")), ("GPUs", _of("gpus")),
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
                  ("last loss", _last_loss))),
    ("Timestamps", (("time", _of("timestamp")), ("file", _of("path")))),
)  # fmt: skip
_AFTER_CONFIGURATION = len(_SECTIONS) - 1
"""The configuration comes after the hardware."""
