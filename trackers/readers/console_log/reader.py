"""``log:FILE``: console logs of Primus, Megatron-LM, Megatron Bridge, TorchTitan and MaxText.

What launchers put before each line (:mod:`trackers.readers.console_log.lines`) changes nothing. Values
keep their size and unit and get the names that other runs have (:mod:`trackers.readers.console_log.lines`). ``X/Y`` and
``X (avg Y)`` are two values: of the interval, and the running average. "GB" of these programs is GiB, and so named.
Times are the lines' own stamps, in this machine's time zone where they name none; a log without stamps begins at its
file's modification time and goes on by the time that iterations took. Copies of a line that several ranks or two
handlers wrote count once, by iteration. Where training went back to a checkpoint, a Start record says so, and what it
trained again is left out of what was before (standard input, which passes but once, has both). A last value that lost
its end is left out.
"""

from __future__ import annotations

import ast
import codecs
import glob
import gzip
import hashlib
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from trackers.errors import NotFound, UsageError, examples
from trackers.readers import helpers
from trackers.readers.boundary import bounded
from trackers.readers.console_log.lines import COLOR, KNOWN, MEMORY, TRAIN, LineReader, LogRow
from trackers.readers.reader import SourceRun
from trackers.records import Config, Environment, Finish, Metrics, Record, Start

LINE_BYTES = 1 << 20
"""Maximum number of bytes of a line that are read at once."""
REMEMBERED = 4096
"""Number of latest lines that are remembered to detect copies."""
WRAPPED_LINES = 3
"""Maximum number of lines that a wrapped line extends over."""
BLOCK_BYTES = 4 << 20
SHOWN = 120
_STEPS = {word: re.compile(re.escape(word) + rb"\s+(\d[\d,]{0,23})") for word in (b"iteration", b"episode", b"step:")}
GROWTH_FROM = 64 << 20
GROWTH_MOST = 200
"""Maximum expansion of a compressed log above that size; real logs compress to about a tenth."""
GZIP_MAGIC = b"\x1f\x8b"


