"""Media of a run for a browser: what there is by name and step, and files that can do nothing but be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import NotFound, TrackersError
from trackers.formats.pixels import array_as_gif, array_as_png
from trackers.records import ArtifactRecord, Media, MediaFile, Record, Text, name_floats
from trackers.support import confined

FILE_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is shown."""
LONGEST = 20_000
"""Maximum length of a text that is shown, in characters."""
TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "bmp": "image/bmp", "wav": "audio/wav", "mp3": "audio/mpeg", "ogg": "audio/ogg", "flac": "audio/flac",
    "mp4": "video/mp4", "webm": "video/webm",
}  # fmt: skip
"""Formats that a browser shows and never runs. All others are offered as a file to save: pages and SVG have scripts."""
SAVED = "application/octet-stream"


class ServedFile(NamedTuple):
    """type: its MIME type. name: to save it under; "" where a browser may show it."""

    content: bytes
    type: str
    name: str = ""


def names(others: Iterable[Record]) -> list[dict[str, Any]]:
    """Names of a run's media and texts in the order of their first one: ``name``, ``type``, ``count``."""
    counts: dict[tuple[str, str], int] = {}
    for record in others:
        for key in _keys(record):
            counts[key] = counts.get(key, 0) + 1
    return [{"name": name, "type": kind, "count": count} for (name, kind), count in counts.items()]


def steps(others: Iterable[Record], name: str, kind: str) -> list[int | None]:
    """The steps of one name's records, in their order."""
    return [record.step for record in others if (name, kind) in _keys(record)]


def items(
    others: Iterable[Record],
    name: str,
    kind: str,
    index: int,
    root: Path | None,
    whole: Callable[[Media], Media] = lambda record: record,
) -> dict[str, Any]:
    """One record of a name: its ``step``, ``time`` and ``items``. What a table holds is :mod:`trackers.ui.tables`'.

    Args:
        index: its number among the name's records; negative from the last.
        root: the directory that files are relative to; None: there are none.
        whole: gives the record with what a server has of it; see :meth:`trackers.ui.catalogue.Catalogue.whole`.

    Raises:
        NotFound: there is none.
    """
    record = _record(others, name, kind, index)
    entries: list[dict[str, Any]] = []
    if isinstance(record, Text):
        entries.append({"text": record.values[name][:LONGEST]})
    elif isinstance(record, Media):
        try:
            entries = [_item(record.type, item, root) for item in whole(record).items[:200]]
        except TrackersError as error:
            entries.append({"problem": str(error)[:300]})
    return {"step": record.step, "time": record.time, "items": entries}


def file(
    others: Iterable[Record],
    name: str,
    kind: str,
    index: int,
    number: int,
    root: Path | None,
    fetch: Callable[[Media, int], None] = lambda record, number: None,
) -> ServedFile:
    """The file of an item, of a type that a browser only shows.

    Args:
        fetch: has the item's file be there; see :meth:`trackers.ui.catalogue.Catalogue.fetch`.

    Raises:
        NotFound: there is none, it is too large, or no regular file below the run's directory.
    """
    record = _record(others, name, kind, index)
    if not isinstance(record, Media) or root is None or not 0 <= number < len(record.items):
        raise NotFound("there is no such file")
    item = record.items[number]
    fetch(record, number)
    return shown_file(item.file, item.format, record.type, root, f"media-{number}", item.fps)


def can_be_shown(kind: str, form: str) -> bool:
    """Whether a browser shows a file of this type of media and format as :func:`shown_file` gives it."""
    return form.lower() in TYPES or (form == "npy" and kind in ("image", "video"))


def shown_file(file: str, form: str, kind: str, root: Path, name: str, fps: float | None = None) -> ServedFile:
    """A file below the run's directory, of a type that a browser only shows, or else to be saved under a name.

    Raises:
        NotFound: there is none, it is too large, or no regular file below the run's directory.
    """
    content = _read(file, root)
    form = form.lower()
    if form == "npy" and kind == "image":
        return ServedFile(_draw(array_as_png, content, 1), "image/png")
    if form == "npy" and kind == "video":
        return ServedFile(_draw(array_as_gif, content, fps), "image/gif")
    if form in TYPES:
        return ServedFile(content, TYPES[form])
    return ServedFile(content, SAVED, f"{name}.{form if form.isascii() and form.isalnum() else 'bin'}")


def artifact_file(others: Iterable[Record], index: int, number: int, root: Path | None) -> ServedFile:
    """A file of an artifact, to be saved whatever it is.

    Args:
        index: the artifact's number among the run's; number: the file's among the artifact's.

    Raises:
        NotFound: there is none, it is too large, or no regular file below the run's directory.
    """
    artifacts = [record for record in others if isinstance(record, ArtifactRecord)]
    if root is None or not 0 <= index < len(artifacts) or not 0 <= number < len(artifacts[index].files):
        raise NotFound("there is no such file")
    stored = artifacts[index].files[number]
    return ServedFile(_read(stored.file, root), SAVED, save_as(stored.path.replace("\\", "/").rpartition("/")[2]))


def save_as(name: str) -> str:
    """A name for a file that a browser saves, safe inside of a header."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:].lstrip(".") or "file"


def _keys(record: Record) -> list[tuple[str, str]]:
    if isinstance(record, Media):
        return [(record.name, record.type)]
    return [(name, "text") for name in record.values] if isinstance(record, Text) else []


def _record(others: Iterable[Record], name: str, kind: str, index: int) -> Record:
    matching = [record for record in others if (name, kind) in _keys(record)]
    if not -len(matching) <= index < len(matching):
        raise NotFound("there are no such media")
    return matching[index]


def _item(kind: str, item: MediaFile, root: Path | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"format": item.format, "caption": (item.caption or "")[:LONGEST], "file": bool(item.file)}
    entry["shown"] = bool(item.file) and can_be_shown(kind, item.format) and root is not None
    if kind == "histogram":
        try:
            data = (
                item.data
                if not item.file
                else msgspec.json.decode(_read(item.file, root))
                if root is not None
                else None
            )
            entry.update(_histogram(data))
        except (NotFound, ValueError, TypeError, KeyError, RecursionError) as error:
            entry["problem"] = f"it can't be shown: {error}"[:300]
    return entry


def _histogram(data: Any) -> dict[str, Any]:
    counts, edges = [[float(value) for value in data[name]] for name in ("counts", "edges")]
    if len(edges) != len(counts) + 1:
        raise ValueError(f"{len(counts)} counts need {len(counts) + 1} edges, not {len(edges)}")
    return {"counts": name_floats(counts), "edges": name_floats(edges)}


def _read(file: str, root: Path) -> bytes:
    if not file or not confined.is_inside(file):
        raise NotFound("it has no file below the run's directory")
    root = root.absolute()
    try:
        return confined.read(root / file, root=root, most=FILE_BYTES)
    except OSError as error:
        raise NotFound(f"{file} can't be read: {error.strerror or error}") from error


def _draw(draw: Callable[..., bytes], content: bytes, how: Any) -> bytes:
    try:
        return draw(content, how)
    except (ImportError, ValueError) as error:
        raise NotFound(str(error)) from error
