"""Results that this package adds by itself: on trackers' pages they don't stand among those that a script gave."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trackers.records import final_name

APART = "_trackers"
"""Where W&B's summary has them: it shows no name that begins with an underscore."""

_UNASKED = re.compile(r"final/(energy/(node\d+/)?(total_kwh|source|per_step_j)|gen_ai\.usage\.(input|output)_tokens)")


def is_unasked(name: str) -> bool:
    """Whether a result, by its whole name, is one that nobody asked for: energy of the GPUs, tokens of spans."""
    return _UNASKED.fullmatch(name) is not None


def parted(results: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results, with or without ``final/`` in their names: those that a script gave, and those that nobody asked for."""
    asked = {name: value for name, value in results.items() if not is_unasked(final_name(name))}
    return asked, {name: value for name, value in results.items() if name not in asked}
