"""Facts of a session, from its records: processes, GPUs and their snapshots, mode, settings; anything else is unknown.

- mode and GPU count: NCCL puts one rank on each GPU; else as many GPUs as the sampler saw, but no more than processes,
  each of which trains on one. Without a word about GPUs the mode speaks of processes.
- forced single-GPU mode: asked for in the configuration (``force_single_gpu``) or by ``--force-single-gpu``.

A snapshot of GPUs and host is made from the sampler's records: it holds the means of the sampler's interval and the
highest utilisation in it. MB are 1e6 bytes, percent 0 to
100; what a GPU doesn't tell is null.

Totals and both summaries are made from these facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from trackers.benchmark.speed import ACCUMULATIONS, EACH, LOG_FORMAT, TOKENS_OF_STEP, Speed, lines, training_gpus
from trackers.metrics import groups, roles
from trackers.metrics.unasked import parted
from trackers.records import Config, Environment, Number, finite, flatten, merge
from trackers.tracker import RunInfo, Status
from trackers_session.log_lines import MB, RULE, clean, duration, fixed, gpu_line, metric

UTILIZATION, MEMORY, TEMPERATURE = 50.0, 90.0, 80.0
"""Warnings: utilisation below, memory above (percent), temperature above (°C)."""
SLACK_S = 0.5
"""Tolerance for an early snapshot, in seconds: the sampler's interval isn't exact."""
_NAME = re.compile(r"system\.(?:(?P<node>node\d+)\.)?(?P<rest>.+)")
_GPU_FIELDS = {
    "gpu": "utilization",
    "memoryAllocatedBytes": "memory_used_mb",
    "memoryAllocated": "memory_percent",
    "temp": "temperature",
    "powerWatts": "power_w",
    "gpu.max": "utilization_peak",
}
_FIELDS = ("name", "utilization", "memory_used_mb", "memory_total_mb", "memory_percent", "temperature")
_HOST = {"cpu": "cpu_percent", "memory_percent": "memory_percent"}


class GpuTotals(msgspec.Struct):
    """One GPU over a session: sums over snapshots, in percent, and the highest utilisation."""

    snapshots: int = 0
    utilization: float = 0.0
    memory: float = 0.0
    memories: int = 0
    peak: float = 0.0


class Snapshots(msgspec.Struct):
    """State of the snapshots. taken: time of the last one, by machine ("" where there is but one)."""

    taken: dict[str, float] = {}
    count: int = 0
    use: dict[str, GpuTotals] = {}

    def take(
        self, time: float, values: Mapping[str, Number], gpus: Mapping[str, Mapping[str, Any]], every_s: float
    ) -> dict[str, Any] | None:
        """A sampler's record as a snapshot; None where it is none, or the last was too short a while ago.

        Args:
            gpus: by label, what is known of each. every_s: between two snapshots of one machine.
        """
        node, gpu_fields, host = _split(values)
        if not gpu_fields and not host:
            return None
        last = self.taken.get(node)
        if last is not None and time - last < every_s - min(SLACK_S, every_s / 2):
            return None
        self.taken[node] = time
        self.count += 1
        entries = []
        for label, fields in gpu_fields.items():
            name = f"{node}.{label}" if node else label
            entry = _entry(name, fields, gpus.get(name, {}))
            self._count(name, entry)
            entries.append(entry)
        return {"gpus": entries, "system": {field: host.get(field) for field in ("cpu_percent", "memory_percent")}}

    def _count(self, label: str, entry: Mapping[str, Any]) -> None:
        use = self.use.setdefault(label, GpuTotals())
        busy, full = entry["utilization"], entry["memory_percent"]
        if busy is not None:
            use.snapshots += 1
            use.utilization += busy
            use.peak = max(use.peak, entry.get("utilization_peak", busy))
        if full is not None:
            use.memories += 1
            use.memory += full


def warnings(snapshot: Mapping[str, Any]) -> list[str]:
    """What is out of bounds in a snapshot."""
    texts = []
    for gpu in snapshot["gpus"]:
        label, busy, full, heat = gpu["id"], gpu["utilization"], gpu["memory_percent"], gpu["temperature"]
        if busy is not None and busy < UTILIZATION:
            texts.append(f"GPU {label} utilization low: {busy:.1f}%")
        if full is not None and full > MEMORY:
            texts.append(f"GPU {label} memory high: {full:.1f}%")
        if heat is not None and heat > TEMPERATURE:
            texts.append(f"GPU {label} temperature high: {heat:.0f} °C")
    return texts


def _split(values: Mapping[str, Number]) -> tuple[str, dict[str, dict[str, Number]], dict[str, Number]]:
    """The machine, its GPUs' values by label and field, and the host's."""
    node = ""
    gpus: dict[str, dict[str, Number]] = {}
    host: dict[str, Number] = {}
    for name, value in values.items():
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        rest = match["rest"]
        if rest.startswith("gpu."):
            label, _, field = rest[len("gpu.") :].rpartition(".")
            if field in ("min", "max"):
                label, _, first = label.rpartition(".")
                field = f"{first}.{field}"
            if label and field in _GPU_FIELDS:
                gpus.setdefault(label, {})[_GPU_FIELDS[field]] = value
                node = match["node"] or ""
        elif rest in _HOST:
            host[_HOST[rest]] = value
            node = match["node"] or ""
    return node, gpus, host


def _entry(label: str, fields: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": int(label) if label.isdigit() else label, **dict.fromkeys(_FIELDS)}
    entry.update(fields)
    used, share, total = fields.get("memory_used_mb"), fields.get("memory_percent"), known.get("memory_total_bytes")
    entry["name"] = known.get("name") or None
    if used is not None:
        entry["memory_used_mb"] = round(used / MB, 3)
    if total:
        entry["memory_total_mb"] = round(total / MB, 3)
    elif used and share:
        entry["memory_total_mb"] = round(used / share * 100 / MB, 3)
    return entry


MODELS = ("model_name", "model_name_or_path", "model_id", "base_model", "model", "arch", "architecture")
DATASETS = ("dataset_name", "dataset_id", "dataset_path", "dataset", "data_path", "data")
PRECISIONS = ("mixed_precision", "precision", "torch_dtype", "dtype")
LOW_PRECISIONS = ("bf16", "fp16", "fp8")
FORCED = "force_single_gpu"
FORCED_FLAG = "--force-single-gpu"
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_WANTED = frozenset(
    {*groups.STEPS, *MODELS, *DATASETS, *PRECISIONS, *LOW_PRECISIONS, *EACH, *ACCUMULATIONS, *TOKENS_OF_STEP}
    | {*roles.BATCHES, *roles.LENGTHS, *roles.GPU_COUNTS, "batch_size", FORCED}
)
_LONGEST = 300


class SessionFacts(msgspec.Struct):
    """Facts known so far.

    settings: those of the configuration that matter here, by their path ("model.name"). distributed, variables: what
    training's own process said. gpus: by label, what the sampler said (name, memory_total_bytes); None before that.
    without: the kernel shows no GPU's driver.
    scope_is_job: they are the job's own, not the whole machine's.
    """

    rank: int = 0
    processes: int = 1
    settings: dict[str, Any] = {}
    distributed: dict[str, Any] = {}
    variables: dict[str, str] = {}
    gpus: dict[str, dict[str, Any]] | None = None
    without: bool = False
    scope_is_job: bool = True
    flagged: bool = False

    def learn(self, record: Config | Environment) -> None:
        """Take what a record says."""
        if isinstance(record, Config):
            if record.whole:
                replaced = tuple(f"{name}." for name in record.values)
                self.settings = {k: v for k, v in self.settings.items() if not k.startswith(replaced)}
            for path, value in flatten(record.values, "."):
                known = path == LOG_FORMAT or path.rpartition(".")[2] in _WANTED
                if known and isinstance(value, (str, int, float)):
                    self.settings[path] = value[:_LONGEST] if isinstance(value, str) else value
            return
        for name in ("distributed", "variables"):
            if isinstance(record.values.get(name), dict):
                merge(getattr(self, name), record.values[name])
        if isinstance(record.values.get("gpu_drivers"), list):
            self.without = not record.values["gpu_drivers"]
        if isinstance(record.values.get("gpus"), dict):
            described = {str(label): gpu for label, gpu in record.values["gpus"].items() if isinstance(gpu, dict)}
            self.gpus = {**(self.gpus or {}), **described}

    def restart(self) -> None:
        """Forget what an earlier attempt said of its processes and GPUs."""
        self.distributed, self.variables, self.gpus, self.without = {}, {}, None, False

    @property
    def backend(self) -> str:
        """torch.distributed's, "" where nothing says."""
        return str(self.distributed.get("backend") or "")

    @property
    def local_rank(self) -> int | None:
        """The main rank's number on its machine."""
        rank = self.distributed.get("local_rank")
        return rank if isinstance(rank, int) else None

    @property
    def gpu_count(self) -> int | None:
        """GPUs that training uses; None where nothing says."""
        if self.processes > 1 and self.backend == "nccl":
            return self.processes
        if self.gpus is None:
            return 0 if self.without else None
        if not self.scope_is_job and self.gpus:
            return None
        return min(self.processes, len(self.gpus))

    @property
    def mode(self) -> str:
        """SINGLE-GPU or MULTI-GPU; without GPUs SINGLE-CPU or MULTI-CPU; where nothing says, …-PROCESS."""
        count = self.gpu_count
        number = "MULTI" if self.processes > 1 else "SINGLE"
        if count == 0:
            return f"{number}-CPU"
        if count is None or (count == 1 and self.processes > 1):
            return f"{number}-PROCESS"
        return f"{number}-GPU"

    @property
    def forced(self) -> bool:
        """One GPU was asked for."""
        return self.flagged or any(
            value is True or value in (1, "true", "True", "yes", "y")
            for path, value in self.settings.items()
            if path.rpartition(".")[2] == FORCED
        )

    def text_setting(self, names: tuple[str, ...]) -> str:
        """The first of these settings that is text; "" if none is."""
        return str(roles.first_setting(self.settings, names, (str,)) or "")

    @property
    def model(self) -> str:
        return self.text_setting(MODELS)

    @property
    def dataset(self) -> str:
        return self.text_setting(DATASETS)

    @property
    def precision(self) -> str:
        """As the configuration names it."""
        named = self.text_setting(PRECISIONS)
        if named:
            return named
        ends = {path.rpartition(".")[2]: value for path, value in self.settings.items()}
        return next((name for name in LOW_PRECISIONS if ends.get(name) is True), "")

    @property
    def total_steps(self) -> int | None:
        """Where training ends; None where nothing says."""
        steps = roles.setting({k: v for k, v in self.settings.items() if _positive(v)}, groups.STEPS)
        return None if steps is None or steps != steps // 1 else int(steps)

    @property
    def gpus_that_train(self) -> int | None:
        """As everywhere where speed is measured; None for one process of which nothing says that it had a GPU."""
        return training_gpus(self.settings, self.processes, self.gpu_count or 0, False)

    def head(self) -> list[str]:
        """The lines of the main log that say what this is."""
        count = self.gpu_count
        lines = [f"Mode: {self.mode}"]
        if count is not None:
            lines.append(f"GPU Count: {count}")
        if self.model:
            lines.append(f"Model: {self.model}")
        if self.dataset:
            lines.append(f"Dataset: {self.dataset}")
        if self.forced and self.processes == 1 and count != 0:
            lines.append(f"FORCED SINGLE GPU MODE - Using GPU {self._first_visible()} only")
        lines.extend(f"{name}={self.variables[name]}" for name in VISIBLE if name in self.variables)
        if self.processes == 1:
            lines.extend(self.gpu_lines())
        return lines

    def block(self) -> list[str]:
        """The block on how several processes train together; [] for one."""
        if self.processes <= 1:
            return []
        lines = [f"📡 {self.mode} CONFIGURATION:"]
        lines += [f"  • Accelerator processes: {self.processes}", f"  • Current process rank: {self.rank}"]
        if self.precision:
            lines.append(f"  • Mixed precision: {self.precision}")
        return [*lines, *(f"  • {line}" for line in self.gpu_lines())]

    def gpu_lines(self) -> list[str]:
        """A line for each GPU that was seen."""
        gpus = self.gpus or {}
        return [
            gpu_line(label, str(gpu.get("name") or ""), finite(gpu.get("memory_total_bytes")))
            for label, gpu in sorted(gpus.items(), key=lambda item: (len(item[0]), item[0]))
        ]

    def multigpu(self) -> list[str]:
        """The first lines of the multi-GPU log; [] for one process."""
        if self.processes <= 1:
            return []
        lines = [f"Distributed backend: {self.backend}"] if self.backend else []
        lines.append(f"World size: {self.processes}")
        if self.local_rank is not None:
            lines.append(f"Local rank: {self.local_rank}")
        return lines

    @property
    def step_word(self) -> str:
        """What the multi-GPU log's step lines begin with: "Multi-GPU"."""
        first, _, second = self.mode.partition("-")
        return f"{first.title()}-{second if second != 'PROCESS' else 'process'}"

    def _first_visible(self) -> str:
        for name in VISIBLE:
            if self.variables.get(name, "").strip():
                return self.variables[name].split(",")[0].strip()
        return next(iter(self.gpus or {}), "0")


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e18


