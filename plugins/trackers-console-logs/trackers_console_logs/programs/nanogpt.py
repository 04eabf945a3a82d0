"""nanoGPT (``train.py``), nanochat (``scripts/base_train.py``, ``chat_sft.py``, ``chat_rl.py``) and modded-nanogpt."""

from __future__ import annotations

import re

from trackers_console_logs.forms.fields import PIPES, SECONDS, SPACED, FieldLayout
from trackers_console_logs.forms.program import BEGIN, END, EVAL, RESUME, Form, Program

NANOGPT = Program(
    "nanoGPT",
    "train.py",
    "iter 10: loss 3.1459, time 25.50ms, mfu 14.60%",
    "`iter`; an evaluation's `step` is the same count",
    (
        Form("iter ", r"iter (?P<step>INT): loss (?P<loss>NUM), time (?P<time>NUM)ms(?:, mfu (?P<mfu>NUM)%)?",
             fixed=True, looks=r"iter INT:"),
        Form("step ", r"step (?P<step>INT): train loss (?P<train>NUM), val loss (?P<val>NUM)", EVAL,
             looks=r"step INT: train "),
        Form("Resuming training from ", r"Resuming training from ", RESUME),
        Form("Initializing ", r"Initializing (?:a new model from scratch|from OpenAI GPT-2 weights)", BEGIN),
    ),
    names={"loss": "train_loss", "time": "perf/iter_ms", "mfu": "perf/mfu_percent", "train": "train/loss",
           "val": "val_loss"},
    silent={"perf/mfu_percent": -100.0},
    releases=((r"mfu", "2023 to 2025"), (r"iter|step", "2022")),
)  # fmt: skip
"""``train/loss`` is the evaluation's estimate, as the program calls it at W&B; mfu -100 % says that there is none."""

_HEAD = r"step (?P<step>INT)(?:/(?P<total>INT))?"
_FIELDS = FieldLayout(
    pattern=re.compile(
        rb"\s{0,40}([A-Za-z][^:|\n]{0,60}): ?([^\s|:]{1,60}(?: [^\s|:]{1,20}(?!:))?)\s*(?:\||(?= [a-z]{1,20}: )|$)"
    )
)
"""``key: value | …``, in which a value may be followed by others: ``epoch: 1 pq: 0 rg: 8``."""
NANOCHAT = Program(
    "nanochat",
    "scripts/base_train.py",
    "step 00010/01000 (1.00%) | loss: 3.141593 | lrm: 1.00 | dt: 123.45ms | tok/sec: 12,345 | mfu: 12.34 | …",
    "`step`",
    (
        Form("step ", _HEAD + r" \((?P<done>NUM)%\) {1,2}\|", fields=_FIELDS, keys={"done": "done (%)"}, needs=("lrm",),
             looks=r"step INT(?:/(?:INT(?: \(| ?$)|$)| \()"),
        Form("Step ", _HEAD.replace("step ", "Step ") + r"(?<=\d{5}) \| (?=Validation (?:bpb|loss):|CORE|ChatCORE)",
             EVAL, PIPES, looks=r"Step INT \| (?:Val|CORE|Chat)"),
        Form("Step ", _HEAD.replace("step ", "Step ") + r" \| (?=Pass@)", EVAL, FieldLayout(b",", b":"),
             looks=r"Step INT \| Pass@"),
        Form("Step ", _HEAD.replace("step ", "Step ") + r" \| (?=Average reward:|Training loss:)", fields=PIPES,
             needs=("lrm", "Average reward+Average sequence length"),
             looks=r"Step INT/INT \| (?:Average|Training)"),
        Form("Resuming optimization from step ", r"Resuming optimization from step (?P<step>INT)", RESUME),
        Form("Total training time:", r"Total training time: (?:NUM)m", END),
    ),
    names={
        "loss": "train_loss", "dt": "perf/iter_time_sec", "tok/sec": "perf/tokens_per_sec", "mfu": "perf/mfu_percent",
        "bf16_mfu": "perf/mfu_percent", "grad_norm": "grad_norm", "grad norm": "grad_norm", "epoch": "epoch",
        "done (%)": "done_percent",
        "total time": "total_time_s", "eta": "eta_s", "Validation bpb": "val_bpb",
        "Training loss": "train_loss", "Validation loss": "val_loss", "CORE metric": "core_metric",
        "Average reward": "reward", "Average sequence length": "sequence_length",
    },
    units={"dt": SECONDS, "total time": SECONDS, "eta": SECONDS},
    releases=((r"bf16_mfu", "2026"), (r"[sS]tep", "2025 and 2026")),
)  # fmt: skip

MODDED = Program(
    "modded-nanogpt",
    "train_gpt.py",
    "step:125/1750 val_loss:4.5012 train_time:12345ms step_avg:98.77ms",
    "`step`",
    (
        Form("step:", r"step:(?P<step>INT)/(?P<total>INT) (?=(?:train_loss|val_loss|val_bpb|train_time):)",
             fields=SPACED, needs=("train_time+step_avg",), fixed=True, looks=r"step:INT/\d"),
    ),
    trained_ms="train_time_ms",
    releases=((r"step:", "2024 to 2026"),),
)  # fmt: skip
