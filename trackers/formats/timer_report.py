"""Timers' values as Megatron reports them: lines for people, ``{timer}-time`` for trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trackers.errors import UsageError

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
