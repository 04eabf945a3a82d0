"""Lines that training programs print, as rows: Primus, Megatron-LM, Megatron Bridge, TorchTitan, MaxText.

Where the forms come from: ``training_log`` and ``evaluate_and_print_results`` in Megatron-LM's
``megatron/training/training.py`` and in Megatron Bridge's ``train_utils.py``, Primus' patches of them,
``MetricsProcessor`` in TorchTitan's ``components/metrics.py``, ``metric_logger.py`` in MaxText.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from trackers.readers.console_log import prefixes, timestamps
from trackers.readers.console_log.fields import FieldReader, parse
from trackers.readers.console_log.names import is_known
from trackers.records import Number

FORMATS = ("Primus", "Megatron-LM", "Megatron Bridge", "TorchTitan", "MaxText")
KNOWN = (
    "Primus, Megatron-LM and Megatron Bridge (`iteration N/ M | key: value | …`), "
    "TorchTitan (`step: N  loss: …`), MaxText (`completed step: N, seconds: …`)"
)

TRAIN, EVAL, MEMORY = "train", "eval", "memory"

_HEAD = re.compile(
    rb"\s*(?:\[(20\d{6}|\d{4}-\d\d-\d\d) (\d\d:\d\d):(\d\d)\])?"
    rb"(?:\[rank-(\d{1,9})/(\d{1,9})\]\[\w+ *\](?: \[[\w.:-]*\] ?:)?)?"
    rb"(?:(?<=[\]:])\s*)?iteration\s+(\d{1,18})\s*/\s*(\d{1,18})\s*\|"
)
"""The usual head of Megatron's lines, read at once: date, minute, second, rank, world, iteration, iterations."""
COLOR = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Terminal escapes."""
_ITERATION = re.compile(rb"(?:iteration|episode)\s+(\d{1,18})(?:\s*/\s*(\d{1,18}))?\s*(?:\||$)")
_EVAL = re.compile(rb"(validation|test) loss at (?:iteration\s+(\d{1,18})(?!\d)|the end of training)")
_EVAL_SET = re.compile(rb"on (\w+) set")
_MEMORY = re.compile(rb"\[Rank (\d{1,9})\] \(after (\d{1,18}) iterations\) memory \(MB\) \|")
_TITAN = re.compile(rb"(?:\b(validate)\s+)?\bstep:\s*(\d[\d,]{0,23})\s")
_TITAN_FIELD = re.compile(rb"(?<![\w/])([A-Za-z_][\w/]*):\s*([^\s:]+)")
_MAXTEXT = re.compile(rb"completed (?:(?:(?!completed )[\w/ ])+ )?step: (\d{1,18}), ")
_MAXTEXT_EVAL = re.compile(rb"eval (?:metrics )?after (?:train )?step:? (\d{1,18}),\s*")
_RANK = re.compile(rb"rank[-_ :]?(\d+)/(\d+)", re.IGNORECASE)
_SOURCE = re.compile(rb"rank[-_ :]?(\d+)|^\s*(\d+):|\[default(\d+)\]", re.IGNORECASE)
_PREFIX_BYTES = 512
"""A line's head (stamps, rank, file) is no longer; what precedes is another line that lost its end."""


class LogRow(msgspec.Struct, gc=False):
    """One line's values.

    step: the iteration; -1 where the line means the last one before it. total: how many there will be.
    kind: train, eval, memory. place, end: where in the line the head that names the iteration begins and ends.
    time: Unix seconds of the line's stamp. source: the rank that wrote it, else what a launcher's prefix says of who
    did, "" if unsaid; world: of so many. label: what the prefix says.
    cut: the line lacks its end. values: by our name, none until :meth:`LineReader.fill`, where it isn't filled already.
    """

    step: int
    kind: str
    format: str
    line: bytes
    place: int
    end: int
    time: float | None = None
    total: int | None = None
    world: int | None = None
    source: str = ""
    cut: bool = False
    filled: bool = False
    values: dict[str, Number] = {}
    label: bytes = b""

    @property
    def tail(self) -> int:
        """A hash of what the line says, without who wrote it and when."""
        return hash(self.line[self.end :])