class LogStream:
    """Reads one log once.

    Args:
        name: of the log, for messages.
        time: Unix seconds for the first line of a log without time stamps, and whose year holds for stamps without
            a year; what follows is placed by the time that each iteration took.
        year: see ``time``.
        restarts: what :func:`restarts` found: iterations that an attempt before them trained again are left out.
    """

    def __init__(self, name: str, time: float, year: int, restarts: Sequence[int] = ()) -> None:
        self._limits = [min(restarts[number:], default=None) for number in range(len(restarts))]
        self._limit: int | None = None  # of the row at hand
        self.lines = LineReader(year)
        self.facts = MachineFacts()
        self.attempt = 0
        self.rows = 0
        self.total: int | None = None
        self.world: int | None = None
        self.formats: list[str] = []
        self.cut = False
        self._name = name
        self._clock = time
        self._first_line = b""
        self._pending: LogRow | None = None
        self._known_keys = 0  # number of names that Config records have named
        self._arguments = 0
        self._machine = 0
        self._attempt_began = 0.0
        self._newest: dict[str, int] = {}  # iteration by who wrote it
        self._latest = 0.0  # time of the row with the highest iteration of this attempt
        self._copies = _Copies()
        self._step = 0

    def read(self, file: BinaryIO) -> Iterator[Record]:
        """The records; see :class:`trackers.readers.console_log.reader.LogReader`.

        Raises:
            NotFound: no line is of a form known here.
        """
        wrapped = 0
        for line in _read_lines(file, self._say_cut):
            rows = self.lines.rows(line)
            for row in rows:
                began = self._admit(row, line)
                if began is None:
                    continue
                wrapped = 0
                yield from self._leave_pending()
                if began:
                    yield from began
                if not row.filled:
                    self.lines.fill(row, line.endswith(b"\n"))
                self._pending = row
                self._limit = self._limits[self.attempt - 1] if self.attempt <= len(self._limits) else None
            if not rows:
                if self._pending is not None and wrapped < WRAPPED_LINES:
                    wrapped += 1
                    values = self.lines.goes_on(line, self._pending)
                    self._pending.values.update(values)
                    if values:
                        continue
                self._see_other_line(line, self.lines.text)
        yield from self._leave_pending()
        if not self.rows:
            raise NotFound(self._nothing())
        if self.total is not None and self._step >= self.total:
            yield Finish(time=self._clock, status="finished", step=self._step)

    def _say_cut(self) -> None:
        self.cut = True

    def _see_other_line(self, line: bytes, text: bytes) -> None:
        """Look at a line without values. text: the part that the program wrote."""
        if not self._first_line and line.strip():
            self._first_line = line.strip()
        self.facts.scan(text)

    def _admit(self, row: LogRow, line: bytes) -> tuple[Record, ...] | None:
        """Records that precede a row's: mostly none. None: the row is another's copy and doesn't count."""
        if row.kind != TRAIN:
            return self._admit_other(row)
        step = row.step
        known = self._copies.get(step)
        newest = self._newest.get(row.source, -1)
        began: tuple[Record, ...] = ()
        if step <= newest or known is not None:
            # Training began again from a checkpoint: the same writer says a lower iteration, and other values.
            late = row.time is not None and row.time < self._attempt_began
            # After a restart a process or a pod has another name, and a smaller world another last rank.
            renamed = newest < 0 and row.time is not None and row.time > self._latest > 0
            renamed = renamed and step < max(self._newest.values(), default=0)
            if (step >= newest and not renamed) or late or known == row.tail:
                self._complete(row, line)
                return None
            began = self._begin_attempt(row)
        elif self.attempt == 0:
            began = self._begin_attempt(row)
        self._copies.put(step, row.tail)
        self._newest[row.source] = step
        self._latest = row.time if row.time is not None else self._latest
        return began

    def _admit_other(self, row: LogRow) -> tuple[Record, ...] | None:
        if row.step < 0:
            row.step = self._pending.step if self._pending is not None else self._step
        key = (row.kind, row.step, row.source if row.kind == MEMORY else "")
        if self._copies.get(key) is not None:
            return None
        self._copies.put(key, row.tail)
        return self._begin_attempt(row) if self.attempt == 0 else ()

    def _complete(self, row: LogRow, line: bytes) -> None:
        """A copy of a line that was cut may have what was lost."""
        pending = self._pending
        if pending is not None and pending.cut and pending.step == row.step and pending.kind == row.kind:
            self.lines.fill(row, line.endswith(b"\n"))
            pending.values = {**row.values, **pending.values}

    def _begin_attempt(self, row: LogRow) -> tuple[Record, ...]:
        self.attempt += 1
        self._copies.clear()
        self._newest.clear()
        self._clock = row.time if row.time is not None else self._clock
        self._attempt_began = self._clock
        above = row.step - 1 if self.attempt > 1 else None
        world = row.world or 0
        return (Start(time=self._clock, attempt=self.attempt, rank=0, world_size=world, from_step=above),)

    def _leave_pending(self) -> Iterator[Record]:
        """The records of the row at hand, if there is one."""
        if self._pending is None:
            return
        if self._is_news(self._pending):
            yield from self._describe(self._pending)
        metrics = self._flush(self._pending)
        if metrics is not None:
            yield metrics

    def _flush(self, row: LogRow) -> Metrics | None:
        """The record of the row at hand, which is complete now."""
        self._pending = None
        if not row.values or (self._limit is not None and row.step > self._limit):
            return None
        return Metrics(step=row.step, time=self._clock, values=row.values)

    def _is_news(self, row: LogRow) -> bool:
        """Count a row and set the clock by it. Whether it, or what preceded it, says something of the run itself."""
        if not row.values:
            return False
        self.rows += 1
        before, self._step = self._step, row.step
        if row.time is not None:
            self._clock = row.time
        elif row.kind == TRAIN and self.rows > 1:
            self._clock += max(1, row.step - before) * _seconds(row)
        return (
            len(self.lines.fields.keys) != self._known_keys
            or row.total != self.total
            or len(self.facts.arguments) != self._arguments
        )

    def _describe(self, row: LogRow) -> list[Record]:
        """Records of what is new about the run itself."""
        config: dict[str, Any] = {}
        if len(self.facts.arguments) != self._arguments:
            config.update(self.facts.arguments)
            self._arguments = len(self.facts.arguments)
        if row.format not in self.formats:
            self.formats.append(row.format)
            config["log"] = {"format": ", ".join(self.formats)}
        if row.total is not None and row.total != self.total:
            self.total = config["train_iters"] = row.total
        if row.world is not None and row.world != self.world:
            self.world = config["world_size"] = row.world
        keys = self.lines.fields.keys
        if len(keys) != self._known_keys:
            new = dict(list(keys.items())[self._known_keys :])
            config["log"] = {**config.get("log", {}), "names": new}
            self._known_keys = len(keys)
        records: list[Record] = []
        if len(self.facts.machine) != self._machine:
            records.append(Environment(time=self._clock, values=dict(self.facts.machine)))
            self._machine = len(self.facts.machine)
        if config:
            records.append(Config(time=self._clock, values=config))
        return records

    def _nothing(self) -> str:
        if self._first_line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell's > writes it
            return f"{self._name} is text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 FILE > new.log"
        first = self._first_line[:SHOWN].decode("utf-8", "replace")
        shown = "".join(character if character.isprintable() else "?" for character in first)
        empty = "its packed content is cut or damaged" if self.cut else "it is empty"
        detail = f"its first line is: {shown}" if shown else empty
        return f"{self._name}: no line with training values; known are {KNOWN}; {detail}"


