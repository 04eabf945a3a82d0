"""What a benchmark's result is made of, gathered from a run's records: steps, sizes, memory, the machine.

The records of one step are one row, whatever order and however many they come in. A row's time is that of the metric
that says how long steps took, the one that is logged most; without one, the times of the records of losses count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from trackers.benchmark import values as meanings
from trackers.benchmark.values import Meaning, meaning
from trackers.naming import roles, totals
from trackers.records import Config, Environment, Metrics, Number, Record, Start, flatten, merge

CLOCK = "times of records"
"""What times are made of where the run didn't measure any."""
ACCUMULATIONS = ("gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches")
_UNKNOWN = 1 << 30


class Step(msgspec.Struct, gc=False):
    """One step's values, None where it has none.

    number: finished optimizer steps. seconds: per step; count: steps that it is the mean of. first: it holds the first
    step of an attempt, which compiles and warms up. tokens: of one step, as a rate beside its time proves; per_gpu:
    of one GPU. rate: tokens per second, as logged; rate_per_gpu: of one GPU. consumed: samples since the run began.
    """

    number: int
    time: float
    attempt: int = 1
    count: int = 1
    seconds: float | None = None
    first: bool = False
    tokens: float | None = None
    per_gpu: bool = False
    loss: Number | None = None
    learning_rate: Number | None = None
    global_batch: float | None = None
    consumed: float | None = None
    rate: float | None = None
    rate_per_gpu: bool = False
    loss_place: int = _UNKNOWN
    rate_place: int = _UNKNOWN


class _Series(msgspec.Struct):
    """Step times under one name: seconds, and tokens of a step (of one GPU: True), by step."""

    seconds: dict[int, float] = {}
    tokens: dict[int, tuple[float, bool]] = {}


