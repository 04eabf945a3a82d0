"""Time stamps in console logs as Unix seconds. A stamp without a zone is this machine's local time."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from functools import lru_cache

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


def find(text: bytes, year: int) -> float | None:
    """The time of the last stamp in the head of a line, or None.

    Args:
        year: of a stamp that has none.
    """
    found = None
    start = 0
    while match := STAMP.search(text, start):
        found = match
        start = match.end()
    if found is not None:
        date, minute, second, fraction, zone = found.groups()
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
