"""TorchTitan: ``MetricsProcessor`` in ``torchtitan/components/metrics.py``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import SPACED
from trackers_console_logs.forms.program import END, EVAL, RESUME, Form, Program

_MEMORY = ("gpu/max_reserved_memory_gib", "gpu/max_reserved_memory_percent")
_OWN = r"(?=loss:(?:[^\n]{0,1000}\b[tw]ps:|[^:\n]{0,99}(?:(?:grad_norm|memory):[^:\n]{0,99}){0,2}(?:[tw]ps:)?\s*$))"
"""What follows has its speed, or is the beginning of a row that lost its end: not `step: 3 loss: 2 lr: 1`."""
TRAINING = Form(
    "step:", r"step:\s*(?P<step>\d[\d,]{0,23})\s+" + _OWN, fields=SPACED, needs=("tps", "wps"), fixed=True,
    looks=r"step:\s*\d[\d,]{0,23}(?:\s|$)",
)  # fmt: skip
VALIDATION = Form(
    "validate step:", r"validate step:\s*(?P<step>\d[\d,]{0,23})\s+(?=loss:)", EVAL, SPACED, needs=("tps", "wps"),
    named="{} validation", fixed=True, looks=r"validate step:",
)  # fmt: skip
STARTS = Form("Training starts at step", r"Training starts at step INT", RESUME)  # the next; each rank says so
LOADING = Form("Loading the checkpoint", r"Loading the checkpoint (?:from \S{0,500}step-(?P<step>INT))?", RESUME)
DONE = Form("Training completed", r"Training completed", END)

PROGRAM = Program(
    "TorchTitan",
    "torchtitan/components/metrics.py",
    "step: 10  loss: 10.1043  grad_norm: 1.3900  memory: 49.90GiB(63.09%)  tps: 8,142  tflops: 67.43  mfu: 6.82%",
    "`step`",
    (VALIDATION, TRAINING, STARTS, LOADING, DONE),
    names={
        "loss": "train_loss", "loss validation": "val_loss", "grad_norm": "grad_norm",
        "tps": "perf/tokens_per_sec_per_gpu", "wps": "perf/tokens_per_sec_per_gpu", "tflops": "perf/tflops_per_gpu",
        "mfu": "perf/mfu_percent", "memory": _MEMORY, "memory validation": _MEMORY,
    },
    silent={"train_loss": -1.0, "val_loss": -1.0},
    releases=((r"tflops:", "2025 and 2026"), (r"tps:", "2025"), (r"wps:", "2024")),
)  # fmt: skip
"""A loss of -1 is printed by stages of a pipeline other than the last, which has it."""
