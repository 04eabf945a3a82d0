"""Records as TensorBoard's summary values, each in the form its plugin reads. Needs the tensorboard package.

A run's configuration and results have the form that TensorBoard's hparams plugin reads.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.audio import plugin_data_pb2 as audio_pb2
from tensorboard.plugins.histogram import plugin_data_pb2 as histogram_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.image import plugin_data_pb2 as image_pb2
from tensorboard.plugins.text import plugin_data_pb2 as text_pb2

from trackers.backends.shared import charts, media_files, overlays
from trackers.records import ArtifactRecord, Media, MediaFile, name_floats
from trackers.tracker import RunInfo, Status

# tensorboard/plugins/hparams/metadata.py, which would import NumPy
_START_TAG = "_hparams_/session_start_info"
_END_TAG = "_hparams_/session_end_info"
_PLUGIN_DATA_VERSION = 0

GROUP = "group"
"""The column of a run's group."""

FIRST = " "
"""Begin of a result's column: HPARAMS ticks the first five by whether they differ, then by name, and shows no blank."""

OURS = "trackers:"
"""The model's address in our sessions: their group name is a run's, not a group's."""

_STATUSES = {
    "finished": api_pb2.STATUS_SUCCESS,
    "failed": api_pb2.STATUS_FAILURE,
    "crashed": api_pb2.STATUS_FAILURE,
    "preempted": api_pb2.STATUS_FAILURE,
    "stopped": api_pb2.STATUS_SUCCESS,
    "running": api_pb2.STATUS_RUNNING,
}


def hparam_session(row: str, settings: Mapping[str, Any], begin: float, status: Status, group: str) -> list[Any]:
    """The values that make one run a row of the hparams table.

    Args:
        row: the row's name, which no other run may have: TensorBoard takes runs of one name for repetitions, and shows
            the mean of their results.
        settings: what become columns, by name: settings and results. begin: Unix seconds.
        group: the run's, or "": a column, where the configuration has none of that name.

    There is no list of the columns: of several runs' lists TensorBoard takes one, and leaves out what only others have.
    """
    values = {key: _as_plugin_type(value) for key, value in settings.items()}
    if group:
        values.setdefault(GROUP, group)
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=begin, group_name=row, model_uri=OURS)
    for key, value in values.items():
        if isinstance(value, bool):
            start.hparams[key].bool_value = value
        elif isinstance(value, float):
            start.hparams[key].number_value = value
        else:
            start.hparams[key].string_value = value
    end = plugin_data_pb2.SessionEndInfo(status=_STATUSES[status.name], end_time_secs=status.time)
    data = plugin_data_pb2.HParamsPluginData
    return [
        _hparam_value(_START_TAG, data(version=_PLUGIN_DATA_VERSION, session_start_info=start)),
        _hparam_value(_END_TAG, data(version=_PLUGIN_DATA_VERSION, session_end_info=end)),
    ]


