"""Primus: ``primus/backends/megatron/patches/training_log``; TorchTitan's lines behind Primus' head."""

from __future__ import annotations

from trackers_console_logs.forms.program import Program
from trackers_console_logs.programs import megatron

PROGRAM = Program(
    "Primus",
    "primus/backends/megatron/patches/training_log/print_rank_last_patches.py",
    "[20260105 11:27:38][rank-7/8][INFO ] … iteration 2/ 10 | … | tokens/s/GPU inst/harmonic mean: 13325.3/13325.3 |",
    "the iteration",
    (),
    units=megatron.UNITS,
    naming=megatron.metric_names,
    releases=((r"rank-\d+ rocm max mem usage|inst/harmonic mean", "2026"), (r"iteration\s", "2025")),
    family=megatron.FAMILY,
)
"""Told by the head of its lines (``[rank-7/8]``)."""
