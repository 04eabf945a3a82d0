"""The fields of a row: keys and values as a program's layout has them, with units, and what they are called here.

A field is read whole or not at all: ``12``, ``1,234``, ``2.3E+00``, ``1.2/3.4``, ``5.0 (avg 6.0)``, ``0.5 (n=8)``,
``7GB/8GB/9%``, ``np.float64(0.5)``, ``'0.5'`` are numbers, ``N/A`` says that there is none, words and ``256x512`` are
text; anything else is damage.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Union

import msgspec

from trackers.errors import UNDECODABLE
from trackers.records import Number

AVERAGE = "_avg"
"""End of the name of a running average, the second number of ``X/Y`` and of ``X (avg Y)``."""
NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
COUNT = "n="
"""Before a second number that says of how many the first is a mean."""
UNITS = {
    "%": "_percent", "GiB": "_gib", "GB": "_gb", "G": "_gb", "MiB": "_mib", "MB": "_mb", "M": "_mb", "ms": "_ms",
    "s": "_s", "W": "_w", "tokens/sample": "_tokens_per_sample", "tokens/s": "_tokens_per_sec", COUNT: "_count",
}  # fmt: skip
"""A value's unit, and the end that a name gets for it where a program's table has no name."""
_UNIT = r"\s*(GiB|GB|G|MiB|MB|M|%|ms|s|W|tokens/sample|tokens/s)?"
_ONE = re.compile(rf"({NUMBER}){_UNIT}", re.IGNORECASE)
_LATER = re.compile(rf"\(\s*(?:avg:?\s*|n=)?({NUMBER}){_UNIT}(?:/gpu)?\)", re.IGNORECASE)
_WRAPPED = re.compile(
    rf"(?:[a-z]+\.)?(?:float|int|bfloat|tensor|array)\d*\(\s*({NUMBER})(?:, [^()]{{0,200}})?\)", re.IGNORECASE
)
_NOTHING = frozenset({"", "n/a", "none", "null", "-", "?"})
_TEXT = re.compile(r"[A-Za-z][^=|]*|\d{1,9}(?:x\d{1,9}){1,3}")
_VALUED = re.compile(r":\s*(?:np\.\w+\()?[-+]?(?:\.?\d|nan|inf)")
_DAMAGED = re.compile(r":(?: [-+]?|[-+]?\d+\.)\d|\ufffd")
"""In what was taken for a key: a whole field, behind which another text follows without a line end; a number with a
point, as no name has, or bytes that are no text."""
_BARE_KEY = re.compile(r"[A-Za-z_][\w ]*")
DIGITS = 19
"""Number of digits from which an integer is read as a float, because it may not fit into 64 bits."""


def whole_number(text: str) -> Number:
    """A number without units, commas between thousands allowed; an integer beyond 64 bits is a float."""
    plain = text.replace(",", "")
    return int(plain) if len(plain) < DIGITS and plain.lstrip("+-").isdecimal() else float(plain)


def _matches(text: str) -> list[re.Match[str]]:
    """The numbers of a value, each with its unit; none where it isn't wholly of a known form."""
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is not None:
        text = wrapped[1]
    text = text.replace("/(", " (")
    later = _LATER.search(text)
    parts = [text] if later is None else [text[: later.start()].strip()]
    if later is not None and text[later.end() :].strip():
        return []
    found = []
    for part in parts[0].split("/") if "tokens/s" not in text else parts:
        match = _ONE.fullmatch(part.strip())
        if match is None:
            return []
        found.append(match)
    return [*found, later] if later is not None else found


SECONDS, TERA, SCALED, LIST, IGNORED = "seconds", "tera", "scaled", "list", "ignored"
"""How a value is read whose unit differs from line to line: a duration in seconds; operations in 10^12; a number with a
letter for thousands (``1.23k``, ``1.5B``); numbers in brackets, of which each has a name with its place; no metric."""
_CLOCK = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?")
_SPELT = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s?(d|h|ms|us|µs|m|s)(?![a-z])\s*")
_EACH_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_OF_S = {"ms": 1e3, "us": 1e6, "µs": 1e6}
_SCALE = re.compile(rf"({NUMBER})\s?([kKMGBTPE]?)(?:FLOPS|it)?")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def seconds(text: str) -> float | None:
    """A duration: ``850ms``, ``12.5s``, ``1m 30s``, ``2h5m``, ``0:01:30``, ``1 day, 0:00:01``; None if it is none."""
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        days, *parts = clock.groups()
        total = functools.reduce(lambda total, part: total * 60 + float(part), filter(None, parts), 0.0)
        return total + 86400.0 * int(days or 0)
    at, total = 0, 0.0
    while match := _SPELT.match(text, at):
        total += float(match[1]) * _EACH_S.get(match[2], 1.0) / _OF_S.get(match[2], 1.0)
        at = match.end()
    return total if at == len(text) and at else None


def scaled(text: str) -> float | None:
    """A number whose letter says thousands of what: ``1.23k``, ``123.4TFLOPS``; None if it is none."""
    match = _SCALE.fullmatch(text)
    if match is None:
        return None
    return whole_number(match[1]) if not match[2] else float(whole_number(match[1])) * _FACTORS[match[2]]


