"""Contents of a benchmark result, gathered from a run's records: steps, sizes, memory, the machine.

The records of one step are one row, whatever order and however many they come in. How long a step took is what
:mod:`trackers.benchmark.speed` says of it.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from trackers.benchmark.speed import (
    FIRST_STEP,
    KINDS,
    PAUSED,
    TRAINED,
    WINDOWED,
    Meter,
    StepSpan,
    StepTimes,
    flag_of,
    flags_of,
    training_gpus,
)
from trackers.metrics import groups, roles
from trackers.records import Config, Environment, Metrics, Number, Record, Start, flatten, merge

LOSS, RATE, SECONDS, FIRST = "loss", "rate", "seconds", "first"
TOKENS, TOKENS_PER_GPU, BATCH, MICRO_BATCH, SPEED = "tokens", "tokens per gpu", "batch", "micro batch", "speed"
TORCH, USED, PEAK, TOTAL, GPU = "torch memory", "used memory", "peak memory", "total memory", "gpu"

RATES = ("learning_rate", "lr", "learning-rate", "train/learning_rate", "train/lr")
ROCM = ("gpu/hip_", "gpu/rocm_")
MIB, GIB, GB = 1024**2, 1024**3, 1e9
MACHINE = ("accelerator", "gpu", "gpus", "gpu_type", "gpu_memory_gib", "gpu_drivers", "pytorch_version",
           "cuda_version", "rocm_version")  # fmt: skip
"""Fields used from an Environment record, besides the version of torch among the packages."""

_TORCH_GB = re.compile(r"memory/(?:rank_\d+/)?mem-(max-)?(allocated|reserved)-gigabytes")
_TORCH_MIB = re.compile(r"memory/rank_\d+/((?:max_)?(?:allocated|reserved))_mib")
_JOB_GB = re.compile(r"gpu/(node\d+/)?memory_(used_avg|total)_gb(\.max)?")
_RESERVED = "gpu/max_reserved_memory_gib"  # TorchTitan's "memory"
_DRIVER_GIB = re.compile(r"(gpu/(?:hip_|rocm_|cuda_|gpu_)?memory)_(used|total)_gib")


class Meaning(NamedTuple):
    """kind: one of the words above. factor: makes seconds of times, GiB of memory. order: which of several names of
    one kind counts, the lowest. label: of torch's memory allocated, max_allocated, reserved, max_reserved; of the
    machine's a node or a driver; of a GPU what tells it from the others."""

    kind: str
    factor: float = 1.0
    order: int = 0
    label: str = ""


@lru_cache(maxsize=100_000)
def meaning(name: str) -> Meaning | None:
    """What a metric's name means here; None for most."""
    if name in roles.LOSSES:
        return Meaning(LOSS, order=roles.LOSSES.index(name))
    if name in RATES:
        return Meaning(RATE, order=RATES.index(name))
    if name == FIRST_STEP:
        return Meaning(FIRST)
    if name == f"{WINDOWED}micro_batch_size":
        return Meaning(MICRO_BATCH)
    return _memory(name) or _by_role(name)


def _memory(name: str) -> Meaning | None:
    if match := _TORCH_GB.fullmatch(name):
        return Meaning(TORCH, GB / GIB, label=f"{'max_' if match[1] else ''}{match[2]}")
    if match := _TORCH_MIB.fullmatch(name):
        return Meaning(TORCH, MIB / GIB, label=match[1])
    if name == _RESERVED:
        return Meaning(TORCH, label="max_reserved")
    if match := _JOB_GB.fullmatch(name):
        if match[2] == "total":
            return None if match[3] else Meaning(TOTAL, GB / GIB, label=f"job {match[1] or ''}")
        return Meaning(PEAK if match[3] else USED, GB / GIB)
    if match := _DRIVER_GIB.fullmatch(name):
        return Meaning(USED if match[2] == "used" else TOTAL, label=match[1])
    return None


def _by_role(name: str) -> Meaning | None:
    role = roles.role_of(name)
    if role is None:
        return None
    if role.kind == roles.STEP_TIME:
        return Meaning(SECONDS, role.factor)
    if role.kind in (roles.TOKENS, roles.TOKENS_PER_GPU):
        return Meaning(TOKENS if role.kind == roles.TOKENS else TOKENS_PER_GPU, order=int(name.startswith(WINDOWED)))
    if role.kind == roles.BATCH:
        return Meaning(BATCH)
    if role.kind in KINDS:
        return Meaning(SPEED)
    if role.kind == roles.ONE_GPU_UTILISATION:
        return Meaning(GPU, label=name.removesuffix("_utilization_percentage").rpartition(".")[0] or name)
    return Meaning(GPU) if role.kind == roles.GPU_UTILISATION else None