def _as_plugin_type(value: Any) -> bool | float | str:
    """A leaf as one of the plugin's three types. Its server can't write NaN and infinities, so these are strings."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            return str(value)
        return number if math.isfinite(number) else str(name_floats(number))
    return json.dumps(name_floats(value), ensure_ascii=False, default=str)


def _hparam_value(tag: str, data: Any) -> Any:
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    empty = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=0)])
    return summary_pb2.Summary.Value(
        tag=tag,
        metadata=summary_pb2.SummaryMetadata(plugin_data=plugin, data_class=summary_pb2.DATA_CLASS_TENSOR),
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_shape=empty),
    )


TABLE_ROWS = 1000
"""Rows of a table shown as text: the text plugin renders Markdown on its server, slowly."""

BROWSER_IMAGES = ("png", "jpg", "jpeg", "gif")
"""Formats that go in as they are: TensorBoard hands the bytes to the browser with a type it finds in them."""


def text(tag: str, *strings: str) -> Any:
    """A value of the text plugin. Markdown; TensorBoard itself removes active HTML."""
    return _value(tag, "text", text_pb2.TextPluginData(), strings=[_utf8(item) for item in strings], scalar=True)


def sections(tag: str, content: Mapping[str, Any]) -> Any:
    """Several texts in one card of the text plugin, each under a heading: text as it is, all else as JSON."""
    parts = [f"#### {name}\n\n{part if isinstance(part, str) else code(part)}" for name, part in content.items()]
    strings = [_utf8(part) for part in parts]
    return _value(tag, "text", text_pb2.TextPluginData(), strings=strings, scalar=len(strings) == 1)


def media(tag: str, record: Media, info: RunInfo) -> Iterator[Any]:
    """The values of one media record, under ``tag``; what TensorBoard can't show becomes text that names the file.

    Raises:
        Rejected: a file is missing or isn't what it should be.
    """
    are_gifs = all(item.format in ("gif", "npy") for item in record.items)
    if record.type == "image" or (record.type == "video" and are_gifs):
        yield from _images(tag, record, info)
    elif record.type == "audio" and all(item.format in ("wav", "npy") for item in record.items):
        sounds = [part for item in record.items for part in (media_files.wav(info, item), _utf8(item.caption or ""))]
        content = audio_pb2.AudioPluginData(encoding=audio_pb2.AudioPluginData.WAV)
        yield _value(tag, "audio", content, strings=sounds, shape=[len(record.items), 2])
    elif record.type == "histogram":
        for number, item in enumerate(record.items):
            yield _histogram(_numbered(tag, number), item, info)
    elif record.type == "table":
        for number, item in enumerate(record.items):
            columns, rows = media_files.table(info, item)
            yield text(_numbered(tag, number), markdown_table(columns, rows))
            drawn = charts.picture(info, item)
            if drawn is not None:
                yield _value(
                    f"{_numbered(tag, number)}/chart", "images", image_pb2.ImagePluginData(), strings=_sized(drawn)
                )
    else:
        for number, item in enumerate(record.items):
            yield text(_numbered(tag, number), _mention(record, item))


def artifact(record: ArtifactRecord) -> str:
    """An artifact's files as text: TensorBoard stores none."""
    rows = [[file.path, file.size, file.uri or file.file, file.digest] for file in record.files]
    heading = f"{_escape(record.type)} **{_escape(record.name)}** {_escape(', '.join(record.aliases))}\n\n"
    return heading + markdown_table(["path", "bytes", "file", "digest"], rows)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown, every cell escaped; says how many rows it leaves out."""
    lines = ["| " + " | ".join(_escape(column) for column in columns) + " |", "|" + " --- |" * max(len(columns), 1)]
    lines += ["| " + " | ".join(_escape(cell) for cell in row) + " |" for row in rows[:TABLE_ROWS]]
    if len(rows) > TABLE_ROWS:
        lines.append(f"\n{len(rows) - TABLE_ROWS:,} more rows are in the run's directory.")
    return "\n".join(lines)


def code(values: Any) -> str:
    """Nested values as an indented block of JSON."""
    written = json.dumps(name_floats(values), indent=2, ensure_ascii=False, default=str)
    return "\n".join("    " + line for line in written.split("\n"))


def _images(tag: str, record: Media, info: RunInfo) -> Iterator[Any]:
    encoded = [_picture(item, info, record.type) for item in record.items]
    first = record.items[0] if record.items else MediaFile(format="png")
    width, height = first.width or 0, first.height or 0
    if encoded and not (width and height) and first.format != "npy":
        picture = media_files.image(info, first)
        width, height = picture.size
    sizes = [str(width).encode(), str(height).encode()]
    yield _value(tag, "images", image_pb2.ImagePluginData(), strings=[*sizes, *encoded])
    captions = [item.caption for item in record.items]
    if any(captions):
        lines = [f"{number}. {_escape(caption or '')}" for number, caption in enumerate(captions, 1)]
        yield text(tag + "/caption", "\n".join(lines))


def _sized(png: bytes) -> list[bytes]:
    """The content of an image's value: width, height, the PNG file."""
    width, height = (int.from_bytes(png[offset : offset + 4], "big") for offset in (16, 20))
    return [str(width).encode(), str(height).encode(), png]


def _picture(item: MediaFile, info: RunInfo, kind: str) -> bytes:
    if kind == "image" and overlays.is_annotated(item):
        return overlays.png(info, item)
    if item.format in BROWSER_IMAGES:
        return media_files.content(info, item)
    return media_files.gif(info, item) if kind == "video" else media_files.png(info, item)


def _histogram(tag: str, item: MediaFile, info: RunInfo) -> Any:
    counts, edges = media_files.histogram(info, item)
    numbers = [x for k, count in enumerate(counts) for x in (edges[k], edges[k + 1], count)]
    content = histogram_pb2.HistogramPluginData()
    return _value(tag, "histograms", content, doubles=numbers, shape=[len(counts), 3])


def _mention(record: Media, item: MediaFile) -> str:
    where = _escape(item.file) if item.file else code(item.data)
    caption = f" {_escape(item.caption)}" if item.caption else ""
    return f"{_escape(record.type)} ({_escape(item.format)}):{caption}\n\n{where}"


def _value(
    tag: str,
    plugin: str,
    content: Any,
    *,
    strings: Sequence[bytes] | None = None,
    doubles: Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
    scalar: bool = False,
) -> Any:
    sizes = [] if scalar else shape if shape is not None else [len(strings or doubles or ())]
    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING if strings is not None else types_pb2.DT_DOUBLE,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(
            dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in sizes]
        ),
        string_val=strings,
        double_val=doubles,
    )
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin, content=content.SerializeToString())
    data_class = (
        summary_pb2.DATA_CLASS_BLOB_SEQUENCE if plugin in ("images", "audio") else summary_pb2.DATA_CLASS_TENSOR
    )
    metadata = summary_pb2.SummaryMetadata(plugin_data=data, data_class=data_class)
    return summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)


def _numbered(tag: str, number: int) -> str:
    return f"{tag}/{number}" if number else tag


def _escape(cell: Any) -> str:
    shown = cell if isinstance(cell, str) else json.dumps(name_floats(cell), ensure_ascii=False, default=str)
    shown = html.escape(shown, quote=False)
    for sign in "\\`*_[]|":
        shown = shown.replace(sign, "\\" + sign if sign != "|" else "&#124;")
    return " ".join(shown.splitlines())


def _utf8(string: str) -> bytes:
    return string.encode("utf-8", "replace")