def restarts(file: BinaryIO, year: int) -> list[int]:
    """From which iteration on each attempt after the first superseded what was trained before: mostly none.

    Args:
        file: the log, from its beginning; it is read through. year: as for :class:`LogStream`.
    """
    stream = LogStream("", 0.0, year)
    steps = []
    for line in _read_lines(file):
        for row in stream.lines.rows(line):
            for record in stream._admit(row, line) or ():
                if isinstance(record, Start) and record.from_step is not None:
                    steps.append(record.from_step)
    return steps


def may_restart(file: BinaryIO) -> bool:
    """Whether iterations ever fall: several times quicker than :func:`restarts`, which tells why they do."""
    last = dict.fromkeys(_STEPS, -1)
    rest = b""
    try:
        while block := file.read(BLOCK_BYTES):
            text = rest + block
            end = text.rfind(b"\n") + 1 or (len(text) if len(text) > LINE_BYTES else 0)
            rest = text[end:]
            if _falls(text[:end], last):
                return True
    except (EOFError, gzip.BadGzipFile, zlib.error):
        pass
    return _falls(rest, last)


def _falls(text: bytes, last: dict[bytes, int]) -> bool:
    if b"\x1b" in text:
        text = COLOR.sub(b"", text)
    for word, pattern in _STEPS.items():
        if word in text:
            for digits in pattern.findall(text):
                step = int(digits.replace(b",", b""))
                if step < last[word]:
                    return True
                last[word] = step
    return False


class _Copies:
    """Hashes of lines by what they are about, of the latest :data:`REMEMBERED` or up to twice as many."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._new: dict[Any, int] = {}
        self._old: dict[Any, int] = {}

    def get(self, key: Any) -> int | None:
        known = self._new.get(key)
        return self._old.get(key) if known is None and self._old else known

    def put(self, key: Any, text: int) -> None:
        self._new[key] = text
        if len(self._new) > REMEMBERED:
            self._old, self._new = self._new, {}


def _seconds(row: LogRow) -> float:
    """How long an iteration took, by its line; 0.0 where that isn't said."""
    if "perf/iter_ms" in row.values:
        return max(0.0, float(row.values["perf/iter_ms"])) / 1000.0
    return max(0.0, float(row.values.get("perf/iter_time_sec", 0.0)))


