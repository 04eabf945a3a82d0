"""Instructions for the sampler, as the relay passes them to the sampler's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trackers.metrics import gpu_details

BEAT, READING, BEGUN = b".", b"r", b"b"
"""Signals of the sampler: a sample is taken; a driver is asked, until the next signal; it runs, without a sample."""


class SamplingPlan(msgspec.Struct, kw_only=True):
    """Metrics to sample, and their interval.

    node, nodes: this machine's number, and how many the run has. pid, pid_start: training's. scope: "job" or "node".
    details: groups of further values of GPUs. interval_s: between samples. record_s: what a record of ``system.*`` sums
    up. co2_g_per_kwh: 0 for unknown. beat_fd: where it is told that all is well, and that a reading begins; -1 for
    nowhere. ahead_s, within_s: of this machine's clock before the main node's, and by how much that may be wrong;
    within_s None where it isn't known. steps: a file with the newest step, where the main rank's stream isn't on this
    machine. late: training had ended before: GPUs and machine are described, and nothing is sampled.
    """

    attempt: int = 1
    node: int = 0
    nodes: int = 1
    pid: int = 0
    pid_start: float = 0.0
    scope: str = "job"
    details: tuple[str, ...] = ()
    interval_s: float = 1.0
    record_s: float = 10.0
    co2_g_per_kwh: float = 0.0
    beat_fd: int = -1
    ahead_s: float = 0.0
    within_s: float | None = None
    steps: str = ""
    late: bool = False


def planned(options: Mapping[str, Any], plan: SamplingPlan) -> SamplingPlan:
    """A plan with what the run's options say."""
    return msgspec.structs.replace(
        plan,
        scope=str(options.get("TRACKER_GPU_SCOPE") or "job"),
        details=_details(str(options.get("TRACKER_GPU_DETAIL") or "basic")),
        interval_s=float(options.get("TRACKER_SAMPLE_INTERVAL") or 1),
        record_s=float(options.get("TRACKER_SAMPLE_RECORD_INTERVAL") or 10),
        co2_g_per_kwh=float(options.get("TRACKER_CO2_G_PER_KWH") or 0),
    )


def _details(text: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(gpu_details.parse(text)))
    except ValueError:  # init refuses it: of a run whose directory was edited, or that another version began
        return tuple(sorted(gpu_details.BASIC))
