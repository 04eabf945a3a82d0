"""Lines as training programs write them: pieces of a terminal's line, launchers' prefixes, time stamps."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PREFIX = re.compile(
    rb"\s{0,8}(?:"
    # Times: RFC 3339 (a container runtime's with its stream), C's, syslog's, a clock alone.
    rb"(?:\d{4}-\d\d-\d\d[T ]" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)?(?:\ std(?:out|err)\ [FP])?"
    rb"|(?:[A-Z][a-z]{2}\ )?[A-Z][a-z]{2}\ [\ \d]?\d\ " + _CLOCK + rb"(?:\ \d{4})?"
    rb"|" + _CLOCK + rb")(?=[\s\[<])\s?(?:[AaPp][Mm]\s)?"
    # Who wrote the line.
    rb"|(?P<label>(?:\[[^\]\n]{1,120}\]){0,3}<std\w{1,6}>(?=:)"
    rb"|\[[^\]\s]{1,200}\](?=:)"
    rb"|\[\d{1,7}\](?=\s)"
    rb"|\[(?:pod|job|deployment|statefulset)/[^\]\s]{1,300}\](?=\s)"
    rb"|\((?:[\w.:\[\]-]{1,80}\ )?pid=\d{1,9}(?:,\ ip=[^)\s]{1,60})?\)(?=\s)"
    rb"|(?:[\w.-]{1,80}\ )?[\w./()-]{1,80}\[\d{1,9}\](?=:\s)"
    rb"|(?!(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|SUCCESS)\b)[A-Za-z][\w.-]{0,80}(?=\s{1,40}\|\s)"
    rb"|[A-Za-z_][\w.-]{0,80}/\d{1,7}(?=\s)"
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


STAMP = re.compile(
    rb"(?P<date>\d{4}-\d\d-\d\d|20\d{2}/\d\d/\d\d|20\d{6})[ T_](?P<minute>\d\d:\d\d):(?P<second>\d\d)"
    rb"(?P<fraction>[.,]\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
"""``20251121 12:10:29``, ``2025-12-25 08:40:22``, ``2025-03-11 17:19:21,420``, ``2026-09-23T15:34:04.269468Z``."""
GLOG = re.compile(
    rb"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<minute>\d\d:\d\d):(?P<second>\d\d)(?P<fraction>\.\d{1,9})?"
)
"""``I1225 08:40:22.123456``: no year."""
MONTHS = {name: number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
NAMED = re.compile(
    rb"\b(?P<month>" + b"|".join(MONTHS) + rb") {1,2}(?P<day>\d{1,2}) (?P<minute>\d\d:\d\d):(?P<second>\d\d)"
    rb"(?P<fraction>[.,]\d{1,9})?(?: (?P<year>\d{4})\b)?"
)
"""``Fri Nov 21 12:10:29 2025``, as C has it; ``Nov 21 12:10:29``, as syslog has it."""


SLASHED = re.compile(
    rb"(?<![\d/])(?P<month>[01]\d)/(?P<day>[0-3]\d)(?:/(?P<year>(?:20)?\d\d))? (?P<minute>\d\d:\d\d):(?P<second>\d\d)"
    rb"(?P<fraction>[.,]\d{1,9})?"
)
"""``02/26 10:00:00``, as MMEngine has it: no year; ``02/26/2026 10:00:00``, as Accelerate's examples have it;
``[02/26/26 10:00:00]``, as rich has it."""
DOTTED = re.compile(
    rb"(?<![\d.])(?P<day>[0-3]\d)\.(?P<month>[01]\d)\.(?P<year>20\d\d) (?P<minute>\d\d:\d\d):(?P<second>\d\d)"
    rb"(?P<fraction>[.,]\d{1,9})?"
)
"""``04.03.2026 13:00:10``: the day first."""
HALF = re.compile(rb" ?(?P<half>[AP])M\b", re.IGNORECASE)
"""``01/02/2026 11:59:50 PM``."""
DAY_S = 86400.0


def find_time(text: bytes, year: int, latest: float = math.inf) -> float | None:
    """The time of the last stamp in the head of a line, which is the nearest to what the program says, or None.

    Args:
        year: of a stamp that has none, or the one before it, where the stamp would lie after ``latest``.
    """
    match, start = None, 0
    for pattern in (STAMP, GLOG, SLASHED, NAMED, DOTTED):
        while later := pattern.search(text, start):
            match, start = later, later.end()
    if match is None:
        return None
    minute, half = match["minute"], HALF.match(text, match.end())
    if half is not None and 1 <= (hour := int(minute[:2])) <= 12:
        minute = b"%02d%b" % (hour % 12 + 12 * (half["half"] in b"Pp"), minute[2:])
    if match.re is STAMP:
        date, _, second, fraction, zone = match.groups()
        base = minute_start(date, minute, zone)
        return None if base is None else base + int(second) + _fraction(fraction)
    own_year = match.groupdict().get("year")
    month = MONTHS[match["month"]] if match.re is NAMED else int(match["month"])
    for candidate in (year, year - 1):
        whole_year = candidate if own_year is None else int(own_year) % 2000 + 2000
        date = b"%04d-%02d-%02d" % (whole_year, month, int(match["day"]))
        base = minute_start(date, minute)
        if base is not None and (own_year or base <= latest + DAY_S):  # without a year: not of the future
            return base + int(match["second"]) + _fraction(match["fraction"])
    return None


def _fraction(text: bytes | None) -> float:
    return float(b"0." + text[1:]) if text else 0.0


@lru_cache(maxsize=4096)
def minute_start(date: bytes, minute: bytes, zone: bytes | None = None) -> float | None:
    """Unix seconds of the beginning of a minute ("12:10"); None where the calendar has no such day."""
    text = date.replace(b"-", b"").replace(b"/", b"").decode() + " " + minute.decode()
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


COLOR = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Terminal escapes."""


