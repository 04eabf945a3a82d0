"""Lines that training programs print, as rows: Primus, Megatron-LM, Megatron Bridge, TorchTitan, MaxText.

Where the forms come from: ``training_log`` and ``evaluate_and_print_results`` in Megatron-LM's
``megatron/training/training.py`` and in Megatron Bridge's ``train_utils.py``, Primus' patches of them,
``MetricsProcessor`` in TorchTitan's ``components/metrics.py``, ``metric_logger.py`` in MaxText.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple, Union

import msgspec

from trackers.errors import UNDECODABLE
from trackers.records import Number

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PREFIX = re.compile(
    rb"\s{0,8}(?:"
    # Times: RFC 3339 (a container runtime's with its stream), C's, syslog's, a clock alone.
    rb"(?:\d{4}-\d\d-\d\d[T ]" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)?(?:\ std(?:out|err)\ [FP])?"
    rb"|(?:[A-Z][a-z]{2}\ )?[A-Z][a-z]{2}\ [\ \d]?\d\ " + _CLOCK + rb"(?:\ \d{4})?"
    rb"|" + _CLOCK + rb")(?=[\s\[<])\s?"
    # Who wrote the line.
    rb"|(?P<label>(?:\[[^\]\n]{1,120}\]){0,3}<std\w{1,6}>(?=:)"
    rb"|\[[^\]\s]{1,200}\](?=:)"
    rb"|\[\d{1,7}\](?=\s)"
    rb"|\[(?:pod|job|deployment|statefulset)/[^\]\s]{1,300}\](?=\s)"
    rb"|\((?:[\w.:\[\]-]{1,80}\ )?pid=\d{1,9}(?:,\ ip=[^)\s]{1,60})?\)(?=\s)"
    rb"|(?:[\w.-]{1,80}\ )?[\w./()-]{1,80}\[\d{1,9}\](?=:\s)"
    rb"|[A-Za-z][\w.-]{0,80}(?=\s{1,40}\|\s)"
    rb"|\d{1,7}(?=:\s)|\d{1,3}(?:\.\d{1,3}){3}(?=:\s)|(?=[\w.-]{0,80}\d)[A-Za-z][\w.-]{0,80}(?=:\s))"
    rb"(?:\s{1,40}\|\s|:\ ?|\s)"
    rb")"
)
_MOST = 16
"""Prefixes of one line that are taken off."""


class Prefix(NamedTuple):
    """text: what stands before the program's line, its times included. label: who wrote the line, b"" if unsaid."""

    text: bytes
    label: bytes


def split(line: bytes) -> tuple[Prefix | None, bytes]:
    """The prefix that a launcher put before a line (None: no prefix), and the rest of the line."""
    match = _PREFIX.match(line)
    if match is None:
        return None, line
    labels, end = [], 0
    for _ in range(_MOST):
        if match[1]:
            labels.append(match[1])
        end = match.end()
        match = _PREFIX.match(line, end)
        if match is None:
            break
    return Prefix(line[:end], b" ".join(labels)), line[end:]


LOSSES = frozenset({"train_loss", "val_loss", "test_loss"})
AVERAGE = "_avg"
"""End of the name of a running average, the second number of ``X/Y`` and of ``X (avg Y)``."""
OWN = "log/"
"""Before a key that another value's name is the same as here."""

