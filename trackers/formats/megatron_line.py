"""Megatron's training line, its line of an evaluation and its reports of stragglers and timers, as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from trackers.errors import UsageError

SEPARATOR = " | "
VALIDATION, PERPLEXITY = " validation", " validation ppl"
"""Suffixes of Megatron's names of evaluations."""
PPL_MOST = 20.0
"""Losses above it have this one's perplexity."""
VS_SAMPLES = " vs samples"
SAMPLES = "samples vs steps"
"""The samples that went through, as Megatron names them; who logs them prints a line of its own."""


RATE = "learning rate"
DECOUPLED_RATE = "decoupled learning rate"


def summary(
    *, time: float, iteration: int, iterations: int | None = None, consumed_samples: float | None = None,
    batch_size: float | None = None, skipped_samples: float = 0, elapsed_ms: float | None = None,
    tflops: float | None = None, energy_j: float | None = None, power_w: float | None = None,
    rates: Mapping[str, float | None] | None = None, losses: Mapping[str, float | None] | None = None,
    loss_scale: float | None = None, grad_norm: float | None = None, zeros: float | None = None,
    params_norm: float | None = None, max_attention_logit: float | None = None,
    others: Mapping[str, float | None] | None = None, skipped: float | None = None, nans: float | None = None,
) -> str:  # fmt: skip
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
    fields.extend(_field(name, "{:.6E}", rate) for name, rate in (rates or {}).items())
    _add(fields, "global batch size: {:5d}", batch_size)
    fields.extend(_field(name, "{:.6E}", loss) for name, loss in (losses or {}).items())
    _add(fields, "loss scale: {:.1f}", loss_scale)
    _add(fields, "grad norm: {:.3f}", grad_norm)
    _add(fields, "num zeros: {:d}", zeros)
    _add(fields, "params norm: {:.3f}", params_norm)
    _add(fields, "max attention logit: {:.3f}", max_attention_logit)
    fields.extend(_field(name, "{:.6E}", value) for name, value in (others or {}).items())
    _add(fields, "number of skipped iterations: {:3d}", skipped)
    _add(fields, "number of nan iterations: {:3d}", nans)
    return SEPARATOR.join(fields) + " |"


def validation(iteration: int, values: Mapping[str, float | None]) -> str:
    """The line of an evaluation: ``{key} validation`` is its ``{key} value``, ``{key} validation ppl`` its PPL.

    A validation loss without a perplexity among the values has the one that follows from it.
    """
    fields = [f"validation loss at iteration {iteration}"]
    for name, value in values.items():
        if name.endswith(PERPLEXITY):
            if name.removesuffix(" ppl") not in values:
                fields.append(_field(f"{name.removesuffix(PERPLEXITY)} PPL", "{:.6E}", value))
        elif name.endswith(VALIDATION):
            key, known = name.removesuffix(VALIDATION), values.get(f"{name} ppl")
            fields.append(_field(f"{key} value", "{:.6E}", value))
            fields.append(_field(f"{key} PPL", "{:.6E}", perplexity(value) if known is None else known))
        else:
            fields.append(_field(name, "{:.6E}", value))
    return SEPARATOR.join(fields) + " |"


def perplexity(loss: float | None) -> float | None:
    """exp(loss), of ``PPL_MOST`` at most, so that an untrained model's is a number one can plot; NaN stays NaN."""
    return None if loss is None else math.exp(min(loss, PPL_MOST))


STRAGGLER_FIELDS = {
    "rtt_ms": ("Rtt", "ms"), "power_w": ("Pwr", "W"), "temp_c": ("Tmp", "C"), "util_pct": ("Utl", "%"),
    "clock_mhz": ("Clk", "MHz"), "drtt_ms": ("DRtt", "ms"), "tflops": ("Etpt", "TF"),
}  # fmt: skip
"""What each rank tells, its short name in the line and its unit: time in the traced sections per iteration, power,
temperature, utilisation, clock, latency of the data (or, where that isn't traced, the iteration by the GPU's clock),
estimated throughput."""
STRAGGLER_ENDS = 4


def stragglers(ranks: Sequence[Mapping[str, Any] | None], ends: int = STRAGGLER_ENDS) -> list[str]:
    """The report: each field's smallest and largest value with its rank, then the slowest and the quickest ranks.

    Args:
        ranks: by rank, its values by field (``STRAGGLER_FIELDS``); None for one that reported nothing.
        ends: how many ranks are named at the bottom and at the top: where there are more ranks than that, and for
            one, whom the first line names already, not at all.

    Returns:
        lines; none where no rank reported anything.
    """
    fields = []
    by_field = {name: _by_value(ranks, name) for name in STRAGGLER_FIELDS}
    for name, (short, unit) in STRAGGLER_FIELDS.items():
        if by_field[name]:
            (low, at_low), (high, at_high) = (
                min(by_field[name]),
                max(by_field[name], key=lambda pair: (pair[0], -pair[1])),
            )
            fields += [f"Mn{short}/Rnk: {low:.2f}{unit}/{at_low}", f"Mx{short}/Rnk: {high:.2f}{unit}/{at_high}"]
    if not fields:
        return []
    lines = [SEPARATOR.join(fields)]
    by_tflops = len(by_field["tflops"]) >= len(by_field["rtt_ms"])
    known, unit = (by_field["tflops"], "Etpt (TF)") if by_tflops else (by_field["rtt_ms"], "Rtt (ms)")
    if 1 < ends < len(ranks) and len(known) > 1:
        slow = sorted(known, key=lambda pair: (pair[0] if by_tflops else -pair[0], pair[1]))
        count = min(ends, len(slow))
        lines.append(f"Bottom {count} ranks by {unit}: {_ranked(slow[:count])}")
        lines.append(f"Top {count} ranks by {unit}: {_ranked(slow[::-1][:count])}")
    return lines


