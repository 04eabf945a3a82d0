"""Trackio's media types as records: their files stay where they are, below its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trackers.records import Media, MediaFile
from trackers.support import confined

FILES = {"trackio.image": "image", "trackio.audio": "audio", "trackio.video": "video", "trackio.html": "html"}
FOLDER = "media"
"""Folder of files in trackio's directory (trackio/utils.py MEDIA_DIR)."""


def media(name: str, value: dict[str, Any], at: dict[str, Any], directory: Path) -> Media | None:
    """A value with ``_type`` as a media record; None for a type that isn't known, or whose file is gone.

    Args:
        at: ``step`` and ``time``. directory: trackio's.
    """
    kind = str(value["_type"])
    if kind in FILES:
        item = _file(value, directory)
        return Media(name=name, type=FILES[kind], items=[item], **at) if item is not None else None
    if kind == "trackio.histogram":
        data = {"counts": value.get("values") or [], "edges": value.get("bins") or []}
        return Media(name=name, type="histogram", items=[MediaFile(format="json", data=data)], **at)
    if kind == "trackio.table":
        return Media(name=name, type="table", items=[MediaFile(format="json", data=_table(value))], **at)
    return None


def _file(value: dict[str, Any], directory: Path) -> MediaFile | None:
    inside = str(value.get("file_path", ""))
    path = Path(FOLDER, inside)
    if not confined.inside(inside) or not confined.is_file(directory / path, root=directory):
        return None
    return MediaFile(format=path.suffix.lstrip(".") or "bin", file=str(path), caption=value.get("caption"))


def _table(value: dict[str, Any]) -> dict[str, Any]:
    """Rows of mappings as columns and rows. A cell with an image becomes its file's name."""
    rows = [row for row in value.get("_value") or [] if isinstance(row, dict)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return {"columns": columns, "rows": [[_cell(row.get(column)) for column in columns] for row in rows]}


def _cell(value: Any) -> Any:
    if isinstance(value, dict) and "file_path" in value:
        return value["file_path"]
    return [_cell(item) for item in value] if isinstance(value, list) else value
