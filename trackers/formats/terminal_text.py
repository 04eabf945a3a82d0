"""What a program wrote to a terminal, as the lines that stay there: progress bars folded, escape sequences removed.

A carriage return, a backspace and the sequences that move the cursor up or erase a line are followed, so that a
progress bar, or several below each other, are one line each. Colours and everything else are removed. Rows above the
cursor are finished; the cursor's own row and those below it may still change.

What is overwritten in part is masked before: the rest of a secret would stand there without its name, or with half of
its form.
"""

from __future__ import annotations

import codecs
import functools
import re
from typing import NamedTuple

from trackers.support.redaction import MASK, mask_source

LINE_CHARACTERS = 16_384
"""Characters of a line that are kept; how many follow is said at its end."""
ROWS = 64
"""Rows that may still change; the uppermost of more counts as finished."""
SEQUENCE_CHARACTERS = 1_000
WORD_CHARACTERS = 4_096
"""Maximum length of a word that is left out whole where a line is cut in it: half a key has no known form."""
CHECKED_CHARACTERS = 1 << 22
"""Characters of overwritten rows that are looked at for secrets, at once; :data:`CHECKED_EACH` for each new one."""
CHECKED_EACH = 32
CHECK_CHARACTERS = 250
"""What a look at a row costs besides, in characters."""

_SEQUENCE = (
    r"\x1b(?:\[(?P<numbers>[0-?]{0,40})[ -/]{0,4}(?P<final>[@-~])"
    rf"|\][^\x07\x1b]{{0,{SEQUENCE_CHARACTERS}}}(?:\x07|\x1b\\)"
    rf"|[PX^_][^\x1b]{{0,{SEQUENCE_CHARACTERS}}}\x1b\\"
    r"|[ -/]{0,3}[0-OQ-WYZ\\`-~])"
)
_TOKEN = re.compile(rf"(?P<text>[^\x1b\r\n\b]+)|(?P<sign>[\r\n\b])|{_SEQUENCE}|\x1b")
_PART = re.compile(
    rf"\x1b(?:\[[0-?]{{0,40}}[ -/]{{0,4}}|[\]PX^_][^\x07\x1b]{{0,{SEQUENCE_CHARACTERS}}}\x1b?|[ -/]{{0,3}})?\Z"
)
"""A sequence whose end is still to come."""
_MOVES = re.compile(r"[\x1b\r\b]")
_OTHER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ROWS = re.compile(r"[ADEFHJK]|B")


class TerminalLine(NamedTuple):
    """text: without its newline. time: Unix seconds at which it was last written to."""

    text: str
    time: float


@functools.lru_cache(maxsize=256)
def _without_secrets(text: str) -> str:
    """A row with its secrets replaced by as many stars."""
    masked = mask_source(text)
    if masked == text:
        return text
    begin, end = len(masked.partition(MASK)[0]), len(masked.rpartition(MASK)[2])
    return text[:begin] + "*" * (len(text) - begin - end) + text[len(text) - end :]


class _Row:
    __slots__ = ("erased", "overflow", "text", "time")

    def __init__(self) -> None:
        self.text = ""
        self.time = 0.0
        self.overflow = 0
        self.erased = False

    def write(self, text: str, column: int, time: float) -> int:
        """Overwrite the row from a column on. Returns the column behind the text."""
        self.time = time
        text = _OTHER.sub("", text)
        end = column + len(text)
        if end > LINE_CHARACTERS:
            self.overflow = max(self.overflow, end - LINE_CHARACTERS)
            text = text[: max(0, LINE_CHARACTERS - column)]
        if column == len(self.text):
            self.text += text
        elif text:
            self.erased = True
            self.text = self.text.ljust(column)[:column] + text + self.text[column + len(text) :]
        return end

    def is_erased(self) -> bool:
        """Whether the row was written to and then erased, as by a progress bar that leaves nothing."""
        return self.erased and not self.text.strip(" ")

    def line(self) -> TerminalLine:
        text = self.text.rstrip(" ")
        if not self.overflow:
            return TerminalLine(text, self.time)
        begin = len(text) - WORD_CHARACTERS
        end = max(text.rfind(sign, begin) for sign in " \"',") + 1 or len(text)
        more = self.overflow + len(text) - end
        return TerminalLine(f"{text[:end]} … ({more:,} more characters)", self.time)


