"""Names of values in console logs: the name in this package for each key of the log.

A value that other runs have too gets the name it has there (``train_loss``, ``learning_rate``, ``perf/iter_ms``), so
that runs of all kinds can be compared and no unit with a "/" in it splits a chart's name. Values are never converted:
a unit that the log has stands in the name. Every other key keeps its name. The log's own key is said by
:func:`original`, and for each run in its configuration (``log.names``).
"""

from __future__ import annotations

import re

LOSSES = frozenset({"train_loss", "val_loss", "test_loss"})
AVERAGE = "_avg"
"""End of the name of a running average, the second number of ``X/Y`` and of ``X (avg Y)``."""
OWN = "log/"
"""Before a key that another value's name is the same as here."""

NAMES = {
    "lm loss": "train_loss",
    "learning rate": "learning_rate",
    "decoupled learning rate": "decoupled_learning_rate",
    "global batch size": "global_batch_size",
    "batch size": "global_batch_size",
    "consumed samples": "consumed_samples",
    "consumed tokens": "consumed_tokens",
    "skipped samples": "skipped_samples",
    "loss scale": "loss_scale",
    "grad norm": "grad_norm",
    "num zeros": "num_zeros",
    "params norm": "params_norm",
    "number of skipped iterations": "skipped_iterations",
    "number of nan iterations": "nan_iterations",
    "elapsed time per iteration (ms)": "perf/iter_ms",
    "throughput per GPU (TFLOP/s/GPU)": "perf/tflops_per_gpu",
    "compute per GPU (TFLOP/s/GPU)": "perf/tflops_per_gpu",
    "tokens per GPU (tokens/s/GPU)": "perf/tokens_per_sec_per_gpu",
    "tokens per GPU": "perf/tokens_per_sec_per_gpu",
    "tokens/s/GPU inst/harmonic mean": "perf/tokens_per_sec_per_gpu",
    "Tokens per second per GPU (Tok/s/GPU)": "perf/tokens_per_sec_per_gpu",
    "energy per GPU (J/iter/GPU)": "perf/energy_per_gpu_j",
    "power per GPU (W/GPU)": "perf/power_per_gpu_w",
    "mem usages": "gpu/memory_used_ratio",
    "lm loss validation": "val_loss",
    "lm loss validation ppl": "val_perplexity",
    "lm loss test": "test_loss",
    "lm loss test ppl": "test_perplexity",
    "loss": "train_loss",
    "loss validation": "val_loss",
    "grad_norm": "grad_norm",
    "tps": "perf/tokens_per_sec_per_gpu",
    "tflops": "perf/tflops_per_gpu",
    "mfu": "perf/mfu_percent",
    "elapsed_time_per_step": "perf/iter_time_sec",
    "seconds": "perf/iter_time_sec",
    "TFLOP/s/device": "perf/tflops_per_gpu",
    "Tokens/s/device": "perf/tokens_per_sec_per_gpu",
    "perplexity": "train_perplexity",
    "learning_rate": "learning_rate",
}
"""The log's key to the name here. Several keys of one name are spellings of the same value."""

WHOLE = frozenset({"consumed samples", "skipped samples", "consumed tokens", "global batch size", "batch size",
                   "number of skipped iterations", "number of nan iterations"})  # fmt: skip
"""Keys whose values are whole numbers."""

_MEMORY = re.compile(r"(?:(\w+) )?(max )?mem usage((?:/\w+)*)")
_MEMORY_PARTS = {"usage": "used_gib", "free": "free_gib", "total": "total_gib", "usage_ratio": "used_percent"}
_KNOWN = frozenset(NAMES.values())
_KEYS: dict[str, str] = {}
for _key, _name in NAMES.items():
    _KEYS.setdefault(_name, _key)


def names(key: str) -> tuple[str, ...]:
    """What the values of a key are called here: one name for each value that it can have, in the log's order.

    ``hip mem usage/free/total/usage_ratio`` has four, in GiB whatever the log's "GB" says; of other keys the second
    is the running average.
    """
    memory = _MEMORY.fullmatch(key)
    if memory:
        label = "_".join(part.strip() for part in memory.groups()[:2] if part)
        parts = ["usage", *memory[3].split("/")[1:]]
        head = f"gpu/{label}_memory_" if label else "gpu/memory_"
        return tuple(head + _MEMORY_PARTS.get(part, part) for part in parts)
    name = NAMES.get(key)
    if name is None:
        name = OWN + key if key in _KNOWN or key.startswith((OWN, "gpu/")) or _is_average(key) else key
    return name, name + AVERAGE


def is_known(key: str) -> bool:
    """Whether a key is one that a known program prints."""
    return key in NAMES or _MEMORY.fullmatch(key) is not None


def original(name: str) -> str:
    """The log's key for a name; where programs spell it differently, Megatron's.

    The second number of a key has the key of the first.
    """
    if name.startswith(OWN):
        return name.removeprefix(OWN)
    memory = re.fullmatch(r"gpu/(?:(\w+?)_)?(max_)?memory_(?:used_gib|free_gib|total_gib|used_percent)", name)
    if memory:
        label = " ".join(part.rstrip("_") for part in memory.groups() if part)
        short = f"{label} mem usage".strip()
        return f"{short}/usage_ratio" if memory[2] else f"{short}/free/total/usage_ratio"
    return _KEYS.get(name) or _KEYS.get(name.removesuffix(AVERAGE)) or name.removesuffix(AVERAGE)


def _is_average(key: str) -> bool:
    return key.endswith(AVERAGE)