def open_log(file: Any) -> BinaryIO:
    """A buffered binary file as the log's text: unpacked where it is gzipped."""
    if file.peek(2)[:2] == GZIP_MAGIC:
        return cast(BinaryIO, _Unpacked(file))
    return cast(BinaryIO, file)


def _read_lines(file: BinaryIO, say_cut: Callable[[], object] = lambda: None) -> Iterator[bytes]:
    """Lines as far as they can be read: a packed file that was cut, or unpacks to far too much, ends; that is said."""
    try:
        yield from iter(partial(file.readline, LINE_BYTES), b"")
    except (EOFError, gzip.BadGzipFile, zlib.error):
        say_cut()


class _Unpacked(gzip.GzipFile):
    """A gzipped log, up to where it unpacks to more than any log does."""

    def __init__(self, packed: Any) -> None:
        super().__init__(fileobj=packed)
        self._packed, self._unpacked = packed, 0

    def readline(self, size: int | None = -1) -> bytes:
        return self._counted(super().readline(size))

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(super().read(size))

    def _counted(self, block: bytes) -> bytes:
        self._unpacked += len(block)
        if self._unpacked > GROWTH_FROM and self._unpacked > GROWTH_MOST * self._packed.tell():
            raise EOFError(f"unpacks to more than {GROWTH_MOST} times its length")
        return block


STDIN = "-"
CUT = "the packed log is cut or damaged: this is what could be read of it"
FORM = 3
"""Of names and values: another one makes what was kept of logs void."""
BUFFER_BYTES = 1 << 20
SUFFIXES = (".gz", ".log", ".txt", ".out")


@bounded
class LogReader:
    """Console logs as runs: a file (perhaps gzipped), a glob, or ``-`` for standard input, which is read once."""

    scheme = "log"

    def runs(self, where: str) -> list[SourceRun]:
        """One run for each file, the one changed last first. See :class:`trackers.readers.reader.Reader`."""
        if where == STDIN:
            return [SourceRun(source="log:-", id="stdin", name="stdin", native={"path": STDIN})]
        if not where:
            raise UsageError("log: name a file, as in log:training.log, or log:- for standard input")
        paths = _paths(where)
        return sorted(helpers.those_of(paths, _run), key=lambda run: -run.created)

    def version(self, run: SourceRun) -> str:
        """The file's size and time, and this machine's time zone; "" for standard input."""
        try:
            stat = Path(str(run.native["path"])).stat()
        except OSError:
            return ""
        return f"{stat.st_size}:{stat.st_mtime_ns}:{time.timezone}:{FORM}"

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """The log's records. See :class:`trackers.readers.reader.Reader`.

        Raises:
            NotFound: the file has gone, or holds no line of a known program; the message shows its first line.
        """
        path = str(run.native["path"])
        if path == STDIN:
            stream = LogStream("standard input", time.time(), time.localtime().tm_year)
            yield from stream.read(open_log(sys.stdin.buffer))
            run.note = CUT if stream.cut else ""
            return
        try:
            changed = Path(path).stat().st_mtime
            year = time.localtime(changed).tm_year
            steps = _restarts(path, year)
            with open(path, "rb", buffering=BUFFER_BYTES) as file:
                stream = LogStream(path, changed, year, steps)
                yield from stream.read(open_log(file))
                run.note = CUT if stream.cut else ""
        except FileNotFoundError:
            raise NotFound(f"{path}: no such file") from None
        except OSError as error:
            raise NotFound(f"{path} can't be read: {error.strerror or error}") from None


def _restarts(path: str, year: int) -> list[int]:
    """See :func:`trackers.readers.console_log.reader.restarts`; most logs have none, which is told quickly."""
    with open(path, "rb", buffering=BUFFER_BYTES) as file:
        if not may_restart(open_log(file)):
            return []
    with open(path, "rb", buffering=BUFFER_BYTES) as file:
        return restarts(open_log(file), year)


