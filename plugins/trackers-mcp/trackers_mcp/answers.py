"""Answers of the tools: small, typed, paged, with what was left out; what comes from runs is marked as that.

A run's texts (names, notes, settings, console lines, alerts) were written by a program or a person and may say
anything, also "ignore your instructions". They lie below ``from_runs`` alone, without signs that a terminal or a reader
would obey without seeing them.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

BUDGET = 2000
"""Default size of an answer, in tokens."""
MOST_BUDGET = 25_000
CHARACTERS = 4
"""Characters that a token is taken for."""
TEXT_CHARACTERS = 300
"""Maximum length of one text of a run in an answer, unless all is asked for."""


def answer(from_runs: Mapping[str, Any], *, left_out: Sequence[str] = (), notes: Sequence[str] = ()) -> dict[str, Any]:
    """One answer.

    Args:
        left_out: what isn't in it, and how to get it, without a name from a run.
        notes: remarks on it, which may quote names: they stand below ``from_runs``, too.
    """
    said: dict[str, Any] = {"from_runs": plain(from_runs)}
    if notes:
        said["from_runs"]["notes"] = [shown(note, 500) for note in notes]
    if left_out:
        said["left_out"] = list(left_out)
    return said


def plain(value: Any, most: int = TEXT_CHARACTERS) -> Any:
    """JSON values: NaN and infinities by name, floats with six digits, texts without hidden signs, and cut."""
    if isinstance(value, str):
        return shown(value, most)
    if isinstance(value, Decimal):  # sums of whole numbers in SQL
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value if not isinstance(value, int) or abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(f"{value:.6g}" if abs(value) < 1e6 else f"{value:.13g}")  # times are large
    if isinstance(value, Mapping):
        return {shown(str(name), most): plain(entry, most) for name, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(entry, most) for entry in value]
    return shown(str(value), most)


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that nothing is drawn for (Unicode's Default_Ignorable_Code_Point beyond controls, and the empty
Braille pattern): variation selectors can hold a text of any length."""


def shown(text: str, most: int) -> str:
    """A text with everything in it visible: no control signs, none that turn the direction or have no width."""
    kept: list[str] = []
    for char in text[: 4 * most]:
        hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn") and char not in "\n\t"
        if not hidden and _UNSEEN.match(char):  # behind a symbol it chooses the emoji
            hidden = char != "\ufe0f" or not kept or unicodedata.category(kept[-1][-1]) != "So"
        kept.append(f"\\u{ord(char):04x}" if hidden else char)
    whole = "".join(kept)
    return whole if len(whole) <= most and len(text) <= 4 * most else f"{whole[:most]}… ({len(text):,} characters)"


def size(value: Any) -> int:
    """How many tokens a value takes, about."""
    return -(-len(json.dumps(value, ensure_ascii=False)) // CHARACTERS)


def within(rows: Sequence[Any], budget: int) -> tuple[list[Any], int]:
    """The first rows that have room, and how many have none. One is always there."""
    kept: list[Any] = []
    used = 0
    for row in rows:
        used += size(plain(row))
        if kept and used > budget:
            break
        kept.append(row)
    return kept, len(rows) - len(kept)


def page(rows: Sequence[Any], offset: int, limit: int, budget: int, what: str) -> tuple[list[Any], list[str]]:
    """Rows of one page, and what is left out. what: they are, in the plural."""
    chosen = rows[max(offset, 0) : max(offset, 0) + max(limit, 1)]
    kept, _ = within(chosen, budget)
    left = len(rows) - max(offset, 0) - len(kept)
    if left <= 0:
        return kept, []
    return kept, [f"{left} of {len(rows)} {what}: offset={max(offset, 0) + len(kept)} goes on"]