class Steps:
    """Gathers steps from records.

    Attributes:
        steps: rows, by step. basis: the metric that times are from, or :data:`CLOCK`.
        config: as the run says it, flat. total: where it says that training ends, in steps.
        machine: what it ran on. attempts, world_size: of training.
        used, peaks, torch: memory in GiB: all that was in use on a device, its peaks, and torch's by ``allocated``,
            ``max_allocated``, ``reserved``, ``max_reserved``. warmups: steps that no time speaks for, because they
            were an attempt's first.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.basis = CLOCK
        self.config: dict[str, Any] = {}
        self.total: int | None = None
        self.machine: dict[str, Any] = {}
        self.accelerators: list[str] = []
        self.attempts = 1
        self.world_size = 0
        self.used: list[float] = []
        self.peaks: list[float] = []
        self.torch: dict[str, list[float]] = {}
        self.micro_batch: float | None = None
        self.rocm = False
        self.warmups = 0
        self._settings: dict[str, Any] = {}
        self._rows: dict[int, Step] = {}
        self._series: dict[str, _Series] = {}
        self._firsts: dict[int, int] = {}  # an attempt's first step, where it was timed on its own
        self._totals: dict[str, float] = {}
        self._gpus: set[str] = set()
        self._on_gpus = False
        self._attempt = 1

    def gather(self, records: Iterable[Record]) -> Steps:
        """Take all records in."""
        for record in records:
            if isinstance(record, Metrics):
                self._metrics(record)
            elif isinstance(record, Config):
                merge(self._settings, record.values)
            elif isinstance(record, Environment):
                known = meanings.machine(record.values)
                word = known.get("accelerator")
                if isinstance(word, str) and word not in self.accelerators:
                    self.accelerators.append(word)
                self.machine.update(known)
            elif isinstance(record, Start) and record.rank is not None:
                self._start(record)
        self.config = dict(flatten(self._settings, "."))
        self.total = totals.steps(self._settings)
        self._settle()
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
        """Samples per step, by how many were consumed from one row to the next."""
        known = [step for step in self.steps if step.consumed is not None]
        return [
            (float(other.consumed or 0) - float(one.consumed or 0)) / (other.number - one.number)
            for one, other in itertools.pairwise(known)
            if other.attempt == one.attempt and other.number > one.number
        ]

    @property
    def gpus(self) -> int | None:
        """How many GPUs trained; None where nothing says that it was on GPUs."""
        said = roles.setting(self.config, roles.GPU_COUNTS)
        if said is not None and said >= 1 and math.isfinite(said):
            return int(said)
        count = max(len(self._gpus), len(self.cards))
        known = count or self._on_gpus or self.gpu_name
        return max(self.world_size, count) or None if known or self.world_size > 1 else None

    @property
    def cards(self) -> list[dict[str, Any]]:
        """What the sampler knows of each GPU: name, vendor, memory_total_bytes."""
        found = self.machine.get("gpus")
        return [card for card in found.values() if isinstance(card, dict)] if isinstance(found, dict) else []

    @property
    def gpu_name(self) -> str:
        """As the run's settings, or its machine, call it; "" where neither does."""
        said = roles.said(self.config, roles.GPU_NAMES, (str,)) if self.config else None
        cards = [card.get("name") for card in self.cards]
        for name in (self.machine.get("gpu"), self.machine.get("gpu_type"), said, *cards):
            if isinstance(name, str) and name:
                return name
        return ""

    @property
    def gpu_total_gib(self) -> float | None:
        """Memory of one GPU."""
        said = self.machine.get("gpu_memory_gib")
        if isinstance(said, (int, float)):
            return float(said)
        job = [total for label, total in self._totals.items() if label.startswith("job ")]
        count = len(self._gpus) or self.gpus
        if job and count:
            return math.fsum(job) / count
        alone = [total for label, total in self._totals.items() if not label.startswith("job ")]
        told = [float(size) / meanings.GIB for card in self.cards if (size := card.get("memory_total_bytes"))]
        return max(alone or told, default=None)

    @property
    def batch(self) -> float | None:
        """Samples of one step on all GPUs, as the settings say; None where they don't."""
        said = roles.setting(self.config, roles.BATCHES)
        if said is not None:
            return said if said > 0 else None
        accumulated = roles.setting(self.config, ACCUMULATIONS) or 1.0
        each, ranks = roles.setting(self.config, ("per_device_train_batch_size",)), self.gpus
        return each * accumulated * ranks if each is not None and ranks else None

    @property
    def bare_batch(self) -> float | None:
        """A plain ``batch_size``, which may mean one GPU's, or a part of a step: None where there are several GPUs."""
        said = roles.setting(self.config, ("batch_size",))
        if said is None or said <= 0 or max(self.gpus or 1, self.world_size) > 1:
            return None
        return said * (roles.setting(self.config, ACCUMULATIONS) or 1.0)

    def _start(self, record: Start) -> None:
        self.attempts = max(self.attempts, record.attempt)
        self._attempt = record.attempt
        self.world_size = record.world_size
        if record.from_step is not None:
            for steps in (self._rows, *(part for s in self._series.values() for part in (s.seconds, s.tokens))):
                for number in [number for number in steps if number > record.from_step]:
                    del steps[number]

    def _metrics(self, record: Metrics) -> None:
        row: Step | None = None
        seconds: list[tuple[str, float]] = []
        rates: list[tuple[Meaning, float]] = []
        for name, value in record.values.items():
            known = meaning(name)
            if known is None:
                continue
            kind = known.kind
            if name.startswith(meanings.ROCM):
                self.rocm = True
            if kind in _ALONE:
                self._alone(known, float(value))
                continue
            if record.step is None:
                continue
            row = row or self._row(record.step, record.time)
            if kind == meanings.SECONDS:
                seconds.append((name, value * known.factor))
            elif kind in (meanings.TOKENS, meanings.TOKENS_PER_GPU):
                rates.append((known, value))
            else:
                self._value(row, known, value)
        if row is not None and (seconds or rates):
            self._timed(row, seconds, rates)

    def _row(self, number: int, time: float) -> Step:
        row = self._rows.get(number)
        if row is None:
            row = self._rows[number] = Step(number, time, self._attempt)
        return row

    def _alone(self, known: Meaning, value: float) -> None:
        """What belongs to no step: memory, GPUs."""
        self._on_gpus = True
        if not math.isfinite(value):
            return
        if known.kind == meanings.TORCH:
            self.torch.setdefault(known.label, []).append(value * known.factor)
        elif known.kind == meanings.USED:
            self.used.append(value * known.factor)
        elif known.kind == meanings.PEAK:
            self.peaks.append(value * known.factor)
        elif known.kind == meanings.TOTAL:
            self._totals[known.label] = max(value * known.factor, self._totals.get(known.label, 0.0))
        elif known.label:
            self._gpus.add(known.label)

    def _value(self, row: Step, known: Meaning, value: Number) -> None:
        if known.kind == meanings.LOSS and known.place <= row.loss_place:
            row.loss, row.loss_place = value, known.place
        elif known.kind == meanings.RATE and known.place <= row.rate_place:
            row.learning_rate, row.rate_place = value, known.place
        elif known.kind == meanings.FIRST:
            self._firsts[row.attempt] = row.number
        elif known.kind == meanings.BATCH:
            row.global_batch = float(value)
        elif known.kind == meanings.MICRO_BATCH:
            self.micro_batch = float(value)
        elif known.kind == meanings.SAMPLES:
            row.consumed = float(value)

    def _timed(self, row: Step, seconds: list[tuple[str, float]], rates: list[tuple[Meaning, float]]) -> None:
        best = min(rates, key=lambda rate: (rate[0].place, rate[0].kind == meanings.TOKENS), default=None)
        if best is not None and math.isfinite(best[1]):
            row.rate, row.rate_per_gpu = float(best[1]), best[0].kind == meanings.TOKENS_PER_GPU
        for name, second in seconds:
            series = self._series.setdefault(name, _Series())
            series.seconds[row.number] = second
            if best is not None and not best[0].place and math.isfinite(best[1] * second):
                series.tokens[row.number] = best[1] * second, best[0].kind == meanings.TOKENS_PER_GPU

    def _settle(self) -> None:
        """Give each row the time that counts, and what it speaks for."""
        names = sorted(self._series)  # of as many, whichever record came first: the loop's own
        chosen = max(names, key=lambda name: (len(self._series[name].seconds), name == meanings.LOOP), default=None)
        self.basis = chosen or CLOCK
        self.warmups = 0
        rows = [self._rows[number] for number in sorted(self._rows)]
        timed = []
        for row in rows:
            row.seconds, row.tokens, row.first, row.count = None, None, False, 1
            if chosen is None:
                if row.loss is not None:
                    timed.append(row)
            elif row.number in self._series[chosen].seconds:
                series = self._series[chosen]
                row.seconds = series.seconds[row.number]
                row.tokens, row.per_gpu = series.tokens.get(row.number, (None, False))
                timed.append(row)
        self._count(timed, chosen is None)
        self.steps = [row for row in rows if row.seconds is not None or row.loss is not None]

    def _count(self, timed: list[Step], clock: bool) -> None:
        """How many steps each time speaks for, and which hold the first of an attempt."""
        before: Step | None = None
        for row in timed:
            if before is not None and before.attempt == row.attempt:
                row.count = row.number - before.number
                if clock and row.time > before.time:
                    row.seconds = (row.time - before.time) / row.count
            elif not clock and self._firsts.get(row.attempt, row.number) < row.number:
                row.count = row.number - self._firsts[row.attempt]
                self.warmups += 1
            else:
                row.first = True
                self.warmups += clock
            before = row
        if len(timed) > 1 and timed[0].first and not clock:
            first, interval = timed[0], timed[1].count
            if first.number == interval:
                first.count = interval
            if "log.format" in self.config:  # it may lack the first line: this is the second
                first.first = first.number != 2 * interval


_ALONE = frozenset({meanings.TORCH, meanings.USED, meanings.PEAK, meanings.TOTAL, meanings.GPU})
