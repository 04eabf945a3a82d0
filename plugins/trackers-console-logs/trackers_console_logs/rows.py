"""Lines as rows: which program's they are, at which step, and what they say."""

from __future__ import annotations

import fnmatch
import itertools
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from trackers.records import Number
from trackers_console_logs import programs
from trackers_console_logs.forms import program as kinds
from trackers_console_logs.forms.fields import LITERAL, PIPES, FieldReader, Fields, scaled, seconds
from trackers_console_logs.forms.program import EVAL, PARTS, ROWS, TRAIN, Form, Program
from trackers_console_logs.lines import COLOR, begins_message, find_time, minute_start, split
from trackers_console_logs.own_format import OwnForm, Patience
from trackers_console_logs.programs import megatron

BROKEN = "broken"
"""A line that looks like a row of the log's program, and isn't one that can be read."""
_HEAD = re.compile(
    rb"\s*(?:\[(20\d{6}|\d{4}-\d\d-\d\d) (\d\d:\d\d):(\d\d)\])?"
    rb"(?:\[rank-(\d{1,9})/(\d{1,9})\]\[\w+ *\](?: \[[\w.:-]*\] ?:)?)?"
    rb"(?:(?<=[\]:])\s*)?iteration\s+(\d{1,18})\s*/\s*(\d{1,18})\s*\|"
)
"""The usual head of Megatron's lines, read at once: date, minute, second, rank, world, iteration, iterations."""
_RANK = re.compile(rb"rank[-_ :]?(\d{1,9})/(\d{1,9})", re.IGNORECASE)
_SOURCE = re.compile(rb"rank[-_ :]?(\d{1,9})|^\s*(\d{1,9}):|\[default(\d{1,9})\]", re.IGNORECASE)
_PREFIX_BYTES = 512
"""A line's head (stamps, rank, file) is no longer; what precedes is another line that lost its end."""
_OPEN = re.compile(rb"\|\s*(?:\w+ )?(?:max )?mem usage[/\w]*:[^|]*(?:GB|GiB|%)\s*$")
"""A last field behind which no "|" stands, though others have one: Primus joins its fields."""
_GLUED = re.compile(rb"\|(?:(?=[^\s|])|[^|\n]*%\|[^|\n]*\| *\d{1,18}/\d{1,18} \[)[^|\n]*$")
"""Another process's text, or bar, behind a row's last "|", which a blank follows where the row goes on."""
_DESCRIBED = re.compile(rb"\|(?:\s*\d{1,3}|[^|:]*: (?:  \d| \d\d|100))%\||\|[^\s|]|[^:]*$")
"""Where such a text follows the "|" at once; else the row's last field stands between."""
_JOINED = re.compile(
    rb"(?<=\S)(?=Step Time : \d|\[Rank \d{1,9}\] \(after | {0,2}\[\d{4}-\d\d-\d\d [\d:.]{8,15}\] iteration )"
)
"""Where a row of Megatron's kind begins behind another's, of which a process wrote no line end yet."""
_NOTE = re.compile(rb"(?<! ) {1,20}[^\s|:=,\d{}\[\]'\"-][^|:={}'\"]{0,200}(?<!\d)$")
"""Words behind a row."""
_SIGN, _BARE, _ENDS = re.compile(rb"[|:=]|^[-,]"), re.compile(rb" \d+$"), (b"|", b",", b" -")
"""What a field has, or ends with that has no sign, and what stands before one."""
_NUMBER = re.compile(rb"[-+]?(?:nan|inf|[\d.]{1,30}(?:e[-+]?\d{1,3})?)")
_INDENTED = re.compile(rb"\s{2,200}[A-Za-z_](?:[^=\n]{0,200}=|[^\n]{0,400}\s[-+]?[\d.]{1,30}\s*$)")
"""A field on a line of its own, whatever it says."""
BEGUN = re.compile(rb"\s{2,200}[A-Za-z_]")
"""Such a line, of which the sign may be lost, too."""
_MOST, LONG = 16, 10
"""Rows of one line: more than two are damage. Letters of a row's word that no other has at its end."""
BARS, EPOCHS, WORD_SETS = 64, 10_000, 1000
"""Maximum number of lengths of progress bars that are told apart; of epochs whose lengths are remembered, and of
combinations of words whose forms are."""
LOOKED_AT = 1 << 16
"""Bytes of a line in which a row's head is looked for."""
_WORDS = sorted({form.literal for program in programs.ALL for form in program.forms}, key=len, reverse=True)
_ANY_WORD = re.compile(b"|".join(map(re.escape, _WORDS)))
TAILS = 8
"""Kinds of rows that are remembered for each form, to see when one lost its end."""


class LogRow(msgspec.Struct, gc=False):
    """One line's values.

    step: None where the line names none. total: how many there will be. kind: a form's, or BROKEN.
    begin, end: where in the line the head begins and ends. part: what the head's ``set`` or ``rank`` says.
    time: Unix seconds of the line's stamp. elapsed: seconds since training began, by a progress bar; bar: the length of
    that, where it stands beside the row. source: the rank that wrote it, else what a launcher's prefix says of who did,
    "" if unsaid; world: of so many; label: that prefix. primus: the line has Primus' head. whole: it has its end. cut:
    it lacks its end. bad: a field of it isn't understood. quiet: of a value it says that there is none yet, or not
    here. keys: of its fields. values: by our name, none until :meth:`LineReader.fill`, where it isn't filled already;
    texts likewise. ahead: a line before it says that training begins, and none of training came since. placed: its
    line, or a progress bar, says its step. again: a bar drawn once more.
    """

    step: int | None
    kind: str
    program: Any
    form: Any
    line: bytes
    begin: int
    end: int
    whole: bool = True
    time: float | None = None
    total: int | None = None
    world: int | None = None
    source: str = ""
    part: str = ""
    primus: bool = False
    elapsed: float | None = None
    cut: bool = False
    bad: bool = False
    filled: bool = False
    keys: tuple[bytes, ...] = ()
    head: dict[str, bytes] = {}
    values: dict[str, Number] = {}
    texts: dict[str, str] = {}
    label: bytes = b""
    ahead: bool = False
    placed: bool = True
    quiet: bool = False
    bar: int | None = None
    again: bool = False

    @property
    def tail(self) -> int:
        """A hash of what the line says, without who wrote it and when."""
        return hash((tuple(self.head.items()), self.line[self.end :])) if self.head else hash(self.line[self.end :])


