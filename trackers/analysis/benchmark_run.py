"""Document 0's result of a benchmark from any run: its records by the names that ``benchmark.steps`` gathers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trackers.analysis.facts import Facts, facts
from trackers.benchmark import result
from trackers.benchmark.steps import Steps
from trackers.errors import NotFound, UsageError
from trackers.naming import roles
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Config, Environment, Metrics, Number, Record, Start
from trackers.rundata import RunData

RESULTS = Path("benchmark_results")
STEPS = ("max_steps", "train_iters", "max_iters", "total_steps", "num_steps")
RATES = ("learning_rate", "lr", "learning-rate", "train/learning_rate", "train/lr")
_TORCH = re.compile(r"memory/mem-(max-)?(allocated|reserved)-gigabytes")
_DEVICE = re.compile(r"gpu/(node\d+/)?memory_(used_avg|total)_gb")
_BUILD = re.compile(r"\+(cu|rocm)(\d[\d.]*)")
MIB, GIB = 1024**2, 1024**3


def document(reader: Reader, run: SourceRun, given: dict[str, int | None] | None = None) -> dict[str, Any]:
    """A run's result.

    Args:
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``, where the run doesn't say.

    Raises:
        NotFound: the run has no two steps whose time is known.
    """
    data = RunData(reader, run)
    known = facts(run, data.blocks(), data.records(), data.status)
    steps = Steps().gather(_translated(reader.read(run), known))
    if not steps.measured:
        raise NotFound(f"run {run.name!r} ({run.source}) has no two steps whose times are known: nothing to export")
    found = result.result(steps, source=run.source, given=given)
    found["source"]["format"] = found["source"]["format"] or "run"
    return found


def save(found: dict[str, Any], output: Path | None = None) -> Path:
    """Write a result; returns its file.

    Args:
        output: a file, or a directory for the documented name; default :data:`RESULTS`. Another run's result of the
            same name isn't overwritten: this one gets a number.

    Raises:
        UsageError: it can't be written.
    """
    path = output or RESULTS
    try:
        if path.suffix != ".json" or path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path = _free(path / result.file_name(found), found)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(result.text(found), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None
    return path


def _free(path: Path, found: dict[str, Any]) -> Path:
    number, chosen = 1, path
    while chosen.exists():
        try:
            there = json.loads(chosen.read_text(encoding="utf-8"))
        except ValueError:
            there = None
        if isinstance(there, dict) and there.get("source") == found["source"]:
            break
        number += 1
        chosen = path.with_stem(f"{path.stem}_{number}")
    return chosen


def _translated(records: Iterable[Record], known: Facts) -> Iterator[Record]:
    """The records that matter, with the names, units and settings that results are made of."""
    measured = any((role := roles.role_of(name)) is not None and role.kind == roles.STEP_TIME for name in known.folds)
    clock = None if measured else _Clock()
    memory: dict[str, Number] = {}
    begun = False
    for record in records:
        if not begun:
            begun = True
            yield Config(time=record.time, values=_settings(known))
        if isinstance(record, Environment):
            yield Environment(time=record.time, values=_machine(record.values, known))
        elif isinstance(record, Start):
            if clock is not None:
                clock.begin()
            yield record
        elif isinstance(record, Metrics):
            memory.update(_memory(record.values, known.gpus))
            values = _values(record.values, known.gpus)
            if clock is not None and record.step is not None and "train_loss" in values:
                values.update(clock.passed(record.step, record.time))
            if values:
                yield Metrics(step=record.step, time=record.time, values={**memory, **values})
                memory = {}


class _Clock:
    """Time per step by the times of the records, where the run didn't measure it."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def begin(self) -> None:
        """An attempt begins: the pause before it isn't a step's."""
        self._last = None

    def passed(self, step: int, time: float) -> dict[str, Number]:
        """Seconds per step since the record before; nothing at the first."""
        last, self._last = self._last, (step, time)
        if last is None or step <= last[0] or time <= last[1]:
            return {}
        return {"perf/iter_time_sec": (time - last[1]) / (step - last[0])}


def _settings(known: Facts) -> dict[str, Any]:
    said = {
        "world_size": known.gpus,
        "global_batch_size": known.speed.batch,
        "seq_length": known.speed.length,
        "micro_batch_size": roles.setting(known.config, ("micro_batch_size", "per_device_train_batch_size")),
        "train_iters": roles.setting(known.config, STEPS),
    }
    return {name: value for name, value in said.items() if value is not None}


def _machine(values: dict[str, Any], known: Facts) -> dict[str, Any]:
    found = {
        name: values[name] for name in ("gpu", "pytorch_version", "cuda_version", "rocm_version") if values.get(name)
    }
    found.setdefault("gpu", values.get("gpu_type") or known.gpu_name or None)
    packages = values.get("packages")
    version = packages.get("torch") if isinstance(packages, dict) else None
    if version:
        found.setdefault("pytorch_version", version)
        build = _BUILD.search(str(version))
        if build is not None:
            digits = build[2] if "." in build[2] else f"{build[2][:-1]}.{build[2][-1]}"  # cu124
            found.setdefault("rocm_version" if build[1] == "rocm" else "cuda_version", digits)
    return {name: value for name, value in found.items() if value}


def _values(values: dict[str, Number], gpus: int | None) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for names, name in ((roles.LOSSES, "train_loss"), (RATES, "learning_rate")):
        value = next((values[candidate] for candidate in names if candidate in values), None)
        if value is not None:
            found[name] = value
    for name, value in values.items():
        role = roles.role_of(name)
        if role is None:
            continue
        if role.kind == roles.STEP_TIME:
            found["perf/iter_time_sec"] = value * role.factor
        elif role.kind == roles.BATCH:
            found["global_batch_size"] = value
        elif role.kind == roles.TOKENS_PER_GPU:
            found["perf/tokens_per_sec_per_gpu"] = value
        elif role.kind == roles.TOKENS and gpus:
            found.setdefault("perf/tokens_per_sec_per_gpu", value / gpus)
    return found


def _memory(values: dict[str, Number], gpus: int | None) -> dict[str, Number]:
    """Memory of one GPU, in the units and by the names of logs."""
    found: dict[str, Number] = {}
    for name, value in values.items():
        torch, device = _TORCH.fullmatch(name), _DEVICE.fullmatch(name)
        if torch:
            found[f"memory/rank_0/{'max_' if torch[1] else ''}{torch[2]}_mib"] = value * 1e9 / MIB
        elif device and device[2] == "used_avg":
            found["gpu/gpu_memory_used_gib"] = value * 1e9 / GIB
        elif device and gpus:
            found["gpu/gpu_memory_total_gib"] = value * 1e9 / GIB / gpus
        elif name.startswith(("gpu/", "memory/rank_")) and name.endswith(("_gib", "_mib")):
            found[name] = value
    return found
