"""verl: ``LocalLogger`` in ``verl/utils/logger/aggregate_logger.py``: every value under its own name."""

from __future__ import annotations

from trackers_console_logs.forms.fields import DASHES
from trackers_console_logs.forms.program import EVAL, RESUME, Form, Program

TRAINING = Form(
    "step:", r"step:(?P<step>INT) - (?=\S+:)", fields=DASHES, always=("*/*",), looks=r"step:INT(?: -| ?$)",
)  # fmt: skip
VALIDATION = Form(
    "step:", r"step:(?P<step>INT) - (?=(?:rollouter/\S{1,400} - ){0,20}(?:val[-/]\S{1,400}(?: - |\s*$))+$)", EVAL,
    DASHES,
)  # fmt: skip
"""Before training, where it is resumed, and of asynchronous training; others stand in training's rows."""
RESUMED = Form("etting global step to", r"Setting global step to (?P<step>INT)", RESUME, first=False)

PROGRAM = Program(
    "verl",
    "verl/utils/logger/aggregate_logger.py",
    "step:1 - actor/pg_loss:0.05 - actor/lr:1e-06 - critic/score/mean:np.float64(0.5) - timing_s/step:90.5",
    "`step`; step 0 is the validation before training",
    (VALIDATION, TRAINING, RESUMED),
    alone=True,
    releases=((r"np\.float64\(", "0.5 and later (2025, 2026)"), (r"val-core/|val-aux/", "0.3 and later (2025)"),
              (r"step:", "0.1 to 0.7 (2024 to 2026)")),
)  # fmt: skip
