"""Media and artifacts in trackio's own types (``trackio.image``, ``trackio.table``, …)."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

from trackers.backends.shared import charts, media_files, overlays
from trackers.backends.shared.append_file import file_name
from trackers.backends.trackio.store import Files, TrackioStore
from trackers.errors import Rejected
from trackers.formats import conversations
from trackers.records import ArtifactRecord, Media, MediaFile, nearest_double
from trackers.support import confined
from trackers.tracker import RunInfo

INTEGERS = range(-(2**63), 2**64)
"""Range of integers that trackio's JSON (orjson) can store; larger ones are skipped."""

# trackio/cas.py: names and aliases of artifacts; "v3" would be a version.
_ARTIFACT_REFUSED = re.compile(r"[^A-Za-z0-9._-]")
_VERSION = re.compile(r"v\d+")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*(/[A-Za-z0-9_][A-Za-z0-9_. -]*)*")
FILES = ("object3d", "molecule", "graph")
_VIDEO_FORMATS = ("gif", "mp4", "webm")


def media_values(info: RunInfo, store: TrackioStore, record: Media, step: int) -> dict[str, Any]:
    """A media record as values of a row; several items of one record become ``name/0``, ``name/1``, …

    Raises:
        Rejected: a file is missing or broken.
    """
    values = {}
    for number, item in reversed(list(enumerate(record.items))):  # its page shows what came last first
        name = record.name if len(record.items) == 1 else f"{record.name}/{number}"
        values[name] = _value(info, store, record, item, number, step)
        drawn = charts.picture(info, item) if record.type == "table" else None
        if drawn is not None:
            values[f"{name}/chart"] = _shown(info, store, record, "image", drawn, "png", f"{number}:chart", step, None)
    return values


def samples(info: RunInfo, record: Media) -> list[dict[str, Any]]:
    """The conversations among a table's rows as trackio's traces, where the table is one of samples.

    Raises:
        Rejected: as :func:`media_values`.
    """
    return [trace for table in media_files.samples(info, record) for trace in conversations.as_traces(*table)]


def _value(info: RunInfo, store: TrackioStore, record: Media, item: MediaFile, number: int, step: int) -> Any:
    if record.type == "table":
        columns, rows = media_files.table(info, item)
        names = _unique(columns)
        shown = [
            {
                name: _cell(info, store, record, value, f"{number}:{y}:{x}", step)
                for x, (name, value) in enumerate(zip(names, row, strict=False))
            }
            for y, row in enumerate(rows)
        ]
        return {"_type": "trackio.table", "_value": shown}
    if record.type == "histogram":
        counts, edges = media_files.histogram(info, item)
        return {"_type": "trackio.histogram", "bins": edges, "values": counts}
    return _stored(info, store, record, record.type, item, str(number), step)


def _stored(info: RunInfo, store: TrackioStore, record: Media, kind: str, item: MediaFile, at: str, step: int) -> Any:
    """A media file, kept with the run. at: position of the item in its record."""
    if kind not in ("image", "audio", "video", "html", *FILES):
        raise Rejected(f"trackio has no {kind}")
    content, suffix = _file(info, kind, item)
    return _shown(info, store, record, kind, content, suffix, at, step, item.caption)


def _shown(
    info: RunInfo, store: TrackioStore, record: Media, kind: str, content: bytes | Path, suffix: str, position: str,
    step: int, caption: str | None,
) -> Any:  # fmt: skip
    # The name is the same each time this record is delivered, so that no second file appears.
    digest = hashlib.sha256(f"{info.id}:{record.id}:{position}".encode()).hexdigest()[:32]
    folder = run_folder(info.name, info.id)
    if isinstance(content, Path):
        where = store.media(content, folder, step, f"{digest}.{suffix}")
    else:
        with tempfile.TemporaryDirectory() as directory:
            made = Path(directory, f"{digest}.{suffix}")
            made.write_bytes(content)
            where = store.media(made, folder, step, made.name)
    if kind in FILES:  # which trackio keeps, but doesn't show
        return f"{kind}: {where}"
    return {"_type": f"trackio.{kind}", "file_path": where, "caption": caption}


