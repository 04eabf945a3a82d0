"""Values in a line: ``key: value`` fields and all the forms in which the known programs print a number."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Union

import msgspec

from trackers.errors import UNDECODABLE
from trackers.readers.console_log import names as log_names
from trackers.records import Number

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
        for place, known in enumerate(self._shapes):
            found = known.read(text)
            if found is not None:
                if place:
                    self._shapes.insert(0, self._shapes.pop(place))
                return found
        values: dict[str, Number] = {}
        for part in text.split(b"|"):
            key, _, value = part.partition(b":")
            self.add(key, value, values)
        shape = Shape.of(text, values)
        if shape is not None:
            self._shapes.insert(0, shape)
            del self._shapes[SHAPES:]
        return values

    def known(self, line: bytes, start: int) -> dict[str, Number] | None:
        """The values of a line from ``start`` on, if it has the form of the line before it; at once, if at all."""
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
            names = log_names.names(text)
            if names[0] in into:  # another key of this line has that name
                names = (log_names.OWN + text, log_names.OWN + text + log_names.AVERAGE)
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
    found = [_ONE.fullmatch(part.strip()) for part in texts]
    for match in found:
        if match is None:
            return
    for match in found:
        if match is not None:
            plain = match[1].replace(",", "")
            whole = len(plain) < DIGITS and plain.lstrip("+-").isdecimal()
            yield int(plain) if whole else float(plain)
