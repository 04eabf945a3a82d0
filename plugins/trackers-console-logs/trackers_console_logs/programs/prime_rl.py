"""prime-rl: ``trainer/rl/train.py``, ``trainer/sft/train.py`` and ``orchestrator/orchestrator.py``."""

from __future__ import annotations

import re

from trackers_console_logs.forms.fields import SECONDS, WORDS, FieldLayout
from trackers_console_logs.forms.program import END, EVAL, PROGRESS, RESUME, Form, Program

_PEAK = ("gpu/max_reserved_memory_gib", "gpu/memory_total_gib", "gpu/max_reserved_memory_percent")
_EVALUATED = FieldLayout(
    pattern=re.compile(rb"([A-Z][\w@ -]{0,60})(?:=|: )([^,()\n]{1,40}(?:\([^()\n]{1,100}\))?)(?:, |$)"), closes=b")"
)
"""``Avg@8=0.25, Pass@1: 0.25, …)``."""
PROGRAM = Program(
    "prime-rl",
    "src/prime_rl/trainer/rl/train.py",
    "Step 10 | 12.3s | Loss 0.1234 | Entropy 0.5000 | Grad. Norm 0.1000 | LR 1.00e-06 | Throughput 1234 tokens/s | …",
    "`Step`",
    (
        Form("Step ", r"Step (?P<step>INT) \| +(?:Time: )?(?P<time>\d[\d.]{0,12}(?:ms|s|m|h|d)(?: \d{1,3}[smh])?) \|",
             fields=WORDS, needs=("Throughput", "Reward"), fixed=True, optional=("Max Vio", "Routing Conf."),
             looks=r"Step INT \| +(?:\d|$)"),
        Form("Validation ", r"Validation \| Step (?P<step>INT) \|", EVAL, WORDS, named="{} validation", fixed=True,
             looks=r"Validation \| Step"),
        Form("Evaluated ", r"Evaluated (?P<set>\S{1,200}) \(Step (?P<step>INT)\) \| (?:Policy v(?P<policy>INT) \| )?"
             r" *(?P<time>\d[\d.]{0,12}(?:ms|s|m|h|d)(?: \d{1,3}[smh])?) \|", EVAL, WORDS, named="eval/{part}/{}",
             fixed=True, looks=r"Evaluated \S{1,200} \(Step"),
        Form("Evaluated ", r"Evaluated (?P<set>\S{1,200}) in (?P<time>\d[\d.]{0,12}s) \(", EVAL, _EVALUATED,
             named="eval/{part}/{}", looks=r"Evaluated \S{1,200} in \d[\d.]{0,12}s"),  # 2025: at the last row's step
        Form("╰─", r"╰─ (?P<set>\S{1,200})\s{0,200}\|", EVAL, WORDS, named="train/{part}/{}", fixed=True, first=False),
        Form("Micro Step ", r"Micro Step INT/", PROGRESS),
        Form("Resuming training from checkpoint step", r"Resuming training from checkpoint step (?P<step>INT)", RESUME),
        Form("RL trainer finished!", r"RL trainer finished!", END),
        Form("SFT trainer finished!", r"SFT trainer finished!", END),
    ),
    names={
        "Loss": "train_loss", "Loss validation": "val_loss", "Grad. Norm": "grad_norm", "LR": "learning_rate",
        "Throughput": "perf/tokens_per_sec", "MFU": "perf/mfu_percent", "Peak Mem.": _PEAK,
        "time": "perf/iter_time_sec", "Reward": "reward",
        "Seq. Length": "sequence_length", "Entropy": "entropy", "Mismatch KL": "mismatch_kl",
        "Trainable": ("trainable", "trainable_of", "trainable_percent"),
    },
    units={"time": SECONDS},
    releases=((r"\| +\d[\d.]*(?:ms|s|m|h|d) ", "2026"), (r"Time: |Step", "2025 and 2026")),
)  # fmt: skip
