"""Converts media records into wandb's own types."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared import media_files
from trackers.backends.wandb import private_names
from trackers.backends.wandb.history_rows import row_chart
from trackers.backends.wandb.state import WandbState
from trackers.errors import Rejected
from trackers.formats.pixels import load_array
from trackers.records import Media, MediaFile, are_words, unname_floats
from trackers.tracker import RunInfo

BATCHABLE = ("image", "audio", "video", "html", "object3d", "molecule")
"""What W&B's client has a type of its own for lists of (``wandb.data_types.BatchableMedia``)."""
INCREMENTAL = "INCREMENTAL"
MOST_INCREMENTS = 100
"""Number of a table's last parts that W&B's workspace shows."""
HISTOGRAM_BINS = 512
"""``wandb.Histogram.MAX_LENGTH``: more are refused."""
IMAGE_FORMATS = ("png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff")
VIDEO_FORMATS = ("gif", "mp4", "webm", "ogg")
"""``wandb.Video.EXTS``."""
NODE_FIELDS = ("id", "name", "class_name", "size", "parameters", "output_shape", "is_output", "num_parameters")
CELL_FIELDS = {field.name for field in msgspec.structs.fields(MediaFile)}


def value(info: RunInfo, record: Media, scratch: Path) -> Any:
    """The value that ``run.log`` takes for a media record: one object, or a list of them if it has several items.

    Args:
        scratch: a directory for converted files.

    Raises:
        Rejected: a file is missing or isn't of the stated type.
    """
    objects = [_item(info, record.type, item, scratch) for item in record.items]
    if len(objects) == 1 and not (record.listed and record.type in BATCHABLE):
        return objects[0]
    return _sounds(objects) if record.type == "audio" else objects


def _sounds(objects: list[Any]) -> list[Any]:
    """Sounds whose list is described as W&B's client does, which asks for soundfile, and doesn't use it."""
    import wandb

    class Audio(wandb.Audio):  # type: ignore[misc]
        """W&B's, of the same name."""

        @classmethod
        def seq_to_json(cls, seq: Any, run: Any, key: str, step: Any) -> dict[str, Any]:
            found = {"_type": "audio", "count": len(seq), "audio": [one.to_json(run) for one in seq],
                     "sampleRates": cls.sample_rates(seq), "durations": cls.durations(seq)}  # fmt: skip
            return {**found, "captions": cls.captions(seq)} if cls.captions(seq) else found

    for one in objects:
        one.__class__ = Audio
    return objects


def _item(info: RunInfo, kind: str, item: MediaFile, scratch: Path) -> Any:
    import wandb

    make = _MAKERS.get(kind)
    if make is None:
        raise Rejected(f"media of type {kind!r}; known: {', '.join(_MAKERS)}")
    try:
        return make(wandb, info, item, scratch)
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise Rejected(f"{kind} {item.file or 'without a file'}: {error}") from error