def needed(record: Record) -> Record | None:
    """What a result needs of a record, without its id; None where it needs nothing of it.

    To keep that of each record, and :meth:`trackers.benchmark.steps.StepCollector.gather` it in the end, is the same as
    to gather the records themselves.
    """
    if isinstance(record, Metrics):
        values = {name: value for name, value in record.values.items() if meaning(name) is not None}
        if record.step is not None:
            for flag in (TRAINED, PAUSED):  # what it says of the time: one of the names that say it does
                if not flags_of(values) & flag:
                    marker = next((name for name in record.values if flag_of(name) == flag), None)
                    values.update({} if marker is None else {marker: record.values[marker]})
        return Metrics(step=record.step, time=record.time, values=values) if values else None
    if isinstance(record, Environment):
        known = machine(record.values)
        return Environment(time=record.time, values=known) if known else None
    if isinstance(record, Config):
        return Config(time=record.time, values=record.values, whole=record.whole)
    if isinstance(record, Start) and record.rank is not None:
        return Start(time=record.time, attempt=record.attempt, rank=record.rank, world_size=record.world_size,
                     host=record.host, from_step=record.from_step)  # fmt: skip
    return None


def machine(values: dict[str, object]) -> dict[str, object]:
    """What counts of an environment's values: those of :data:`MACHINE`, and torch's version."""
    known = {name: values[name] for name in MACHINE if values.get(name) is not None}
    packages = values.get("packages")
    version = packages.get("torch") if isinstance(packages, dict) else None
    if version and "pytorch_version" not in known:
        known["pytorch_version"] = str(version)
    return known


CLOCK = "times of records"
"""Source of the times if the run measured none."""
_UNKNOWN = 1 << 30


class Step(msgspec.Struct, gc=False):
    """One step's values, None where it has none.

    number: finished optimizer steps. start: which start of training, silent ones counted. seconds: per step; count:
    steps that it is the mean of. first: it holds the first step of an attempt, which compiles and warms up. tokens: of
    one step, as a rate beside its time proves; per_gpu: of one GPU. world: ranks that trained it, where their number
    changed, else 0. measured: what the run logged of its speed, by metric.
    """

    number: int
    time: float
    attempt: int = 1
    start: int = 1
    count: int = 1
    seconds: float | None = None
    first: bool = False
    tokens: float | None = None
    per_gpu: bool = False
    world: int = 0
    loss: Number | None = None
    learning_rate: Number | None = None
    global_batch: float | None = None
    measured: dict[str, Number] = {}
    loss_order: int = _UNKNOWN
    rate_order: int = _UNKNOWN


