"""Megatron-DeepSpeed: ``megatron/training.py``, Megatron-LM's line with more fields."""

from __future__ import annotations

from trackers_console_logs.forms.program import Program
from trackers_console_logs.programs import megatron

PROGRAM = Program(
    "Megatron-DeepSpeed",
    "megatron/training.py",
    "iteration 2/ 100 | … | samples per second: 3.077 | tokens per gpu per second (tgs): 787.7 | TFLOPs: 23.58 |",
    "the iteration",
    (),
    naming=megatron.metric_names,
    releases=(
        (r"tokens per gpu per second", "2024 and 2025"),
        (r"elapsed time per iteration \(s\)", "BigScience's"),
        (r"samples per second", "2023"),
    ),
    family=megatron.FAMILY,
    marks=frozenset({"samples per second", "TFLOPs", "tokens per gpu per second (tgs)", "actual seqlen"}),
)
