"""Which step a row has that says its epoch alone: what the progress bar beside it says.

Some programs draw their bar anew behind each row, so that the bar behind a row is the row's; in other logs the one
before it is. A bar that isn't drawn at each step is late: tqdm draws one every 0.1 s at most. Which of them says the
rows' steps is told by their epochs: the step is the epoch times the steps of an epoch, as exactly as the epoch is
written; and by the steps: they are multiples of one number, as rows are written.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trackers.records import Number

ROWS = 2000
"""Maximum number of rows that are compared with their bars."""
DIGITS = 6
"""An epoch with more decimals than that is written as it is; with fewer, it is taken for rounded."""
LEAST_DECIMALS, LEAST_DIGITS = 2, 4
"""Decimals that transformers 4 writes of an epoch, and digits that transformers 5 does, where they aren't 0."""
MOST = 0.9
"""Share of the rows that agree about the steps of an epoch, if these are to tell steps."""
SURE, NEAR = 3, 1.25
"""How many steps must agree with the epochs, and how nearly, if a bar is surely training's: one less where it ends with
an epoch, or is drawn once more behind a row, as the row's own program does; twice as many where they don't."""


class Paired(NamedTuple):
    """A row and the bars beside it: its epoch; how far each bar was before it, by its length; the length of the one
    right behind it, and how far that was."""

    epoch: float
    before: Mapping[int, int]
    behind: tuple[int, int] | None


@dataclass(frozen=True)
class BarSteps:
    """How the bars of a log tell its rows' steps.

    behind: the bar behind a row says its step, else the one before it. again: so does mostly the one before it, where
    the one behind it isn't there. length: of that bar. others: lengths of bars that say nothing of rows. per_epoch:
    steps of an epoch; 0.0 if nothing tells it. decimals, digits: of the epochs. late: bars and epochs disagree. sure:
    enough rows say that the bar is training's.
    """

    behind: bool = False
    again: bool = True
    length: int = 0
    others: frozenset[int] = frozenset()
    per_epoch: float = 0.0
    decimals: int = 0
    digits: int = 0
    late: bool = False
    sure: bool = False

    def step_of(self, epoch: Number | None, before: Mapping[int, int], behind: tuple[int, int] | None,
                last: int) -> int | None:  # fmt: skip
        """The step of a row; None where nothing tells it.

        Args:
            before, behind: the bars beside the row, as :class:`Paired` has them. last: the step of the row before it.
        """
        said = [before[length] for length in self._lengths(before)]
        if behind is not None and behind[0] not in self.others:
            said.insert(0 if self.behind and behind[0] == self.length else len(said), behind[1])
        elif self.behind and not self.again:
            said = []
        able = [step for step in said if step >= max(last, 1)]
        own = self.length in before or (behind is not None and behind[0] == self.length)
        if epoch is not None and self.per_epoch and (own or not said):
            due = float(epoch) * self.per_epoch
            off = _rounded(float(epoch), self.decimals, self.digits) * self.per_epoch
            for step in able:
                if abs(step - due) <= 0.5 + off:
                    return step
            if due >= last and (said or off < 0.5):
                return round(due)
        return able[0] if able else None

    def length_of(self, bars: Mapping[int, int], step: int | None) -> int | None:
        """The length of the bar that is at a step; None: there is none."""
        return next((length for length in self._lengths(bars) if bars[length] == step), None)

    def _lengths(self, bars: Mapping[int, int]) -> list[int]:
        """Those that may tell steps, the likeliest first."""
        return sorted(bars.keys() - self.others, key=lambda length: (length != self.length, -length))


def bar_steps(rows: Sequence[Paired]) -> BarSteps:
    """How a log's bars tell its rows' steps.

    Args:
        rows: of the log, in its order.
    """
    rows = [row for row in rows if row.epoch >= 0 and math.isfinite(row.epoch)]
    decimals = max((_digits(row.epoch)[0] for row in rows), default=0)
    digits = max((_digits(row.epoch)[1] for row in rows), default=0)
    lengths = {length for row in rows for length in row.before} | {row.behind[0] for row in rows if row.behind}
    found = [candidate for length, behind in itertools.product(lengths, (False, True))
             if (candidate := _candidate(rows, length, behind, decimals, digits))]  # fmt: skip
    _, best = max(found, key=lambda candidate: candidate[0], default=((), BarSteps()))
    return replace(best, others=frozenset(lengths - {steps.length for _, steps in found}))