NAMES = {
    "lm loss": "train_loss",
    "learning rate": "learning_rate",
    "decoupled learning rate": "decoupled_learning_rate",
    "global batch size": "global_batch_size",
    "batch size": "global_batch_size",
    "consumed samples": "consumed_samples",
    "consumed tokens": "consumed_tokens",
    "skipped samples": "skipped_samples",
    "loss scale": "loss_scale",
    "grad norm": "grad_norm",
    "num zeros": "num_zeros",
    "params norm": "params_norm",
    "number of skipped iterations": "skipped_iterations",
    "number of nan iterations": "nan_iterations",
    "elapsed time per iteration (ms)": "perf/iter_ms",
    "throughput per GPU (TFLOP/s/GPU)": "perf/tflops_per_gpu",
    "compute per GPU (TFLOP/s/GPU)": "perf/tflops_per_gpu",
    "tokens per GPU (tokens/s/GPU)": "perf/tokens_per_sec_per_gpu",
    "tokens per GPU": "perf/tokens_per_sec_per_gpu",
    "tokens/s/GPU inst/harmonic mean": "perf/tokens_per_sec_per_gpu",
    "Tokens per second per GPU (Tok/s/GPU)": "perf/tokens_per_sec_per_gpu",
    "energy per GPU (J/iter/GPU)": "perf/energy_per_gpu_j",
    "power per GPU (W/GPU)": "perf/power_per_gpu_w",
    "mem usages": "gpu/memory_used_ratio",
    "lm loss validation": "val_loss",
    "lm loss validation ppl": "val_perplexity",
    "lm loss test": "test_loss",
    "lm loss test ppl": "test_perplexity",
    "loss": "train_loss",
    "loss validation": "val_loss",
    "grad_norm": "grad_norm",
    "tps": "perf/tokens_per_sec_per_gpu",
    "tflops": "perf/tflops_per_gpu",
    "mfu": "perf/mfu_percent",
    "elapsed_time_per_step": "perf/iter_time_sec",
    "seconds": "perf/iter_time_sec",
    "TFLOP/s/device": "perf/tflops_per_gpu",
    "Tokens/s/device": "perf/tokens_per_sec_per_gpu",
    "perplexity": "train_perplexity",
    "learning_rate": "learning_rate",
}
"""The log's key to the name here. Several keys of one name are spellings of the same value."""

WHOLE = frozenset({"consumed samples", "skipped samples", "consumed tokens", "global batch size", "batch size",
                   "number of skipped iterations", "number of nan iterations"})  # fmt: skip
"""Keys whose values are whole numbers."""

_MEMORY_NAME = re.compile(r"(?:(\w+) )?(max )?mem usage((?:/\w+)*)")
_MEMORY_PARTS = {"usage": "used_gib", "free": "free_gib", "total": "total_gib", "usage_ratio": "used_percent"}
_KNOWN = frozenset(NAMES.values())
_KEYS: dict[str, str] = {}
for _key, _name in NAMES.items():
    _KEYS.setdefault(_name, _key)


def metric_names(key: str) -> tuple[str, ...]:
    """What the values of a key are called here: one name for each value that it can have, in the log's order.

    ``hip mem usage/free/total/usage_ratio`` has four, in GiB whatever the log's "GB" says; of other keys the second
    is the running average.
    """
    memory = _MEMORY_NAME.fullmatch(key)
    if memory:
        label = "_".join(part.strip() for part in memory.groups()[:2] if part)
        parts = ["usage", *memory[3].split("/")[1:]]
        head = f"gpu/{label}_memory_" if label else "gpu/memory_"
        return tuple(head + _MEMORY_PARTS.get(part, part) for part in parts)
    name = NAMES.get(key)
    if name is None:
        name = OWN + key if key in _KNOWN or key.startswith((OWN, "gpu/")) or _is_average(key) else key
    return name, name + AVERAGE


def is_known(key: str) -> bool:
    """Whether a key is one that a known program prints."""
    return key in NAMES or _MEMORY_NAME.fullmatch(key) is not None


def original(name: str) -> str:
    """The log's key for a name; where programs spell it differently, Megatron's.

    The second number of a key has the key of the first.
    """
    if name.startswith(OWN):
        return name.removeprefix(OWN)
    memory = re.fullmatch(r"gpu/(?:(\w+?)_)?(max_)?memory_(?:used_gib|free_gib|total_gib|used_percent)", name)
    if memory:
        label = " ".join(part.rstrip("_") for part in memory.groups() if part)
        short = f"{label} mem usage".strip()
        return f"{short}/usage_ratio" if memory[2] else f"{short}/free/total/usage_ratio"
    return _KEYS.get(name) or _KEYS.get(name.removesuffix(AVERAGE)) or name.removesuffix(AVERAGE)


def _is_average(key: str) -> bool:
    return key.endswith(AVERAGE)