def _image(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    options = {name: item.meta[name] for name in ("grouping", "boxes", "classes") if item.meta.get(name) is not None}
    for name, boxes in options.get("boxes", {}).items():
        data = [
            {key: b[key] if key == "box_caption" else unname_floats(b[key]) for key in b} for b in boxes["box_data"]
        ]
        options["boxes"] = {**options["boxes"], name: _with_labels({**boxes, "box_data": data})}
    masks = {name: _with_labels(_mask(info, mask)) for name, mask in (item.meta.get("masks") or {}).items()}
    if masks:
        options["masks"] = masks
    if item.format in IMAGE_FORMATS:
        return wandb.Image(str(media_files.path(info, item)), caption=item.caption, **options)
    file_type = item.meta.get("file_type")
    picture = media_files.image(info, item)
    return wandb.Image(picture, mode=picture.mode, caption=item.caption, file_type=file_type, **options)


def _mask(info: RunInfo, mask: dict[str, Any]) -> dict[str, Any]:
    data = mask.get("mask_data")
    if not isinstance(data, dict):
        return mask
    stored = media_files.content(info, MediaFile(format="npy", file=data.get("file", "")))
    return {**mask, "mask_data": load_array(stored)}


def _with_labels(overlay: dict[str, Any]) -> dict[str, Any]:
    # JSON has no integer keys, and wandb accepts no others.
    labels = overlay.get("class_labels")
    return {**overlay, "class_labels": {int(key): name for key, name in labels.items()}} if labels else overlay


def _audio(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    if item.format != "npy":
        return wandb.Audio(str(media_files.path(info, item)), sample_rate=item.sample_rate, caption=item.caption)
    file = _scratch(scratch, item, "wav", media_files.wav(info, item))
    return wandb.Audio(str(file), sample_rate=item.sample_rate, caption=item.caption)


def _video(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    if item.format in VIDEO_FORMATS:
        return wandb.Video(str(media_files.path(info, item)), caption=item.caption, format=item.format)
    if item.format != "npy":
        raise Rejected(f"a video in format {item.format!r}; W&B shows {', '.join(VIDEO_FORMATS)}")
    # W&B would need moviepy and ffmpeg to encode frames.
    file = _scratch(scratch, item, "gif", media_files.gif(info, item))
    return wandb.Video(str(file), caption=item.caption, format="gif")


def _html(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    text = media_files.content(info, item).decode("utf-8", "replace")
    return wandb.Html(text, inject=bool(item.meta.get("inject", True)), data_is_not_path=True)


def _histogram(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    counts, edges = media_files.histogram(info, item)
    if len(counts) > HISTOGRAM_BINS:
        together = -(-len(counts) // HISTOGRAM_BINS)
        edges = [*edges[:-1:together], edges[-1]]
        counts = [sum(counts[start : start + together]) for start in range(0, len(counts), together)]
    return wandb.Histogram(np_histogram=(counts, edges))


def _table(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    columns, rows = media_files.table(info, item, exact=True)
    words = list(map(are_words, zip(*rows, strict=True)))
    cells = [
        [str(c) if word and isinstance(c, str) else _cell(info, c, scratch) for word, c in zip(words, row, strict=True)]
        for row in rows
    ]
    kinds = [{_kind(row[column]) for row in cells if row[column] is not None} for column in range(len(columns))]
    types = [private_names.column_type(mixed=len(kind) > 1) for kind in kinds]
    mode = item.meta.get("log_mode")
    mode = mode if mode in ("MUTABLE", INCREMENTAL) else "IMMUTABLE"
    try:
        return wandb.Table(columns=columns, data=cells, dtype=types, log_mode=mode)
    except TypeError:  # lists or mappings of several kinds
        return wandb.Table(columns=columns, data=cells, allow_mixed_types=True, log_mode=mode)


def is_part(record: Media) -> bool:
    """Whether a record is a table's part, whose other parts have records of their own."""
    return len(record.items) == 1 and record.items[0].meta.get("log_mode") == INCREMENTAL


class Increments:
    """The parts of tables that are logged in parts, by name: the ids of their records, and where their rows lie.

    W&B draws a table from its parts: each names those before it. They survive a restart in the delivery's state.
    """

    def __init__(self, state: WandbState) -> None:
        self._state = state

    def number(self, name: str, record_id: str, table: Any) -> None:
        """Tell a part which one it is, and which come before it."""
        parts = self._of(name)
        place = next((place for place, (id, *_) in enumerate(parts) if id == record_id), len(parts))
        known = int(self._state.increments_before.get(name, 0))
        rows = parts[place - 1][2] if place else 0
        private_names.set_increment(table, known + place, [path for _, path, *_ in parts[:place] if path], rows)

    def note(self, name: str, record_id: str, table: Any) -> None:
        """Note a part that was sent."""
        parts = [part for part in self._of(name) if part[0] != record_id]
        parts.append([record_id, private_names.increment_path(table), len(table.data)])
        dropped = len(parts) - MOST_INCREMENTS
        if dropped > 0:
            before = self._state.increments_before
            self._state.increments_before = {**before, name: before.get(name, 0) + dropped}
        self._state.increments = {**self._state.increments, name: parts[-MOST_INCREMENTS:]}

    def _of(self, name: str) -> list[list[Any]]:
        parts: list[list[Any]] = self._state.increments.get(name, [])
        return parts


def _shape(kind: str, wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    return getattr(wandb, kind)(str(media_files.path(info, item)), caption=item.caption)


def _graph(wandb: Any, info: RunInfo, item: MediaFile, scratch: Path) -> Any:
    data = media_files.payload(info, item)
    graph = wandb.Graph(str(data["format"]))
    for node in data["nodes"]:
        graph.add_node(wandb.data_types.Node(**{name: node[name] for name in NODE_FIELDS if name in node}))
    for source, target in data["edges"]:
        graph.add_edge(graph[source], graph[target])
    return graph


def chart(record: Media) -> tuple[tuple[str, ...], Any] | None:
    """The key and value in W&B's configuration that describe how a chart is drawn; None if the record is no chart.

    Built by ``wandb.plot.CustomChartSpec`` and ``VisualizeSpec``, which W&B's own client uses.
    """
    description = row_chart(record)
    if description is None:
        return None
    if description.get("panel") == "viz":
        return private_names.viz_config(record.name, str(description["spec"]))
    fields, strings = dict(description.get("fields") or {}), dict(description.get("strings") or {})
    split = bool(description.get("split_table"))
    return private_names.chart_config(record.name, str(description["spec"]), fields, strings, split)


def _kind(cell: Any) -> type:
    return float if isinstance(cell, (int, float)) and not isinstance(cell, bool) else type(cell)


def _cell(info: RunInfo, cell: Any, scratch: Path) -> Any:
    if isinstance(cell, list):  # of pictures, say
        words = are_words(cell)
        return [str(one) if words and isinstance(one, str) else _cell(info, one, scratch) for one in cell]
    if not isinstance(cell, dict):
        return unname_floats(cell)
    kind = str(cell.get("_type"))
    if kind not in _MAKERS or not media_files.is_medium(cell):
        return {name: _cell(info, one, scratch) for name, one in cell.items()}
    fields = {name: cell[name] for name in CELL_FIELDS if name in cell}
    made = _item(info, kind, msgspec.convert(fields, MediaFile), scratch)
    return made.to_json() if kind == "histogram" else made  # which W&B's tables refuse as a cell


def _scratch(scratch: Path, item: MediaFile, suffix: str, content: bytes) -> Path:
    name = re.sub(r"[^\w.-]", "_", item.file)
    scratch.mkdir(parents=True, exist_ok=True)
    file = scratch / f"{name}.{suffix}"
    file.write_bytes(content)
    return file


_MAKERS: dict[str, Callable[[Any, RunInfo, MediaFile, Path], Any]] = {
    "image": _image,
    "audio": _audio,
    "video": _video,
    "html": _html,
    "histogram": _histogram,
    "table": _table,
    "object3d": functools.partial(_shape, "Object3D"),
    "molecule": functools.partial(_shape, "Molecule"),
    "graph": _graph,
}