class TerminalText:
    """Folds a stream of bytes, given in pieces, into lines.

    Args:
        offset: of the first byte, in whatever they are read from.

    Attributes:
        offset: behind the last byte that was given.
        settled: where to begin again so that no finished line comes twice and none is missing.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = self.settled = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._rows = [_Row()]
        self._row = self._column = 0
        self._checks = CHECKED_CHARACTERS

    def feed(self, data: bytes, time: float) -> list[TerminalLine]:
        """Take what was written at a time. Returns the lines that are finished by it."""
        begin, self.offset = self.offset, self.offset + len(data)
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        self._checks = min(CHECKED_CHARACTERS, self._checks + CHECKED_EACH * len(text))
        if "\x1b" in text[-SEQUENCE_CHARACTERS - 10 :]:
            part = _PART.search(text, max(0, len(text) - SEQUENCE_CHARACTERS - 10))
            if part is not None:
                self._rest, text = part[0], text[: part.start()]
        if len(self._rows) == 1 and not _MOVES.search(text):
            lines = self._plain(text, time)
        else:
            lines = self._moving(text, time)
        if lines:
            last = data.rfind(b"\n")
            self.settled = begin + last + 1 if len(self._rows) == 1 and last >= 0 else self.offset
        elif len(self._rows) == 1 and not self._rows[0].text and not self._rest:
            self.settled = self.offset
        return lines

    def unfinished(self) -> list[TerminalLine]:
        """The rows that may still change, as they are now, without empty ones."""
        return [row.line() for row in self._rows if row.text.strip(" ")]

    def finish(self) -> list[TerminalLine]:
        """Nothing more comes: what is left counts as finished."""
        lines = self.unfinished()
        self._rows, self._row, self._column, self._rest = [_Row()], 0, 0, ""
        self._decoder.reset()
        self.settled = self.offset
        return lines

    def skip(self, offset: int) -> None:
        """Go on at a later offset; what is unfinished is forgotten."""
        self.finish()
        self.offset = self.settled = offset

    def _plain(self, text: str, time: float) -> list[TerminalLine]:
        first, *more = text.split("\n")
        if first:
            self._write(first, time)
        lines = []
        for following in more:
            row = self._rows[0]
            row.time = row.time or time
            if not row.is_erased():
                lines.append(row.line())
            self._rows[0] = row = _Row()
            self._column = row.write(following, 0, time) if following else 0
        return lines

    def _moving(self, text: str, time: float) -> list[TerminalLine]:
        for token in _TOKEN.finditer(text):
            if token["text"]:
                self._write(token["text"], time)
            elif token["sign"] == "\r":
                self._column = 0
            elif token["sign"] == "\b":
                self._column = max(0, self._column - 1)
            elif token["sign"] == "\n":
                self._rows[self._row].time = self._rows[self._row].time or time
                self._down(1)
                self._column = 0
            elif token["final"] and _ROWS.fullmatch(token["final"]):
                self._move(token["final"], token["numbers"])
        lines = [row.line() for row in self._rows[: self._row] if not row.is_erased()]
        del self._rows[: self._row]
        self._row = 0
        while len(self._rows) > ROWS:
            lines.append(self._rows.pop(0).line())
        return lines

    def _write(self, text: str, time: float) -> None:
        self._before_loss(len(text))
        self._column = self._rows[self._row].write(text, self._column, time)

    def _before_loss(self, count: int) -> None:
        """Mask the cursor's row, if it will lose so many characters behind the cursor, and others not. Rows that would
        take too long are dropped instead."""
        row, end = self._rows[self._row], self._column + count
        if self._column >= len(row.text) or (self._column == 0 and end >= len(row.text)):
            return
        self._checks -= len(row.text) + CHECK_CHARACTERS
        row.text = _without_secrets(row.text) if self._checks > 0 else ""

    def _down(self, count: int) -> None:
        for _ in range(min(count, ROWS)):
            self._row += 1
            if self._row == len(self._rows):
                self._rows.append(_Row())

    def _move(self, final: str, numbers: str) -> None:
        first = numbers.partition(";")[0]
        count = int(first) if first.isdecimal() and len(first) < 5 else 0
        row = self._rows[self._row]
        if final in "JK" and count == 0:
            self._before_loss(len(row.text))
        if final in "AF":
            self._row = max(0, self._row - max(1, count))
        elif final in "BE":
            self._down(max(1, count))
        elif final == "D":
            self._column = max(0, self._column - max(1, count))
        elif final == "K":
            if count == 0:
                row.text = row.text[: self._column]
            elif count == 2:
                row.text = ""
            row.overflow, row.erased = 0, True
        elif final == "J":
            row.text, row.erased = row.text[: self._column] if count == 0 else "", True
            for below in self._rows[self._row + 1 :]:
                below.text, below.overflow, below.erased = "", 0, True
        elif final == "H":
            self._row = 0
        if final in "EFH":
            self._column = 0
