"""Formats of a user's own, from a TOML file: patterns of lines, and what their values are called.

The file is the word of whoever names it; the log is data. So a pattern whose time could grow with the third power of a
line's length, or worse, is refused, a line is looked at up to a length that keeps the rest short, and a log that still
takes too long ends in one line.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import string
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trackers.errors import MissingPackage, UsageError, did_you_mean
from trackers_console_logs.flags import VARIABLE
from trackers_console_logs.forms import fields
from trackers_console_logs.forms.fields import FieldLayout
from trackers_console_logs.forms.program import BEGIN, END, EVAL, PROGRESS, RESUME, TRAIN, Form, Program

KINDS = {"train": TRAIN, "validation": EVAL, "resume": RESUME, "begin": BEGIN, "end": END, "ignore": PROGRESS}
"""What a line of the file can be."""
LAYOUTS = {
    "key: value | key: value": fields.PIPES,
    "key value | key value": fields.WORDS,
    "key:value - key:value": fields.DASHES,
    "key: value, key: value": fields.COLONS,
    "key=value, key=value": fields.EQUALS,
    "key=value key=value": FieldLayout(b" ", b"="),
    "key: value  key: value": fields.SPACED,
}
"""What can follow a pattern."""
UNITS = {"seconds": fields.SECONDS, "scaled": fields.SCALED, "list": fields.LIST, "ignored": fields.IGNORED}
_FILE = ("name", "names", "units", "steps_per_epoch", "first_epoch", "line")
_LINE = ("kind", "pattern", "like", "rest")
LIMITS = {0: 65_536, 1: 16_384, 2: 1_024}
"""Bytes of a line that are looked at, by how many repetitions of a pattern can take the same characters."""
PATIENCE_S = 10.0
"""Time that a user's patterns may take in total, and again for each further megabyte of the log."""


@dataclass(frozen=True, eq=False)
class OwnForm(Form):
    """A form whose head is found anywhere in a line: parts that stand behind each other.

    Args:
        parts, like: patterns. limit: bytes of a line that are looked at.
    """

    parts: tuple[re.Pattern[bytes], ...] = ()
    like: re.Pattern[bytes] | None = None
    limit: int = 0

    def find(self, line: bytes) -> tuple[int, int, dict[str, bytes]] | None:
        """Where a line's head begins and ends, and its groups; None if it has none."""
        at, begin = 0, -1
        groups: dict[str, bytes] = {}
        for part in self.parts:
            match = part.search(line, at, self.limit)
            if match is None:
                return None
            begin = match.start() if begin < 0 else begin
            at = match.end()
            groups.update({name: text for name, text in match.groupdict().items() if text is not None})
        return begin, at, groups


