"""Media in artifacts, laid out as W&B's client does, whose ``get`` gives them back, too: the content below ``media``,
and under the value's name a file of JSON that describes it."""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import Damaged
from trackers.formats import pixels
from trackers.media import Audio, Html, Image, MediaStore, Molecule, Object3D, Table, Video
from trackers.media.base import MediaValue
from trackers.media.table import LOG_MODES, JoinedTable, PartitionedTable
from trackers.records import ArtifactFile, MediaFile
from trackers.support.interruption import pass_on, suppress
from trackers.values import column_types

KINDS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "image": ("image-file", "images", Image),
    "audio": ("audio-file", "audio", Audio),
    "video": ("video-file", "videos", Video),
    "html": ("html-file", "html", Html),
    "object3d": ("object3D-file", "object3D", Object3D),
    "molecule": ("molecule-file", "molecule", Molecule),
    "table": ("table", "tables", Table),
}
"""By type: the word that W&B's client has for it, the folder below ``media``, and the class."""


def path_of(name: str, kind: str) -> str:
    """The name of the file that describes a value of a type."""
    suffix = f".{KINDS[kind][0] if kind in KINDS else kind}.json"
    return name if name.endswith(suffix) else name + suffix


def files(name: str, value: MediaValue, store: MediaStore) -> list[ArtifactFile]:
    """A value's files in an artifact; their content is put into the run's store.

    Raises:
        ValueError, OSError: as :meth:`trackers.media.base.MediaValue.items`.
    """
    made: dict[str, ArtifactFile] = {}
    with tempfile.TemporaryDirectory(prefix="trackers-artifact-") as folder:  # pixels, of which a picture is kept
        _add_files(made, name, value, store, type(store)(Path(folder), store.max_bytes))
    return list(made.values())


def _add_files(
    made: dict[str, ArtifactFile], name: str, value: MediaValue, kept: MediaStore, store: MediaStore
) -> None:
    def keep(path: str, content: bytes) -> str:
        file = kept.put(content, path.rpartition(".")[2])
        made[path] = ArtifactFile(path=path, file=file, size=len(content))
        return path

    if isinstance(value, (Table, JoinedTable)):
        columns, rows = value.cells(store)
        data = [[_cell(cell, store, keep) for cell in row] for row in rows]
        described = {"_type": "table", "columns": columns, "data": data, "ncols": len(columns), "nrows": len(data)}
        words = {kind: word for kind, (word, *_) in KINDS.items()}
        described["column_types"] = column_types.of_columns(columns, rows, words)
        described["log_mode"] = getattr(value, "log_mode", "IMMUTABLE")
        if described["log_mode"] == "INCREMENTAL":
            described |= {"increment_num": 0, "previous_increments_paths": []}
    elif isinstance(value, PartitionedTable):
        described = {"_type": value.type, "parts_path": value.parts_path}
    else:
        (item,) = value.items(store)
        described = _described(value.type, item, store, keep)
    keep(path_of(name, value.type), json.dumps(described, sort_keys=True).encode())


def _described(kind: str, item: MediaFile, store: MediaStore, keep: Callable[[str, bytes], str]) -> dict[str, Any]:
    """What the file under a value's name says; the content is kept."""
    if kind not in KINDS:
        return dict(item.data or json.loads((store.directory / item.file).read_bytes()))
    word, folder, _ = KINDS[kind]
    content, suffix = _content(kind, item, store)
    digest = hashlib.sha256(content).hexdigest()
    path = keep(f"media/{folder}/{digest[:20]}.{suffix}", content)
    about: dict[str, Any] = {"_type": word, "path": path, "sha256": digest, "caption": item.caption}
    if kind == "image":
        about |= {"format": suffix, "width": item.width, "height": item.height, **_annotations(item, store, keep)}
    return {key: known for key, known in about.items() if known is not None or (kind, key) == ("audio", "caption")}


def _content(kind: str, item: MediaFile, store: MediaStore) -> tuple[bytes, str]:
    """A file that programs open: pixels as a picture, frames as an animation; where Pillow isn't, as they are."""
    content = (store.directory / item.file).read_bytes()
    if item.format == "npy" and kind in ("image", "video"):
        with suppress(ImportError):
            return (pixels.array_as_png(content), "png") if kind == "image" else (
                pixels.array_as_gif(content, item.fps), "gif")  # fmt: skip
    return content, item.format