class LineReader:
    """Reads lines of one log.

    Args:
        year: of time stamps that have none.

    ``text``: the line that was read last, without what a launcher put in front of it (:mod:`.log_prefix`); ``label``:
    who wrote it, by that.
    """

    def __init__(self, year: int) -> None:
        self.fields = FieldReader()
        self.text = self.label = b""
        self._stamped = False  # lines have times of their own: a launcher's don't count
        self._year = year
        self._piped = False  # some line ended in "|", as Megatron's do: one that doesn't was cut

    def rows(self, line: bytes) -> Sequence[LogRow]:
        """The rows that begin in a line: mostly none or one; two where a line lost its end and another follows.

        Their values aren't read yet.
        """
        self.text, self.label = line, b""
        row = self._at_once(line)
        if row is not None:
            return (row,)
        if b"\x1b" in line:
            line = self.text = COLOR.sub(b"", line)
        prefix, line = prefixes.split(line)
        if prefix is None:
            return self._told(self._search(line))
        self.text, self.label = line, prefix.label
        row = self._at_once(line)
        found = self._search(line) if row is None else (row,)
        for row in self._told(found):
            row.label = prefix.label
            row.source = row.source or prefix.label.decode("utf-8", "replace")
            if row.time is None and not self._stamped:
                row.time = timestamps.find(prefix.text, self._year)
        return found

    def _told(self, found: Sequence[LogRow]) -> Sequence[LogRow]:
        """Rows of a line: whether lines have times of their own."""
        self._stamped = self._stamped or any(row.time is not None for row in found)
        return found

    def _at_once(self, line: bytes) -> LogRow | None:
        """The row of a line that has the usual head; None where it must be looked for."""
        head = _HEAD.match(line)
        if head is None:
            return None
        end = head.end()
        values = self.fields.known(line, end)
        if values is not None:
            self._piped = True
            return self._quick(line, head, end, values)
        more = line.count(b"iteration ", end)
        if more == 0 or (more == 1 and b"per iteration (ms)" in line):
            return self._quick(line, head, end, None)
        return None

    def _search(self, line: bytes) -> Sequence[LogRow]:
        """The rows of a line without colours."""
        at = line.find(b"iteration ")
        if at < 0:
            at = line.find(b"episode ")
        if at >= 0:
            if b" loss at " in line and (evaluated := _evaluation(line)):
                return [self._row(line, evaluated.begin, evaluated.end, evaluated.step, EVAL)]
            found = []
            while at >= 0:
                match = _ITERATION.match(line, at)
                if match is not None and not _inside_eval(line, at):
                    found.append(self._row(line, at, match.end(), int(match[1]), TRAIN, match[2]))
                at = line.find(b"iteration ", at + 9)
            for one, other in itertools.pairwise(found):
                one.line, one.cut = line[: other.place], True
            return found
        if b"step" in line:
            return self._step(line)
        if b" loss at the end of training" in line and (evaluated := _evaluation(line)):
            return [self._row(line, evaluated.begin, evaluated.end, -1, EVAL)]
        if b"memory (MB)" in line and (match := _MEMORY.search(line)):
            row = self._row(line, match.start(), match.end(), int(match[2]), MEMORY)
            row.source = match[1].decode()  # each rank has such a line of its own
            return [row]
        return []

    def fill(self, row: LogRow, whole: bool) -> None:
        """Read a row's values. whole: the line has its newline."""
        text = row.line[row.end :].rstrip(b" \t\r\n")
        values: dict[str, Number] = {}
        row.values = values
        if row.format == "TorchTitan":
            self._titan(row, text)
        elif row.format == "MaxText":
            row.cut = not whole
            separator = b"=" if row.kind == EVAL else b":"
            for part in (text.rpartition(b",")[0] if row.cut else text).split(b","):
                key, _, value = part.partition(separator)
                self._named(row, key.strip(), value, values)
        else:
            text = self._uncut(row, text, whole)
            if row.kind == EVAL:
                self._eval(row, text)
            elif row.kind == MEMORY:
                self._memory(row, text)
            else:
                row.values = self.fields.piped(text)

    def goes_on(self, line: bytes, row: LogRow) -> dict[str, Number]:
        """The values of a line that continues a row's: fields alone, none of which the row has. {} if it doesn't.

        Args:
            line: the one that was read last, as it was.
        """
        if self.label not in (b"", row.label):
            return {}
        text = self.text.strip()
        key = text.partition(b":")[0].decode("utf-8", "replace").strip()
        if row.format in ("TorchTitan", "MaxText") or not is_known(key):
            return {}
        values = self.fields.piped(self._uncut(row, text, line.endswith(b"\n")))
        return {} if values.keys() & row.values.keys() else values

    def _quick(self, line: bytes, head: re.Match[bytes], end: int, values: dict[str, Number] | None) -> LogRow:
        date, minute, second, rank, world, step, total = head.groups()
        base = None if date is None else timestamps.minute_start(date, minute)
        time = None if base is None else base + int(second)
        filled = values is not None
        ranked = rank is not None
        return LogRow(
            int(step), TRAIN, "Primus" if ranked else "Megatron", line, 0, end, time, int(total),
            int(world) if ranked else None, rank.decode() if ranked else "", False, filled, values or {},
        )  # fmt: skip

    def _row(
        self, line: bytes, place: int, end: int, step: int, kind: str, total: bytes | None = None, format: str = ""
    ) -> LogRow:
        row = LogRow(step, kind, format or "Megatron", line, place, end)
        head = line[max(0, place - _PREFIX_BYTES) : place]
        row.time = timestamps.find(head, self._year)
        if total:
            row.total = int(total)
        if head and (match := _RANK.search(head)):
            row.source, row.world = match[1].decode(), int(match[2])
            if not format:
                row.format = "Primus"
        elif head and (match := _SOURCE.search(head)):
            row.source = next(text for text in match.groups() if text is not None).decode()
        return row

    def _step(self, line: bytes) -> list[LogRow]:
        match = _MAXTEXT.search(line)
        if match is not None:
            return [self._row(line, match.start(), match.end(), int(match[1]), TRAIN, format="MaxText")]
        match = _MAXTEXT_EVAL.search(line)
        if match is not None:
            return [self._row(line, match.start(), match.end(), int(match[1]), EVAL, format="MaxText")]
        match = _TITAN.search(line)
        if match is None or b"loss:" not in line:
            return []
        kind = EVAL if match[1] else TRAIN
        step = int(match[2].replace(b",", b""))
        return [self._row(line, match.start(), match.end(), step, kind, format="TorchTitan")]

    def _uncut(self, row: LogRow, text: bytes, whole: bool) -> bytes:
        """Without a last value that may have lost its end."""
        if text.endswith(b"|"):
            self._piped = True
            return text
        row.cut = row.cut or not whole or self._piped
        return text.rpartition(b"|")[0] if row.cut else text

    def _titan(self, row: LogRow, text: bytes) -> None:
        fields = list(_TITAN_FIELD.finditer(text))
        # Its last field ends in "%"; nothing else tells a line that was cut within a number.
        row.cut = not row.line.endswith(b"\n") and not text.endswith(b"%")
        for field in fields[:-1] if row.cut else fields:
            if field[1] == b"memory" and field[2].count(b"(") == 1:
                used, _, percent = field[2].partition(b"(")
                row.values.update(_numbers("gpu/max_reserved_memory", used, percent.rstrip(b")")))
                self.fields.keys.update(dict.fromkeys(("gpu/max_reserved_memory_gib",
                                                       "gpu/max_reserved_memory_percent"), "memory"))  # fmt: skip
            else:
                self._named(row, field[1], field[2], row.values)

    def _named(self, row: LogRow, key: bytes, value: bytes, values: dict[str, Number]) -> None:
        if row.kind == EVAL and key:
            key = b"loss validation" if key == b"loss" else key + b" validation"
        self.fields.add(key, value, values)

    def _eval(self, row: LogRow, text: bytes) -> None:
        evaluated = _evaluation(row.line, row.place)
        word = b"test" if evaluated is not None and evaluated.is_test else b"validation"
        for part in text.split(b"|"):
            key, _, value = part.partition(b":")
            key = key.strip()
            for end, unit in ((b"value", b""), (b"PPL", b" ppl")):
                if key.endswith(end):
                    self.fields.add(key.removesuffix(end).strip() + b" " + word + unit, value, row.values)

    def _memory(self, row: LogRow, text: bytes) -> None:
        match = _MEMORY.match(row.line, row.place)
        for part in text.split(b"|"):
            key, _, value = part.partition(b":")
            if match and (name := key.strip().decode("ascii", "replace")):
                row.values.update(_numbers(f"memory/rank_{int(match[1])}/{name.replace(' ', '_')}", value))


class _Evaluation(NamedTuple):
    """The head of a line with an evaluation: where it begins and ends, its iteration (-1: the last), of which set."""

    begin: int
    end: int
    step: int
    is_test: bool


def _evaluation(line: bytes, begin: int = 0) -> _Evaluation | None:
    """The first one that has fields behind it, each search going on where the last one ended."""
    match = _EVAL.search(line, begin)
    end = line.find(b"|", match.end()) if match is not None else -1
    if match is None or end < 0:
        return None
    named = _EVAL_SET.search(line, match.end(), end)
    is_test = match[1] == b"test" or (named is not None and named[1] == b"test")
    return _Evaluation(match.start(), end + 1, int(match[2] or -1), is_test)


def _numbers(name: str, *values: bytes) -> dict[str, Number]:
    """Values of memory with their units as the end of the name; Megatron's MB are MiB."""
    found = {}
    for value in values:
        unit = "_percent" if value.strip().endswith(b"%") else "_gib" if b"G" in value else "_mib"
        for number in parse(value):
            found[name + unit] = number
    return found


def _inside_eval(line: bytes, at: int) -> bool:
    return line[max(0, at - 9) : at].endswith(b"loss at ")
