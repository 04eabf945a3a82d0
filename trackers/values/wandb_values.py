"""Values that W&B's client records and that are neither numbers, texts nor media: arrays, lists, dates, functions …"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import math
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from trackers.formats.float_names import list_text
from trackers.formats.json_values import MAX_DEPTH, known_texts, to_json_values
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
        if getattr(value, "is_cuda", False) is True and capturing():  # to read it would end the capture
            return None
        if math.prod(value.shape) <= MOST_LISTED:
            listed = _plain(value)
            return _listed(listed) if isinstance(listed, (list, tuple)) else _text(listed)
        from trackers.media.histogram import Histogram

        return Histogram(value, num_bins=MOST_LISTED)
    if isinstance(value, _LISTS):
        return _listed(value)
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, (str, Mapping)) else converted(value.value) or value.name
    fields = _fields(value)
    return _text(value) if fields is None else fields if isinstance(fields, Mapping) else converted(fields)


def _fields(value: Any) -> Any:
    """What a dataclass or a model of pydantic holds; None of anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value.model_dump(by_alias=True) if hasattr(type(value), "model_dump") else None


_LISTS = (list, tuple, set, frozenset, range, collections.deque)


def _text(value: Any) -> str | None:
    """A value of a kind that JSON hasn't as the text that W&B's client makes of it; None: it makes none."""
    if isinstance(value, str):
        return value
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, uuid.UUID) or type(value).__module__ in ("ipaddress", "pydantic.types", "pydantic.networks"):
        return str(value)
    if isinstance(value, re.Pattern):
        return str(value.pattern)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, complex):
        return str(value).strip("()")
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else str(value)
    return None


def _duration(value: datetime.timedelta) -> str:
    """By ISO 8601, as ``P1DT2H0.5S``; what is 0 is left out."""
    minutes, seconds = divmod(abs(value), datetime.timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "D"), (hours, "H"), (minutes, "M"), (f"{seconds.total_seconds():.6f}".rstrip("0").rstrip("."), "S"))
    day, *time = (f"{part}{unit}" if part not in (0, "0") else "" for part, unit in parts)
    clock = f"T{''.join(time)}" if any(time) or not day else ""
    return f"{'-' if value.days < 0 else ''}P{day}{clock}{'' if value else '0S'}"


def _plain(array: Any) -> Any:
    """An array as lists, but the only value of one as that value."""
    found = array.tolist()
    for _ in array.shape if math.prod(array.shape) == 1 else ():
        (found,) = found
    return found


def _listed(value: Iterable[Any]) -> str:
    return ListText(list_text(to_json_values(_parts(value))))


def _parts(value: Any, depth: int = 0) -> Any:
    """A list or mapping with the texts of what JSON hasn't."""
    if depth > MAX_DEPTH or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, _LISTS):
        return known_texts([_parts(part, depth + 1) for part in value])
    if isinstance(value, Mapping):
        return {name: _parts(part, depth + 1) for name, part in list(value.items())}
    if hasattr(value, "shape"):
        listed = _plain(value) if hasattr(value, "tolist") and math.prod(value.shape) <= MOST_LISTED else value
        return value if type(listed) is type(value) else _parts(listed, depth + 1)
    if type(value).__name__ == "NAType":  # pandas's missing value
        return None
    if isinstance(value, enum.Enum):
        held = _parts(value.value, depth + 1)
        return held if isinstance(held, (str, int, float, list, dict)) else value.name
    fields = _fields(value)
    return _parts(fields, depth + 1) if fields is not None else value if (text := _text(value)) is None else text
