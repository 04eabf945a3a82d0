"""NeMo 2: ``nemo/lightning/pytorch/callbacks/progress_printer.py``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import PIPES
from trackers_console_logs.forms.program import END, PROGRESS, Form, Program

TRAINING = Form(
    "Training epoch ",
    r"Training epoch (?P<epoch>INT), iteration INT/INT \|",
    fields=PIPES,
    step_key="global_step",
    looks=r"Training epoch \d",
)
OTHERS = tuple(
    Form(word, rf"{word}(?: DataLoader \d+)?: iteration \d+/\d+", PROGRESS)
    for word in ("Validation", "Sanity checking Validation", "Testing")
)
STOPPED = Form("`Trainer.fit` stopped", r"`Trainer\.fit` stopped:", END)

PROGRAM = Program(
    "NeMo 2",
    "nemo/lightning/pytorch/callbacks/progress_printer.py",
    "Training epoch 0, iteration 1/99 | lr: 2e-06 | global_batch_size: 32 | global_step: 1 | reduced_train_loss: 8.02",
    "`global_step`; `iteration` counts within an epoch",
    (TRAINING, *OTHERS, STOPPED),
    names={
        "reduced_train_loss": "train_loss",
        "lr": "learning_rate",
        "train_step_timing in s": "perf/iter_time_sec",
        "TFLOPS_per_GPU": "perf/tflops_per_gpu",
        "global_batch_size": "global_batch_size",
        "consumed_samples": "consumed_samples",
        "val_loss": "val_loss",
        "grad_norm": "grad_norm",
    },
    releases=((r"global_step:", "2.0 and later (2024 to 2026)"),),
)
"""``val_loss`` stands in each line after the first validation, as the program repeats it."""
