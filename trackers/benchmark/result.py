"""Benchmark result, ``benchmark_{platform}_{timestamp}.json``, made from a run's steps.

What the run itself says or proves counts; what is given besides fills what it doesn't say. Where the two disagree, or
the run disagrees with itself, ``contradictions`` names it. What isn't known is null, but tokens per second of
a GPU, which are 0. Speeds are those of :func:`trackers.benchmark.speed.figures`, as in every other tool; times are
seconds per step, averaged over steps (not over lines), without the first step of each attempt. Where the batch grew,
``global_batch_size`` is the last one, and ``average_global_batch_size`` the mean of the steps that are timed. Memory is
in GiB, though its fields end in "gb" as documented; ``kind`` says whether it is the whole device's or what torch
allocated, which can't be compared.

Which of what a run says, proves and is told to be counts; where they disagree, that is remembered.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.benchmark import speed
from trackers.benchmark.steps import Step, StepCollector
from trackers.formats.exclusive_move import move_to_free_name
from trackers.metrics import roles
from trackers.records import finite, name_floats, storable
from trackers.support import confined

CORES = {
    "MI250X": 14080, "MI300X": 19456, "MI325X": 19456, "MI355X": 16384, "V100": 5120, "A100": 6912,
    "H100": 16896, "H200": 16896, "L40S": 18176,
}  # fmt: skip
"""Shader cores of a GPU, as AMD's and NVIDIA's data sheets have them (H100 and H200: SXM)."""

ROUND = 64
"""Sequence lengths are multiples of this; what is derived is rounded to one where it comes near."""
MICRO_BATCHES = ("micro_batch_size", "per_device_train_batch_size")
_BUILD = re.compile(r"\+(cu|rocm)(\d[\d.]*)")


def result(
    steps: StepCollector, *, source: Mapping[str, Any], given: Mapping[str, int | None] | None = None, word: str = "log"
) -> dict[str, Any]:
    """The document.

    Args:
        source: what was read, at least its ``file``; goes into ``source``.
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``, as whoever asks knows them.
        word: what contradictions call it: a log, or a run.
    """
    measured = steps.measured
    notes = Notes(given or {}, word)
    machine = _machine(steps)
    platform = notes.platform(steps, machine)
    gpus = notes.choose("num_gpus", None if platform == "cpu" else steps.gpus)
    gpus = 0 if gpus is None and platform == "cpu" else gpus
    ranks = gpus or steps.world_size or None
    batch, sequence = _sizes(steps, notes, ranks)
    # What is derived here comes from the logged rates, which the figures know themselves.
    chosen = (("global_batch_size", batch), ("sequence_length", sequence))
    known = {name: value for name, value in chosen if value and (given or {}).get(name)}
    figures = speed.figures(steps.meter, {**known, **steps.config, **known}, {}, ranks)
    performance = _performance(steps, measured, gpus, figures)
    gpu = _gpu_info(steps, machine, platform, gpus)
    per_gpu, cores = performance["tokens_per_second_per_gpu"], gpu["gpu_cores"]
    performance["throughput_per_gpu_core"] = per_gpu / cores if per_gpu and cores else None
    last = steps.steps[-1] if steps.steps else None
    moment = time.localtime(last.time if last is not None else None)
    return {
        "platform": platform,
        "gpu_info": gpu,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", moment),
        "training_config": {
            "max_steps": steps.total,
            "global_batch_size": batch,
            "micro_batch_size": _as_integer(roles.setting(steps.config, MICRO_BATCHES))
            or _as_integer(steps.micro_batch),
            "sequence_length": sequence,
            "num_gpus": gpus,
            **({"average_num_gpus": figures.gpus} if gpus and figures.gpus else {}),
            **({"average_global_batch_size": figures.batch} if batch and figures.batch not in (batch, None) else {}),
        },
        "performance_metrics": performance,
        "memory_metrics": _memory(steps),
        "source": {**source, "step_times": steps.basis, "restarts": steps.attempts - 1},
        "contradictions": notes.contradictions,
        "raw_step_times": [step.seconds for step in measured],
        "steps": [step.number for step in measured],
        "loss_values": [step.loss for step in measured],
        "learning_rates": [step.learning_rate for step in measured],
    }


def _sizes(steps: StepCollector, notes: Notes, ranks: int | None) -> tuple[int | None, int | None]:
    """The whole batch and the sequence length: stated, else what the logged rates prove."""
    measured = steps.measured
    length = _as_integer(roles.setting(steps.config, roles.LENGTHS))
    stated = _as_integer(next((step.global_batch for step in reversed(steps.steps) if step.global_batch), None))
    if stated is None:
        estimate = speed.batch(steps.meter, steps.config, ranks)
        bare = estimate is not None and not speed.sure(steps.meter, steps.config)
        stated = (_proven_batch(measured, ranks, length) if bare else None) or _as_integer(estimate)
    batch = notes.choose("global_batch_size", stated)
    sequence = notes.sequence(length, _proven_length(measured, ranks, batch), _formula(measured, ranks, batch))
    return (_proven_batch(measured, ranks, sequence) if batch is None else batch), sequence


def text(document: Mapping[str, Any]) -> str:
    """The document as valid JSON: NaN and infinities are strings."""
    content = name_floats(dict(document))
    output = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False, default=str) + "\n"
    try:
        output.encode()
    except UnicodeEncodeError:  # a path that isn't UTF-8
        return text(storable(content))
    return output


def file_name(document: Mapping[str, Any]) -> str:
    """``benchmark_rocm_20260105_112906.json``."""
    stamp = document["timestamp"].replace("-", "").replace(":", "").replace("T", "_")
    return f"benchmark_{document['platform']}_{stamp}.json"


def _performance(steps: StepCollector, measured: list[Step], gpus: int | None, figures: speed.Speed) -> dict[str, Any]:
    seconds = [float(step.seconds or 0.0) for step in measured]
    count = sum(step.count for step in measured)
    average = 1 / figures.steps_per_s if figures.steps_per_s else None
    rate, per_gpu_rate = figures.tokens_per_s, None
    if gpus != 0:
        per_gpu_rate = speed.rate_of_each(steps.meter, roles.TOKENS_PER_GPU, steps.config)
    return {
        "total_steps": steps.trained,
        "warmup_steps": steps.warmups,
        "total_time_seconds": average * count if average else None,
        "avg_step_time_seconds": average,
        "min_step_time_seconds": min(seconds, default=None),
        "max_step_time_seconds": max(seconds, default=None),
        # Python 3.10 can't square what is beyond.
        "std_step_time_seconds": statistics.stdev(seconds) if len(seconds) > 1 and max(seconds) < 1e150 else None,
        "steps_per_second": figures.steps_per_s,
        "tokens_per_second": rate,
        # Programs print this one as a number, whatever a result is of: 0 where nobody knows it.
        "tokens_per_second_per_gpu": (rate / (figures.gpus or gpus) if rate is not None and gpus else per_gpu_rate)
        or 0.0,
    }


def _all(count: float, per_gpu: bool, ranks: int | None) -> float | None:
    """A count of all GPUs: one of one GPU needs to know how many there are."""
    if not per_gpu:
        return count
    return count * ranks if ranks else None


def _counts(measured: list[Step], ranks: int | None) -> list[tuple[float, float | None]]:
    """Tokens of one step on all GPUs, of each row that proves it, and its batch where it has one."""
    rows = [
        (_all(step.tokens, step.per_gpu, step.world or ranks), step) for step in measured if step.tokens is not None
    ]
    return [(count, step.global_batch) for count, step in rows if count is not None]


def _proven_length(measured: list[Step], ranks: int | None, batch: int | None) -> int | None:
    """What tokens per second prove the sequence length to be; None where the run has too little."""
    lengths = [count / size for count, logged in _counts(measured, ranks) if (size := logged or batch)]
    if not lengths:
        return None
    length = statistics.median(lengths)
    near = round(length / ROUND) * ROUND
    return near if near and abs(length - near) <= TOLERANCE * near / 4 else round(length)


def _proven_batch(measured: list[Step], ranks: int | None, sequence: int | None) -> int | None:
    counts = [count for count, _ in _counts(measured, ranks)]
    if not counts or not sequence:
        return None
    batch = statistics.median(counts) / sequence
    return round(batch) if round(batch) and abs(batch - round(batch)) <= TOLERANCE * batch / 4 else None


def _formula(measured: list[Step], ranks: int | None, batch: int | None) -> str:
    known = [step for step in measured if step.tokens is not None and step.seconds and (step.global_batch or batch)]
    if not known:
        return ""
    step = known[len(known) // 2]
    rate = float(step.tokens or 0.0) / float(step.seconds or 1.0)
    product = f"{rate:g} tokens/s/GPU × {step.world or ranks} GPUs" if step.per_gpu else f"{rate:g} tokens/s"
    return f"{product} × {step.seconds:g} s ÷ {step.global_batch or batch:g}"


def _memory(steps: StepCollector) -> dict[str, Any]:
    used, peaks = steps.used, [*steps.used, *steps.peaks]
    memory: dict[str, Any] = {"unit": "GiB", "kind": None}
    if used:
        memory.update(avg_memory_used_gb=statistics.fmean(used), peak_memory_used_gb=max(peaks))
    torch = {name: values for name, values in steps.torch.items() if values}
    if torch:
        memory["kind"] = "torch"
        for name in ("allocated", "reserved"):
            memory[f"avg_memory_{name}_gb"] = statistics.fmean(torch[name]) if name in torch else None
            highest = torch.get(f"max_{name}", torch.get(name))
            memory[f"peak_memory_{name}_gb"] = max(highest) if highest else None
    elif used:
        # The documented fields; the run has nothing of what torch allocated.
        memory.update(kind="device", avg_memory_allocated_gb=memory["avg_memory_used_gb"])
        memory.update(peak_memory_allocated_gb=max(peaks), avg_memory_reserved_gb=None, peak_memory_reserved_gb=None)
    else:
        names = ("avg_memory_allocated_gb", "peak_memory_allocated_gb", "avg_memory_reserved_gb")
        memory.update(dict.fromkeys((*names, "peak_memory_reserved_gb")))
    return memory


def _machine(steps: StepCollector) -> dict[str, Any]:
    """What the run says of its machine: the GPU's name and the versions."""
    facts = {"gpu": steps.gpu_name}
    for name in ("pytorch_version", "cuda_version", "rocm_version"):
        if steps.machine.get(name):
            facts[name] = str(steps.machine[name])
    build = _BUILD.search(facts.get("pytorch_version", ""))
    if build is not None:
        digits = build[2] if "." in build[2] else f"{build[2][:-1]}.{build[2][-1]}"  # cu124
        facts.setdefault("rocm_version" if build[1] == "rocm" else "cuda_version", digits)
    return facts


