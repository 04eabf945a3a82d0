"""DeepSpeed: its engine (``deepspeed/runtime/engine.py``), its timer (``utils/timer.py``), its pipeline engine."""

from __future__ import annotations

import re

from trackers_console_logs.forms.fields import EQUALS, LIST, FieldLayout
from trackers_console_logs.forms.program import RESUME, Form, Program

_SPACED = FieldLayout(pattern=re.compile(rb"([A-Za-z][^:\n]{0,100}): (\S{1,100})\s*"))
PROGRAM = Program(
    "DeepSpeed",
    "deepspeed/runtime/engine.py",
    "[Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]",
    "`step`; the timer's `global_step`",
    (
        Form("step=", r"step=(?P<step>INT), skipped=(?P<skipped>INT), lr=(?P<lr>\[[^\n]{0,2000}?\]), "
             r"mom=(?P<mom>\[[^\n]{0,2000}\])", looks=r"step=INT, s"),
        Form("epoch=", r"epoch=(?P<epoch>INT)/micro_step=(?P<micro>INT)/global_step=(?P<step>INT), "
             r"(?!vm)", fields=EQUALS, keys={"micro": "micro_step"},
             looks=r"epoch=INT/(?:m|$)"),
        Form("stop] ", r"(?!)", looks=r"stop\] INT/INT, (?:RunningAvg)?SamplesPerSec="),  # micro-batches, until 2022
        Form("steps:", r"steps: (?P<step>INT) (?=loss: )", fields=_SPACED, needs=("iter time (s)",), fixed=True,
             looks=r"steps: INT loss:"),
        Form("[Torch] Loading", r"\[Torch\] Loading checkpoint from [^\n]{0,1000}?global_step(?P<step>INT)\b", RESUME),
    ),
    names={
        "lr": "learning_rate", "skipped": "skipped_steps", "loss": "train_loss", "iter time (s)": "perf/iter_time_sec",
        "samples/sec": "perf/samples_per_sec", "CurrSamplesPerSec": "perf/samples_per_sec",
        "RunningAvgSamplesPerSec": "perf/samples_per_sec_avg", "MemAllocated": "memory/allocated_gib",
        "MaxMemAllocated": "memory/max_allocated_gib", "mom": "momentum",
    },
    units={"lr": LIST, "mom": LIST},
    helper=True,
    releases=((r"CurrSamplesPerSec", "0.6 and later (2022 to 2026)"), (r"step", "0.3 and later (2020 to 2026)")),
)  # fmt: skip
"""Several learning rates are ``learning_rate``, ``learning_rate/1``, …; its "GB" are GiB."""
