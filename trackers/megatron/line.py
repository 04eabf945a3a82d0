"""Document 4's summary line, and its report of stragglers, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

SEPARATOR = " | "


def summary(
    *,
    time: float,
    iteration: int,
    iterations: int,
    consumed_samples: int,
    batch_size: int,
    skipped_samples: int = 0,
    elapsed_ms: float | None = None,
    tflops: float | None = None,
    energy_j: float | None = None,
    power_w: float | None = None,
    learning_rate: float | None = None,
    losses: Mapping[str, float] | None = None,
    loss_scale: float | None = None,
    grad_norm: float | None = None,
    zeros: float | None = None,
    params_norm: float | None = None,
    max_attention_logit: float | None = None,
    skipped: int = 0,
    nans: int = 0,
) -> str:
    """The line of one interval. What is None is left out, but for the learning rate, which is said to be None.

    Args:
        time: Unix seconds. elapsed_ms: per iteration. tflops, energy_j, power_w: per GPU. losses: their means.
        skipped, nans: iterations of the interval.
    """
    when = datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S")
    fields = [f"[{when}] iteration {iteration:8d}/{iterations:8d}", f"consumed samples: {consumed_samples:12d}"]
    if skipped_samples > 0:
        fields.append(f"skipped samples: {skipped_samples:12d}")
    _add(fields, "elapsed time per iteration (ms): {:.1f}", elapsed_ms)
    _add(fields, "throughput per GPU (TFLOP/s/GPU): {:.1f}", tflops)
    _add(fields, "energy per GPU (J/iter/GPU): {:.1f}", energy_j)
    _add(fields, "power per GPU (W/GPU): {:.1f}", power_w)
    fields.append("learning rate: None" if learning_rate is None else f"learning rate: {learning_rate:.6E}")
    fields.append(f"global batch size: {batch_size:5d}")
    fields.extend(f"{name}: {loss:.6E}" for name, loss in (losses or {}).items())
    _add(fields, "loss scale: {:.1f}", loss_scale)
    _add(fields, "grad norm: {:.3f}", grad_norm)
    _add(fields, "num zeros: {}", None if zeros is None else int(zeros))
    _add(fields, "params norm: {:.3f}", params_norm)
    _add(fields, "max attention logit: {:.3f}", max_attention_logit)
    fields += [f"number of skipped iterations: {skipped:3d}", f"number of nan iterations: {nans:3d}"]
    return SEPARATOR.join(fields) + " |"


STRAGGLER_FIELDS = {
    "rtt_ms": "Rtt", "power_w": "Pwr", "temp_c": "Tmp", "util_pct": "Utl", "clock_mhz": "Clk", "drtt_ms": "DRtt",
    "tflops": "Etpt",
}  # fmt: skip
"""What each rank tells, and its short name in the line: round-trip, power, temperature, utilisation, clock, device
round-trip, estimated throughput."""


def stragglers(ranks: Sequence[Mapping[str, Any] | None], ends: int = 4) -> list[str]:
    """The report: each field's smallest and largest value with its rank, then the slowest and the quickest ranks.

    Args:
        ranks: by rank, what it told by field (``STRAGGLER_FIELDS``); None for one that told nothing.
        ends: how many ranks are named at the bottom and at the top, where there are more than one.

    Returns:
        lines; none where no rank told anything.
    """
    fields = []
    for name, short in STRAGGLER_FIELDS.items():
        told = [(row[name], rank) for rank, row in enumerate(ranks) if row and row.get(name) is not None]
        if told:
            (low, at_low), (high, at_high) = min(told), max(told, key=lambda pair: (pair[0], -pair[1]))
            fields += [f"Mn{short}/Rnk: {low:.2f}/{at_low}", f"Mx{short}/Rnk: {high:.2f}/{at_high}"]
    if not fields:
        return []
    lines = [SEPARATOR.join(fields)]
    what, unit = ("tflops", "Etpt (TF)") if any(row and row.get("tflops") for row in ranks) else ("rtt_ms", "Rtt (ms)")
    known = [(float(row[what]), rank) for rank, row in enumerate(ranks) if row and row.get(what) is not None]
    if len(known) > 1:
        slow = sorted(known, key=lambda pair: (pair[0] if what == "tflops" else -pair[0], pair[1]))
        count = min(ends, len(slow))
        lines.append(f"Bottom {count} ranks by {unit}: {_named(slow[:count])}")
        lines.append(f"Top {count} ranks by {unit}: {_named(slow[::-1][:count])}")
    return lines


def _named(pairs: Sequence[tuple[float, int]]) -> str:
    return ", ".join(f"rank {rank}: {value:.2f}" for value, rank in pairs)


def _add(fields: list[str], form: str, value: Any) -> None:
    if value is not None:
        fields.append(form.format(value))
