"""What a training program's lines look like, as tables: one module below ``programs`` holds each program's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trackers_console_logs.forms.fields import AVERAGE, NUMBER, OWN, FieldLayout, Names

TRAIN, EVAL, MEMORY, RESULT = "train", "eval", "memory", "result"
"""Rows: of training, of an evaluation, of one rank's memory; of an evaluation of the best, when training was done."""
NEXT, MORE = "next", "more"
"""Values without a step: of the next row of training; of the last row before them."""
EPOCH, HEADER, BAR, PROGRESS = "epoch", "header", "bar", "progress"
"""No values: an epoch begins; names of columns; how far a progress bar is; how far something else is."""
RESUME, BEGIN, END, SIGN = "resume", "begin", "end", "sign"
"""A checkpoint was loaded; training begins from nothing; training is done; only this program writes that."""

ROWS = (TRAIN, EVAL, MEMORY, RESULT, NEXT, MORE)
TQDM = r"(?:(?P<percent>INT)%)?\|[^|\n]{0,1000}\| *(?P<batch>INT)/(?:(?P<of>INT)|\?) \[(?P<elapsed>[\d:]{1,12})<"
"""What tqdm writes of a progress bar behind its description, up to the time that is left."""
PARTS = ("step", "total", "epoch", "epochs", "batch", "of", "elapsed", "percent", "rank", "set",
          "cells")  # fmt: skip
"""Groups of a head that say which row it is; all others are values."""


@dataclass(frozen=True, eq=False)
class Form:
    """One kind of line.

    Args:
        word: text that each such line holds; the head begins there, or, with ``first=False``, at the program's
            message.
        head: pattern of what says which row it is. ``NUM`` stands for a number, ``INT`` for a whole one. Groups
            ``step``, ``total``, ``epoch`` (with ``batch`` of ``of`` in it), ``epochs``, ``elapsed`` and ``rank`` say
            so; ``set`` is a part of names; ``cells`` are the columns' values; all others are values.
        fields: how what follows is taken apart; None: nothing follows.
        needs: keys, or patterns of keys, of which such a line has one ("a+b": both); without it, it may be another
            program's. Asked until the program is known by another of its lines. always: likewise, asked of each line.
        never: pattern of what no such line has: one that does is another's.
        looks: what the beginning of such a line still shows where it is damaged; "": nothing tells it from others.
        names: as :attr:`Program.names`, for this form. named: what a key is called before it is looked up
            ("{} validation"), of a head of columns the kind of rows below it; {part} is what the head's group ``set``
            or ``rank`` has. endings: of keys, and what stands for them behind that. keys: what the log calls a value
            of the head, by its group, where that is no name of a group.
        step_key: the field that is the step.
        anywhere: the head is like nothing else, so that it also stands behind another's text.
        fixed: each such line has the same fields, numbers with as many decimals: a shorter one lost its end.
        optional: keys that may be missing at such a line's end.
        last: pattern of the end of such a line, where their fields differ: one that ends otherwise lost its end.
        later: such a line counts only where the program is known by another.
        lines: pattern of one line of several that follow with a field each.
        outside: what such a line is where no epoch, or no head of columns of training, is open: of an evaluation on
            its own.
        bar: the line is written again and again, and the last of a step counts.
        ends: training is done with it.
    """

    word: str
    head: str
    kind: str = TRAIN
    fields: FieldLayout | None = None
    needs: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    never: str = ""
    looks: str = ""
    names: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    named: str = "{}"
    endings: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    step_key: str = ""
    first: bool = True
    anywhere: bool = False
    fixed: bool = False
    optional: tuple[str, ...] = ()
    last: str = ""
    later: bool = False
    lines: str = ""
    outside: Form | None = None
    bar: bool = False
    ends: bool = False

    @cached_property
    def literal(self) -> bytes:
        """The word, as it stands in a line."""
        return self.word.encode()

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """The head."""
        return _compiled(self.head)

    @cached_property
    def damaged(self) -> re.Pattern[bytes] | None:
        """What a damaged line still shows."""
        return _compiled(self.looks) if self.looks else None

    @cached_property
    def end(self) -> re.Pattern[bytes] | None:
        """The end of a line that is whole."""
        return _compiled(rf"(?:{self.last})\s*$") if self.last else None

    @cached_property
    def foreign(self) -> re.Pattern[bytes] | None:
        """What is in another's line."""
        return _compiled(self.never) if self.never else None

    @cached_property
    def following(self) -> re.Pattern[bytes] | None:
        """A field on a line of its own."""
        return _compiled(self.lines) if self.lines else None


_SHORT = {"NUM": NUMBER, "INT": r"\d{1,18}"}


def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(re.sub(r"\b(?:NUM|INT)\b", lambda match: _SHORT[match[0]], pattern).encode())


@dataclass(frozen=True, eq=False)
class Program:
    """A training program.

    Args:
        name: as people call it. source: what prints the lines: a package and a file in it.
        shown: a line, shortened, as the documentation shows it. steps: what the step of a row is, in words.
        forms: its lines; where several fit, the first counts.
        names: key to name here; a tuple for a key of several values. Other keys keep their names.
        units: key to how its value is read (:data:`trackers_console_logs.forms.fields.SECONDS` and the like);
            unit: of all other keys.
        naming: instead of ``names``, where a table isn't enough.
        silent: values that stand for "none yet", by key.
        releases: pattern of a row and the release of the program whose form it is; the first that is found counts.
        family: programs whose rows are counted as one's. marks: keys by which it is told from others of its family.
        first_epoch: number of the first epoch. per_epoch: steps of an epoch, where a row says its epoch and its step
            in it. counted: the step follows from epochs and a progress bar. by_bar: its rows name no step; a progress
            bar beside them does.
        helper: its lines stand in other programs' logs.
        rounded: steps are rounded, so that several rows may have the same. alone: one process writes its rows.
        trained_ms: the name here of milliseconds trained so far, by which rows without stamps have their times.
    """

    name: str
    source: str
    shown: str
    steps: str
    forms: tuple[Form, ...]
    names: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    naming: Names | None = None
    silent: Mapping[str, float] = field(default_factory=dict)
    releases: tuple[tuple[str, str], ...] = ()
    family: str = ""
    marks: frozenset[str] = frozenset()
    first_epoch: int = 0
    per_epoch: int = 0
    counted: bool = False
    by_bar: bool = False
    helper: bool = False
    rounded: bool = False
    alone: bool = False
    trained_ms: str = ""

    def called(self, form: Form, part: str = "") -> Names:
        """What the keys of a form are called.

        Args:
            part: what the head's group ``set`` or ``rank`` has.
        """
        table = {**self.names, **form.names}
        taken = {name for names in table.values() for name in ([names] if isinstance(names, str) else names)}

        def of(key: str) -> tuple[str, ...]:
            if form.kind == MEMORY:  # Megatron-LM's MB are MiB; Megatron Bridge's keys say their unit
                name = key if key.startswith("mem-") else f"{key.replace(' ', '_')}_mib"
                return (f"memory/rank_{int(part)}/{name}",)
            end = next((end for end in form.endings if key.endswith(end)), "")
            full = form.named.format(key.removesuffix(end), part=part).strip() + form.endings.get(end, "")
            if self.naming is not None:
                return self.naming(full)
            known = table.get(full)
            if isinstance(known, tuple):
                return known
            name = known or (OWN + full if full in taken else full)
            return name, name + AVERAGE

        return of
