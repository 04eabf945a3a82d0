"""LitGPT: ``litgpt/pretrain.py``, ``litgpt/finetune/full.py`` and ``lora.py``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import SECONDS
from trackers_console_logs.forms.program import EVAL, RESUME, Form, Program

PROGRAM = Program(
    "LitGPT",
    "litgpt/pretrain.py",
    "Epoch 1 | iter 2 step 1 | loss train: 10.500, val: n/a | iter time: 310.50 ms (step) remaining time: 0:01:00",
    "`iter` (passes), as in its loggers; `step` (optimizer steps) is the metric `optimizer_step`",
    (
        Form("Epoch ", r"Epoch (?P<epoch>INT) \| iter (?P<step>INT) step (?P<optimizer>INT) \| "
             r"loss train: (?P<loss>NUM), val: (?P<val>NUM|n/a) \| iter time: (?P<time>NUM) ms(?: \(step\))?"
             r"(?: remaining time: (?P<left>(?:\d+ days?, )?[\d:]{1,12}))?", looks=r"Epoch INT \|"),
        Form("iter ", r"iter (?P<step>INT): val loss (?P<val_loss>NUM), val time: (?P<val_time>NUM) ms", EVAL,
             keys={"val_time": "val time"}, looks=r"iter INT: val "),
        Form("Final evaluation", r"Final evaluation \| val loss: (?P<val_loss>NUM) \| val ppl: (?P<ppl>NUM)", EVAL,
             looks=r"Final evaluation", ends=True),
        Form("Resuming training from ", r"Resuming training from ", RESUME),
    ),
    names={"loss": "train_loss", "val_loss": "val_loss", "val": "last_val_loss", "ppl": "val_perplexity",
           "time": "perf/iter_ms", "optimizer": "optimizer_step", "left": "remaining_time_s",
           "val time": "val_time_ms"},
    units={"left": SECONDS},
    releases=((r"Epoch|iter|Final", "0.4 and later (2024 to 2026)"),),
)  # fmt: skip
"""``val`` of a training's line is what the last evaluation found: ``last_val_loss``."""