STAMP = re.compile(
    rb"(?P<date>\d{4}-\d\d-\d\d|20\d{6})[ T_](?P<minute>\d\d:\d\d):(?P<second>\d\d)(?P<fraction>[.,]\d{1,9})?"
    rb"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
"""``20251121 12:10:29``, ``2025-12-25 08:40:22``, ``2025-03-11 17:19:21,420``, ``2026-09-23T15:34:04.269468Z``."""
GLOG = re.compile(
    rb"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<minute>\d\d:\d\d):(?P<second>\d\d)(?P<fraction>\.\d{1,9})?"
)
"""``I1225 08:40:22.123456``: no year."""
MONTHS = {
    name: number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1)
}
NAMED = re.compile(
    rb"\b(?P<month>" + b"|".join(MONTHS) + rb") {1,2}(?P<day>\d{1,2}) (?P<minute>\d\d:\d\d):(?P<second>\d\d)"
    rb"(?P<fraction>[.,]\d{1,9})?(?: (?P<year>\d{4})\b)?"
)
"""``Fri Nov 21 12:10:29 2025``, as C has it; ``Nov 21 12:10:29``, as syslog has it."""


def find_time(text: bytes, year: int) -> float | None:
    """The time of the last stamp in the head of a line, or None.

    Args:
        year: of a stamp that has none.
    """
    last = None
    start = 0
    while match := STAMP.search(text, start):
        last = match
        start = match.end()
    if last is not None:
        date, minute, second, fraction, zone = last.groups()
        base = minute_start(date, minute, zone)
        return None if base is None else base + int(second) + _fraction(fraction)
    match = GLOG.search(text)
    if match is not None:
        date = b"%d-%b-%b" % (year, match["month"], match["day"])
    else:
        match = NAMED.search(text)
        if match is None:
            return None
        date = b"%04d-%02d-%02d" % (int(match["year"] or year), MONTHS[match["month"]], int(match["day"]))
    base = minute_start(date, match["minute"])
    return None if base is None else base + int(match["second"]) + _fraction(match["fraction"])


def _fraction(text: bytes | None) -> float:
    return float(b"0." + text[1:]) if text else 0.0


@lru_cache(maxsize=4096)
def minute_start(date: bytes, minute: bytes, zone: bytes | None = None) -> float | None:
    """Unix seconds of the beginning of a minute ("12:10"); None where the calendar has no such day."""
    text = date.replace(b"-", b"").decode() + " " + minute.decode()
    try:
        plain = datetime.strptime(text, "%Y%m%d %H:%M")
        if zone is None:
            return time.mktime(plain.timetuple())
        if zone == b"Z":
            return plain.replace(tzinfo=timezone.utc).timestamp()
        sign = -1 if zone[:1] == b"-" else 1
        offset_s = sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
        return plain.replace(tzinfo=timezone.utc).timestamp() - offset_s
    except (ValueError, OverflowError):
        return None


_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_UNIT = r"\s*(?:GiB|GB|MiB|MB|%|s|ms|W)?"
_ONE = re.compile(rf"({_NUMBER}){_UNIT}", re.IGNORECASE)
_LATER = re.compile(rf"\(avg:?\s*({_NUMBER}){_UNIT}\)|\(({_NUMBER})%\)", re.IGNORECASE)
_SLOT = re.compile(rb"(?<=[:/])(\s*[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)(?=\s|/|\||G|%|$)")
_VALUE = rb"\s*([-+0-9.eE]+)"
_KEY = re.compile(r"[A-Za-z_][\w ]*")

_decode = msgspec.json.Decoder(dict[str, Union[float, int]]).decode
DIGITS = 19
"""Number of digits from which an integer is read as a float, because it may not fit into 64 bits."""
SHAPES = 16
"""Maximum number of line formats tried before a line is read field by field."""