def _paths(where: str) -> list[Path]:
    path = Path(where).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        raise NotFound(f"{where} is a directory: name a log in it, or several as log:{where.rstrip('/')}/*.log")
    paths = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    if not paths:
        near = sorted(item.name for item in path.parent.glob("*.log*")) if path.parent.is_dir() else []
        raise NotFound(f"{where}: no such file" + (f"; there are {examples(near, 5)}" if near else ""))
    return paths


def run_id(path: Path) -> str:
    """The id of a log as a run, made from its path alone."""
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", _name(path)).strip("-") or "log"
    return f"{clean[:100]}-{digest}"


def _name(path: Path) -> str:
    name = path.name
    while name.endswith(SUFFIXES):
        name = name[: name.rindex(".")]
    return name


def _run(path: Path) -> SourceRun:
    helpers.check_size(path)
    native: dict[str, Any] = {"path": str(path)}
    return SourceRun(
        source=f"log:{path}",
        id=run_id(path),
        name=_name(path) or path.name,
        project=path.resolve().parent.name,
        created=path.stat().st_mtime,
        native=native,
    )


_COLOR = re.compile(rb"\x1b\[[0-9;]*m")
_ARGUMENT = re.compile(rb"(?:^|[\s\]:])([A-Za-z_][\w.]*) \.{3,} (\S.*)")
_FACTS = {
    "gpu": re.compile(
        rb"\b(AMD Instinct MI\d+\w*|AMD Radeon(?: \w+){1,3}|Tesla [A-Z]\d+[\w-]*"
        rb"|NVIDIA (?:RTX |GeForce |TITAN )?(?:GB?|GH|H|A|B|L|V|T)?\d{2,4}\w*(?:[ -](?:SXM\d?|PCIe|NVL|HBM\w*|\d+GB))*)"
    ),
    "pytorch_version": re.compile(
        rb"\b(?:py)?torch(?:[ _.]+version)?_*['\"]?\s*[:=]+\s*['\"]?v?(\d+\.\d[\w.+-]*)", re.I
    ),
    "rocm_version": re.compile(rb"\b(?:rocm|hip)[ _-]?(?:version)?['\"]?\s*[:=]\s*['\"]?v?(\d+\.\d[\w.-]*)", re.I),
    "cuda_version": re.compile(rb"\bcuda[ _-]?(?:version)?['\"]?\s*[:=]\s*['\"]?v?(\d+\.\d[\w.-]*)", re.I),
}
_HINT = re.compile(rb"amd|nvidia|tesla|torch|rocm|hip|cuda", re.IGNORECASE)
_BUILD = re.compile(r"\+(rocm|cu)(\d[\d.]*)")
LINES = 20_000
"""Number of first lines without values that are searched for arguments and machines."""


class MachineFacts:
    """Gathers what lines without values say. ``arguments``: the program's own; ``machine``: gpu and versions."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.machine: dict[str, str] = {}
        self._lines_left = LINES

    def scan(self, line: bytes) -> None:
        """Look for facts about the machine and for arguments in a line."""
        if self._lines_left <= 0:
            return
        self._lines_left -= 1
        if b"\x1b" in line:
            line = _COLOR.sub(b"", line)
        if b" ..." in line and (match := _ARGUMENT.search(line)):
            self.arguments.setdefault(match[1].decode(), _value(match[2].decode("utf-8", "replace").rstrip()))
        elif _HINT.search(line):
            for name, pattern in _FACTS.items():
                if name not in self.machine and (match := pattern.search(line)):
                    self.machine[name] = match[1].decode("utf-8", "replace").strip()
            build = _BUILD.search(self.machine.get("pytorch_version", ""))
            if build:
                name, digits = ("rocm_version" if build[1] == "rocm" else "cuda_version"), build[2]
                self.machine.setdefault(name, digits if "." in digits else f"{digits[:-1]}.{digits[-1]}")


def _value(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (int, float, bool, str, type(None), list)) else text
