"""Roles of metrics and settings for speed and hardware, by name, whichever program chose it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from trackers.metrics.groups import group_of
from trackers.records import finite

GIB, MIB = 1024**3 / 1e9, 1024**2 / 1e9
"""GB (1e9 bytes) of a GiB."""


class Role(NamedTuple):
    """kind: what the values are, below. factor: makes SI units of them (GB for memory)."""

    kind: str
    factor: float = 1.0


STEP_TIME, SAMPLES, TOKENS, BATCH = "step time", "samples", "tokens", "batch"
SAMPLES_PER_GPU, TOKENS_PER_GPU = "samples per GPU", "tokens per GPU"
SAMPLES_COUNTED, TOKENS_COUNTED = "samples counted", "tokens counted"
GPU_UTILISATION, ONE_GPU_UTILISATION = "GPU utilisation", "one GPU's utilisation"
DEVICE_MEMORY, ONE_DEVICE_MEMORY = "device memory", "one device's memory"
TORCH_MEMORY, RESERVED_MEMORY = "torch memory", "reserved memory"
ENERGY = "energy"

_PER_GPU = r"(_per_(gpu|device))"
_RATE = r"_per_(s|sec|second)"
_NODE = r"(node\d+[./])?"
_ONE = rf"(system|gpu)[./]{_NODE}(gpu[._/])?\w+[._/]"
_RULES: tuple[tuple[str, Role], ...] = (
    (r"(.*/)?(iter(ation)?|step)[_-]time(_s|_sec|_seconds)?|(.*/)?step_duration(_s)?|perf/iter_time_sec",
     Role(STEP_TIME)),
    (r"(.*/)?(iter(ation)?|step)(_time)?_ms|time_ms", Role(STEP_TIME, 1e-3)),
    (rf"(.*/)?device/samples{_RATE}|(.*/)?(train_)?samples{_RATE}{_PER_GPU}", Role(SAMPLES_PER_GPU)),
    (rf"(.*/)?device/tokens{_RATE}|(.*/)?(train_)?tokens{_RATE}{_PER_GPU}", Role(TOKENS_PER_GPU)),
    (rf"(.*/)?(train_)?samples{_RATE}", Role(SAMPLES)),
    (rf"(.*/)?(train_)?tokens{_RATE}", Role(TOKENS)),
    (r"consumed[_-](train_)?samples", Role(SAMPLES_COUNTED)),
    (r"consumed[_-](train_)?tokens", Role(TOKENS_COUNTED)),
    (r"global[_-]batch[_-]size|throughput/global_batch_size|batch-size", Role(BATCH)),
    (rf"gpu/{_NODE}compute_util_avg", Role(GPU_UTILISATION)),
    (rf"{_ONE}(gpu|utilization_percentage|utilization)", Role(ONE_GPU_UTILISATION)),
    (rf"gpu/{_NODE}memory_used_avg_gb(\.max)?", Role(DEVICE_MEMORY)),
    (r"gpu/(\w+_)?memory_used_gib", Role(DEVICE_MEMORY, GIB)),
    (rf"{_ONE}memoryAllocatedBytes(\.max)?", Role(ONE_DEVICE_MEMORY, 1e-9)),
    (r"system/gpu_\d+_memory_usage_megabytes", Role(ONE_DEVICE_MEMORY, 1e-3)),
    (r"gpu/\d+/allocated_memory", Role(ONE_DEVICE_MEMORY, GIB)),
    (r"memory/(rank_\d+/)?mem-(max-)?allocated-gigabytes", Role(TORCH_MEMORY)),
    (r"memory/rank_\d+/(max_)?allocated_mib", Role(TORCH_MEMORY, MIB)),
    (r"memory/(rank_\d+/)?mem-(max-)?reserved-gigabytes", Role(RESERVED_MEMORY)),
    (r"memory/rank_\d+/(max_)?reserved_mib", Role(RESERVED_MEMORY, MIB)),
    (r"gpu/max_reserved_memory_gib", Role(RESERVED_MEMORY, GIB)),
    (rf"gpu/{_NODE}energy_total_j", Role(ENERGY)),
)  # fmt: skip
_PATTERNS = [(re.compile(pattern, re.IGNORECASE), role) for pattern, role in _RULES]
_RATES = (STEP_TIME, SAMPLES, TOKENS, SAMPLES_PER_GPU, TOKENS_PER_GPU)

BATCHES = ("global_batch_size", "global_batch", "total_batch_size", "train_batch_size")
"""Settings that are the samples of one step, of all GPUs."""
LENGTHS = ("sequence_length", "seq_length", "seq_len", "block_size", "max_seq_length", "max_seq_len", "context_length",
           "n_ctx")  # fmt: skip
GPU_COUNTS = ("num_gpus", "gpu_count", "device_count", "world_size")
GPU_NAMES = ("device_name", "gpu_name", "gpu")

_MOST = re.compile(
    r"acc|accuracy|f1|auc|auroc|bleu|rouge|reward|return|score|precision|recall|map|iou|miou|r2|psnr|ssim|mfu|"
    r"throughput|tflops|win|pass|hits|ndcg|mrr|exact|em|speed|per_sec\w*|util\w*",
    re.IGNORECASE,
)
_LEAST = re.compile(
    r"loss|error|err|perplexity|ppl|mse|mae|rmse|wer|cer|fid|nll|bpb|bpc|time|latency|duration|ms|violations",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[A-Za-z][a-z]*\d?|[A-Z]+|\d+")


@lru_cache(maxsize=20_000)
def role_of(name: str) -> Role | None:
    """What a metric's name says; None for the many that say nothing here. Validation's speed isn't training's."""
    for pattern, role in _PATTERNS:
        if pattern.fullmatch(name):
            return None if role.kind in _RATES and group_of(name) == "validation" else role
    return None


@lru_cache(maxsize=20_000)
def direction(name: str) -> str | None:
    """Whether a smaller ("min") or a larger ("max") value is better, by the words of a name; None if they don't say."""
    words = [word for part in re.split(r"[^A-Za-z0-9]+", name) for word in (*_WORDS.findall(part), part)]  # mAP is one
    for word in reversed(words):  # "loss" of accuracy_loss
        if _LEAST.fullmatch(word):
            return "min"
        if _MOST.fullmatch(word):
            return "max"
    return None


