"""Accelerate's examples: ``nlp_example.py``, ``cv_example.py``, ``by_feature``, ``torch_native_parallelism``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import LITERAL, FieldLayout
from trackers_console_logs.forms.program import END, EVAL, RESUME, Form, Program

_EPOCH = r"epoch (?P<epoch>INT)"
PROGRAM = Program(
    "Accelerate examples",
    "examples/nlp_example.py",
    "epoch 0: {'accuracy': 0.6838, 'f1': 0.8122}",
    "the epoch; with `update step` that; of `Step 10/100, Loss: …` that",
    (
        Form("epoch ", _EPOCH + r": \{", fields=LITERAL, named="eval_{}", looks=r"epoch INT: \{"),
        Form("epoch ", _EPOCH + r": (?P<percent_right>\d{1,3}\.\d\d)\s*$", keys={"percent_right": "accuracy (%)"}),
        Form("epoch ", _EPOCH + r":{1,2} (?:eval )?perplexity: (?P<perplexity>\S{1,100}) "
             r"eval_loss: (?P<eval_loss>[^\s(]{1,100}(?:\([^()\n]{1,200}\))?)",
             looks=r"epoch INT:{1,2} (?:eval )?perp"),
        Form("epoch ", _EPOCH + r" - update step (?P<step>INT):: grad norm: (?P<norm>\S{1,100}) "
             r"::train loss: (?P<loss>\S{1,100})", keys={"norm": "grad norm", "loss": "train loss"},
             looks=r"epoch INT - update"),
        Form("Step ", r"Step (?P<step>INT)/(?P<total>INT), Loss: (?P<loss>NUM)(?: \||\s*$)",
             fields=FieldLayout(b"|", b":"), keys={"loss": "Loss"}, needs=("Average tokens/s",),
             looks=r"Step INT/INT, "),
        Form("Memory (GB):", r"Memory \(GB\): ", EVAL, FieldLayout(b",", b"="), later=True, named="memory/{}_gb"),
        Form("Resumed from checkpoint:", r"Resumed from checkpoint:", RESUME),
        Form("Training completed!", r"Training completed!", END),
    ),
    names={
        "eval_loss": "val_loss", "perplexity": "val_perplexity", "Loss": "train_loss", "train loss": "train_loss",
        "grad norm": "grad_norm", "accuracy (%)": "eval_accuracy_percent",
        "Average tokens/s": "perf/tokens_per_sec_per_gpu", "Average steps/s": "perf/steps_per_sec",
        "Average TFLOPS": "perf/tflops_per_gpu",
    },
    releases=((r"[eE]poch|Step", "0.20 and later (2023 to 2026)"),),
)  # fmt: skip