def _converted(text: str, unit: str) -> list[Number] | None:
    """The numbers of a value of such a unit; None where it isn't of that form."""
    if unit == LIST:
        plain = re.split(r"[\s,()\[\]]+", text)
        numbers = [_ONE.fullmatch(part) for part in plain if part]
        return [whole_number(match[1]) for match in numbers if match] if all(numbers) else None
    value = seconds(text) if unit == SECONDS else scaled(text)
    if value is None:
        return None
    return [value / 1e12 if unit == TERA else value]


class FieldLayout(NamedTuple):
    """How fields are written behind each other.

    between: what stands between them. assign: what stands between a key and its value; "" where a value begins with a
    digit. last: whether the last ``assign`` of a field is meant, since keys have it too. pattern: finds key and value
    of one field, in place of these. closes: how a row that is whole ends.
    """

    between: bytes = b""
    assign: bytes = b""
    last: bool = False
    pattern: re.Pattern[bytes] | None = None
    closes: bytes = b""

    def split(self, text: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys and values, not yet stripped; a value is None where a field has none."""
        if self.pattern is not None:
            yield from self._by_pattern(text)
            return
        for part in text.split(self.between):
            if not self.assign:
                match = _NUMBERED.fullmatch(part) or _WORDED.fullmatch(part)
                yield (part, None) if match is None else (match[1].rstrip(b":"), match[2])
                continue
            key, sign, value = part.rpartition(self.assign) if self.last else part.partition(self.assign)
            yield (key, value) if sign else (part, None)

    def _by_pattern(self, text: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        text = text.strip()
        at, end = 0, len(text)
        while at < end:
            match = self.pattern.match(text, at) if self.pattern is not None else None
            if match is None:
                yield text[at:], None
                return
            at = match.end()
            yield match[1].strip(b"'\""), match[2]


_NUMBERED = re.compile(
    rb"\s*([A-Za-z][^\s|]{0,200}(?: [A-Za-z][^\s|]{0,200}){0,9})\s+([-+.]?\d[^|]*|[-+]?(?:nan|inf)\b[^|]*)"
)
_WORDED = re.compile(rb"\s*([a-z]\w{0,200}) ([a-z]\w{0,200}|n/a)\s*")
PIPES = FieldLayout(b"|", b":")
WORDS = FieldLayout(b"|")
DASHES = FieldLayout(b" - ", b":", last=True)
COLONS = FieldLayout(b",", b":")
EQUALS = FieldLayout(b",", b"=")
SPACED = FieldLayout(
    pattern=re.compile(
        rb"([A-Za-z_][^\s:]{0,300}):\s*"
        rb"(\d{1,9} days?, [\d:]{1,12}|[^\s:(]{1,100}(?::\d\d){0,2}(?:\([^()\s]{1,100}\))?)(?:\s+|$)"
    )
)
LITERAL = FieldLayout(
    pattern=re.compile(
        rb"('[^'\n]{1,300}'|\"[^\"\n]{1,300}\")\s*:\s*('[^'\n]*'|\"[^\"\n]*\"|\[[^\[\]]*\]"
        rb"|[\w.]{1,50}\([^()]*\)|[^\s,'\"(){}\[\]]+)\s*(?:,\s*|$)"
    ),
    closes=b"}",
)
"""``key: value | …``, ``key value | …``, ``key:value - …``, ``key: value, …``, ``key=value, …``, ``key: value  …``, and
the inside of a Python dictionary."""

Names = Callable[[str], tuple[str, ...]]
"""What the values of a key are called here: one name for each value that it can have, in the log's order."""

_SLOT = re.compile(rb"(?<=[:/])(\s*[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)(?=\s|/|\||G|%|$)")
_VALUE = rb"\s*([-+0-9.eE]+)"
_decode = msgspec.json.Decoder(dict[str, Union[float, int]]).decode
SHAPES = 16
"""Maximum number of line formats tried before a line is read field by field."""


class Fields(NamedTuple):
    """What a text says. last: the key of its last field. whole: every field was understood."""

    values: dict[str, Number]
    texts: dict[str, str]
    keys: tuple[bytes, ...]
    whole: bool


class FieldReader:
    """Reads fields into mappings. One for each form of a log: it learns which keys there are and how its lines look.

    Args:
        names: what a key's values are called.
        units: by key, how its value is read where a plain number isn't meant; unit: of all others.
        keys: where to note what the log called each name.
    """

    def __init__(
        self,
        names: Names,
        layout: FieldLayout = PIPES,
        units: Mapping[str, str] | None = None,
        keys: dict[str, str] | None = None,
        unit: str = "",
    ) -> None:
        self.keys: dict[str, str] = {} if keys is None else keys
        self._layout, self._find, self._units, self._unit = layout, names, units or {}, unit or None
        self._names: dict[bytes, tuple[str, ...]] = {}
        self._found_units: dict[bytes, list[str]] = {}
        self._shapes: list[tuple[Shape, tuple[bytes, ...]]] = []

    def read(self, text: bytes) -> Fields:
        """The fields of a text. What isn't a number, or not wholly one, is left out."""
        for index, (known, keys) in enumerate(self._shapes):
            numbers = known.read(text)
            if numbers is not None:
                if index:
                    self._shapes.insert(0, self._shapes.pop(index))
                return Fields(numbers, {}, keys, True)
        values: dict[str, Number] = {}
        texts: dict[str, str] = {}
        found: list[bytes] = []
        whole = True
        for key, value in self._layout.split(text):
            key = key.strip()
            if value is None and key in (b"", b"...", "…".encode()):
                continue
            if key in found:  # what follows is another row's
                whole = False
                break
            whole = self.add(key, value, values, texts) and whole
            found.append(key)
        if whole and not texts:
            shape = Shape.of(text, values)
            if shape is not None:
                self._shapes.insert(0, (shape, tuple(found)))
                del self._shapes[SHAPES:]
        return Fields(values, texts, tuple(found), whole)

    def read_same_shape(self, line: bytes, start: int) -> dict[str, Number] | None:
        """Read the values of a line from ``start`` on, if it has the same form as the line before it; else None."""
        return self._shapes[0][0].read(line, start, len(line) - 1) if self._shapes and line[-2:] == b"|\n" else None

    def is_cut(self, text: bytes, keys: Iterable[str] = ()) -> bool:
        """Whether a text is the beginning of a key, of those that were read before or one of these."""
        return any(key.startswith(text) for key in (*self._names, *map(str.encode, keys)))

    def add(
        self, key: bytes, value: bytes | None, into: dict[str, Number], texts: dict[str, str] | None = None
    ) -> bool:
        """Read one field; False where it isn't understood. A key gets its names when it is first met."""
        named = key.decode("utf-8", "replace")
        if self._units.get(named) == IGNORED:
            return True
        if value is None or not value.strip():
            bare = _bare(named) if value is None else None
            if bare is None:
                return False
            key, value = bare
            named = key.decode("utf-8", "replace")
        text = value.decode("utf-8", "replace").strip().strip("'\"")
        unit = self._units.get(named, self._unit)
        if unit is not None:
            numbers, units = _converted(text, unit) or [], [""]
        else:
            matches = _matches(text)
            numbers = [whole_number(match[1]) for match in matches]
            units = [COUNT if match[0].startswith("(" + COUNT) else match[2] or "" for match in matches]
        if not numbers:
            return self._without_number(named, text, texts)
        names = self._names.get(key) or self._named(key, named, units, into)
        if names is None or not self._has_its_units(key, units):
            return False
        if unit != LIST and len(numbers) > len(names):
            return False
        if unit == LIST:
            names = (names[0], *(f"{names[0]}/{place}" for place in range(1, len(numbers))))
        for name, number in zip(names, numbers, strict=False):
            into[name] = number
            self.keys.setdefault(name, named)
        return True

    def _without_number(self, key: str, text: str, texts: dict[str, str] | None) -> bool:
        """What a field says that has no number: that there is none, or words."""
        if text.lower() in _NOTHING:
            return bool(text)
        if not _TEXT.fullmatch(text) or not key[:1].isalpha() or key.encode() in self._names or _VALUED.search(key):
            return False
        if texts is not None:
            texts[self._find(key)[0]] = text
        return True

    def _has_its_units(self, key: bytes, units: list[str]) -> bool:
        """Whether a field has the units that it had before: one that lacks them was cut.

        A first row may have fewer numbers, such as no mean yet; so does the first after a restart.
        """
        known = self._found_units.setdefault(key, units)
        if len(units) > len(known):
            self._found_units[key] = units
            return units[: len(known)] == known
        return units == known or (not any(known) and not any(units))

    def _named(self, key: bytes, text: str, units: list[str], into: Mapping[str, Number]) -> tuple[str, ...] | None:
        if not text[:1].isalpha() or _DAMAGED.search(text):
            return None
        names = self._find(text)
        keeps = names[0].endswith(text) or names[0].startswith(text + " ")
        if keeps and names[1:] == (names[0] + AVERAGE,):  # and gets its units
            names = tuple(_unmapped(names[0], place, units) for place in range(max(2, len(units))))
        if names[0] in into:  # another key of this line has that name
            names = (OWN + text, OWN + text + AVERAGE)
        self._names[key] = names
        return names


OWN = "log/"
"""Before a key that another value's name is the same as here."""


def _unmapped(key: str, place: int, units: list[str]) -> str:
    """The name of one of a key's values where no table has one: the second of two of the same unit is an average."""
    unit = units[place] if place < len(units) else units[0]
    same = unit == units[0]
    end = "" if place == 0 or not same else AVERAGE if place == 1 else f"/{place + 1}"
    return key + end + UNITS.get(unit, "")


def _bare(text: str) -> tuple[bytes, bytes] | None:
    """Key and value of a field without a colon: ``skipped iterations 3``."""
    parts = text.rsplit(None, 1)
    if len(parts) < 2 or len(parts[1]) >= DIGITS or not parts[1].isdecimal():
        return None
    if not _BARE_KEY.fullmatch(parts[0].strip()):
        return None
    return parts[0].strip().encode(), parts[1].encode()


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