def _gpu_info(steps: StepCollector, machine: Mapping[str, Any], platform: str, gpus: int | None) -> dict[str, Any]:
    name = (machine["gpu"] or None) if platform != "cpu" else None
    info = {
        "device_count": gpus,
        "device_name": name,
        "total_memory_gb": steps.gpu_total_gib if platform != "cpu" else None,
        "platform": platform,
        "gpu_cores": next((cores for model, cores in CORES.items() if model in str(name)), None),
        "pytorch_version": machine.get("pytorch_version"),
    }
    version = {"rocm": "rocm_version", "cuda": "cuda_version"}.get(platform)
    if version:
        info[version] = machine.get(version)
    return info


def _as_integer(value: Any) -> int | None:
    return None if finite(value) is None else int(value)


TOLERANCE = 0.02
"""Two figures that differ by less agree."""
NVIDIA = ("NVIDIA", "Tesla")
PLATFORMS = ("cuda", "rocm", "cpu")


class Notes:
    """Decides, and lists ``contradictions``, a line each.

    Args:
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``. word: what the source is called: log or run.
    """

    def __init__(self, given: Mapping[str, int | None], word: str) -> None:
        self._given = given
        self._word = word
        self.contradictions: list[str] = []

    def choose(self, name: str, stated: int | None) -> int | None:
        """What the source says, else what was given."""
        given = self._given.get(name)
        if stated is not None and given is not None and stated != given:
            self.contradictions.append(
                f"{name} is {stated} in the {self._word}, not {given} as given: the {self._word}'s is used"
            )
        return given if stated is None else stated

    def sequence(self, stated: int | None, proven: int | None, formula: str) -> int | None:
        """The sequence length: what the printed throughput proves, else what the source says, else what is given."""
        given, word = self._given.get("sequence_length"), self._word
        where = "log's arguments" if word == "log" else f"{word}'s configuration"
        for origin, value in ((f"in the {where}", stated), ("as given", given)):
            if proven is not None and value is not None and abs(value - proven) > TOLERANCE * proven:
                self.contradictions.append(
                    f"sequence_length is {value} {origin}, but {formula} = {proven}: {proven} is used"
                )
        if proven is None and stated is not None and given is not None and stated != given:
            self.contradictions.append(
                f"sequence_length is {stated} in the {word}, not {given} as given: the {word}'s is used"
            )
        for value in (stated, given):
            if value is not None and (proven is None or abs(value - proven) <= TOLERANCE * proven):
                return value
        return proven

    def platform(self, steps: StepCollector, machine: Mapping[str, Any]) -> str:
        """cuda, rocm or cpu: of the machine that trained, by what its run says; "unknown" where it says nothing."""
        known = [word for word in steps.accelerators if word in PLATFORMS]
        if known:
            if len(known) > 1:
                self.contradictions.append(f"attempts ran on {' and on '.join(known)}: taken for {known[-1]}")
            return known[-1]
        name = str(machine["gpu"] or "")
        rocm = steps.rocm or "rocm_version" in machine or name.startswith("AMD")
        cuda = "cuda_version" in machine or name.startswith(NVIDIA)
        if rocm and cuda:
            platform = "cuda" if name.startswith(NVIDIA) else "rocm"
            self.contradictions.append(
                f"the {self._word} speaks of ROCm and of CUDA ({name or 'no GPU named'}): taken for {platform}"
            )
            return platform
        if _on_processor(steps, machine):
            return "cpu"
        drivers = {card.get("vendor") for card in steps.cards} or set(steps.machine.get("gpu_drivers") or ())
        rocm, cuda = rocm or drivers == {"amd"}, cuda or drivers == {"nvidia"}
        return "rocm" if rocm else "cuda" if cuda else "unknown"


