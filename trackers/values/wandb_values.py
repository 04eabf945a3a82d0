"""Values that W&B's client records and that are neither numbers, texts nor media: arrays, lists, dates, functions …"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import uuid
from typing import Any

from trackers.formats.json_values import to_json_values
from trackers.records import name_floats
from trackers.values.coerce import ListText
from trackers.values.device_copy import capturing

MOST_LISTED = 32
"""Values of an array that W&B's client writes as a list; more become a histogram of as many bins."""


def converted(value: Any) -> Any:
    """What W&B's client makes of a value: a text, a list, a mapping, or a histogram. None: it refuses it, too.

    Raises:
        ValueError: an array of which no histogram can be made.
    """
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        if getattr(value, "is_cuda", False) is True and capturing():
            return None
        if math.prod(value.shape) <= MOST_LISTED:
            return _listed(value.tolist())
        from trackers.media.histogram import Histogram

        return Histogram(value, num_bins=MOST_LISTED)
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return _listed(list(value))
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, complex):
        return str(value).strip("()")
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def _duration(value: datetime.timedelta) -> str:
    """By ISO 8601, as ``P1DT2H0.5S``; what is 0 is left out."""
    minutes, seconds = divmod(abs(value), datetime.timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "D"), (hours, "H"), (minutes, "M"), (f"{seconds.total_seconds():.6f}".rstrip("0").rstrip("."), "S"))
    day, *time = (f"{part}{unit}" if part not in (0, "0") else "" for part, unit in parts)
    clock = "".join(time)
    return (
        ("-" if value.days < 0 else "")
        + "P"
        + day
        + (f"T{clock}" if clock or not day else "")
        + ("" if value else "0S")
    )


def _listed(value: Any) -> str:
    plain = name_floats(to_json_values(value))
    return (ListText if isinstance(plain, list) else str)(json.dumps(plain))
