"""Megatron Bridge: ``src/megatron/bridge/training/utils/train_utils.py``, Megatron-LM's line and one before it."""

from __future__ import annotations

from trackers_console_logs.forms.program import NEXT, Form, Program
from trackers_console_logs.programs import megatron

STEP_TIME = Form(
    "Step Time :",
    r"Step Time : (?P<time>NUM)s GPU utilization: (?P<tflops>NUM)(?:MODEL_| )TFLOP/s/GPU",
    NEXT,
    keys={"time": "Step Time (s)", "tflops": "GPU utilization"},
    looks="Step Time :",
)

PROGRAM = Program(
    "Megatron Bridge",
    "src/megatron/bridge/training/utils/train_utils.py",
    "Step Time : 6.05s GPU utilization: 1255.4MODEL_TFLOP/s/GPU",
    "the iteration of Megatron-LM's line, which stands behind it",
    (STEP_TIME,),
    naming=megatron.metric_names,
    releases=((r"TFLOP/s/GPU", "0.1 and later (2025, 2026)"),),
    family=megatron.FAMILY,
)
