"""What a benchmark's result is made of, gathered from a run's records: steps, sizes, memory, the machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from trackers.records import Config, Environment, Metrics, Number, Record, Start, merge

DEVICE_MEMORY = ("gpu/hip_memory", "gpu/rocm_memory", "gpu/cuda_memory", "gpu/memory", "gpu/gpu_memory")
"""Memory of the whole device, whoever uses it; in GiB. The first that a run has counts."""
ROCM_NAMES = ("gpu/hip_", "gpu/rocm_")


class Step(msgspec.Struct):
    """One line's values, None where it has none. number: iteration. count: iterations that ``seconds`` is the mean of.
    seconds: per iteration. first: the first of an attempt, which compiles and warms up."""

    number: int
    time: float
    count: int = 1
    seconds: float | None = None
    tokens_per_s_per_gpu: float | None = None
    loss: Number | None = None
    learning_rate: Number | None = None
    global_batch: float | None = None
    used_gib: float | None = None
    total_gib: float | None = None
    consumed_samples: float | None = None
    first: bool = False


class Steps:
    """Gathers steps from records. ``config``: as the run says it. ``machine``: what it ran on. ``torch_gib``: memory
    that torch allocated and reserved, in GiB, by ``allocated``, ``max_allocated``, ``reserved``, ``max_reserved``."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.config: dict[str, Any] = {}
        self.machine: dict[str, Any] = {}
        self.torch_gib: dict[str, list[float]] = {}
        self.rocm = False
        self.restarts = 0
        self._begun = True

    def gather(self, records: Iterable[Record]) -> Steps:
        """Take all records in."""
        for record in records:
            if isinstance(record, Metrics):
                self._metrics(record)
            elif isinstance(record, Config):
                merge(self.config, record.values)
            elif isinstance(record, Environment):
                merge(self.machine, record.values)
            elif isinstance(record, Start):
                self._begun = True
                self.restarts = record.attempt - 1
        if len(self.steps) > 1:
            first, interval = self.steps[0], self.steps[1].count
            if first.number == interval:
                first.count = interval
            first.first = first.number != 2 * interval  # else the log lacks the first line: this is the second
        return self

    @property
    def measured(self) -> list[Step]:
        """Steps with a time, without the first of each attempt; all of them where nothing else is left."""
        timed = self.timed
        return [step for step in timed if not step.first] or timed

    @property
    def timed(self) -> list[Step]:
        """Steps with a time."""
        return [step for step in self.steps if step.seconds is not None and math.isfinite(step.seconds)]

    @property
    def batches(self) -> list[float]:
        """Samples per iteration, by how many were consumed from one line to the next."""
        pairs = [pair for pair in itertools.pairwise(self.steps) if not pair[1].first]
        return [
            (other.consumed_samples - one.consumed_samples) / other.count
            for one, other in pairs
            if other.consumed_samples is not None and one.consumed_samples is not None
        ]

    def _metrics(self, record: Metrics) -> None:
        values = record.values
        self.rocm = self.rocm or any(name.startswith(ROCM_NAMES) for name in values)
        for name, value in values.items():
            if name.startswith("memory/rank_") and name.endswith("_mib"):
                self.torch_gib.setdefault(name.split("/")[-1].removesuffix("_mib"), []).append(value / 1024)
        seconds = _seconds(values)
        if record.step is None or (seconds is None and "train_loss" not in values):
            return
        step = Step(record.step, record.time, seconds=seconds, first=self._begun)
        if self.steps and not self._begun:
            step.count = max(1, record.step - self.steps[-1].number)
        step.loss, step.learning_rate = values.get("train_loss"), values.get("learning_rate")
        step.tokens_per_s_per_gpu = values.get("perf/tokens_per_sec_per_gpu")
        step.consumed_samples = values.get("consumed_samples")
        step.global_batch = values.get("global_batch_size")
        head = next((head for head in DEVICE_MEMORY if f"{head}_used_gib" in values), None)
        if head is not None:
            step.used_gib, step.total_gib = values[f"{head}_used_gib"], values.get(f"{head}_total_gib")
        self.steps.append(step)
        self._begun = False


def _seconds(values: dict[str, Number]) -> float | None:
    if "perf/iter_ms" in values:
        return values["perf/iter_ms"] / 1000.0
    return values.get("perf/iter_time_sec")
