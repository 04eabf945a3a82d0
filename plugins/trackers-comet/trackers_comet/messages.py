"""The messages of Comet's offline experiments: comet_ml 3.58, ``comet_ml/messages.py`` and ``comet_ml/schemas``."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Protocol

from trackers.backends.shared import media_files, overlays
from trackers.formats.csv_cell import csv_cell
from trackers.records import Media, MediaFile, Number, name_floats
from trackers.tracker import RunInfo

NESTED = "|"
"""What joins the names of nested parameters."""
SYSTEM = "sys."
"""How the names of the machine's metrics begin."""
PICTURES = ("png", "jpg", "jpeg", "gif", "bmp")
IMAGE, AUDIO, VIDEO, TEXT, ASSET, MODEL = "visualization", "audio", "video", "text-sample", "asset", "model-element"
"""Types of uploads: comet_ml/constants.py, ASSET_TYPE_…"""
MODEL_TYPES = ("model", "checkpoint")


class Numbered(Protocol):
    """What counts the messages. num: of the last one."""

    num: int


def metric(name: str, value: Number, step: int | None, time: float, numbered: Numbered) -> bytes:
    """The message of a value; time: Unix seconds."""
    number = int(value) if isinstance(value, bool) else value
    value_of = {"metricName": one_line(name), "metricValue": number, "step": step, "epoch": None}
    return message("metric_msg", {"metric": value_of}, numbered, time)


def message(kind: str, payload: dict[str, Any], numbered: Numbered, time: float | None = None) -> bytes:
    """The next message, on a line of its own; time: Unix seconds, None for a kind without one."""
    numbered.num += 1
    stamp = {} if time is None else {"local_timestamp": milliseconds(time)}
    return encoded({"type": kind, "payload": {**payload, **stamp, "message_id": numbered.num}})


def encoded(values: dict[str, Any]) -> bytes:
    """One line; NaN and infinities are their names, as Comet's client writes them."""
    return json.dumps(name_floats(values), ensure_ascii=True, default=str).encode() + b"\n"


def medium(record: Media, item: MediaFile, info: RunInfo) -> tuple[str, bytes, str]:
    """An item's type of upload, content and suffix; what Comet has no view of is an asset.

    Raises:
        Rejected: the file is missing or isn't what it should be.
    """
    if record.type == "image":
        return IMAGE, *overlays.shown(info, item, PICTURES)
    if record.type == "audio":
        return AUDIO, media_files.wav(info, item), "wav" if item.format == "npy" else item.format
    if record.type == "video":
        if item.format == "npy":
            return VIDEO, media_files.gif(info, item), "gif"
        return VIDEO, media_files.content(info, item), item.format
    if record.type == "table":
        columns, rows = media_files.table(info, item)
        out = io.StringIO()
        table = csv.writer(out, lineterminator="\n")
        lines = ([cell if isinstance(cell, str) else as_text(cell) for cell in row] for row in [columns, *rows])
        table.writerows(map(csv_cell, line) for line in lines)
        return ASSET, out.getvalue().encode("utf-8", "replace"), "csv"
    if item.file:
        return ASSET, media_files.content(info, item), item.format
    return ASSET, as_text(item.data).encode("utf-8", "replace"), "json"


def superseded(payload: dict[str, Any], last_step: int) -> bool:
    """Whether a message has a step above the last one that counts."""
    fields = payload.get("metric") or payload.get("additional_params") or {}
    step = fields.get("step")
    return step is not None and step > last_step


def as_text(value: Any) -> str:
    """A nested value as JSON."""
    return json.dumps(name_floats(value), ensure_ascii=False, default=str)


def one_line(text: str) -> str:
    """A name on one line, as Comet's schemas demand."""
    return " ".join(text.split("\n"))


def milliseconds(time: float) -> int:
    """Unix seconds as Comet counts them."""
    return round(time * 1000)
