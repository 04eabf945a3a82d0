"""What a run logged, as Aim 3's own classes and as values that its store takes."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from trackers.backends.shared import media_files, overlays
from trackers.formats.csv_cell import csv_cell
from trackers.records import SYSTEM_PREFIX, Media, MediaFile, Number, name_floats
from trackers.tracker import RunInfo

LARGEST = 2**63 - 1
MOST_BINS = 512
"""aim/sdk/objects/distribution.py"""
SYSTEM = "__system__"
GPU = {"gpu": "gpu", "memoryAllocated": "gpu_memory_percent", "powerWatts": "gpu_power_watts", "temp": "gpu_temp"}
"""Our names of samples of a GPU, and Aim's: aim/ext/resource/stat.py."""
LEVELS = {"INFO": 20, "WARN": 30, "ERROR": 40}


def number(value: Number) -> int | float:
    """A number as Aim holds it: integers beyond 64 bits are doubles."""
    if not isinstance(value, int):
        return value
    if -LARGEST - 1 <= value <= LARGEST:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def machine(name: str) -> tuple[str, dict[str, Any]]:
    """The name and the context of a sample of the machine: Aim's own where it has one."""
    field = name.removeprefix(SYSTEM_PREFIX)
    kind, _, rest = field.partition(".")
    device, _, own = rest.partition(".")
    if kind == "gpu" and own and device.isdecimal() and str(int(device)) == device:
        return SYSTEM + GPU.get(own, own), {"gpu": int(device)}
    return SYSTEM + field, {}


def to_stored(value: Any) -> Any:
    """A value as Aim's tree stores it: keys are text and not empty, wide integers are text."""
    if isinstance(value, dict):
        return {str(key) or "_": to_stored(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_stored(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (float, str)):
        return value
    if isinstance(value, int) and -LARGEST - 1 <= value <= LARGEST:
        return value
    return str(value)


def medium(record: Media, info: RunInfo) -> Any:
    """A record of media as Aim's object, or a list of them; None for a video, which Aim doesn't have.

    Tables, pages and histograms of uneven bins are texts.

    Raises:
        Rejected: a file is missing or isn't what it should be.
    """
    if record.type == "video":
        return None
    made = [_item(record, item, info) for item in record.items]
    return made[0] if len(made) == 1 else made


def _item(record: Media, item: MediaFile, info: RunInfo) -> Any:
    import aim

    caption = item.caption or ""
    if record.type == "image":
        return aim.Image(overlays.drawn(info, item), caption=caption)
    if record.type == "audio":
        ending = "wav" if item.format == "npy" else item.format
        return aim.Audio(media_files.wav(info, item), format=ending, rate=item.sample_rate or 44100, caption=caption)
    if record.type == "histogram":
        counts, edges = media_files.histogram(info, item)
        if _is_even(edges) and 0 < len(counts) <= MOST_BINS:
            return aim.Distribution(hist=counts, bin_range=(edges[0], edges[-1]))
        return aim.Text(_json({"counts": counts, "edges": edges}))
    if record.type == "table":
        columns, rows = media_files.table(info, item)
        out = io.StringIO()
        table = csv.writer(out, lineterminator="\n")
        lines = ([cell if isinstance(cell, str) else _json(cell) for cell in row] for row in [columns, *rows])
        table.writerows(map(csv_cell, line) for line in lines)
        return aim.Text(out.getvalue())
    if item.file:
        return aim.Text(media_files.content(info, item).decode("utf-8", "replace"))
    return aim.Text(_json(item.data))


def _is_even(edges: list[float]) -> bool:
    """Whether the bins are of one width, as Aim has them: up to a thousandth of it."""
    width = (edges[-1] - edges[0]) / max(1, len(edges) - 1)
    return math.isfinite(width) and all(
        abs(edge - (edges[0] + width * index)) <= abs(width) / 1000 for index, edge in enumerate(edges)
    )


def _json(value: Any) -> str:
    return json.dumps(name_floats(value), ensure_ascii=False, default=str)
