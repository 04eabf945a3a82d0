"""Benchmark results (``benchmark_*.json``), as other programs and this package write them, whatever they lack.

What a result states is shown as it says it, and the rest is derived from that; where a figure disagrees with the one
that follows from the others, the derived one counts, and ``remarks`` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.analysis.statistics import deviation, mean
from trackers.benchmark import result
from trackers.benchmark.speed import MEASURED, WALL_CLOCK, settled
from trackers.benchmark.steps import CLOCK, StepCollector
from trackers.errors import NotFound, UsageError
from trackers.formats import text_file
from trackers.metrics.roles import GIB
from trackers.readers.boundary import reason
from trackers.readers.reader import Reader, SourceRun
from trackers.records import FLOAT_NAMES
from trackers.support.atomic_write import check, real, write_text

PATTERN = "benchmark_*.json"
_VERSIONS = ("pytorch", "cuda", "rocm")
TOLERANCE = 0.02
"""Two figures that differ by less agree."""


class Result(msgspec.Struct, kw_only=True):
    """One result; None where it neither says nor lets derive. Times in s, memory in GB of 1e9 bytes, of one GPU.

    memory_kind: "device" (all that is in use there), "torch" (what PyTorch allocated), "" unknown. variation_percent:
    the standard deviation of step times, of their mean. clock: what its speed was measured by, "" unknown.
    losses, rates: as in the file, NaN and all.
    """

    name: str
    path: str
    platform: str = "unknown"
    timestamp: str = ""
    gpu: str = ""
    gpus: int | None = None
    gpu_memory_gb: float | None = None
    cores: float | None = None
    versions: dict[str, str] = {}
    config: dict[str, Any] = {}
    steps: int | None = None
    step_s: float | None = None
    step_min_s: float | None = None
    step_max_s: float | None = None
    step_std_s: float | None = None
    variation_percent: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tokens_per_s_per_core: float | None = None
    clock: str = ""
    memory_kind: str = ""
    memory_avg_gb: float | None = None
    memory_peak_gb: float | None = None
    reserved_avg_gb: float | None = None
    reserved_peak_gb: float | None = None
    step_times: list[float | None] = []
    losses: list[float | None] = []
    rates: list[float | None] = []
    remarks: list[str] = []


def results(directory: Path) -> tuple[list[Result], list[str]]:
    """All results below a directory, dated folders included, the oldest first, and why some couldn't be read.

    Raises:
        NotFound: no such directory, or nothing in it that can be read.
    """
    if not directory.is_dir():
        raise NotFound(f"no directory {directory}: --results-dir names where {PATTERN} lie")
    loaded, problems = [], []
    for path in sorted(directory.rglob(PATTERN)):
        try:
            loaded.append(read(path))
        except NotFound as error:
            problems.append(str(error))
    if not loaded:
        raise NotFound(f"no {PATTERN} below {directory}" + (f"; {problems[0]}" if problems else ""))
    return sorted(loaded, key=lambda result: (result.timestamp, result.path)), problems


def read(path: Path) -> Result:
    """One file.

    Raises:
        NotFound: it has gone, isn't whole JSON, or holds no result.
    """
    try:
        content = json.loads(text_file.read_text(path))
    except FileNotFoundError:
        raise NotFound(f"{path} has gone") from None
    except (ValueError, OSError, RecursionError) as error:
        raise NotFound(f"{path} isn't whole JSON: {reason(error)}") from None
    if not isinstance(content, dict) or not any(
        name in content for name in ("performance_metrics", "training_config", "raw_step_times")
    ):
        raise NotFound(f"{path} is no benchmark's result: it has neither performance_metrics nor training_config")
    return from_document(content, path)


def from_document(content: Mapping[str, Any], path: Path) -> Result:
    """A result from a parsed file."""
    gpu, config, stated, memory = (
        part if isinstance(part := content.get(name), dict) else {}
        for name in ("gpu_info", "training_config", "performance_metrics", "memory_metrics")
    )
    platform = content.get("platform") or gpu.get("platform")
    benchmark = Result(
        name=path.stem.removeprefix("benchmark_") or path.stem,
        path=str(path),
        platform=str(platform) if platform else "unknown",
        timestamp=str(content.get("timestamp") or ""),
        gpu=str(gpu.get("device_name") or ""),
        gpus=_positive_integer(config.get("num_gpus")) or _positive_integer(gpu.get("device_count")),
        gpu_memory_gb=_positive(gpu.get("total_memory_gb")),
        cores=_positive(gpu.get("gpu_cores")),
        versions={name: str(gpu[f"{name}_version"]) for name in _VERSIONS if gpu.get(f"{name}_version")},
        config={name: value for name, value in config.items() if isinstance(value, (str, bool, int, float))},
        step_times=_series(content.get("raw_step_times")),
        losses=_series(content.get("loss_values")),
        rates=_series(content.get("learning_rates")),
    )
    source = content.get("source")
    if isinstance(source, dict) and isinstance(source.get("step_times"), str):
        benchmark.clock = WALL_CLOCK if source["step_times"] == CLOCK else MEASURED
    if isinstance(noted := content.get("contradictions"), list):
        benchmark.remarks += map(str, noted)
    _steps(benchmark, stated)
    _throughput(benchmark, stated)
    _memory(benchmark, memory)
    return benchmark


def _steps(benchmark: Result, stated: Mapping[str, Any]) -> None:
    times = [value for value in benchmark.step_times if value is not None and 0 < value < math.inf]
    benchmark.steps = _positive_integer(stated.get("total_steps")) or len(benchmark.step_times) or None
    benchmark.step_s = _positive(stated.get("avg_step_time_seconds"))
    if times:
        average = mean(times)
        if benchmark.step_s is not None and abs(benchmark.step_s - average) > TOLERANCE * average:
            benchmark.remarks.append(
                f"it states {benchmark.step_s:.4g} s a step; the mean of its step times is {average:.4g} s"
            )
        benchmark.step_s = benchmark.step_s or average
    if benchmark.step_s is None and (rate := _positive(stated.get("steps_per_second"))) is not None:
        benchmark.step_s = 1 / rate
    benchmark.step_min_s = _positive(stated.get("min_step_time_seconds")) or min(times, default=None)
    benchmark.step_max_s = _positive(stated.get("max_step_time_seconds")) or max(times, default=None)
    std = _number(stated.get("std_step_time_seconds"))
    benchmark.step_std_s = std if std is not None and std >= 0 else deviation(times)
    if benchmark.step_std_s is not None and benchmark.step_s:
        benchmark.variation_percent = benchmark.step_std_s / benchmark.step_s * 100


def _throughput(benchmark: Result, stated: Mapping[str, Any]) -> None:
    average, last = (_positive(benchmark.config.get(f"{word}global_batch_size")) for word in ("average_", ""))
    batch, length = average or last, _positive(benchmark.config.get("sequence_length"))
    stated_speed, each = _positive(stated.get("tokens_per_second")), _positive(stated.get("tokens_per_second_per_gpu"))
    gpus = _positive(benchmark.config.get("average_num_gpus")) or benchmark.gpus
    if stated_speed is None and each is not None and gpus:
        stated_speed = each * gpus
    if batch is not None and benchmark.step_s:
        benchmark.samples_per_s = batch / benchmark.step_s
    if benchmark.samples_per_s is not None and length is not None:
        benchmark.tokens_per_s = benchmark.samples_per_s * length
        if stated_speed is not None and abs(stated_speed - benchmark.tokens_per_s) > TOLERANCE * stated_speed:
            benchmark.remarks.append(
                f"it states {stated_speed:,.0f} tokens/s, but {batch:g} × {length:g} ÷ {benchmark.step_s:.4g} s = "
                f"{benchmark.tokens_per_s:,.0f}: that is used (a sequence length of "
                f"{stated_speed / benchmark.samples_per_s:,.0f} would explain the other)"
            )
    benchmark.tokens_per_s = settled(stated_speed, benchmark.tokens_per_s)
    of_one = benchmark.tokens_per_s / gpus if benchmark.tokens_per_s is not None and gpus else None
    benchmark.tokens_per_s_per_gpu = settled(each, of_one)
    if benchmark.tokens_per_s_per_gpu is not None and benchmark.cores:
        benchmark.tokens_per_s_per_core = benchmark.tokens_per_s_per_gpu / benchmark.cores


def _memory(benchmark: Result, memory: Mapping[str, Any]) -> None:
    factor = (
        1.0 if memory.get("unit") == "GB" else GIB
    )  # what is called ``_gb`` in these files is torch's bytes / 1024³
    if benchmark.gpu_memory_gb is not None:
        benchmark.gpu_memory_gb *= factor
    benchmark.memory_kind = str(memory.get("kind") or "")
    values = {}
    for name in (
        "avg_memory_allocated_gb",
        "peak_memory_allocated_gb",
        "avg_memory_reserved_gb",
        "peak_memory_reserved_gb",
    ):
        value = _positive(memory.get(name))
        values[name] = None if value is None else value * factor
    benchmark.memory_avg_gb, benchmark.memory_peak_gb, benchmark.reserved_avg_gb, benchmark.reserved_peak_gb = (
        values.values()
    )


def _series(values: Any) -> list[float | None]:
    """A series with its indices kept: None where there is no number. NaN, infinity, 0 and large values are values."""
    return [_number(value, finite=False) for value in values] if isinstance(values, list) else []


def _number(value: Any, finite: bool = True) -> float | None:
    value = FLOAT_NAMES.get(value, value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if not finite or math.isfinite(number) else None


def _positive(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _positive_integer(value: Any) -> int | None:
    number = _positive(value)
    return int(number) if number is not None and number >= 1 else None


RESULTS = Path("benchmark_results")


def document(reader: Reader, run: SourceRun, given: dict[str, int | None] | None = None) -> dict[str, Any]:
    """A run's result.

    Args:
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``, where the run doesn't say.

    Raises:
        NotFound: the run has no two steps whose time is known.
    """
    steps = StepCollector().gather(reader.read(run))
    if not steps.measured:
        raise NotFound(f"run {run.name!r} ({run.source}) has no two steps whose times are known: nothing to export")
    logged = steps.config.get("log.format")
    source = {"file": run.source, "format": logged or "run", "run_id": run.id, "run_name": run.name,
              "project": run.project}  # fmt: skip
    return result.result(steps, source=source, given=given, word="log" if logged else "run")


def save(
    content: dict[str, Any], output: Path | None = None, *, inputs: Sequence[str] = (), force: bool = False
) -> Path:
    """Write a result; returns its file.

    Args:
        output: a file, or a directory for the documented name; default :data:`RESULTS`. Another run's result of the
            same name isn't overwritten: this one gets a number; of a name that was given only with ``force``.
        inputs: what the result was read from: it is never overwritten.

    Raises:
        UsageError: it can't be written, or something else is there.
    """
    path = output or RESULTS
    if path.suffix == ".json" and not path.is_dir():
        check(path, inputs=inputs, ours=lambda existing, head: result.is_of(existing, content["source"]), force=force)
        write_text(path, result.text(content))
        return path
    try:
        real(path)  # before a folder is made
        return result.write(content, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None
