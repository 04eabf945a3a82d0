"""Document 0's result of a benchmark, ``benchmark_{platform}_{timestamp}.json``, from a run's records.

What the run itself says or proves counts; what is given besides fills what it doesn't say. Where the two disagree, or
the run disagrees with itself, ``contradictions`` names it. Times are seconds per iteration, averaged over iterations
(not over lines), without the first step of each attempt. Memory is in GiB, though its fields end in "gb" as
documented; ``kind`` says whether it is the whole device's or what torch allocated, which can't be compared.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from typing import Any

from trackers.benchmark.steps import Step, Steps
from trackers.errors import NotFound
from trackers.records import name_floats

CORES = {
    "MI250X": 14080, "MI300X": 19456, "MI325X": 19456, "MI355X": 16384, "V100": 5120, "A100": 6912,
    "H100": 16896, "H200": 16896, "L40S": 18176,
}  # fmt: skip
"""Shader cores of a GPU, as AMD's and NVIDIA's data sheets have them (H100 and H200: SXM)."""

TOLERANCE = 0.02
"""Two figures that differ by less agree."""
ROUND = 64
"""Sequence lengths are multiples of this; what is derived is rounded to one where it comes near."""


def result(steps: Steps, *, source: str, given: dict[str, int | None] | None = None) -> dict[str, Any]:
    """The document.

    Args:
        source: what was read, for ``source``.
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``, as whoever asks knows them.

    Raises:
        NotFound: no step has a time.
    """
    measured = steps.measured
    if not measured:
        raise NotFound(f"{source}: no line says how long an iteration took (`elapsed time per iteration (ms)`)")
    notes = _Notes(steps, given or {})
    gpus = notes.choose("num_gpus", _whole(steps.config.get("world_size")))
    batch = notes.choose("global_batch_size", _batch(steps))
    proven = _sequence_length(measured, gpus, batch)
    said = _whole(next((steps.config[k] for k in ("seq_length", "seq_len") if k in steps.config), None))
    sequence = notes.sequence(said, proven, _formula(measured, gpus, batch))
    platform = notes.platform()
    performance = _performance(steps, measured, gpus, batch, sequence)
    gpu = _gpu_info(steps, platform, gpus)
    per_gpu = performance["tokens_per_second_per_gpu"]
    cores = gpu["gpu_cores"]
    performance["throughput_per_gpu_core"] = per_gpu / cores if per_gpu is not None and cores else None
    document: dict[str, Any] = {
        "platform": platform,
        "gpu_info": gpu,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(steps.steps[-1].time)),
        "training_config": {
            "max_steps": _whole(steps.config.get("train_iters")) or steps.steps[-1].number,
            "global_batch_size": batch,
            "micro_batch_size": _whole(steps.config.get("micro_batch_size")),
            "sequence_length": sequence,
            "num_gpus": gpus,
        },
        "performance_metrics": performance,
        "memory_metrics": _memory(steps),
        "raw_step_times": [step.seconds for step in measured],
        "steps": [step.number for step in measured],
        "loss_values": [step.loss for step in measured],
        "learning_rates": [step.learning_rate for step in measured],
        "source": {"file": source, "format": steps.config.get("log", {}).get("format"), "restarts": steps.restarts},
        "contradictions": notes.contradictions,
    }
    return document


def text(document: dict[str, Any]) -> str:
    """The document as valid JSON: NaN and infinities are strings."""
    return json.dumps(name_floats(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def file_name(document: dict[str, Any]) -> str:
    """``benchmark_rocm_20260105_112906.json``."""
    stamp = document["timestamp"].replace("-", "").replace(":", "").replace("T", "_")
    return f"benchmark_{document['platform']}_{stamp}.json"


class _Notes:
    """Decides between what the run says and what was given, and remembers where they disagree."""

    def __init__(self, steps: Steps, given: dict[str, int | None]) -> None:
        self._steps = steps
        self._given = given
        self.contradictions: list[str] = []

    def choose(self, name: str, said: int | None) -> int | None:
        given = self._given.get(name)
        if said is not None and given is not None and said != given:
            self.contradictions.append(f"{name} is {said} in the log, not {given} as given: the log's is used")
        return given if said is None else said

    def sequence(self, said: int | None, proven: int | None, formula: str) -> int | None:
        """The sequence length: what the printed throughput proves, else what the log says, else what is given."""
        given = self._given.get("sequence_length")
        for word, value in (("in the log's arguments", said), ("as given", given)):
            if proven is not None and value is not None and abs(value - proven) > TOLERANCE * proven:
                self.contradictions.append(
                    f"sequence_length is {value} {word}, but {formula} = {proven}: {proven} is used"
                )
        if proven is None and said is not None and given is not None and said != given:
            self.contradictions.append(f"sequence_length is {said} in the log, not {given} as given: the log's is used")
        for value in (said, given):
            if value is not None and (proven is None or abs(value - proven) <= TOLERANCE * proven):
                return value
        return proven

    def platform(self) -> str:
        """That of the machine that trained, by what its log says; "unknown" where it says nothing."""
        machine = self._steps.machine
        name = str(machine.get("gpu", ""))
        rocm = self._steps.rocm or "rocm_version" in machine or name.startswith("AMD")
        cuda = "cuda_version" in machine or name.startswith(("NVIDIA", "Tesla"))
        if rocm and cuda:
            self.contradictions.append(
                f"the log speaks of ROCm and of CUDA ({name or 'no GPU named'}): taken for "
                + ("cuda" if name.startswith(("NVIDIA", "Tesla")) else "rocm")
            )
            return "cuda" if name.startswith(("NVIDIA", "Tesla")) else "rocm"
        return "rocm" if rocm else "cuda" if cuda else "unknown"


def _performance(
    steps: Steps, measured: list[Step], gpus: int | None, batch: int | None, sequence: int | None
) -> dict[str, Any]:
    seconds = [float(step.seconds or 0.0) for step in measured]
    count = sum(step.count for step in measured)
    trained = sum(step.count for step in steps.timed)
    total = math.fsum(second * step.count for second, step in zip(seconds, measured, strict=True))
    average = total / count
    rate: float | None = None
    if batch is not None and sequence is not None and average > 0:
        rate = batch * sequence / average
    elif gpus is not None and (weighted := _tokens(measured)) is not None:
        rate = weighted * gpus
    return {
        "total_steps": trained,
        "warmup_steps": trained - count,
        "total_time_seconds": total,
        "avg_step_time_seconds": average,
        "min_step_time_seconds": min(seconds),
        "max_step_time_seconds": max(seconds),
        "std_step_time_seconds": statistics.stdev(seconds) if len(seconds) > 1 else None,
        "steps_per_second": 1 / average if average > 0 else None,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / gpus if rate is not None and gpus else _tokens(measured),
    }


def _tokens(measured: list[Step]) -> float | None:
    """Tokens per second and GPU as the log has them, weighted by time: all tokens over all seconds."""
    known = [step for step in measured if step.tokens_per_s_per_gpu is not None and step.seconds]
    seconds = math.fsum(float(step.seconds or 0) * step.count for step in known)
    tokens = math.fsum(float(s.tokens_per_s_per_gpu or 0) * float(s.seconds or 0) * s.count for s in known)
    return tokens / seconds if seconds > 0 else None


def _sequence_length(measured: list[Step], gpus: int | None, batch: int | None) -> int | None:
    """What tokens per second prove the sequence length to be; None where the log has too little."""
    rates = [
        float(step.tokens_per_s_per_gpu) * float(step.seconds)
        for step in measured
        if step.tokens_per_s_per_gpu and step.seconds and math.isfinite(step.tokens_per_s_per_gpu * step.seconds)
    ]
    if not rates or not gpus or not batch:
        return None
    length = statistics.median(rates) * gpus / batch
    near = round(length / ROUND) * ROUND
    return near if near and abs(length - near) <= TOLERANCE * near / 4 else round(length)


def _formula(measured: list[Step], gpus: int | None, batch: int | None) -> str:
    known = [step for step in measured if step.tokens_per_s_per_gpu and step.seconds]
    if not known:
        return ""
    step = known[len(known) // 2]
    return f"{step.tokens_per_s_per_gpu:g} tokens/s/GPU × {gpus} GPUs × {step.seconds:g} s ÷ {batch}"


def _batch(steps: Steps) -> int | None:
    """The global batch size: of the lines, else of the arguments, else what the consumed samples prove."""
    said = [step.global_batch for step in steps.steps if step.global_batch]
    if said:
        return _whole(statistics.mode(said))
    return _whole(steps.config.get("global_batch_size")) or (_whole(statistics.median(steps.batches or [0])) or None)


def _memory(steps: Steps) -> dict[str, Any]:
    used = [float(step.used_gib) for step in steps.steps if step.used_gib is not None]
    found: dict[str, Any] = {"unit": "GiB", "kind": None}
    if used:
        found.update(avg_memory_used_gb=statistics.fmean(used), peak_memory_used_gb=max(used))
    torch = {name: values for name, values in steps.torch_gib.items() if values}
    if torch:
        found["kind"] = "torch"
        for name in ("allocated", "reserved"):
            found[f"avg_memory_{name}_gb"] = statistics.fmean(torch[name]) if name in torch else None
            highest = torch.get(f"max_{name}", torch.get(name))
            found[f"peak_memory_{name}_gb"] = max(highest) if highest else None
    elif used:
        # The documented fields; the log has nothing of what torch allocated.
        found.update(kind="device", avg_memory_allocated_gb=found["avg_memory_used_gb"])
        found.update(peak_memory_allocated_gb=max(used), avg_memory_reserved_gb=None, peak_memory_reserved_gb=None)
    else:
        names = ("avg_memory_allocated_gb", "peak_memory_allocated_gb", "avg_memory_reserved_gb")
        found.update(dict.fromkeys((*names, "peak_memory_reserved_gb")))
    return found


def _gpu_info(steps: Steps, platform: str, gpus: int | None) -> dict[str, Any]:
    machine = steps.machine
    name = machine.get("gpu")
    totals = [step.total_gib for step in steps.steps if step.total_gib is not None]
    found = {
        "device_count": gpus,
        "device_name": name,
        "total_memory_gb": max(totals) if totals else None,
        "platform": platform,
        "gpu_cores": next((cores for model, cores in CORES.items() if model in str(name)), None),
        "pytorch_version": machine.get("pytorch_version"),
    }
    version = {"rocm": "rocm_version", "cuda": "cuda_version"}.get(platform)
    if version:
        found[version] = machine.get(version)
    return found


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value)