def _on_processor(steps: StepCollector, machine: Mapping[str, Any]) -> bool:
    """Whether the run says that it trained without a GPU: by its settings, torch's build, or for want of a driver."""
    device = roles.first_setting(steps.config, ("device", "accelerator"), (str,)) if steps.config else None
    if device is not None and device.lower() == "cpu":
        return True
    return str(machine.get("pytorch_version", "")).endswith("+cpu") or steps.machine.get("gpu_drivers") == []


PATTERN = "benchmark_*.json"
HEAD_BYTES = 16384
"""Bytes read to find which run a result belongs to; it precedes the series."""
MOST = 10_000
"""Results of one platform and second."""


def write(document: Mapping[str, Any], directory: Path, ours: Path | None = None) -> Path:
    """Write a result into a directory, whole or not at all; returns its file.

    Args:
        ours: the file of an earlier result of the run, which is replaced; default: looked for under the documented
            name alone. A name that another run's result has gets a number.

    Raises:
        OSError: it can't be written; nothing was changed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"benchmark-{re.sub(r'[^A-Za-z0-9_-]', '_', str(document['source'].get('run_id') or os.getpid()))[:128]}"
    for stray in directory.glob(f".{stem}.*.tmp"):  # of a process that was killed
        with contextlib.suppress(OSError):
            stray.unlink()
    temporary = confined.temporary(directory / stem)
    try:
        confined.write_new(temporary, text(document).encode("utf-8"), root=directory)
        if ours is not None:
            confined.replace(temporary, ours, root=directory)
            return ours
        named = directory / file_name(document)
        for number in range(1, MOST):
            path = named if number == 1 else named.with_stem(f"{named.stem}_{number}")
            if is_of(path, document["source"]):
                confined.replace(temporary, path, root=directory)
                return path
            if move_to_free_name(temporary, path):
                return path
        raise FileExistsError(f"{MOST} results are named like {named.name}")
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def save(document: Mapping[str, Any], directory: Path, known: Path | None = None) -> Path:
    """Write the result of a run, in the place of its earlier one if there is any; returns its file.

    The name stays as it was, unless the run went on to another platform.

    Args:
        known: where the earlier one was last seen.

    Raises:
        OSError: it can't be written; nothing was changed.
    """
    seen = known is not None and known.parent == directory and is_of(known, document["source"])
    before = known if seen else find(directory, document["source"])
    same = before is not None and before.name.startswith(f"benchmark_{document['platform']}_")
    path = write(document, directory, before if same else None)
    if before is not None and before != path:
        with contextlib.suppress(OSError):
            before.unlink(missing_ok=True)
    return path


def find(directory: Path, source: Mapping[str, Any]) -> Path | None:
    """The newest result of a run in a directory; None where there is none."""
    if not source.get("run_id"):
        return None
    paths = [path for path in directory.glob(PATTERN) if is_of(path, source)]
    return max(paths, key=lambda path: path.name, default=None)


def is_of(path: Path, source: Mapping[str, Any]) -> bool:
    """Whether a file is a result, and of the same run, by its id and project; else of the same file."""
    if str(source.get("file")).removeprefix("log:") == "-":  # standard input is another one each time
        return False
    names = ("run_id", "project") if source.get("run_id") else ("file",) if source.get("file") else ()
    try:
        with confined.open_file(path, root=path.parent) as result:
            head = result.read(HEAD_BYTES)
    except OSError:
        return False
    fields = [f'"{name}": {msgspec.json.encode(source.get(name)).decode()}'.encode() for name in names]
    return bool(fields) and all(field in head for field in (*fields, b'"performance_metrics"'))