def _cell(info: RunInfo, store: TrackioStore, record: Media, value: Any, position: str, step: int) -> Any:
    """A cell of a table; trackio shows images there, one or several."""
    media = media_files.cell(value)
    if media is None and isinstance(value, (dict, list)):
        return media_files.each(
            value, lambda item, place: _cell(info, store, record, item, f"{position}:{place}", step)
        )
    if media is None or media[0] != "image":
        return to_trackio_json(value)
    images = [
        _stored(info, store, record, "image", item, f"{position}:{number}", step)
        for number, item in enumerate(media[1])
    ]
    return images if isinstance(value, list) else images[0]


def _file(info: RunInfo, kind: str, item: MediaFile) -> tuple[bytes | Path, str]:
    """The content of a media file as trackio shows it, and its suffix."""
    if kind == "image" and overlays.is_annotated(item):
        return overlays.png(info, item), "png"
    if kind == "image" and item.format not in ("png", "jpg", "jpeg", "gif", "webp"):
        return media_files.png(info, item), "png"
    if kind == "audio" and item.format == "npy":
        return media_files.wav(info, item), "wav"
    if kind == "video" and item.format not in _VIDEO_FORMATS:
        return media_files.gif(info, item), "gif"
    if kind == "html" and not item.file:
        return str(item.data or "").encode("utf-8", "replace"), "html"
    return media_files.path(info, item), item.format


def report(text: str) -> dict[str, Any]:
    """A text as trackio shows it, among its reports: as Markdown."""
    return {"_type": "trackio.markdown", "_value": text}


def artifact_files(info: RunInfo, record: ArtifactRecord) -> Files:
    """An artifact record as one version of a trackio artifact. A name it would refuse has "_" in those places.

    Raises:
        Rejected: the artifact is empty, or a file of it is gone.
    """
    files: dict[str, Path] = {}
    references: dict[str, tuple[str, int]] = {}
    for file in record.files:
        name = "/".join(confined.parts(file.path))
        if not name:
            raise Rejected(f"artifact {record.name!r} has a file without a name")
        if file.file:
            files[name] = media_files.path(info, file)
        else:
            references[name] = (file.uri, file.size)
    if not files and not references:
        raise Rejected(f"artifact {record.name!r} is empty: trackio keeps none without files")
    return Files(
        name=_ARTIFACT_REFUSED.sub("_", record.name) or "_",
        type=record.type or "file",
        description=record.description,
        metadata=to_trackio_json(record.metadata),
        aliases=[_alias(alias) for alias in record.aliases if alias],
        files=files,
        references=references,
    )


def run_folder(name: str, run_id: str) -> str:
    """The folder of a run's media: its name, as trackio has it, unless that would leave the project's folder."""
    return name if _FOLDER.fullmatch(name) else run_id


def files_folder(name: str, run_id: str) -> str:
    """The folder of a run's files among its project's: its name too, since trackio's page shows no ids elsewhere."""
    return f"{file_name(name)}-{run_id}"


def as_number(value: Any) -> Any:
    """An integer above the 64 bits of trackio's JSON as the nearest float, any other value as it is."""
    return nearest_double(value) if isinstance(value, int) and value not in INTEGERS else value


def to_trackio_json(value: Any) -> Any:
    """The same value as far as trackio's JSON holds it: keys are text, integers above 64 bits become text."""
    if isinstance(value, int) and value not in INTEGERS:
        return str(value)
    return media_files.each(value, lambda item, _: to_trackio_json(item))


def _alias(alias: str) -> str:
    name = _ARTIFACT_REFUSED.sub("_", alias)
    return f"{name}_" if _VERSION.fullmatch(name) else name


def _unique(columns: list[str]) -> list[str]:
    """Column names, where one comes again numbered: trackio's rows are mappings."""
    seen: dict[str, int] = {}
    unique = []
    for column in columns:
        seen[column] = seen.get(column, 0) + 1
        unique.append(column if seen[column] == 1 else f"{column} ({seen[column]})")
    return unique