def _annotations(item: MediaFile, store: MediaStore, keep: Callable[[str, bytes], str]) -> dict[str, Any]:
    meta, names = item.meta, {}
    for layer in (*meta.get("boxes", {}).values(), *meta.get("masks", {}).values()):
        names.update({int(number): name for number, name in (layer.get("class_labels") or {}).items()})
    found: dict[str, Any] = {"grouping": meta.get("grouping")}
    classes = meta.get("classes") or [{"id": number, "name": name} for number, name in sorted(names.items())]
    if classes:
        content = json.dumps({"_type": "classes", "class_set": classes}, sort_keys=True).encode()
        md5 = hashlib.md5(content, usedforsecurity=False)
        path = keep(f"media/classes/{md5.hexdigest()}_cls.classes.json", content)
        digest = base64.b64encode(md5.digest()).decode("ascii")
        found["classes"] = {"type": "classes-file", "path": path, "digest": digest}
    if meta.get("boxes"):
        found["boxes"] = {name: layer.get("box_data", []) for name, layer in meta["boxes"].items()}
    for name, layer in meta.get("masks", {}).items():
        if isinstance(stored := layer.get("mask_data"), dict):
            content, suffix = _content("image", MediaFile(format="npy", file=stored["file"]), store)
            digest = hashlib.sha256(content).hexdigest()
            path = keep(f"media/images/mask/{digest[:20]}.mask.{suffix}", content)
            found.setdefault("masks", {})[name] = {"_type": "mask", "path": path, "sha256": digest}
    return found


def _cell(cell: Any, store: MediaStore, keep: Callable[[str, bytes], str]) -> Any:
    if isinstance(cell, list):
        return [_cell(item, store, keep) for item in cell]
    if isinstance(cell, dict) and cell.get("_type") in KINDS and cell.get("file"):
        fields = {key: value for key, value in cell.items() if key != "_type"}
        return _described(cell["_type"], msgspec.convert(fields, MediaFile), store, keep)
    return cell


def names(name: str) -> Iterator[str]:
    """The files that may describe the value of a name."""
    yield from (path_of(name, kind) for kind in (*KINDS, PartitionedTable.type))


def value(
    content: bytes, where: str, file_of: Callable[[str], str], below: Callable[[str], list[Callable[[], Any]]]
) -> Any:
    """The value that a file describes.

    Args:
        file_of: the path of another file of the artifact, by its name there.
        below: what reads each of the tables below a directory of the artifact.

    Raises:
        Damaged: it describes none. NotFound: as of ``file_of``.
    """
    try:
        described = json.loads(content)
        if described.get("_type") == PartitionedTable.type:
            return PartitionedTable(described["parts_path"]).of(below(described["parts_path"]))
        return _value(described, file_of)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        pass_on(error)
        raise Damaged(f"{where} describes no media") from None


def _value(described: Mapping[str, Any], file_of: Callable[[str], str]) -> Any:
    kind = next((kind for kind, (word, *_) in KINDS.items() if word == described.get("_type")), "table")
    if kind == "table":
        cells = [[_cell_value(cell, file_of) for cell in row] for row in described["data"]]
        mode = described.get("log_mode")
        return Table(list(described["columns"]), cells, log_mode=mode if mode in LOG_MODES else LOG_MODES[0])
    file = file_of(described["path"])
    if kind == "html":
        with open(file, encoding="utf-8") as page:
            return Html(page.read(), inject=False, data_is_not_path=True)
    more = {"caption": described.get("caption")}
    return KINDS[kind][2](file, **more, **(_layers(described, file_of) if kind == "image" else {}))


def _layers(described: Mapping[str, Any], file_of: Callable[[str], str]) -> dict[str, Any]:
    classes: list[dict[str, Any]] = []
    if described.get("classes"):
        with open(file_of(described["classes"]["path"]), "rb") as file:
            classes = json.load(file)["class_set"]
    labels = {"class_labels": {one["id"]: one["name"] for one in classes}} if classes else {}
    boxes = {name: {"box_data": data, **labels} for name, data in described.get("boxes", {}).items()}
    masks = {name: {"path": file_of(mask["path"]), **labels} for name, mask in described.get("masks", {}).items()}
    return {"grouping": described.get("grouping"), "classes": classes or None, "boxes": boxes, "masks": masks}


def _cell_value(cell: Any, file_of: Callable[[str], str]) -> Any:
    if isinstance(cell, list):
        return [_cell_value(item, file_of) for item in cell]
    if isinstance(cell, dict) and "path" in cell and any(word == cell.get("_type") for word, *_ in KINDS.values()):
        return _value(cell, file_of)
    return cell