class FieldReader:
    """Reads fields into mappings. One for each log: it learns which keys there are and how their lines look.

    ``keys``: what the log called each name that was read.
    """

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self._names: dict[bytes, tuple[str, ...]] = {}
        self._shapes: list[Shape] = []

    def piped(self, text: bytes) -> dict[str, Number]:
        """The values of ``key: value | key: value |``. What isn't a number, or not wholly one, is left out."""
        for index, known in enumerate(self._shapes):
            numbers = known.read(text)
            if numbers is not None:
                if index:
                    self._shapes.insert(0, self._shapes.pop(index))
                return numbers
        values: dict[str, Number] = {}
        for part in text.split(b"|"):
            key, _, value = part.partition(b":")
            self.add(key, value, values)
        shape = Shape.of(text, values)
        if shape is not None:
            self._shapes.insert(0, shape)
            del self._shapes[SHAPES:]
        return values

    def read_same_shape(self, line: bytes, start: int) -> dict[str, Number] | None:
        """Read the values of a line from ``start`` on, if it has the same form as the line before it; else None."""
        return self._shapes[0].read(line, start, len(line) - 1) if self._shapes and line[-2:] == b"|\n" else None

    def add(self, key: bytes, value: bytes, into: dict[str, Number]) -> None:
        """Read one field; a key gets its names when it is first met with a number."""
        key = key.strip()
        if not value and (bare := _bare(key.decode("utf-8", "replace"))):
            into[bare[0]] = bare[1]
            self.keys.setdefault(bare[0], bare[0])
            return
        numbers = list(parse(value))
        names = self._names.get(key)
        if names is None:
            text = key.decode("utf-8", "replace")
            if not numbers or not text[:1].isalpha():
                return
            names = metric_names(text)
            if names[0] in into:  # another key of this line has that name
                names = (OWN + text, OWN + text + AVERAGE)
            self._names[key] = names
        for name, number in zip(names, numbers, strict=False):
            into[name] = number
            self.keys.setdefault(name, key.decode("utf-8", "replace"))


class Shape:
    """The form of a line whose numbers alone differ from others: one regular expression takes it apart at once.

    The numbers are put into a JSON text and decoded together, which is three times as quick as one by one. It only
    ever gives what reading field by field gives: a line that isn't wholly of this form, or has numbers that JSON
    doesn't know (NaN, ``+1``, ``1,234``), isn't read by it.
    """

    def __init__(self, pattern: re.Pattern[bytes], names: list[str]) -> None:
        self._fullmatch = pattern.fullmatch
        keys = [msgspec.json.encode(name).replace(b"%", b"%%") for name in names]
        self._json = b"{" + b",".join(key + b":%b" for key in keys) + b"}"

    def read(self, text: bytes, start: int = 0, end: int = sys.maxsize) -> dict[str, Number] | None:
        """The values, or None if the text hasn't this form."""
        match = self._fullmatch(text, start, end)
        if match is None:
            return None
        try:
            return _decode(self._json % match.groups())
        except UNDECODABLE:
            return None

    @classmethod
    def of(cls, text: bytes, values: dict[str, Number]) -> Shape | None:
        """The form of a text that was read field by field; None where it has other parts than fields of numbers."""
        pattern = _SLOT.sub(b"\0", text)
        if b"\0" in text or pattern.count(b"\0") != len(values):
            return None
        expression = _VALUE.join(re.escape(part) for part in pattern.split(b"\0"))
        shape = cls(re.compile(expression), list(values))
        return shape if shape.read(text) == values else None


def _bare(text: str) -> tuple[str, int] | None:
    """Name and number of a field without a colon: ``skipped iterations 3``."""
    parts = text.rsplit(None, 1)
    if len(parts) < 2 or len(parts[1]) >= DIGITS or not parts[1].isdecimal() or not _KEY.fullmatch(parts[0].strip()):
        return None
    return parts[0].strip(), int(parts[1])