def _candidate(
    rows: Sequence[Paired], length: int, behind: bool, decimals: int, digits: int
) -> tuple[tuple[int, bool, bool, int], BarSteps] | None:
    """The rows' steps by the bars of one length, and how good that is; None where these say nothing of rows."""
    said = [(row.epoch, step) for row in rows if (step := _said(row, length, behind))]
    ranges = [_range(epoch, step, decimals, digits) for epoch, step in said]
    agree, low, high = _common(ranges)
    agreed = agree >= MOST * len(ranges)
    steps = {step for _, step in said}
    still = len(steps) == 1 and (steps == {length} or 4 * len(said) < len(rows))
    if not agree or still or not (agreed or 2 * len(steps) >= max(3, len({epoch for epoch, _ in said}))):
        return None  # it is done, or stands still
    drawn = sum(row.behind == (length, row.before.get(length)) for row in rows if row.behind)
    again = 2 * drawn > len(ranges)
    suits = again or not rows[0].before.get(length)
    per_epoch = _within(low, high, length) if agreed else 0.0
    ends = any(low <= length / count <= high for count in range(1, 1 + round(min(length / max(low, 1.0), 1000.0))))
    even = _multiples([step for _, step in said])
    late = not agreed and 2 * even < len(said)
    few = SURE - (ends or drawn > 0) if agreed and high < NEAR * low else 2 * SURE
    sure = len(steps) >= few and 2 * len(said) >= len(rows)
    found = BarSteps(behind, again, length, frozenset(), per_epoch, decimals, digits, late, sure)
    return (agree + even, ends, suits == behind, length), found


def _said(row: Paired, length: int, behind: bool) -> int:
    """What a row's bar says; 0 where there is none."""
    if not behind:
        return row.before.get(length, 0)
    return row.behind[1] if row.behind and row.behind[0] == length else 0


def _multiples(steps: Sequence[int]) -> int:
    """How many of the steps are multiples of the number that mostly lies between two."""
    between = Counter(two - one for one, two in itertools.pairwise([0, *steps]) if two > one)
    each = max(between, key=lambda number: between[number], default=1)
    return sum(step % each == 0 for step in steps)


def _digits(number: float) -> tuple[int, int]:
    """How many decimals and significant digits a number has."""
    mantissa, _, exponent = f"{number!r}".partition("e")
    whole, _, part = mantissa.partition(".")
    part = part.rstrip("0")
    return max(0, len(part) - int(exponent or 0)), len((whole + part).lstrip("0"))


def _rounded(epoch: float, decimals: int, digits: int) -> float:
    """By how much an epoch may be off, by the decimals or the significant digits of those in its log."""
    by_decimals = 0.5 * 10.0 ** -max(decimals, LEAST_DECIMALS) if decimals <= DIGITS else 0.0
    if epoch > 0 and (digits <= LEAST_DIGITS or not by_decimals) and digits <= DIGITS:
        by_digits = 0.5 * 10.0 ** (math.floor(math.log10(epoch)) + 1 - max(digits, LEAST_DIGITS))
        return float(max(by_decimals, by_digits))
    return by_decimals or epoch * 1e-9


def _range(epoch: float, step: int, decimals: int, digits: int) -> tuple[float, float]:
    """How many steps an epoch has at least and at most, by one row."""
    off = _rounded(epoch, decimals, digits)
    return step / (epoch + off), step / (epoch - off) if epoch > off else math.inf


def _common(ranges: Sequence[tuple[float, float]]) -> tuple[int, float, float]:
    """The range that most ranges share, and how many do."""
    best, count = (0, 0.0, math.inf), 0
    ends = sorted([(low, 0, 1) for low, _ in ranges] + [(high, 1, -1) for _, high in ranges])
    for place, (at, _, change) in enumerate(ends):
        count += change
        if count > best[0]:
            best = count, at, ends[place + 1][0]
    return best


def _within(low: float, high: float, length: int) -> float:
    """The steps of an epoch in a range: a whole number where there is one, of epochs that end with the bar."""
    first = max(1, math.ceil(low - 1e-9 * low))
    if first > high * (1 + 1e-9):
        return (low + high) / 2
    if math.isinf(high):
        return 0.0
    last = math.floor(high + 1e-9 * high)
    epochs = range(max(1, length // last), length // first + 1)
    whole = next((length // count for count in epochs[:1000] if length % count == 0 and length // count >= first), 0)
    return float(whole) if first <= whole <= last else float(round((first + last) / 2))