class StepCollector:
    """Gathers steps from records.

    Attributes:
        steps: rows, by step. basis: the metric that times are from, or :data:`CLOCK`.
        config: as the run says it, flat. total: where it says that training ends, in steps.
        machine: what it ran on. attempts, world_size: of training.
        used, peaks, torch: memory in GiB: all that was in use on a device, its peaks, and torch's by ``allocated``,
            ``max_allocated``, ``reserved``, ``max_reserved``. meter: what speed is made of.
        trained: steps that were trained; warmups: those of them that are an attempt's first.
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
        self._worlds: dict[int, int] = {}  # by attempt
        self.used: list[float] = []
        self.peaks: list[float] = []
        self.torch: dict[str, list[float]] = {}
        self.micro_batch: float | None = None
        self.rocm = False
        self.meter = Meter()
        self.trained = self.warmups = 0
        self._settings: dict[str, Any] = {}
        self._rows: dict[int, Step] = {}
        self._flagged_points: list[tuple[float, int, int, int]] = []
        self._totals: dict[str, float] = {}
        self._gpus: set[str] = set()
        self._on_gpus = False
        self._attempt = 1

    def gather(self, records: Iterable[Record]) -> StepCollector:
        """Take all records in."""
        for record in records:
            match record:
                case Metrics():
                    self._metrics(record)
                case Config():
                    merge(self._settings, record.values, record.whole)
                case Environment():
                    known = machine(record.values)
                    word = known.get("accelerator")
                    if isinstance(word, str) and word not in self.accelerators:
                        self.accelerators.append(word)
                    self.machine.update(known)
                case Start() if record.rank is not None:
                    self._start(record)
        self.config = dict(flatten(self._settings, "."))
        self.total = groups.steps(self._settings)
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
    def gpus(self) -> int | None:
        """How many GPUs trained; None where nothing says that it was on GPUs."""
        seen = max(len(self._gpus), len(self.cards))
        return training_gpus(self.config, self.world_size, seen, self._on_gpus or bool(self.gpu_name))

    @property
    def cards(self) -> list[dict[str, Any]]:
        """What the sampler knows of each GPU: name, vendor, memory_total_bytes."""
        gpus = self.machine.get("gpus")
        return [card for card in gpus.values() if isinstance(card, dict)] if isinstance(gpus, dict) else []

    @property
    def gpu_name(self) -> str:
        """As the run's settings, or its machine, call it; "" where neither does."""
        stated = roles.first_setting(self.config, roles.GPU_NAMES, (str,)) if self.config else None
        cards = [card.get("name") for card in self.cards]
        for name in (self.machine.get("gpu"), self.machine.get("gpu_type"), stated, *cards):
            if isinstance(name, str) and name:
                return name
        return ""

    @property
    def gpu_total_gib(self) -> float | None:
        """Memory of one GPU."""
        stated = self.machine.get("gpu_memory_gib")
        if isinstance(stated, (int, float)):
            return float(stated)
        job = [total for label, total in self._totals.items() if label.startswith("job ")]
        count = len(self._gpus) or self.gpus
        if job and count:
            return math.fsum(job) / count
        node_totals = [total for label, total in self._totals.items() if not label.startswith("job ")]
        totals = [float(size) / GIB for card in self.cards if (size := card.get("memory_total_bytes"))]
        return max(node_totals or totals, default=None)

    def _start(self, record: Start) -> None:
        self.attempts = max(self.attempts, record.attempt)
        self._attempt = record.attempt
        self.world_size = max(self.world_size, record.world_size)
        self._worlds[record.attempt] = record.world_size or self._worlds.get(record.attempt, 0)
        if record.from_step is not None:
            for number in [number for number in self._rows if number > record.from_step]:
                del self._rows[number]
            self._flagged_points = [flag for flag in self._flagged_points if flag[2] <= record.from_step]

    def _metrics(self, record: Metrics) -> None:
        row: Step | None = None
        for name, value in record.values.items():
            known = meaning(name)
            if known is None:
                continue
            if name.startswith(ROCM):
                self.rocm = True
            if known.kind in _STEPLESS:
                self._stepless(known, float(value))
            elif record.step is not None:
                row = row or self._row(record.step, record.time)
                self._value(row, name, known, value)
        if record.step is not None and (flags := flags_of(record.values)):
            self._flagged_points.append((record.time, self._attempt, record.step, flags))

    def _row(self, number: int, time: float) -> Step:
        row = self._rows.get(number)
        if row is None:
            row = self._rows[number] = Step(number, time, self._attempt)
        return row

    def _stepless(self, known: Meaning, value: float) -> None:
        """What belongs to no step: memory, GPUs."""
        self._on_gpus = True
        if not math.isfinite(value):
            return
        if known.kind == TORCH:
            self.torch.setdefault(known.label, []).append(value * known.factor)
        elif known.kind == USED:
            self.used.append(value * known.factor)
        elif known.kind == PEAK:
            self.peaks.append(value * known.factor)
        elif known.kind == TOTAL:
            self._totals[known.label] = max(value * known.factor, self._totals.get(known.label, 0.0))
        elif known.label:
            self._gpus.add(known.label)

    def _value(self, row: Step, name: str, known: Meaning, value: Number) -> None:
        if known.kind == LOSS:
            if known.order <= row.loss_order:
                row.loss, row.loss_order = value, known.order
        elif known.kind == RATE:
            if known.order <= row.rate_order:
                row.learning_rate, row.rate_order = value, known.order
        elif known.kind == MICRO_BATCH:
            self.micro_batch = float(value)
        else:
            row.measured[name] = value
            if known.kind == BATCH and 0 < value < math.inf:
                row.global_batch = float(value)

    def _settle(self) -> None:
        """Give each row the time that counts, and what it speaks for."""
        rows = [self._rows[number] for number in sorted(self._rows)]
        meter = self.meter = Meter()
        spans, breaks = [], []
        for time, attempt, number, flags in sorted(self._flagged_points):
            before = meter.clock.breaks
            spans.append(meter.clock.add(attempt, number, time, flags))
            breaks += [time] * (meter.clock.breaks - before)
        spans.append(meter.clock.settle())
        start = None
        trained = {number for _, _, number, flags in self._flagged_points if flags & TRAINED}
        for row in rows:
            row.start = row.attempt + bisect.bisect_right(breaks, row.time)
            if row.start != start:
                meter.start(row.attempt, self._worlds.get(row.attempt, 0))
                start = row.start
            beside = meter.measure(row.number, row.time, row.measured)
            if row.number in trained:
                meter.work(meter.starts, row.number, row.time, meter.world, beside)
        for row in rows:
            row.world = self._worlds.get(row.attempt, 0) if meter.changed else 0
        _count_batches(rows)
        chosen = meter.basis()
        self.basis = chosen or CLOCK
        for row in rows:
            row.seconds, row.tokens, row.first, row.count = None, None, False, 1
        if chosen is not None:
            self._timed([row for row in rows if chosen in row.measured], chosen)
        else:
            self._clocked([row for row in rows if row.loss is not None], {span.end: span for span in spans if span})
        self.steps = [row for row in rows if row.seconds is not None or row.loss is not None]
        if chosen is not None:
            self.trained = sum(row.count for row in self.timed) + self.warmups
            self.warmups = self.trained - sum(row.count for row in self.measured)

    def _timed(self, rows: list[Step], name: str) -> None:
        """Times as the run measured them."""
        role = roles.role_of(name)
        timed = StepTimes()
        first_steps: dict[int, int] = {}
        for row in self._rows.values():
            if FIRST_STEP in row.measured:
                first_steps[row.start] = max(row.number, first_steps.get(row.start, row.number))
        for row in rows:
            row.seconds = float(row.measured[name]) * (role.factor if role is not None else 1.0)
            row.count, row.first = timed.add(row.start, row.number, row.seconds, first_steps.get(row.start))
            self._proven(row)
        if len(rows) > 1 and rows[0].first:
            first, interval = rows[0], timed.interval
            if first.number == interval:
                first.count = interval
            if "log.format" in self.config and first.number == 2 * interval:  # the first line is missing
                first.first, first.count = False, interval
        self.warmups = timed.untimed  # first steps that no value speaks for

    def _proven(self, row: Step) -> None:
        """Tokens of a step, by a rate that was logged beside its time."""
        rates = [(known.kind == TOKENS, name, value) for name, value in row.measured.items()
                 if not name.startswith(WINDOWED) and (known := meaning(name)) is not None
                 and known.kind in (TOKENS, TOKENS_PER_GPU)]  # fmt: skip
        for of_all, _, value in sorted(rates)[:1]:
            tokens = float(value) * float(row.seconds or 0.0)
            if math.isfinite(tokens):
                row.tokens, row.per_gpu = tokens, not of_all

    def _clocked(self, rows: list[Step], spans: dict[int, StepSpan]) -> None:
        """Times between records: without the spans that hold an evaluation, where others are left."""
        starts = len({row.start for row in rows})
        before: Step | None = None
        for row in rows:
            span = spans.get(row.number)
            if span is not None:
                row.seconds, row.count = span.seconds / span.steps, span.steps
            elif before is None or before.start != row.start:
                row.first = True
            elif not spans and row.time > before.time:
                row.count = row.number - before.number
                row.seconds = (row.time - before.time) / row.count
            before = row
            self._proven(row)
        steps, _ = self.meter.clock.total()
        self.trained, self.warmups = steps + starts, starts


def _count_batches(rows: Sequence[Step]) -> None:
    """Give rows without a batch that by which a counter of samples grew, by step; their mean over several."""
    before: tuple[int, float] | None = None
    for row in rows:
        counts = [float(value) for name, value in row.measured.items()
                  if (role := roles.role_of(name)) is not None and role.kind == roles.SAMPLES_COUNTED]  # fmt: skip
        if not counts or not math.isfinite(counts[0]):
            continue
        if before is not None and row.global_batch is None and counts[0] > before[1]:
            row.global_batch = (counts[0] - before[1]) / (row.number - before[0])
        before = row.number, counts[0]


_STEPLESS = frozenset({TORCH, USED, PEAK, TOTAL, GPU})