class LookAlike(NamedTuple):
    """Lines that look like a program's which the log may not be of. lines: how many; line, text: the first's number
    and text."""

    lines: int
    line: int
    text: bytes


class LineReader:
    """Reads lines of one log.

    Args:
        year, latest: of time stamps that have none: see :func:`trackers_console_logs.lines.find_time`.
        formats: a user's own programs, which come before those that are built in.
        told: programs, or families, that the log is known to have rows of.

    ``text``: the line that was read last, without what a launcher put in front of it; ``label``: who wrote it, by that.
    ``number``: of that line; whoever reads sets it. ``keys``: what the log calls each name. ``known``: programs whose
    rows were read, by family, and how many. ``maybe``: what else looks like a row. ``bars``: how far progress
    bars are, by their length; ``spent``: seconds since they began.
    """

    def __init__(
        self, year: int, latest: float = math.inf, formats: Sequence[Program] = (), told: Iterable[str] = ()
    ) -> None:
        self.keys: dict[str, str] = {}
        self.fields = FieldReader(megatron.metric_names, PIPES, megatron.UNITS, self.keys)
        self.text = self.label = b""
        self.number = 0
        self.known: dict[str, int] = {}
        self.named: dict[str, Program] = {}
        self.releases: dict[str, str] = {}
        self.maybe: dict[Program, LookAlike] = {}
        self.epoch: int | None = None
        self.fits = 0  # how often epochs began anew, or columns of training
        self.epochs: int | None = None
        self.bars: dict[int, int] = {}
        self.spent: dict[int, float] = {}
        self.columns: dict[str, list[str]] = {}
        # The newest epochs' steps before them, and their own.
        self._epochs: defaultdict[Program, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._year, self._latest = year, latest
        self._signed: set[str] = set(told)  # by lines that no other program writes
        self._stamped = False  # lines have times of their own: a launcher's don't count
        self._piped: set[str] = set()  # kinds of which some line ended in "|": one that doesn't was cut
        self._tails: dict[Form, list[tuple[tuple[bytes, ...], bytes]]] = {}
        self._telling: set[Form] = set()  # forms of which rows had fields that tell their program
        self._keys: dict[Program, dict[str, str]] = {}  # of programs that the log may not be of
        self._readers: dict[tuple[Form, str], FieldReader] = {(megatron.TRAINING, ""): self.fields}
        self._own = [(program, form, Patience(program.name)) for program in formats for form in program.forms
                     if isinstance(form, OwnForm)]  # fmt: skip
        self._order = [(program, form) for program in programs.ALL for form in program.forms]
        self._mine: list[tuple[Program, Form]] = []  # of programs that are known, which are tried first
        self._of_words: dict[tuple[bytes, ...], Sequence[tuple[Program, Form]]] = {}
        self._whole = self._last = True
        self.reached = 0  # by a line without values
        self.unsure = False  # an epoch may have been longer than its bar says
        self._gap = 0  # steps between the last two rows of an epoch
        self._begins: dict[Form, bytes] = {}  # of rows that are told by all that they say
        self._open = False  # an epoch began, and isn't done, or columns of training
        self._drawn = 0  # steps of the newest epoch, if its bar was seen on its way
        self._validated = b""  # what the newest epoch's row said with validation
        self._headed = False  # there were columns of training, and no row of it since
        self._twice = False  # the newest epoch began twice, without a bar between
        self.twice = False  # an epoch did, as of two processes
        self.tests = 0  # evaluations that were done, and followed by another
        # The length of an evaluation's bar that was under way, and whether it is done.
        self._tested: tuple[bytes | None, bool] = (None, False)
        self._took: bytes | None = None  # by the bar behind an evaluation's columns

    def rows(self, line: bytes, whole: bool | None = None, last: bool = True) -> Sequence[LogRow]:
        """The rows that begin in a line: mostly none or one; two where a line lost its end and another follows.

        Their values aren't read yet.

        Args:
            whole: the line has its end; None: if it ends in a newline. last: it is not overwritten.
        """
        self._last = last
        self.text, self.label = line, b""
        self._whole = line.endswith(b"\n") if whole is None else whole
        if b"\x1b" in line or b"\b" in line:
            line = self.text = COLOR.sub(b"", line).replace(b"\b", b"")
        row = self._at_once(line)
        if row is not None:
            return (row,)
        prefix, rest = split(line)
        if prefix is None:
            return self._note_stamps(self._search(line))
        self.text, self.label = rest, prefix.label
        row = self._at_once(rest)
        rows = (row,) if row is not None else self._search(rest, line)
        for row in self._note_stamps(rows):
            row.label = prefix.label
            row.source = row.source or prefix.label.decode("utf-8", "replace")
            if row.time is None and not self._stamped:
                row.time = find_time(prefix.text, self._year, self._latest)
        return rows

    def fill(self, row: LogRow, whole: bool | None = None) -> None:
        """Read a row's values. whole: as for :meth:`rows`, where it isn't known from there."""
        if row.filled:
            return
        row.filled = True
        row.whole = row.whole if whole is None else whole
        if row.kind == BROKEN or row.form is None:
            return
        values: dict[str, Number] = {}
        reader = self._reader(row.program, row.form, row.part)
        texts: dict[str, str] = {}
        for name, text in row.head.items():
            if name == "epoch":
                values[name] = int(text)
                reader.keys.setdefault(name, name)
                continue
            row.bad = not reader.add(row.form.keys.get(name, name).encode(), text, values, texts) or row.bad
        text = row.line[row.end :].rstrip(b" \t\r\n")
        if row.form.fields is not None:
            fields = self._fields(row, reader, text)
            values.update(fields.values)
            texts.update(fields.texts)
            row.keys = fields.keys
            row.bad = row.bad or not fields.whole
        elif text and not (row.whole and _NOTE.fullmatch(text)):
            row.bad = True
        elif row.form.fixed:
            keys = tuple(name.encode() for name in row.head if name != "epoch")
            row.cut = self._lost_end(row, Fields(values, texts, keys, True), b"") or row.cut
            row.kind = BROKEN if row.cut and text else row.kind
        if row.kind == BROKEN:  # a note stands behind the row, which may have lost its end
            values, texts = {}, {}
        if row.program.silent:
            said = len(values)
            values = {name: value for name, value in values.items() if row.program.silent.get(name) != value}
            row.quiet = len(values) < said
        row.values, row.texts = values, texts
        trained_ms = values.get(row.program.trained_ms)
        if trained_ms is not None and math.isfinite(trained_ms):
            row.elapsed = float(trained_ms) / 1000

    def goes_on(self, row: LogRow, late: bool) -> dict[str, Number] | None:
        """The values of the line that was read last, if it continues a row; {} if it doesn't, None if it is damaged.

        late: lines that don't continue it came since, so that nothing tells whether this one does.

        A wrapped line's fields are ones that the row has none of; fields on lines of their own begin as the form says.
        """
        if not row.label.startswith(self.label) or row.form is None:
            return {}
        text = self.text.strip()
        following = row.form.following
        if following is not None:
            match = following.match(self.text)
            if late:
                return None if _is_field(match, row, self.text) else {}
            values: dict[str, Number] = {}
            reader = self._reader(row.program, row.form, row.part)
            if match is None or not self._whole:
                cut = BEGUN.match(self.text) and (not self._whole or reader.is_cut(text))
                return None if cut or _INDENTED.match(self.text) else {}
            if "cells" not in following.groupindex:
                return values if reader.add(match[1], match[2], values, row.texts) else None
            name, *cells = text.rsplit(None, len(row.head))  # what each column says of a class
            whole = len(cells) == len(row.head) and all(
                reader.add(key.encode(), cell, values) for key, cell in zip(row.head, cells, strict=True))  # fmt: skip
            if not whole:  # of a class, or another's line
                return None if _INDENTED.match(self.text) or all(map(_NUMBER.fullmatch, cells)) else {}
            of = name.decode("utf-8", "replace")
            return {f"{key}/{of}": value for key, value in values.items()}
        if row.program.family != megatron.FAMILY or late:
            return {}
        key = text.partition(b":")[0].decode("utf-8", "replace").strip()
        if not megatron.is_known(key):
            return {}
        fields = self.fields.read(self._uncut(row, text))
        return {} if fields.values.keys() & row.values.keys() else fields.values

    def name(self, program: Program) -> str:
        """What the log's program is called: of a family the one whose marks there are."""
        member = self.named.get(program.family) if program.family else None
        return (member or program).name

    def recognise(self, program: Program) -> None:
        """Note that the log has rows of a program."""
        key = program.family or program.name
        self.known[key] = self.known.get(key, 0) + 1
        if self.known[key] == 1:
            self.keys.update(self._keys.pop(program, {}))
            for (form, _), reader in self._readers.items():
                if form in program.forms:
                    reader.keys = self.keys
            mine = [pair for pair in self._order if pair[0] is program]
            self._order = [*mine, *(pair for pair in self._order if pair[0] is not program)]
            self._mine = [*mine, *self._mine]
            self._of_words.clear()

    def is_known(self, program: Program) -> bool:
        """Whether the log has rows of a program, or of its family."""
        return (program.family or program.name) in self.known

    def _note_stamps(self, rows: Sequence[LogRow]) -> Sequence[LogRow]:
        """Note whether lines have times of their own; returns the rows."""
        self._stamped = self._stamped or any(row.time is not None for row in rows)
        return rows

    def _at_once(self, line: bytes) -> LogRow | None:
        """The row of a line that has the usual head; None where it must be looked for."""
        head = _HEAD.match(line)
        if head is None or megatron.FAMILY not in self.known:
            return None
        end = head.end()
        values = self.fields.read_same_shape(line, end)
        if values is not None:
            self._piped.add(TRAIN)
            return self._quick_row(line, head, end, values)
        if _JOINED.search(line, end) or line.count(b"iteration ", end) != 1 or b"per iteration (" not in line:
            return None  # lines of several processes in one: the slow way
        return self._quick_row(line, head, end, None)

    def _quick_row(self, line: bytes, head: re.Match[bytes], end: int, values: dict[str, Number] | None) -> LogRow:
        date, minute, second, rank, world, step, total = head.groups()
        base = None if date is None else minute_start(date, minute)
        time = None if base is None else base + int(second)
        filled = values is not None
        ranked = rank is not None
        return LogRow(
            int(step), TRAIN, megatron.PROGRAM, megatron.TRAINING, line, 0, end, self._whole, time, int(total),
            int(world) if ranked else None, rank.decode() if ranked else "", "", ranked, None, False, False, filled,
            (), {}, values or {},
        )  # fmt: skip

    def _search(self, *lines: bytes) -> Sequence[LogRow]:
        """The rows of a line without colours, which may be had in two ways: behind a prefix, and with what was one."""
        if self._own and (rows := self._of_own(lines)) is not None:
            return rows
        if megatron.FAMILY in self.known and _JOINED.search(lines[-1], 1):
            return self._joined(_JOINED.split(lines[-1]))
        rows = self._first_of(lines, self._mine)
        if rows is not None:
            return rows
        forms = self._forms_of(lines[-1])
        rows = self._first_of(lines, forms)
        return self._damaged(lines[0], forms) if rows is None else rows

    def _joined(self, parts: Sequence[bytes]) -> Sequence[LogRow]:
        """The rows of a line in which several processes wrote one behind the other."""
        rows: list[LogRow] = []
        whole = self._whole
        for place, part in enumerate(parts, 1):
            self._whole = whole and place == len(parts)
            rows += self._search(part)
        return rows

    def _first_of(self, lines: Sequence[bytes], forms: Sequence[tuple[Program, Form]]) -> Sequence[LogRow] | None:
        """The rows of the first form that a line is of, which may be had in two ways; None: of none."""
        for line, (program, form) in itertools.product(lines, forms):
            rows = self._of(program, form, line) if form.literal in line else None
            if rows is not None:
                before = line[: rows[0].begin] if rows and self._mine else b""
                return [*self._cut_before(before, form), *rows] if before else rows
        return None

    def _cut_before(self, line: bytes, form: Form) -> Sequence[LogRow]:
        """The rows of other forms that a line begins with, where a row of this one follows without a line end."""
        whole, self._whole = self._whole, False
        forms = [(program, other) for program, other in self._forms_of(line)
                 if other is not form and other.kind in ROWS and self.is_known(program)]  # fmt: skip
        rows = self._first_of([line], forms)
        self._whole = whole
        return rows or ()

    def _forms_of(self, line: bytes) -> Sequence[tuple[Program, Form]]:
        """The forms whose word a line holds, in the order in which they are tried."""
        line = line[:LOOKED_AT]
        if _ANY_WORD.search(line) is None:
            return ()
        words = tuple(filter(line.__contains__, _WORDS))
        known = self._of_words.get(words)
        if known is None:
            if len(self._of_words) >= WORD_SETS:
                self._of_words.clear()
            known = self._of_words[words] = [pair for pair in self._order if pair[1].literal in words]
        return known

    def _of(self, program: Program, form: Form, line: bytes) -> Sequence[LogRow] | None:
        """The rows of a form that a line has; None: the line isn't of this form."""
        places = tuple(_places(line, form))
        matches = [match for at in places if (match := form.pattern.match(line, at))]
        if not matches or (form.later and not self.is_known(program)):
            return None
        if form.kind not in ROWS:
            return self._notice(program, form, line, *matches[0].span(), matches[0].groupdict())
        rows = [self._row(program, form, line, *match.span(), match.groupdict()) for match in matches]
        for earlier, later in itertools.pairwise(rows):
            earlier.line, earlier.cut = line[: later.begin], True
        known = self.is_known(program)
        if not known and any(row.bad for row in rows):
            return None  # columns without a head
        if rows[0].form is form.outside and self._is_under_way(rows[0], matches[0].groupdict()):
            return ()
        if not self._fits(form, rows):
            return None
        if not known:
            return rows if self._are_told(program, form, rows, line) else None
        if form.needs and not form.never and self._is_of_another(rows[0]):
            return [LogRow(None, BROKEN, program, form, line, 0, 0, filled=True)]
        lost = form.damaged is not None and any(form.damaged.match(line, at) for at in places if at < rows[0].begin)
        return [LogRow(None, BROKEN, program, form, line, 0, 0, filled=True), *rows] if lost else rows

    def _is_under_way(self, row: LogRow, groups: dict[str, Any]) -> bool:
        """Whether an evaluation's bar isn't done; else it is noted whether it is drawn once more."""
        of, under_way = groups.get("of"), _is_on_the_way(row, groups, self._last)
        row.again = not under_way and self._tested == (of, True)
        self.tests += under_way and self._tested[1]
        known = of is not None and self._tested[0] == of
        self._tested = (of, False) if under_way else (of, True) if known else (None, False)
        self._drawn *= not under_way
        return under_way

    def _are_told(self, program: Program, form: Form, rows: Sequence[LogRow], line: bytes) -> bool:
        """Whether rows say enough that the log is a program's of which none were read before; else it is suspected."""
        telling = bool(form.needs) and all(self._has(row, form.needs) for row in rows)
        self._telling |= {form} if telling else set()
        told = telling or not form.needs or (program.family or program.name) in self._signed
        if told and (form.kind != TRAIN or any(self._has_values(row) for row in rows)):
            return True
        self._suspect(program, line)
        return False

    def _fits(self, form: Form, rows: Sequence[LogRow]) -> bool:
        """Whether rows have what each row of their form has, and nothing that none has."""
        if form.foreign is not None and any(form.foreign.search(row.line, row.begin) for row in rows):
            return False
        return not form.always or all(self._has(row, form.always) for row in rows)

    def _has(self, row: LogRow, needs: Sequence[str]) -> bool:
        """Whether a row has one of the fields without which it may be another program's."""
        self.fill(row)
        sound = not row.bad or self.is_known(row.program)
        return sound and _has_keys(row, needs)

    def _has_values(self, row: LogRow) -> bool:
        """Whether a row says more than its place."""
        self.fill(row)
        return bool(row.values.keys() - {"epoch"} or row.texts) or row.form.lines != ""

    def _suspect(self, program: Program, line: bytes) -> None:
        known = self.maybe.get(program)
        if known is None:
            self.maybe[program] = LookAlike(1, self.number, line)
        else:
            self.maybe[program] = known._replace(lines=known.lines + 1)

    def _damaged(self, line: bytes, forms: Sequence[tuple[Program, Form]]) -> Sequence[LogRow]:
        """A line that is no row, and looks like one; or is one behind another's text, which has no line end."""
        alike: set[Program] = set()
        for program, form in forms:
            if form.damaged is None or form.literal not in line or program in alike:
                continue
            place = next((at for at in _places(line, form) if form.damaged.match(line, at)), None)
            if place is not None and self.is_known(program):
                broken = LogRow(None, BROKEN, program, form, line, 0, 0, filled=True)
                return [broken, *self._behind(program, form, line, place)]
            if place is not None:
                self._suspect(program, line)
                alike.add(program)
        for program, form in forms:
            rows = self._behind_text(program, form, line) if form.kind in ROWS else None
            if rows is not None:
                return rows
            if self.is_known(program) and self._is_behind_text(form, line):
                return [LogRow(None, BROKEN, program, form, line, 0, 0, filled=True)]
        return ()

    def _is_behind_text(self, form: Form, line: bytes) -> bool:
        """Whether behind a text that lacks its line end a row stands that can't be read: a bar, whose first number may
        be the text's, too, or one that is damaged, and begins as those before it."""
        if form.bar and not form.first:
            places = itertools.islice(_PARTED.finditer(line, 1, LOOKED_AT), _MOST)
            return any(form.pattern.match(line, place.start()) is not None for place in places)
        begin, at = self._begins.get(form), 0
        for _ in range(_MOST if begin else 0):
            at = line.find(form.literal, at + 1, LOOKED_AT)
            if at < 0:
                break
            if _beginning(line, at) == begin:
                return True
        return False

    def _behind_text(self, program: Program, form: Form, line: bytes) -> Sequence[LogRow] | None:
        """The row behind a text that lacks its line end: read if it has what such rows had before, else broken."""
        at, match = 0, None
        for _ in range(_MOST):
            at = line.find(form.literal, at + 1, LOOKED_AT)
            if at < 0 or (match := form.pattern.match(line, at)) is not None:
                break
        tried = begins_message(line, at) and (form.first or self.is_known(program))
        if match is None or tried or (form.fields is LITERAL and b"{" in line[:at]):
            return None
        known = [keys for keys, _ in self._tails.get(form, ())]
        row = self._row(program, form, line, *match.span(), match.groupdict())
        self.fill(row)
        closed = not (form.fields and form.fields.closes and row.bad)  # else it has no keys
        if closed and row.keys not in known and not _has_keys(row, form.always or form.needs):
            return None
        if not self.is_known(program):
            if not row.bad and _has_keys(row, form.needs):
                self._suspect(program, line)
            return None
        same = not (row.bad or row.cut) and (row.keys in known or form.fields is None or form.bar)
        return [row if same else LogRow(None, BROKEN, program, form, line, 0, 0, filled=True)]

    def _behind(self, program: Program, form: Form, line: bytes, place: int) -> Sequence[LogRow]:
        """The row that follows one which lost so much that it can't be read, and begins at a place."""
        at = line.find(form.literal, place + 1, LOOKED_AT)
        for _ in range(_MOST):
            if at < 0 or not form.first or form.kind not in ROWS:
                break
            match = form.pattern.match(line, at) if _may_follow(line, form, at) else None
            if match is not None:
                return [self._row(program, form, line, *match.span(), match.groupdict())]
            at = line.find(form.literal, at + 1, LOOKED_AT)
        return ()

    def _notice(
        self, program: Program, form: Form, line: bytes, begin: int, end: int, groups: dict[str, Any]
    ) -> Sequence[LogRow]:
        """Take note of a line that has no values."""
        if form.kind == kinds.EPOCH:
            self._begin_epoch(_int(groups.get("epoch")), _int(groups.get("epochs")))
        elif form.kind == kinds.HEADER:
            columns = _grouped(groups["columns"].decode("utf-8", "replace").split())
            self.columns[form.named if form.named != "{}" else TRAIN] = columns
            self.fits += form.named == "{}"
            self._headed = form.named == "{}" or (self._headed and form.named == EVAL)
            self._open = self._open or form.named == "{}"
            self._took = groups.get("elapsed")
        elif form.kind == kinds.BAR:
            batch, of = int(groups["batch"]), _int(groups["of"])
            if of is not None and (of in self.bars or len(self.bars) < BARS):
                spent = seconds(groups["elapsed"].decode()) or 0.0
                self.bars[of], self.spent[of] = batch, spent
                return [LogRow(batch, kinds.BAR, program, form, line, begin, end, total=of, elapsed=spent, filled=True)]
        elif form.kind == kinds.PROGRESS:
            self.reached = _int(groups.get("step")) or self.reached
        elif form.kind == kinds.SIGN:
            self._signed.add(program.family or program.name)
        elif form.kind in (kinds.RESUME, kinds.BEGIN, kinds.END):
            if form.kind == kinds.END and not self.is_known(program):
                return ()
            self._open = self._open and form.kind != kinds.END
            step, epoch = _int(groups.get("step")), _int(groups.get("epoch"))
            if epoch in self._epochs[program]:  # which is done, and whose steps count from 0
                step = sum(self._epochs[program][epoch]) - 1
            elif groups.get("next"):
                step = int(groups["next"]) - 1
            return [LogRow(step, form.kind, program, form, line, begin, end, filled=True)]
        return ()

    def _begin_epoch(self, epoch: int | None, epochs: int | None) -> None:
        """Note that an epoch begins, of so many."""
        before, self.epoch = self.epoch, epoch
        self.fits += before is not None and epoch is not None and epoch <= before
        self._twice = self._open and not self._drawn and epoch == before is not None
        self.twice = self.twice or self._twice
        self._open, self._drawn, self._tested, self._validated = True, 0, (None, False), b""
        self.epochs = epochs if epochs is not None else self.epochs

    def _of_own(self, lines: Sequence[bytes]) -> Sequence[LogRow] | None:
        """The rows of a user's own programs; None where a line isn't of one."""
        for line, (program, form, patience) in itertools.product(lines, self._own):
            began = time.perf_counter()
            found = form.find(line)
            patience.spend(began, line, self.number)
            if found is None:
                continue
            begin, end, groups = found
            if form.kind not in ROWS:
                return self._notice(program, form, line, begin, end, groups)
            row = self._row(program, form, line, begin, end, groups)
            row.time = find_time(line[:_PREFIX_BYTES], self._year, self._latest)
            return [row]
        for program, form, patience in self._own:
            began = time.perf_counter()
            alike = form.like is not None and form.like.search(lines[0], 0, form.limit) is not None
            patience.spend(began, lines[0], self.number)
            if alike and self.is_known(program):
                return [LogRow(None, BROKEN, program, form, lines[0], 0, 0, filled=True)]
            if alike:
                self._suspect(program, lines[0])
        return None

    def _row(self, program: Program, form: Form, line: bytes, begin: int, end: int, groups: dict[str, Any]) -> LogRow:
        row = LogRow(None, form.kind, program, form, line, begin, end, self._whole)
        head = line[max(0, begin - _PREFIX_BYTES) : begin]
        row.time = find_time(head, self._year, self._latest)
        _note_writer(row, head)
        row.head = {name: text for name, text in groups.items() if name not in PARTS and text is not None}
        if form.fields is None and form.first:
            self._begins[form] = _beginning(line, begin)
        if groups.get("cells"):
            columns, cells = self.columns.get(form.kind, []), groups["cells"].split()
            groups = groups if form.kind == TRAIN else {**groups, "elapsed": self._took}  # on the line of the columns
            row.bad = len(columns) != len(cells)
            row.kind = BROKEN if self._headed and form.kind == EVAL else row.kind  # its epoch's row was lost
            self._headed = self._headed and form.kind != TRAIN
            row.head.update({} if row.bad else zip(columns, cells, strict=True))
        if groups.get("set") or groups.get("rank"):
            row.part = (groups.get("set") or groups["rank"]).decode("utf-8", "replace")
            row.source = row.part if form.kind == kinds.MEMORY else row.source  # each rank has such a line of its own
        if elapsed := groups.get("elapsed") or groups.get("spent"):
            row.elapsed = seconds(elapsed.decode())
        row.total = _count(groups.get("total"))
        if form.outside is not None:
            self._see_outside(row, form.outside, groups)
        self._place(row, groups)
        if not self._whole and end == len(line.rstrip()):
            _leave_last(row)
        return row

    def _place(self, row: LogRow, groups: dict[str, Any]) -> None:
        """Find a row's step: as it says, or by its epoch and how far that is."""
        program, form = row.program, row.form
        epoch = _int(groups.get("epoch"))
        if epoch is None and program.counted:
            epoch = self.epoch
        if epoch is not None:
            row.head = {**row.head, "epoch": str(epoch).encode()}
        batch, of = _int(groups.get("batch")), _int(groups.get("of"))
        epochs = _int(groups.get("epochs")) or (self.epochs if program.counted else None)
        if groups.get("step"):
            row.step = _count(groups["step"])
            if program.per_epoch and epoch is not None and row.step is not None:
                row.step += max(0, epoch - program.first_epoch) * program.per_epoch
        elif form.step_key:
            self.fill(row)
            step = row.values.get(program.called(form, row.part)(form.step_key)[0])
            row.step = int(step) if step is not None and math.isfinite(step) else None
        elif batch is not None and epoch is not None and row.kind == TRAIN:
            before = self._steps_before(program, epoch, batch, of)
            row.step = before + batch
            row.total = before + of * (epochs - epoch + program.first_epoch) if epochs and of else row.total
            self._see_end(row, groups)
        elif epoch is not None and form.kind == TRAIN:
            row.step, row.total = epoch, epochs
        elif epoch is not None and epoch in self._epochs[program]:  # what is evaluated has its steps
            row.step = sum(self._epochs[program][epoch])

    def _see_outside(self, row: LogRow, outside: Form, groups: dict[str, Any]) -> None:
        """Take a row that isn't of an open epoch for one outside; where it can't be, its epoch's head was lost."""
        if not self._open and not self._is_epochs(row, outside, groups):
            row.kind, row.form = outside.kind, outside
        elif not outside.pattern.match(row.line, row.begin):
            text = row.line[row.begin :] if groups["batch"] == groups["of"] else b""
            lost = self.epoch is None or (text and self._validated not in (b"", text))
            row.kind, self._validated = (BROKEN if lost and not self._twice else row.kind), text

    def _see_end(self, row: LogRow, groups: dict[str, Any]) -> None:
        """Note whether the bar of an epoch, which others may follow, is on its way or done."""
        if row.form.outside is not None and _is_on_the_way(row, groups):
            self._drawn = int(groups["of"])
        elif row.form.outside is not None and groups.get("of") and self._last:
            self._drawn, self._open = self._drawn * self._open, False

    def _is_epochs(self, row: LogRow, outside: Form, groups: dict[str, Any]) -> bool:
        """Whether a bar is that of the epoch that is done, drawn once more on its own line, or another process's."""
        of, (_, length) = _int(groups.get("of")), self._epochs[row.program].get(self.epoch or 0, (0, 0))
        again = (0 < self._drawn == of and not _is_on_the_way(row, groups)) or (self._twice and of == length)
        return (self.epoch is not None and again) or not outside.pattern.match(row.line, row.begin)

    def _steps_before(self, program: Program, epoch: int, batch: int, of: int | None) -> int:
        """How many steps came before an epoch, as far as the log has them; epochs that it lacks had as many as this.

        Args:
            batch, of: how far it is, and its steps, if the log says so.
        """
        epochs = self._epochs[program]
        if epoch - 1 in epochs:
            before = sum(epochs[epoch - 1])
            self.unsure = self.unsure or (epoch not in epochs and of is None and self._gap > 1)
        elif epoch in epochs:
            before = epochs[epoch][0]
        else:
            last = max((known for known in epochs if known < epoch), default=program.first_epoch - 1)
            newest = next(reversed(epochs.values()), (0, 0))
            before = sum(newest) if of is None else sum(epochs.get(last, ())) + max(0, epoch - last - 1) * of
        self._gap = batch - epochs.pop(epoch, (before, 0))[1] or self._gap  # the newest is the last
        epochs[epoch] = before, batch if of is None else of
        if len(epochs) > EPOCHS:
            del epochs[next(iter(epochs))]
        return before

    def _reader(self, program: Program, form: Form, part: str) -> FieldReader:
        key = form, part
        reader = self._readers.get(key)
        if reader is None:
            keys = self.keys if self.is_known(program) else self._keys.setdefault(program, {})
            reader = FieldReader(program.called(form, part), form.fields or PIPES, program.units, keys, program.unit)
            self._readers[key] = reader
        return reader

    def _fields(self, row: LogRow, reader: FieldReader, text: bytes) -> Fields:
        """What follows a row's head; a last value that lost its end is left out."""
        layout = row.form.fields
        if layout.closes:
            text = _NOTE.sub(b"", text) if row.whole and layout.closes + b" " in text else text
            if not text.endswith(layout.closes):
                row.cut, row.bad = True, not layout.between
                return Fields({}, {}, (), False) if row.bad else reader.read(text.rpartition(layout.between)[0])
            return reader.read(text[: -len(layout.closes)])
        if row.program.family == megatron.FAMILY:
            glued = _GLUED.search(text)
            if glued is not None:
                row.cut, text = row.cut or not _DESCRIBED.match(glued[0]), text[: glued.start() + 1]
            if b"rank-" in text:
                text = megatron.RANK_OF_PEAK.sub(rb"\2rank: \1 | \2", text)
            text = self._uncut(row, self._before_note(row, reader, text, b"|"))
            fields = reader.read(text)
            if row.cut or not self._lost_end(row, fields, text):
                return fields
            row.cut = True
            if text.endswith(b"|"):  # at least the last field is whole
                return fields
        else:
            fields = reader.read(text)
            plain = text if fields.whole else self._before_note(row, reader, text)
            noted, text, fields = plain != text, plain, fields if plain == text else reader.read(plain)
            row.cut = row.cut or not row.whole or self._lost_end(row, fields, text)
            row.kind = BROKEN if noted and row.cut else row.kind
            row.cut = row.cut or (row.form.end is not None and row.form.end.search(text) is None)
        if not row.cut or not fields.keys:
            return fields
        values = dict(fields.values)
        shorter = reader.read(text[: text.rfind(fields.keys[-1])].rstrip(b" |,-"))
        return shorter._replace(values={name: value for name, value in values.items() if name in shorter.values})

    def _before_note(self, row: LogRow, reader: FieldReader, text: bytes, end: bytes = b"") -> bytes:
        """A text without the words behind its last field, which aren't another's beginning. end: of each field."""
        at = len(text)
        for _ in range(_MOST if row.whole and (not end or not text.endswith(end)) else 0):
            at = text.rfind(b" ", 0, at)
            note, before = text[at:].strip(), text[: max(at, 0)].rstrip()
            if at < 0 or _SIGN.search(note):
                break
            fields = Fields({}, {}, (note,), True) if end else reader.read(before)
            ends = before.endswith(end) or _OPEN.search(before) is not None if end else not before.endswith(_ENDS)
            if ends and fields.whole and fields.keys and not _BARE.search(fields.keys[-1]):
                return text if reader.is_cut(note, row.program.names or megatron.NAMES) else before
        return text

    def _uncut(self, row: LogRow, text: bytes) -> bytes:
        """The text without its last value, which may be cut."""
        if text.endswith(b"|"):
            self._piped |= set() if row.cut else {row.kind}
            return text
        is_open = row.whole and _OPEN.search(text) is not None
        row.cut = row.cut or not row.whole or (row.kind in self._piped and not is_open)
        return text.rpartition(b"|")[0] if row.cut else text

    def _lost_end(self, row: LogRow, fields: Fields, text: bytes) -> bool:
        """Whether a row is the beginning of one such as were read before; else it is remembered."""
        if row.form.bar:
            return False
        known = self._tails.setdefault(row.form, [])
        tail = _tail_of(row.form, fields.keys, text)
        size, whole = len(fields.keys), any(keys == fields.keys for keys, _ in known)
        for keys, before in known:
            if not whole and size < len(keys) and keys[:size] == fields.keys:
                return any(key.decode("utf-8", "replace") not in row.form.optional for key in keys[size:])
            if keys == fields.keys and len(tail) < len(before) and before.startswith(tail):
                return True
        if (fields.keys, tail) not in known and fields.whole:
            known.append((fields.keys, tail))
            del known[:-TAILS]
        return False

    def _is_of_another(self, row: LogRow) -> bool:
        """Whether a whole row has none of the fields that tell its program's, which those before it had."""
        self.fill(row)
        if _has_keys(row, row.form.needs):
            self._telling.add(row.form)
            return False
        return row.form in self._telling and not (row.cut or row.bad)

    def forget_tails(self, row: LogRow | None = None) -> None:
        """Forget which fields rows have, but for one's: behind a new start, those of most programs come one by one."""
        self._tails = {form: tails for form, tails in self._tails.items() if form is megatron.TRAINING and row}
        if row and row.filled and not row.cut and row.form is not megatron.TRAINING:
            text = self._before_note(row, self._reader(row.program, row.form, row.part), row.line[row.end :].rstrip())
            self._tails[row.form] = [(row.keys, _tail_of(row.form, row.keys, text))]


def _is_field(match: re.Match[bytes] | None, row: LogRow, text: bytes) -> bool:
    """Whether a line looks like one of a row's, or all that its columns say of a class."""
    cells = match.groupdict().get("cells") if match and _INDENTED.match(text) else b""
    return cells is None or (cells != b"" and len(cells.split()) == len(row.head))


def _has_keys(row: LogRow, needs: Sequence[str]) -> bool:
    """Whether a row has the fields of one of these; of none without any."""
    keys = [key.decode("utf-8", "replace") for key in row.keys]
    return not needs or any(all(fnmatch.filter(keys, part) for part in need.split("+")) for need in needs)


def _note_writer(row: LogRow, head: bytes) -> None:
    """Take who wrote a row from what stands before it: a rank of so many, or what a launcher says of it."""
    ranked = _RANK.search(head)
    if ranked is not None:
        row.source, row.world, row.primus = ranked[1].decode(), int(ranked[2]), True
    elif source := _SOURCE.search(head):
        row.source = next(text for text in source.groups() if text is not None).decode()


def _leave_last(row: LogRow) -> None:
    """Leave out the last value in the head of a row that ends with it, without an end: it may have had more digits."""
    last = next((name for name in reversed(row.head) if name != "epoch"), "")
    if last and row.line.rstrip().endswith(row.head[last]):
        row.cut = True
        del row.head[last]


def _is_on_the_way(row: LogRow, groups: dict[str, Any], last: bool = True) -> bool:
    """Whether a progress bar isn't at its end: before the last batch or, with a time left or overwritten, behind it."""
    of = groups.get("of")
    return of is not None and (of != groups["batch"] or not last or b" ETA: " in row.line[row.begin : row.end])


_PARTED = re.compile(rb"\d{1,18}/")
_GAPS = re.compile(rb"[\d\s]+")


def _beginning(line: bytes, at: int) -> bytes:
    """How a row begins, whatever its numbers are."""
    return _GAPS.sub(b"0", line[at : at + 40])[:16]


_WHOLE_PART = re.compile(rb"(?<![\d.])\d[\d,]*")
_DIGIT = re.compile(rb"\d")


def _grouped(columns: list[str]) -> list[str]:
    """Names of columns, of which some stand in brackets: "Box(P R mAP50)" are "Box(P", "Box(R" and "Box(mAP50"."""
    names, head = [], ""
    for column in columns:
        name = column if "(" in column else head + column.removesuffix(")") if head else column
        head = column.partition("(")[0] + "(" if "(" in column else head
        head = "" if column.endswith(")") else head
        names.append(name.removesuffix(")"))
    return names


def _tail_of(form: Form, keys: Sequence[bytes], text: bytes) -> bytes:
    """What a row's last field looks like, its value's decimals and unit, where all rows of its form look alike."""
    if not form.fixed or not keys:
        return b""
    return _DIGIT.sub(b"0", _WHOLE_PART.sub(b"0", text[text.rfind(keys[-1]) :][-100:]))


def _places(line: bytes, form: Form) -> Iterable[int]:
    """Where in a line a form's head may begin: at its word, or where the line's text does."""
    return _word_places(line, form) if form.first else (len(line) - len(line.lstrip()),)


def _word_places(line: bytes, form: Form) -> Iterator[int]:
    """Where in a line a form's word begins a message; behind a row that lost its end, anywhere."""
    at, follows = line.find(form.literal, 0, LOOKED_AT), False
    for _ in range(_MOST):
        if at < 0:
            return
        if form.anywhere or begins_message(line, at) or (follows and _may_follow(line, form, at)):
            yield at
            follows = follows or form.pattern.match(line, at) is not None
        at = line.find(form.literal, at + 1, LOOKED_AT)


def _may_follow(line: bytes, form: Form, at: int) -> bool:
    """Whether a row that lost its end may be followed by another at a place: not within a dictionary, nor behind a sign
    or a letter of a name."""
    before = line[at - 1 : at]
    named = before.isalpha() or before in (b"_", b"/", b"-")
    return not (form.fields and form.fields.closes) and (len(form.literal) >= LONG or not named)


def _count(text: bytes | None) -> int | None:
    """A whole number, in which a letter may say thousands of what: ``1.23k``."""
    number = scaled(text.decode()) if text else None
    return int(number) if number is not None and math.isfinite(number) and abs(number) < 1e18 else None


def _int(text: bytes | None) -> int | None:
    """A whole number; commas may stand between its thousands."""
    if text is None:
        return None
    digits = text.replace(b",", b"").strip()
    return int(digits) if digits.isdigit() and len(digits) < 19 else None
