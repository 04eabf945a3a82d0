"""Megatron-LM: ``training_log`` and ``evaluate_and_print_results`` in ``megatron/training/training.py``.

Primus, Megatron Bridge, Megatron-DeepSpeed and GPT-NeoX print lines of the same kind; their modules add what is theirs.
"""

from __future__ import annotations

import re

from trackers_console_logs.forms.fields import AVERAGE, OWN, PIPES, TERA
from trackers_console_logs.forms.program import BEGIN, END, EVAL, MEMORY, RESUME, Form, Program

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
    "elapsed time per iteration (s)": "perf/iter_time_sec",
    "throughput per GPU (TFLOP/s/GPU)": "perf/tflops_per_gpu",
    "compute per GPU (TFLOP/s/GPU)": "perf/tflops_per_gpu",
    "TFLOPs": "perf/tflops_per_gpu",
    "approx flops per GPU": "perf/tflops_per_gpu",
    "GPU utilization": "perf/tflops_per_gpu",
    "tokens per GPU (tokens/s/GPU)": "perf/tokens_per_sec_per_gpu",
    "tokens per GPU": "perf/tokens_per_sec_per_gpu",
    "tokens/s/GPU inst/harmonic mean": "perf/tokens_per_sec_per_gpu",
    "tokens per gpu per second (tgs)": "perf/tokens_per_sec_per_gpu",
    "Tokens per second per GPU (Tok/s/GPU)": "perf/tokens_per_sec_per_gpu",
    "samples per second": "perf/samples_per_sec",
    "samples/sec": "perf/samples_per_sec",
    "energy per GPU (J/iter/GPU)": "perf/energy_per_gpu_j",
    "power per GPU (W/GPU)": "perf/power_per_gpu_w",
    "mem usages": "gpu/memory_used_ratio",
    "lm loss validation": "val_loss",
    "lm loss validation ppl": "val_perplexity",
    "lm loss test": "test_loss",
    "lm loss test ppl": "test_perplexity",
    "lm_loss": "train_loss",
    "lm_loss validation": "val_loss",
    "lm_loss_ppl validation": "val_perplexity",
    "lm_loss test": "test_loss",
    "lm_loss_ppl test": "test_perplexity",
    "loss": "train_loss",
    "mfu": "perf/mfu_percent",
    "MFU": "perf/mfu_percent",
    "HFU": "perf/hfu_percent",
}
"""The log's key to the name here. Several keys of one name are spellings of the same value."""

RANK_OF_PEAK = re.compile(rb"rank-(\d{1,9}) ((?:\w{1,40} )?max mem )(?=usage)")
"""Which rank has the most memory, as Primus says it: a number that stands in a key."""
_MEMORY_NAME = re.compile(r"(?:(\w+) )?(max )?mem (?:usage((?:/\w+)*)|rank)")
_TITAN_MEMORY = "memory usage/free/total"
"""As Primus called what TorchTitan reserved and used, and its share."""
_MEMORY_PARTS = {"usage": "used_gib", "free": "free_gib", "total": "total_gib", "usage_ratio": "used_percent"}
_KNOWN = frozenset(NAMES.values())


def metric_names(key: str) -> tuple[str, ...]:
    """What the values of a key are called here: one name for each value that it can have, in the log's order.

    ``hip mem usage/free/total/usage_ratio`` has four, in GiB whatever the log's "GB" says; of other keys the second
    is the running average.
    """
    if key == _TITAN_MEMORY:
        return "gpu/max_reserved_memory_gib", "gpu/max_active_memory_gib", "gpu/max_reserved_memory_percent"
    memory = _MEMORY_NAME.fullmatch(key)
    if memory:
        label = "_".join(part.strip() for part in memory.groups()[:2] if part)
        if memory[3] is None:
            return (f"gpu/{label}_memory_rank",)
        parts = ["usage", *memory[3].split("/")[1:]]
        head = f"gpu/{label}_memory_" if label else "gpu/memory_"
        return tuple(head + _MEMORY_PARTS.get(part, part) for part in parts)
    name = NAMES.get(key)
    if name is None:
        name = OWN + key if key in _KNOWN or key.startswith((OWN, "gpu/")) or key.endswith(AVERAGE) else key
    return name, name + AVERAGE


def is_known(key: str) -> bool:
    """Whether a key is one that a known program prints."""
    return key in NAMES or _MEMORY_NAME.fullmatch(key) is not None


FAMILY = "Megatron"
UNITS = {"approx flops per GPU": TERA}
_OWN_KEYS = ("elapsed time per iteration*", "consumed *", "lm loss*", "lm_loss*", "number of skipped iterations",
             "global batch size", "loss scale")  # fmt: skip
_LOOKS = r"iteration\s+INT\s*(?:/|$)"
TRAINING = Form("iteration ", r"iteration\s+(?P<step>INT)(?!\d)(?:\s*/\s*(?P<total>INT))?\s*\|",
                fields=PIPES, looks=_LOOKS, needs=_OWN_KEYS)  # fmt: skip
_LAST = r"the end of training"
EPISODES = Form("episode ", r"episode\s+(?P<step>INT)(?!\d)(?:\s*/\s*(?P<total>INT))?\s*\|",
                fields=PIPES, needs=_OWN_KEYS)  # fmt: skip
_AT = r"(?:loss|results) at (?:iteration\s+(?P<step>INT)(?!\d)|the end of training)"
_ENDINGS = {" value": "", " PPL": " ppl"}
EVALUATIONS = tuple(
    Form(word, rf"{word}(?P<set>-[\w.-]{{1,100}})? {_AT}{on}\|", EVAL, PIPES, named=f"{{}} {name}{{part}}",
         endings=_ENDINGS, looks=rf"{word}[\w.-]{{0,100}} (?:loss|results) at iteration\s+\d")
    for word, on, name in (("validation", r" on test set\s+", "test"), ("validation", r"[^|]{0,100}", "validation"),
                           ("test", r"[^|]{0,100}", "test"))
)  # fmt: skip
MEMORY_OF_RANK = Form(
    "[Rank ", r"\[Rank (?P<rank>INT)\] \(after (?P<step>INT) iterations\) memory \([MG]B\) \|",
    MEMORY, PIPES, looks=r"\[Rank INT\] \(after INT iterations\) memory",
)  # fmt: skip
LOADED = Form("successfully loaded", r"successfully loaded checkpoint .{0,2000}at iteration (?P<step>INT)", RESUME)
DONE = Form("[after training is done]", r"\[after training is done\] datetime", END)
ANEW = Form("will start from random", r"will start from random", BEGIN)

PROGRAM = Program(
    "Megatron-LM",
    "megatron/training/training.py",
    "iteration 2/ 10 | consumed samples: 256 | elapsed time per iteration (ms): 9836.3 | lm loss: 1.17E+01 |",
    "the iteration",
    (TRAINING, EPISODES, *EVALUATIONS, MEMORY_OF_RANK, LOADED, ANEW, DONE),
    units=UNITS,
    naming=metric_names,
    releases=(
        (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\]\s+iteration", "2026 (stamps with microseconds)"),
        (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]\s+iteration", "2024 and 2025"),
    ),
    family=FAMILY,
)
