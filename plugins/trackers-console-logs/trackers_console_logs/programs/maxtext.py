"""MaxText: ``src/maxtext/common/metric_logger.py``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import COLONS, EQUALS
from trackers_console_logs.forms.program import EVAL, PROGRESS, RESUME, Form, Program

TRAINING = Form(
    "completed ", r"completed (?:profiler activation/deactivation )?step: (?P<step>INT),", fields=COLONS,
    needs=("seconds", "total_weights"), fixed=True, looks=r"completed (?:profiler activation/deactivation )?step: \d",
)  # fmt: skip
RAMPUP = Form("[Rampup Batch Size Phase]", r"\[Rampup Batch Size Phase\], completed step: (?P<step>INT),",
              fields=COLONS, fixed=True, looks=r"\[Rampup Batch Size Phase\]")  # fmt: skip
RUNNING = Form("Completed eval step:", r"Completed eval step: \d+", PROGRESS)
EVALUATIONS = tuple(
    Form(word, rf"{word} after (?:train )?step:? (?P<step>INT),", EVAL, EQUALS, named="{} validation",
         needs=("total_weights",), fixed=True, looks=rf"{word} after (?:train )?step")
    for word in ("Completed eval", "eval metrics", "eval")
)  # fmt: skip
RESTORED = Form("restor", r"restor(?:ed|ing) .{0,300}step (?P<step>INT)", RESUME)

PROGRAM = Program(
    "MaxText",
    "src/maxtext/common/metric_logger.py",
    "completed step: 49, seconds: 5.018, TFLOP/s/device: 107.127, Tokens/s/device: 6529.527, …, loss: 10.172",
    "`step`",
    (TRAINING, RAMPUP, RUNNING, *EVALUATIONS, RESTORED),
    names={
        "loss": "train_loss",
        "loss validation": "val_loss",
        "perplexity": "train_perplexity",
        "perplexity validation": "val_perplexity",
        "seconds": "perf/iter_time_sec",
        "TFLOP/s/device": "perf/tflops_per_gpu",
        "TFLOP/s": "perf/tflops_per_gpu",
        "Tokens/s/device": "perf/tokens_per_sec_per_gpu",
    },
    releases=((r"lm_loss:|Completed eval", "2026"), (r"TFLOP/s:", "2023"), (r"completed|eval", "2024 and 2025")),
)