class Patience:
    """How long a user's patterns have worked on a log.

    Args:
        name: of the program.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._used_s = 0.0
        self._bytes = 0

    def spend(self, began: float, line: bytes, number: int) -> None:
        """Count the time since ``began`` (:func:`time.perf_counter`).

        Raises:
            UsageError: it was too much.
        """
        self._used_s += time.perf_counter() - began
        self._bytes += len(line)
        if self._used_s > PATIENCE_S * (1 + self._bytes / 1e6):
            raise UsageError(
                f"--log-format: the patterns of {self._name} worked for {self._used_s:.0f} s up to line {number:,}: "
                "make them simpler, with fewer repetitions (*, +)"
            )


def named(paths: str) -> list[Path]:
    """The files that the environment variable names."""
    return [Path(path).expanduser() for path in paths.split(os.pathsep) if path]


def programs() -> tuple[Program, ...]:
    """The programs of the files that the environment variable names.

    Raises:
        UsageError: a file can't be read or understood; the message says where.
    """
    return tuple(_loaded(str(path), _digest(path)) for path in named(os.environ.get(VARIABLE, "")))


def version() -> str:
    """A word that differs once one of the files does; "" without any."""
    return "".join(_digest(path) for path in named(os.environ.get(VARIABLE, "")))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UsageError(f"--log-format {path} can't be read: {error.strerror or error}") from None


@lru_cache(maxsize=16)
def _loaded(path: str, digest: str) -> Program:
    return load(Path(path))


def load(path: Path) -> Program:
    """Read a format.

    Raises:
        UsageError: it can't be read or understood. MissingPackage: Python 3.10 needs the package tomli for it.
    """
    try:
        toml = importlib.import_module("tomllib")
    except ImportError:
        try:
            toml = importlib.import_module("tomli")
        except ImportError:
            raise MissingPackage("--log-format needs the tomli package on Python 3.10: pip install tomli") from None
    try:
        content = toml.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--log-format {path} can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"--log-format {path}: {error}") from None
    try:
        return _program(path, content)
    except UsageError as error:
        raise UsageError(f"--log-format {path}: {error}") from None


def _program(path: Path, content: Mapping[str, Any]) -> Program:
    _check(content, _FILE, "")
    lines = content.get("line")
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines) or not lines:
        raise UsageError("it has no [[line]] with a pattern: docs/console-logs.md shows one")
    names, units = content.get("names", {}), content.get("units", {})
    for title, table in (("names", names), ("units", units)):
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise UsageError(f"[{title}] is a table of texts")
    for key, unit in units.items():
        if unit not in UNITS:
            raise UsageError(f"unknown unit {unit!r} of {key!r}{did_you_mean(unit, UNITS)} Known: {', '.join(UNITS)}")
    per_epoch, first = content.get("steps_per_epoch", 0), content.get("first_epoch", 0)
    if not all(isinstance(value, int) and value >= 0 for value in (per_epoch, first)):
        raise UsageError("steps_per_epoch and first_epoch are whole numbers")
    forms = tuple(_form(line, number) for number, line in enumerate(lines, 1))
    if not any(form.kind == TRAIN for form in forms):
        raise UsageError('it has no [[line]] of kind "train"')
    return Program(
        str(content.get("name") or path.stem), str(path), "", "`step`", forms, names=names, first_epoch=first,
        units={key: UNITS[unit] for key, unit in units.items()}, per_epoch=per_epoch,
    )  # fmt: skip


def _form(line: Mapping[str, Any], number: int) -> OwnForm:
    where = f"[[line]] {number}"
    _check(line, _LINE, f"{where}: ")
    kind, rest = line.get("kind", "train"), line.get("rest")
    if kind not in KINDS:
        raise UsageError(f"{where}: unknown kind {kind!r}{did_you_mean(str(kind), KINDS)} Known: {', '.join(KINDS)}")
    if rest is not None and rest not in LAYOUTS:
        shown = ", ".join(repr(layout) for layout in LAYOUTS)
        raise UsageError(f"{where}: unknown rest {rest!r}: known are {shown}")
    given = line.get("pattern")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f"{where}: pattern is a regular expression, or a list of such that stand behind each other")
    parts = tuple(_compiled(text, where) for text in texts)
    groups = {name for part in parts for name in part.groupindex}
    if kind == "train" and not groups & {"step", "epoch"}:
        raise UsageError(f"{where}: a line of training needs a group (?P<step>…) or (?P<epoch>…)")
    like = line.get("like")
    if like is not None and not isinstance(like, str):
        raise UsageError(f"{where}: like is a regular expression")
    patterns = [*parts, *([_compiled(like, where)] if like else [])]
    limit = LIMITS[max(overlaps(pattern) for pattern in patterns)]
    return OwnForm("", "", KINDS[kind], LAYOUTS[rest] if rest else None, parts=parts, limit=limit,
                   like=patterns[-1] if like else None)  # fmt: skip


def _check(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"{where}unknown key {key!r}{did_you_mean(key, known)} Known: {', '.join(known)}")


def _compiled(text: str, where: str) -> re.Pattern[bytes]:
    try:
        pattern = re.compile(text.encode())
    except re.error as error:
        raise UsageError(f"{where}: {text!r} is no regular expression: {error}") from None
    if overlaps(pattern) not in LIMITS:
        raise UsageError(
            f"{where}: {text!r} could take for ever on some lines, since its repetitions (*, +) can take the same "
            "characters: give the parts between them as a list, ['a', 'b'], which stand behind each other"
        )
    return pattern


# --- How a pattern's time grows.

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

MANY = 32
"""A repetition of so many at most is counted as what it repeats."""
NESTED = 99
_EVERYTHING = frozenset(range(256))
_CATEGORIES = {
    "DIGIT": frozenset(string.digits.encode()),
    "SPACE": frozenset(string.whitespace.encode()),
    "WORD": frozenset((string.ascii_letters + string.digits + "_").encode()),
}


def overlaps(pattern: re.Pattern[bytes]) -> int:
    """How many repetitions of a pattern can take the same characters without anything between them that tells where
    one ends: its time grows by that power of a line's length. :data:`NESTED`: one repetition is in another.
    """
    tree = _parser.parse(pattern.pattern, pattern.flags)
    return _chain(list(tree), [])[0]


def _chain(items: Iterable[Any], chain: list[frozenset[int]]) -> tuple[int, list[frozenset[int]]]:
    """The most overlapping repetitions of a sequence, and those that what follows may overlap with."""
    most = len(chain)
    for kind, value in items:
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            signs = _signs(name, value)
            chain = [earlier for earlier in chain if earlier & signs]
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, many, inner = value
            if many > MANY:
                if len(inner) != 1 or str(inner[0][0]) not in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
                    return NESTED, chain
                signs = _signs(str(inner[0][0]), inner[0][1])
                kept = [earlier for earlier in chain if earlier & signs] if least else chain
                chain = [*kept, signs]
            else:
                found, inside = _chain(list(inner) * min(many, 4), chain)
                most = max(most, found)
                chain = inside if least else max(inside, chain, key=len)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            found, chain = _chain(list(value[-1] if name == "SUBPATTERN" else value), chain)
            most = max(most, found)
        elif name == "BRANCH":
            branches = [_chain(list(branch), chain) for branch in value[1]]
            most = max(most, *(found for found, _ in branches))
            chain = max((left for _, left in branches), key=len)
        elif name in ("ASSERT", "ASSERT_NOT"):
            most = max(most, _chain(list(value[1]), chain)[0])
        elif name != "AT":  # a reference to a group
            return NESTED, chain
        most = max(most, len(chain))
    return most, chain


def _signs(name: str, value: Any) -> frozenset[int]:
    """The bytes that one part of a pattern takes."""
    if name == "LITERAL":
        return frozenset({value})
    if name == "NOT_LITERAL":
        return _EVERYTHING - {value}
    if name == "ANY":
        return _EVERYTHING
    found: frozenset[int] = frozenset()
    negated = False
    for kind, item in value:
        word = str(kind)
        if word == "NEGATE":
            negated = True
        elif word == "LITERAL":
            found |= {item}
        elif word == "RANGE":
            found |= frozenset(range(item[0], item[1] + 1))
        elif word == "CATEGORY":
            category = str(item).rpartition("_")[2]
            known = _CATEGORIES.get(category, _EVERYTHING)
            found |= _EVERYTHING - known if "NOT" in str(item) else known
    return _EVERYTHING - found if negated else found
