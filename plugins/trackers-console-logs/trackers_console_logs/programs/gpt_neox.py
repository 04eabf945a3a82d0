"""GPT-NeoX: ``megatron/logging.py`` and ``evaluate_and_print_results`` in ``megatron/training.py``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import PIPES
from trackers_console_logs.forms.program import RESUME, Form, Program
from trackers_console_logs.programs import megatron

TRAINING = Form(
    "samples/sec:",
    r"samples/sec: (?P<samples>NUM) \| iteration\s+(?P<step>INT)\s*/\s*(?P<total>INT)\s*\|",
    fields=PIPES,
    keys={"samples": "samples/sec"},
    anywhere=True,
    looks=r"samples/sec: NUM? ?(?:$|\[|\| ?(?:$|\[|i))",
)
LOADED = Form("successfully loaded", r"successfully loaded \S{1,500}global_step(?P<step>INT)", RESUME)

PROGRAM = Program(
    "GPT-NeoX",
    "megatron/logging.py",
    "samples/sec: 98.2 | iteration 10/ 320000 | elapsed time per iteration (ms): 1304.2 | … | lm_loss: 1.06E+01 |",
    "the iteration",
    (TRAINING, LOADED),
    units=megatron.UNITS,
    naming=megatron.metric_names,
    releases=((r"HFU:", "2025 and 2026"), (r"approx flops per GPU", "2 (2023 to 2025)")),
    family=megatron.FAMILY,
)
