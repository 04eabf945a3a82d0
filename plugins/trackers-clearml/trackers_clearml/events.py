"""The events of ClearML's offline sessions: clearml 2.1, ``clearml/backend_api/services/v2_23/events.py``.

``metrics.jsonl`` has lists of events, a line of which ``Task.import_offline_session`` sends as one request.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from trackers.backends.shared import media_files, overlays
from trackers.records import Media, MediaFile, Number, name_floats
from trackers.support.confined import is_plain_name
from trackers.tracker import RunInfo

SCALAR, SAMPLE, PLOT, LOG = "training_stats_scalar", "training_debug_image", "plot", "log"
"""Types of events. A sample is a file: an image, a sound, a video, a text or a page."""
SUMMARY, SUMMARY_STEP = "Summary", -(2**31)
"""Title and iteration of a value that has no step: clearml/logger.py, report_single_value."""
MACHINE, GPU = ":monitor:machine", ":monitor:gpu"
"""Titles of the machine's metrics, over the seconds since the task began: clearml/utilities/resource_monitor.py."""
LEVELS = {"INFO": "info", "WARN": "warning", "ERROR": "error"}
PICTURES = ("png", "jpg", "jpeg", "gif", "bmp")


def title(name: str) -> tuple[str, str]:
    """A metric's title and series: what stands before and behind its first slash, where both are something."""
    head, _, tail = name.partition("/")
    return (head, tail) if head and tail and head != tail else (name, name)


def event(kind: str, task: str, time: float, fields: dict[str, Any]) -> dict[str, Any]:
    """An event; time: Unix seconds."""
    return {"timestamp": round(time * 1000), "type": kind, "task": task, **fields}


def scalar(names: tuple[str, str], step: int, value: Number) -> dict[str, Any]:
    """The fields of a value, which must be finite."""
    number = int(value) if isinstance(value, bool) else value
    return {"iter": step, "metric": names[0], "variant": names[1], "value": number}


def plot(record: Media, item: MediaFile, info: RunInfo) -> str:
    """A table or a histogram as Plotly's JSON: clearml/utilities/plotly_reporter.py.

    Raises:
        Rejected: the file is missing or isn't what it should be.
    """
    if record.type == "table":
        columns, rows = media_files.table(info, item)
        cells = [[as_text(row[column]) if column < len(row) else "" for row in rows] for column in range(len(columns))]
        data: dict[str, Any] = {"type": "table", "header": {"values": columns}, "cells": {"values": cells}}
    else:
        counts, edges = media_files.histogram(info, item)
        pairs = list(itertools.pairwise(edges))
        middles = [(low + high) / 2 for low, high in pairs]
        widths = [high - low for low, high in pairs]
        data = {"type": "bar", "name": record.name, "x": middles, "y": counts, "width": widths}
    layout = {"title": item.caption or record.name}
    return json.dumps(name_floats({"data": [data], "layout": layout}), ensure_ascii=False, default=str)


def sample(record: Media, item: MediaFile, info: RunInfo) -> tuple[bytes, str]:
    """An item's content and suffix.

    Raises:
        Rejected: the file is missing or isn't what it should be.
    """
    if record.type == "image":
        content, kind = overlays.shown(info, item, PICTURES)
        return content, suffix(kind)
    if record.type == "audio":
        return media_files.wav(info, item), "wav" if item.format == "npy" else suffix(item.format)
    if record.type == "video" and item.format == "npy":
        return media_files.gif(info, item), "gif"
    if item.file:
        return media_files.content(info, item), suffix(item.format)
    return as_text(item.data).encode("utf-8", "replace"), "json"


def suffix(extension: str) -> str:
    """A format as a suffix of a file's name."""
    return extension if is_plain_name(extension) and extension.isalnum() else "bin"


def as_text(value: Any) -> str:
    """A text as it is, another value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(name_floats(value), ensure_ascii=False, default=str)


def parameter(section: str, name: str, value: Any) -> dict[str, str]:
    """An entry of ``hyperparams``; values are text, with the name of their type."""
    text = as_text(value) if isinstance(value, (dict, list, tuple)) else str(value)
    return {"section": section, "name": name, "value": text, "type": type(value).__name__, "description": ""}


def section(name: str, values: dict[str, Any]) -> dict[str, dict[str, str]]:
    """A section of ``hyperparams``."""
    return {key: parameter(name, key, value) for key, value in values.items()}


def configuration(name: str, values: Any) -> dict[str, str]:
    """An entry of ``configuration``: the whole, as JSON."""
    text = json.dumps(name_floats(values), indent=2, ensure_ascii=False, default=str)
    return {"name": name, "type": "json", "value": text}