def setting(config: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """The first of these settings that a flat configuration has as a number, at any depth; None if it isn't finite."""
    return finite(first_setting(config, names, (int, float)))


def first_setting(config: Mapping[str, Any], names: tuple[str, ...], kinds: tuple[type, ...]) -> Any:
    """The first of these settings that has one of these types and isn't a truth value; None if none has."""
    by_end: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, kinds) and not isinstance(value, bool):
            by_end.setdefault(key.rpartition(".")[2], value)
    return next((by_end[name] for name in names if name in by_end), None)


LOSSES = ("train_loss", "loss", "train/loss", "lm loss", "loss_values")
VALIDATION_LOSSES = ("val_loss", "val/loss", "eval_loss", "eval/loss", "validation_loss", "validation/loss",
                     "lm loss validation")  # fmt: skip
LEARNING_RATES = ("learning_rate", "lr", "train/learning_rate", "learning-rate", "train/lr",
                  "learning_rates")  # fmt: skip
MFUS = ("mfu", "perf/mfu", "perf/mfu_percent", "throughput/mfu")

_FROM_ZERO = re.compile(r"(.*[./])?(power_total_w|powerWatts|power|memory_(used|total)\w*_gb)", re.IGNORECASE)
_PERCENT = re.compile(
    r"system[./](node\d+[./])?cpu([._]max)?|.*(percent(age)?|utili[sz]ation|_util)(_avg|_mean|[._]max)?( \(%\))?",
    re.IGNORECASE,
)


def bounds(names: Iterable[str], highest: float) -> tuple[float | None, float | None]:
    """The ends that an axis has at least: of a utilisation in percent or as a fraction; MFU, memory, power begin at 0.

    Args:
        names: of the metrics on the axis, at least one. highest: of their values.
    """
    names = list(names)
    known = [role_of(name) for name in names]
    kinds = ["" if role is None else role.kind for role in known]
    memory = (DEVICE_MEMORY, ONE_DEVICE_MEMORY, TORCH_MEMORY, RESERVED_MEMORY)
    if all(
        name in MFUS or kind in memory or _FROM_ZERO.fullmatch(name) for name, kind in zip(names, kinds, strict=True)
    ):
        return 0.0, None
    shares = (GPU_UTILISATION, ONE_GPU_UTILISATION)
    is_share = all(_PERCENT.fullmatch(name) or kind in shares for name, kind in zip(names, kinds, strict=True))
    if not is_share or not 0 <= highest <= 100:
        return None, None
    return 0.0, 1.0 if highest <= 1 else 100.0