_BAR_END = re.compile(
    rb"(\| *\d{1,18}/(?:\d{1,18}|\?) \[(?:[^\]\n]{5,1000}\](?=\s*[^\s\r\n])|[^\]{\n]{0,80}(?=\{['\"])))"
    rb"|(?<=\S)(?=`Trainer\.fit` stopped:)"
)
"""Where something is written behind a progress bar that doesn't end its line, and that a terminal's width may cut."""
_BAR_BEGIN = re.compile(rb"((?:[\d|%}\])]|\d[smhGMB]|\dms|iB))(?=[A-Za-z][a-z][^:|\r\n]{0,80}: {1,4}\d{1,3}%\|)")
"""Where another's progress bar begins behind a text that lacks its line end, and may lack more."""

_DRAWN_ANEW = re.compile(rb"\x08{8,}\r?")
"""A program goes back over what it wrote, which a carriage return may follow."""
_DICTIONARIES = re.compile(rb"(?<=\})(?=\s*(?:\[[^\]\s]{1,200}\]:? ?|\([^()\n]{0,80}pid=[^()\n]{1,80}\) )?\{['\"])")
"""Where a dictionary stands behind another, of which a process wrote no line end yet."""


def _shown(part: bytes) -> bytes:
    """What a part of a line says, whoever wrote it: the same once more, or with more behind it, is it drawn anew."""
    return split(COLOR.sub(b"", part))[1].strip(b" \b\0")


def pieces(line: bytes) -> Sequence[tuple[bytes, bool]]:
    """What a line shows one after the other: carriage returns go back to its beginning, and a progress bar that stands
    without a line end has another text behind it. What the next part begins with is left out.

    Returns:
        texts, and whether each has its end.
    """
    whole = line.endswith(b"\n")
    line = _DRAWN_ANEW.sub(b"\r", line) if b"\b" in line else line
    line = _DICTIONARIES.sub(b"\r", line) if b"}" in line else line
    if b"\r" not in line and b"%|" not in line:
        return ((line, whole),)
    parts = []
    for part in line.rstrip(b"\r\n").split(b"\r"):
        own = split(part)[1] if b"%|" in part else b""  # behind a launcher's prefix a bar is the line's own
        shown = _BAR_BEGIN.sub(rb"\1\0\r", _BAR_END.sub(rb"\1\r", own))
        parts += (part[: len(part) - len(own)] + shown).split(b"\r")
    parts = [part for part in parts if part.strip(b" \b")]
    pairs = zip(parts, [*parts[1:], b""], strict=False)
    parts = [part for part, then in pairs if not _shown(then).startswith(_shown(part))]
    last = len(parts) - 1
    return [(part.rstrip(b"\0"), (whole or place < last) and part[-1:] != b"\0") for place, part in enumerate(parts)]


_LEVELS = (b"DEBUG", b"INFO", b"WARNING", b"WARN", b"ERROR", b"CRITICAL", b"SUCCESS")
_SIGNS = b"]:|>-"


def begins_message(text: bytes, at: int) -> bool:
    """Whether a program's message may begin at a place: at a line's beginning, or behind what a logger puts there."""
    before = text[max(0, at - 200) : at].rstrip()
    return not before or before[-1] in _SIGNS or before.endswith(_LEVELS)