def _by_value(ranks: Sequence[Mapping[str, Any] | None], name: str) -> list[tuple[float, int]]:
    """The finite values of a field, each with its rank."""
    pairs = [(row[name], rank) for rank, row in enumerate(ranks) if row and row.get(name) is not None]
    return [(float(value), rank) for value, rank in pairs if math.isfinite(value)]


TRACED = "straggler"
"""The section that is traced for the report of stragglers and nothing else."""
_FORWARD = re.compile(r"(model[-_ ])?(forward|fwd)([-_ ](compute|pass|step))?")
_WHOLE = re.compile(r"(forward|fwd)[-_ ]?(backward|bwd)([-_ ](compute|pass|step))?|(train|compute|model)[-_ ]?step")
_WAITS = re.compile(r"sync|reduce|gather|scatter|broadcast|barrier|all.?to.?all|recv|send|wait|comm|p2p|nccl|gloo")
_NOT_WORK = re.compile(r"iteration|interval|first-step|pause|eval|valid|checkpoint|save")


def traced(ranks: Sequence[Mapping[str, float] | None]) -> tuple[list[float | None], bool]:
    """How long each rank worked: the time in the sections by which ranks can be told apart.

    The whole iteration takes equally long on all ranks, since they wait for each other; so do sections in which they
    wait. What counts is what was traced for this report, else the forward pass (as in Megatron), else forward and
    backward pass, else all timers that don't name a wait: the first of these that every rank has.

    Args:
        ranks: by rank, times by their timer's name; None for a rank that told nothing.

    Returns:
        by rank the time, None for one that told nothing; and whether it is of the forward pass alone.
    """
    known = [row for row in ranks if row]
    kinds: tuple[tuple[Callable[[str], Any], bool], ...] = (
        (lambda name: name == TRACED, True),
        (_FORWARD.fullmatch, True),
        (_WHOLE.fullmatch, False),
        (lambda name: not _WAITS.search(name) and not _NOT_WORK.search(name), False),
    )
    for chosen, forward in kinds:
        if known and all(any(chosen(name.lower()) for name in row) for row in known):
            return [_sum(row, chosen) if row else None for row in ranks], forward
    return [None] * len(ranks), False


def _sum(row: Mapping[str, float], chosen: Callable[[str], Any]) -> float:
    return sum(ms for name, ms in row.items() if chosen(name.lower()))


def is_forward(name: str) -> bool:
    """Whether a timer of this name measures the forward pass, with the backward pass or alone."""
    return bool(_FORWARD.fullmatch(name.lower()) or _WHOLE.fullmatch(name.lower()))


def _ranked(pairs: Sequence[tuple[float, int]]) -> str:
    return ", ".join(f"rank {rank}: {value:.2f}" for value, rank in pairs)


def _field(name: str, form: str, value: float | None) -> str:
    return f"{name}: {'None' if value is None else form.format(value)}"


def _add(fields: list[str], form: str, value: float | None) -> None:
    if value is None:
        return
    if form.endswith("d}"):  # a count; one that is NaN is shown, too
        form, value = (form, int(value)) if math.isfinite(value) else (form.replace("d}", "}"), value)
    fields.append(form.format(value))


OPTIONS = ("max", "minmax", "all")
HEADERS = {
    "max": "max time across ranks (ms):",
    "minmax": "(min, max) time across ranks (ms):",
    "all": "times across ranks (ms):",
}
NAME_WIDTH = 48
"""Width to which names are padded with dots, in characters."""


def report(times_ms: Mapping[str, Sequence[float | None]], option: str = "minmax") -> str:
    """Megatron's lines: one header, then one row for each timer, or for each timer and rank.

    Args:
        times_ms: by timer, each rank's milliseconds per iteration in order; None for a rank that has none.
        option: "max", "minmax" or "all".

    Returns:
        lines without a newline at the end; "" if nothing was measured.

    Raises:
        UsageError: another option.
    """
    check_option(option)
    lines = []
    for name, times in times_ms.items():
        known = [(rank, value) for rank, value in enumerate(times) if value is not None]
        if not known:
            continue
        values = [value for _, value in known]
        row = f"    {name + ' ':.<{NAME_WIDTH}}: "
        if option == "max":
            lines.append(f"{row}{max(values):.2f}")
        elif option == "minmax":
            lines.append(f"{row}({min(values):.2f}, {max(values):.2f})")
        else:
            lines.append(f"  {name}:")
            lines.extend(f"     rank {rank:2d}: {value:.2f}" for rank, value in known)
    return "\n".join([HEADERS[option], *lines]) if lines else ""


def check_option(option: str) -> str:
    """The option itself.

    Raises:
        UsageError: none of the three.
    """
    if option not in OPTIONS:
        raise UsageError(f"timing option {option!r}: known are max, minmax and all")
    return option