def forced_by(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for one GPU."""
    return FORCED_FLAG in arguments


class CommunicationTotals(msgspec.Struct):
    """One kind of communication. calls: collectives. size_bytes, took_ms: of all that say."""

    calls: int = 0
    size_bytes: float | None = None
    took_ms: float | None = None


class SessionTotals(msgspec.Struct):
    """Totals of a session.

    began, ended: of the first record and the last. top,
    loss: of the last row that had a loss. names: by which the loss and the learning rate were logged.
    """

    began: float = 0.0
    ended: float = 0.0
    rows: int = 0
    top: int | None = None
    loss: Number | None = None
    evaluation: dict[str, Number] = {}
    operations: dict[str, CommunicationTotals] = {}
    warnings: int = 0
    results: dict[str, Any] = {}
    names: dict[str, str] = {}

    def count(self, operation: str, calls: int, size: float | None, took_ms: float | None) -> None:
        """Take one entry of communication; size and time are of one collective."""
        total = self.operations.setdefault(operation, CommunicationTotals())
        total.calls += calls
        if size is not None:
            total.size_bytes = (total.size_bytes or 0.0) + size * calls
        if took_ms is not None:
            total.took_ms = (total.took_ms or 0.0) + took_ms * calls


def iso(time: float) -> str:
    """Unix seconds in ISO 8601, local, with its offset, so that another machine reads the same moment."""
    return datetime.fromtimestamp(time).astimezone().isoformat(timespec="microseconds")


def session_summary(
    name: str,
    info: RunInfo,
    facts: SessionFacts,
    totals: SessionTotals,
    batch: float | None,
    attributes: Mapping[str, Any],
    status: Status | None,
) -> dict[str, Any]:
    """The summary's ``session``: the format's fields, then the run that it belongs to and how it ended."""
    ended = status is not None and status.name != "running"
    asked, unasked = parted(totals.results)
    last = status.time if status is not None and ended and status.time else totals.ended or info.created
    began = totals.began or info.created
    session: dict[str, Any] = {
        "id": name,
        "run_id": info.id,
        "start_time": iso(began),
        "end_time": iso(last) if ended else None,
        "duration_seconds": round(max(0.0, last - began), 6),
        "mode": facts.mode,
        "gpu_count": facts.gpu_count,
        "model_name": facts.model or None,
        "dataset_name": facts.dataset or None,
        "world_size": facts.processes,
        "distributed_backend": facts.backend or None,
        "run_name": attributes.get("name", info.name),
        "project": info.project,
        "group": attributes.get("group", info.group),
        "tags": attributes.get("tags", info.tags),
        "status": status.name if status is not None and ended else "running",
        "total_batch_size": batch,
        "names": totals.names,
        "results": asked,
    }
    if unasked:
        session["measured"] = unasked
    if LOG_FORMAT in facts.settings:
        session["log_format"] = facts.settings[LOG_FORMAT]
    if status is not None and ended:
        session.update({"exit_code": status.exit_code} if status.exit_code is not None else {})
        session.update({"reason": status.reason} if status.reason else {})
    return session


def summary_text(head: Mapping[str, Any], totals: SessionTotals, speed: Speed, snapshots: Snapshots) -> Iterator[str]:
    """The summary as text (``summary.txt``)."""
    yield "TRAINING SESSION SUMMARY"
    yield RULE
    yield f"  Session: {head['id']}"
    yield f"  Run: {clean(str(head['run_name']))} ({clean(str(head['project']))}/{head['run_id']})"
    reason = f" ({clean(head['reason'])})" if head.get("reason") else ""
    yield f"  Status: {head['status']}{reason}"
    yield f"  Mode: {head['mode']}"
    for title, field in (("Model", "model_name"), ("Dataset", "dataset_name")):
        if head[field]:
            yield f"  {title}: {clean(head[field])}"
    yield f"  Started: {head['start_time']}"
    if head["end_time"]:
        yield f"  Ended: {head['end_time']}"
    yield f"  Duration: {duration(head['duration_seconds'])}"
    if head["gpu_count"] is not None:
        yield f"  GPUs: {head['gpu_count']}"
    yield f"  Processes: {head['world_size']}"
    if totals.top is not None:
        yield f"  Steps: {totals.top}"
    if totals.loss is not None:
        yield f"  Final Loss: {fixed(totals.loss, '.4f')}"
    for name, value in totals.evaluation.items():
        yield f"  Last {clean(name)}: {fixed(value, '.4f')}"
    yield from (f"  {line}" for line in lines(speed))
    for label, use in snapshots.use.items():
        parts = []
        if use.snapshots:
            parts += [f"{use.utilization / use.snapshots:.1f}% avg util", f"{use.peak:.1f}% peak"]
        if use.memories:
            parts.append(f"{use.memory / use.memories:.1f}% avg memory")
        if parts:
            yield f"  GPU {label}: {', '.join(parts)}"
    if totals.operations:
        yield "  Communication Operations:"
    for name, operation in totals.operations.items():
        yield f"    {clean(name)}: {operation.calls} occurrences"
        if operation.size_bytes is not None and operation.calls:
            yield f"      Avg data size: {operation.size_bytes / operation.calls / MB:.2f}MB"
            yield f"      Total data: {operation.size_bytes / MB:.2f}MB"
        if operation.took_ms is not None and operation.calls:
            yield f"      Avg duration: {operation.took_ms / operation.calls:.2f}ms"
    for title, field in (("Results", "results"), ("Measured", "measured")):
        if head.get(field):
            yield f"  {title}:"
            yield from (f"    {clean(name)}: {metric(name, value)}" for name, value in head[field].items())
    if totals.warnings:
        yield f"  Warnings: {totals.warnings} (in {head['id']}_performance.log and {head['id']}_multigpu.log)"
