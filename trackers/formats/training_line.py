"""Document 4's summary line, its line of an evaluation and its report of stragglers, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

SEPARATOR = " | "
VALIDATION, PERPLEXITY = " validation", " validation ppl"
"""How document 4's names of evaluations end."""
VS_SAMPLES = " vs samples"
SAMPLES = "samples vs steps"
"""The samples that went through, as Megatron names them; who logs them prints a line of its own."""


RATE = "learning rate"
DECOUPLED_RATE = "decoupled learning rate"


def summary(
    *,
    time: float,
    iteration: int,
    iterations: int | None = None,
    consumed_samples: float | None = None,
    batch_size: float | None = None,
    skipped_samples: float = 0,
    elapsed_ms: float | None = None,
    tflops: float | None = None,
    energy_j: float | None = None,
    power_w: float | None = None,
    rates: Mapping[str, float | None] | None = None,
    losses: Mapping[str, float | None] | None = None,
    loss_scale: float | None = None,
    grad_norm: float | None = None,
    zeros: float | None = None,
    params_norm: float | None = None,
    max_attention_logit: float | None = None,
    others: Mapping[str, float | None] | None = None,
    skipped: float | None = None,
    nans: float | None = None,
) -> str:
    """The line of one interval. A field that is None is left out; a rate, loss or other value that is says so.

    Args:
        time: Unix seconds. elapsed_ms: per iteration. tflops, energy_j, power_w: per GPU.
        rates: by what the line calls them (``RATE``, ``DECOUPLED_RATE``). losses: their means.
        others: what else the training logged. skipped, nans: iterations of the interval.
    """
    when = datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S")
    fields = [f"[{when}] iteration {iteration:8d}" + ("" if iterations is None else f"/{iterations:8d}")]
    _add(fields, "consumed samples: {:12d}", consumed_samples)
    _add(fields, "skipped samples: {:12d}", skipped_samples or None)
    _add(fields, "elapsed time per iteration (ms): {:.1f}", elapsed_ms)
    _add(fields, "throughput per GPU (TFLOP/s/GPU): {:.1f}", tflops)
    _add(fields, "energy per GPU (J/iter/GPU): {:.1f}", energy_j)
    _add(fields, "power per GPU (W/GPU): {:.1f}", power_w)
    fields.extend(_named(name, "{:.6E}", rate) for name, rate in (rates or {}).items())
    _add(fields, "global batch size: {:5d}", batch_size)
    fields.extend(_named(name, "{:.6E}", loss) for name, loss in (losses or {}).items())
    _add(fields, "loss scale: {:.1f}", loss_scale)
    _add(fields, "grad norm: {:.3f}", grad_norm)
    _add(fields, "num zeros: {:d}", zeros)
    _add(fields, "params norm: {:.3f}", params_norm)
    _add(fields, "max attention logit: {:.3f}", max_attention_logit)
    fields.extend(_named(name, "{:.6E}", value) for name, value in (others or {}).items())
    _add(fields, "number of skipped iterations: {:3d}", skipped)
    _add(fields, "number of nan iterations: {:3d}", nans)
    return SEPARATOR.join(fields) + " |"


def validation(iteration: int, values: Mapping[str, float | None]) -> str:
    """The line of an evaluation: ``{key} validation`` is its ``{key} value``, ``{key} validation ppl`` its PPL."""
    fields = [f"validation loss at iteration {iteration}"]
    for name, value in values.items():
        if name.endswith(PERPLEXITY):
            name = f"{name.removesuffix(PERPLEXITY)} PPL"
        elif name.endswith(VALIDATION):
            name = f"{name.removesuffix(VALIDATION)} value"
        fields.append(_named(name, "{:.6E}", value))
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
        lines.append(f"Bottom {count} ranks by {unit}: {_ranked(slow[:count])}")
        lines.append(f"Top {count} ranks by {unit}: {_ranked(slow[::-1][:count])}")
    return lines


def _ranked(pairs: Sequence[tuple[float, int]]) -> str:
    return ", ".join(f"rank {rank}: {value:.2f}" for value, rank in pairs)


def _named(name: str, form: str, value: float | None) -> str:
    return f"{name}: {'None' if value is None else form.format(value)}"


def _add(fields: list[str], form: str, value: float | None) -> None:
    if value is None:
        return
    if form.endswith("d}"):  # a count; one that is NaN is shown, too
        form, value = (form, int(value)) if math.isfinite(value) else (form.replace("d}", "}"), value)
    fields.append(form.format(value))