def parse(value: bytes) -> Iterator[Number]:
    """The numbers of one value: ``12``, ``1,234``, ``2.3E+00``, ``1.2/3.4``, ``5.0 (avg 6.0)``, ``7GB/8GB/9%``.

    Nothing where it isn't wholly of such a form: a cut or overwritten value says nothing.
    """
    text = value.decode("utf-8", "replace").strip()
    later = _LATER.search(text)
    parts = [text] if later is None else [text[: later.start()].strip(), later[1] or later[2]]
    if later is not None and text[later.end() :].strip():
        return
    texts = parts[0].split("/") + parts[1:]
    matches = [_ONE.fullmatch(part.strip()) for part in texts]
    for match in matches:
        if match is None:
            return
    for match in matches:
        if match is not None:
            plain = match[1].replace(",", "")
            whole = len(plain) < DIGITS and plain.lstrip("+-").isdecimal()
            yield int(plain) if whole else float(plain)


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
    kind: train, eval, memory. begin, end: where in the line the head that names the iteration begins and ends.
    time: Unix seconds of the line's stamp. source: the rank that wrote it, else what a launcher's prefix says of who
    did, "" if unsaid; world: of so many. label: what the prefix says.
    cut: the line lacks its end. values: by our name, none until :meth:`LineReader.fill`, where it isn't filled already.
    """

    step: int
    kind: str
    format: str
    line: bytes
    begin: int
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
        prefix, line = split(line)
        if prefix is None:
            return self._note_stamps(self._search(line))
        self.text, self.label = line, prefix.label
        row = self._at_once(line)
        rows = self._search(line) if row is None else (row,)
        for row in self._note_stamps(rows):
            row.label = prefix.label
            row.source = row.source or prefix.label.decode("utf-8", "replace")
            if row.time is None and not self._stamped:
                row.time = find_time(prefix.text, self._year)
        return rows

    def _note_stamps(self, rows: Sequence[LogRow]) -> Sequence[LogRow]:
        """Note whether lines have times of their own; returns the rows."""
        self._stamped = self._stamped or any(row.time is not None for row in rows)
        return rows

    def _at_once(self, line: bytes) -> LogRow | None:
        """The row of a line that has the usual head; None where it must be looked for."""
        head = _HEAD.match(line)
        if head is None:
            return None
        end = head.end()
        values = self.fields.read_same_shape(line, end)
        if values is not None:
            self._piped = True
            return self._quick_row(line, head, end, values)
        more = line.count(b"iteration ", end)
        if more == 0 or (more == 1 and b"per iteration (ms)" in line):
            return self._quick_row(line, head, end, None)
        return None

    def _search(self, line: bytes) -> Sequence[LogRow]:
        """The rows of a line without colours."""
        at = line.find(b"iteration ")
        if at < 0:
            at = line.find(b"episode ")
        if at >= 0:
            if b" loss at " in line and (evaluated := _evaluation(line)):
                return [self._row(line, evaluated.begin, evaluated.end, evaluated.step, EVAL)]
            rows = []
            while at >= 0:
                match = _ITERATION.match(line, at)
                if match is not None and not _inside_eval(line, at):
                    rows.append(self._row(line, at, match.end(), int(match[1]), TRAIN, match[2]))
                at = line.find(b"iteration ", at + 9)
            for earlier, later in itertools.pairwise(rows):
                earlier.line, earlier.cut = line[: later.begin], True
            return rows
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
                self._add_field(row, key.strip(), value, values)
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

    def _quick_row(self, line: bytes, head: re.Match[bytes], end: int, values: dict[str, Number] | None) -> LogRow:
        date, minute, second, rank, world, step, total = head.groups()
        base = None if date is None else minute_start(date, minute)
        time = None if base is None else base + int(second)
        filled = values is not None
        ranked = rank is not None
        return LogRow(
            int(step), TRAIN, "Primus" if ranked else "Megatron", line, 0, end, time, int(total),
            int(world) if ranked else None, rank.decode() if ranked else "", False, filled, values or {},
        )  # fmt: skip

    def _row(
        self, line: bytes, begin: int, end: int, step: int, kind: str, total: bytes | None = None, format: str = ""
    ) -> LogRow:
        row = LogRow(step, kind, format or "Megatron", line, begin, end)
        head = line[max(0, begin - _PREFIX_BYTES) : begin]
        row.time = find_time(head, self._year)
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
        """The text without its last value, which may be cut."""
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
                self._add_field(row, field[1], field[2], row.values)

    def _add_field(self, row: LogRow, key: bytes, value: bytes, values: dict[str, Number]) -> None:
        if row.kind == EVAL and key:
            key = b"loss validation" if key == b"loss" else key + b" validation"
        self.fields.add(key, value, values)

    def _eval(self, row: LogRow, text: bytes) -> None:
        evaluated = _evaluation(row.line, row.begin)
        word = b"test" if evaluated is not None and evaluated.is_test else b"validation"
        for part in text.split(b"|"):
            key, _, value = part.partition(b":")
            key = key.strip()
            for end, unit in ((b"value", b""), (b"PPL", b" ppl")):
                if key.endswith(end):
                    self.fields.add(key.removesuffix(end).strip() + b" " + word + unit, value, row.values)

    def _memory(self, row: LogRow, text: bytes) -> None:
        match = _MEMORY.match(row.line, row.begin)
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
    numbers = {}
    for value in values:
        unit = "_percent" if value.strip().endswith(b"%") else "_gib" if b"G" in value else "_mib"
        for number in parse(value):
            numbers[name + unit] = number
    return numbers


def _inside_eval(line: bytes, at: int) -> bool:
    return line[max(0, at - 9) : at].endswith(b"loss at ")
