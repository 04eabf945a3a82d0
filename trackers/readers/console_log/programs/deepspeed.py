"""DeepSpeed: its engine (``deepspeed/runtime/engine.py``), its timer (``utils/timer.py``), its pipeline engine."""

from __future__ import annotations

from trackers.readers.console_log.forms.fields import EQUALS, LIST
from trackers.readers.console_log.forms.program import Form, Program

_RANK = r"(?:\[Rank INT\] )?"
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
        Form("steps:", r"steps: (?P<step>INT) loss: (?P<loss>NUM) (?:[^:\n]{1,100}: NUM ){0,20}?iter time \(s\): "
             r"(?P<time>NUM) samples/sec: (?P<samples>NUM)", keys={"time": "iter time (s)", "samples": "samples/sec"},
             looks=r"steps: INT loss:"),
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
