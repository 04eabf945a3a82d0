"""Records as TensorBoard's summary values, each in the form its plugin reads. Needs the tensorboard package."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.audio import plugin_data_pb2 as audio_pb2
from tensorboard.plugins.histogram import plugin_data_pb2 as histogram_pb2
from tensorboard.plugins.image import plugin_data_pb2 as image_pb2
from tensorboard.plugins.text import plugin_data_pb2 as text_pb2

from trackers.backends.shared import media_files
from trackers.records import ArtifactRecord, Media, MediaFile, name_floats
from trackers.tracker import RunInfo

TABLE_ROWS = 1000
"""Rows of a table shown as text: the text plugin renders Markdown on its server, slowly."""

BROWSER_IMAGES = ("png", "jpg", "jpeg", "gif")
"""Formats that go in as they are: TensorBoard hands the bytes to the browser with a type it finds in them."""


def text(tag: str, *strings: str) -> Any:
    """A value of the text plugin. Markdown; TensorBoard itself removes active HTML."""
    return _value(tag, "text", text_pb2.TextPluginData(), strings=[_utf8(item) for item in strings], scalar=True)


def media(tag: str, record: Media, info: RunInfo) -> Iterator[Any]:
    """The values of one media record, under ``tag``; what TensorBoard can't show becomes text that names the file.

    Raises:
        Rejected: a file is missing or isn't what it should be.
    """
    if record.type == "image" or (record.type == "video" and all(_is_gif(item) for item in record.items)):
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
    return "\n".join("    " + line for line in written.splitlines())


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


def _picture(item: MediaFile, info: RunInfo, kind: str) -> bytes:
    if item.format in BROWSER_IMAGES:
        return media_files.content(info, item)
    return media_files.gif(info, item) if kind == "video" else media_files.png(info, item)


def _is_gif(item: MediaFile) -> bool:
    return item.format in ("gif", "npy")


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
    for mark in "\\`*_[]|":
        shown = shown.replace(mark, "\\" + mark if mark != "|" else "&#124;")
    return " ".join(shown.splitlines())


def _utf8(string: str) -> bytes:
    return string.encode("utf-8", "replace")
