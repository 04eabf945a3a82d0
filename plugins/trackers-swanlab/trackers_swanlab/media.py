"""Media in the forms that SwanLab shows: files by their content's checksum, tables and histograms as ECharts."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

from trackers.backends.shared import media_files, overlays
from trackers.records import Media, MediaFile, name_floats
from trackers.tracker import RunInfo
from trackers_swanlab import run_files as form

PICTURES = ("png", "jpg", "jpeg", "bmp")
"""Formats of images that SwanLab takes (swanlab/sdk/internal/run/transforms/image); others become PNG."""
SOUNDS = ("wav", "mp3", "flac", "ogg")
RAW = "trackers"
"""The field of a chart that holds a histogram's counts and edges, which ECharts skips."""


class MediaItem(NamedTuple):
    """One file: its column type, its content, the suffix of its name, a caption."""

    kind: int
    content: bytes
    suffix: str
    caption: str


def media_items(record: Media, info: RunInfo) -> list[MediaItem]:
    """A record's files; what SwanLab can't show is text that names the file.

    Raises:
        Rejected: a file is missing or isn't what it should be.
    """
    files = [_media_item(record.type, item, info) for item in record.items]
    if len({file.kind for file in files}) > 1:  # a column has one type
        return [_mention(record.type, item) for item in record.items]
    return files


def text(content: str, caption: str = "") -> MediaItem:
    """A text."""
    return MediaItem(form.TEXT, content.encode("utf-8", "replace"), "txt", caption)


def _media_item(kind: str, item: MediaFile, info: RunInfo) -> MediaItem:
    caption = item.caption or ""
    if kind == "image" and item.format != "gif":
        return MediaItem(form.IMAGE, *overlays.shown(info, item, PICTURES), caption)
    if kind in ("image", "video") and item.format in ("gif", "npy"):
        # Videos are GIF files in a column of images: swanlab/sdk/internal/run/transforms/video.
        content = media_files.content(info, item) if item.format == "gif" else media_files.gif(info, item)
        return MediaItem(form.IMAGE, content, "gif", caption)
    if kind == "audio" and item.format in (*SOUNDS, "npy"):
        suffix = "wav" if item.format == "npy" else item.format
        return MediaItem(form.AUDIO, media_files.wav(info, item), suffix, caption)
    if kind == "html" and item.file:
        return MediaItem(form.HTML, media_files.content(info, item), "html", caption)
    if kind == "table":
        columns, rows = media_files.table(info, item)
        return MediaItem(form.ECHARTS, _json(_table(columns, rows)), "json", caption)
    if kind == "histogram":
        counts, edges = media_files.histogram(info, item)
        return MediaItem(form.ECHARTS, _json(_histogram(counts, edges)), "json", caption)
    return _mention(kind, item)


def _mention(kind: str, item: MediaFile) -> MediaItem:
    where = item.file or json.dumps(name_floats(item.data), ensure_ascii=False, default=str)
    return text(f"{kind} ({item.format}): {where}", item.caption or "")


def _table(columns: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    """As swanlab.echarts.Table writes one (swanlab/sdk/internal/run/transforms/echarts/components/table.py)."""
    titles: list[str] = []
    for column in columns:
        while column in titles:
            column += "_"
        titles.append(column)
    cells = [dict(zip(titles, row, strict=False)) for row in rows]
    return {"_swanLab": "table", "colDefs": [{"field": title} for title in titles], "rowData": cells}


def _histogram(counts: list[float], edges: list[float]) -> dict[str, Any]:
    middles = [f"{(low + high) / 2:.6g}" for low, high in pairwise(edges)]
    return {
        "xAxis": [{"type": "category", "data": middles}],
        "yAxis": [{"type": "value"}],
        "series": [{"type": "bar", "data": counts, "barCategoryGap": "0%"}],
        RAW: {"counts": counts, "edges": edges},
    }


def _json(value: Any) -> bytes:
    return json.dumps(name_floats(value), ensure_ascii=False, default=str).encode("utf-8", "replace")
