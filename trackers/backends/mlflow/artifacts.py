"""Records that MLflow stores as files: texts, pictures, tables, artifacts.

Every file has a path made from the record alone, so that a record that is delivered again overwrites its own file.

    text/<name>.jsonl                                   lines {"step", "time", "text"}; then <name>.2.jsonl, …
    images/<name>+step+<n>+timestamp+<ms>+<id>.png      as log_image has them; MLflow shows them by step
    tables/<name>/step-<n>-<id>.json                    as log_table has them
    tables/<name>.json                                  the newest of a name, which MLflow compares over runs
    histograms|audio|video|html/<name>/step-<n>-<id>…   files of these kinds
    artifacts/<name>/step-<n>-<id>/…                    the files of log_artifact, with artifact.json
    console.log                                         what training printed, sent again when it has grown
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import tempfile
from pathlib import Path
from typing import Any

from trackers.backends.shared import charts, media_files, overlays
from trackers.errors import Rejected
from trackers.formats.mlflow_names import map_file
from trackers.records import ArtifactRecord, Media, MediaFile, Record, name_floats
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo, State

PART_BYTES = 64 * 1024
"""Maximum size of a text file before the next one begins; a file is sent again whenever it grows."""

IMAGES_TAG = "mlflow.loggedImages"
TABLES_TAG = "mlflow.loggedArtifacts"
"""mlflow/utils/mlflow_tags.py: they make MLflow show its image and table views."""


class ArtifactStore:
    """The artifacts of one run.

    Args:
        client: an ``MlflowClient``.
        run_id: MLflow's id of the run.
        refused: why nothing may be written where the server says that its artifacts are; "" if it may.
    """

    def __init__(self, client: Any, run_id: str, info: RunInfo, state: State, refused: str = "") -> None:
        self._refused = refused
        self._client = client
        self._run_id = run_id
        self._info = info
        self._state = state
        self._texts: dict[str, Any] = state.setdefault("texts", {})

    def put(self, path: str, content: bytes) -> None:
        """One artifact, overwritten if it is there.

        Raises:
            Rejected: the store isn't one that may be written.
        """
        self._check()
        folder, name = posixpath.split(path)
        with tempfile.TemporaryDirectory() as directory:
            local = Path(directory, name)
            local.write_bytes(content)
            failpoint("mlflow.file.before")
            self._client.log_artifact(self._run_id, str(local), folder or None)
            failpoint("mlflow.file.after")

    def put_json(self, path: str, value: Any) -> None:
        """One artifact of readable JSON, non-finite numbers by name."""
        text = json.dumps(name_floats(value), indent=2, ensure_ascii=False, default=str)
        self.put(path, text.encode("utf-8", "replace"))

    def text(self, record: Record, name: str, text: str) -> None:
        """Add a line to a text's file; :meth:`send_texts` sends it."""
        part = self._texts.setdefault(name, {"part": 1, "lines": [], "bytes": 0, "seq": 0, "sent": True})
        if record.seq and record.seq <= part["seq"]:
            return  # repeated inside this process
        line = json.dumps({"step": record.step, "time": record.time, "text": text}, ensure_ascii=False)
        if part["bytes"] and part["bytes"] + len(line) > PART_BYTES:
            self._send_text(name, part)
            part.update(part=part["part"] + 1, lines=[], bytes=0)
        part["lines"].append(line)
        part.update(bytes=part["bytes"] + len(line), seq=record.seq, sent=False)

    def send_texts(self) -> None:
        """Send every text file that has grown."""
        for name, part in self._texts.items():
            self._send_text(name, part)

    def _send_text(self, name: str, part: dict[str, Any]) -> None:
        if not part["sent"]:
            number = f".{part['part']}" if part["part"] > 1 else ""
            content = "".join(f"{line}\n" for line in part["lines"])
            self.put(f"text/{map_file(name)}{number}.jsonl", content.encode("utf-8", "replace"))
            part["sent"] = True

    def media(self, record: Media) -> None:
        """All items of a media record, each as a file.

        Raises:
            Rejected: a file is missing or broken.
        """
        for number, item in enumerate(record.items):
            if record.type == "image":
                self._image(record, item, number)
            elif record.type == "table":
                self._table(record, item, number)
            else:
                self._other(record, item, number)

    def _image(self, record: Media, item: MediaFile, number: int) -> None:
        self._draw(record, overlays.drawn(self._info, item), number, item.caption)

    def _draw(self, record: Media, image: Any, number: int, caption: str | None) -> None:
        """A picture, and the small one that MLflow's page shows, which has its caption beneath it."""
        picture = _drawable(image)
        name = map_file(record.name if len(record.items) == 1 else f"{record.name}/{number}")
        milliseconds = round(record.time * 1000)
        stem = f"images/{name}+step+{record.step or 0}+timestamp+{milliseconds}+{_digest(record, number)}"
        self.put(f"{stem}.png", _encoded(picture, "PNG"))
        shown = _small(picture)
        self.put(f"{stem}+compressed.webp", _encoded(overlays.captioned(shown, caption or ""), "WEBP"))
        self._tag(IMAGES_TAG, "True")
        if caption:
            self.put_json(f"{stem}.json", {"caption": caption})

    def _table(self, record: Media, item: MediaFile, number: int) -> None:
        columns, rows = media_files.table(self._info, item)
        drawn = charts.picture(self._info, item)
        if drawn is not None:
            from PIL import Image

            self._draw(record, Image.open(io.BytesIO(drawn)), number, None)
        path = f"tables/{map_file(record.name)}/{_version(record, number)}.json"
        rows = [(row + [None] * len(columns))[: len(columns)] for row in rows]  # as wide as pandas wants them
        data = [
            [self._cell(record, cell, f"{number}:{y}:{x}") for x, cell in enumerate(row)] for y, row in enumerate(rows)
        ]
        table = {"columns": columns, "data": data}
        self.put_json(path, table)
        shown = f"tables/{map_file(record.name if number == 0 else f'{record.name}-{number}')}.json"
        self.put_json(shown, table)
        tables = self._state.setdefault("tables", [])
        if shown not in tables:
            tables.append(shown)
        # Text of at most 8,000 characters: the newest that fit.
        listed = [{"path": table_path, "type": "table"} for table_path in tables]
        while len(json.dumps(listed)) > 8000:
            del listed[0]
        self._tag(TABLES_TAG, json.dumps(listed))

    def _cell(self, record: Media, value: Any, position: str) -> Any:
        """A cell of a table; a picture becomes files, which MLflow's table view shows where it is a whole cell."""
        media = media_files.cell(value)
        if media is None or isinstance(value, list):
            return media_files.each(value, lambda item, place: self._cell(record, item, f"{position}:{place}"))
        if media[0] != "image":
            return value
        stem = f"table_images/{map_file(record.name)}/{_digest(record, position)}"
        picture = _drawable(media_files.image(self._info, media[1][0]))
        self.put(f"{stem}.png", _encoded(picture, "PNG"))
        self.put(f"{stem}.webp", _encoded(_small(picture), "WEBP"))
        return {"type": "image", "filepath": f"{stem}.png", "compressed_filepath": f"{stem}.webp"}

    def _other(self, record: Media, item: MediaFile, number: int) -> None:
        stem = f"{map_file(record.type)}/{map_file(record.name)}/{_version(record, number)}"
        if record.type == "histogram":
            counts, edges = media_files.histogram(self._info, item)
            stem = stem.replace("histogram/", "histograms/", 1)
            self.put_json(f"{stem}.json", {"step": record.step, "counts": counts, "edges": edges})
            self.put(f"{stem}.png", charts.histogram(counts, edges, f"{record.name}, step {record.step}"))
        elif record.type == "audio" and item.format == "npy":
            self.put(f"{stem}.wav", media_files.wav(self._info, item))
        elif record.type == "video" and item.format == "npy":
            self.put(f"{stem}.gif", media_files.gif(self._info, item))
        elif item.file:
            self.put(f"{stem}.{map_file(item.format)}", media_files.content(self._info, item))
        elif isinstance(item.data, str):
            self.put(f"{stem}.{map_file(item.format)}", item.data.encode("utf-8", "replace"))
        else:
            self.put_json(f"{stem}.json", item.data)
        if item.caption:
            self.put_json(f"{stem}.caption.json", {"caption": item.caption})

    def artifact(self, record: ArtifactRecord) -> str:
        """The files of an artifact, and a description of it; the folder that they lie in.

        Raises:
            Rejected: a file is gone.
        """
        folder = f"artifacts/{map_file(record.name)}/{_version(record, 0)}"
        for file in record.files:
            parts = confined.parts(file.path)
            if not parts:
                raise Rejected(f"artifact {record.name!r} has a file without a name")
            if not file.file:
                continue
            local = media_files.path(self._info, file)
            inside = posixpath.join(folder, *(map_file(part) for part in parts))
            self.put_file(inside, local)
        about = {
            "name": record.name,
            "type": record.type,
            "version": record.version,
            "aliases": record.aliases,
            "description": record.description,
            "metadata": record.metadata,
            "step": record.step,
            "files": [{"path": f.path, "uri": f.uri, "size": f.size, "digest": f.digest} for f in record.files],
        }
        self.put_json(f"{folder}/artifact.json", about)
        return folder

    def put_model(self, model_id: str, folder: str) -> None:
        """What a logged model says of its files, which lie in the run."""
        with tempfile.TemporaryDirectory() as directory:
            about = Path(directory, "artifact.json")
            about.write_text(json.dumps({"files": f"runs:/{self._run_id}/{folder}"}, indent=2))
            self._client.log_model_artifact(model_id, str(about))

    def put_file(self, path: str, local: Path) -> None:
        """A file under another name than its own, without copying it where links can be made."""
        self._check()
        folder, name = posixpath.split(path)
        with tempfile.TemporaryDirectory() as directory:
            link = Path(directory, name)
            link.symlink_to(local.resolve())  # log_artifact takes the name from the path
            self._client.log_artifact(self._run_id, str(link), folder or None)

    def _check(self) -> None:
        if self._refused:
            raise Rejected(self._refused)

    def _tag(self, key: str, value: str) -> None:
        self._client.set_tag(self._run_id, key, value)


def _digest(record: Record, position: int | str) -> str:
    return hashlib.sha256(f"{record.id}:{position}".encode()).hexdigest()[:16]


def _version(record: Record, number: int) -> str:
    """What tells the values of one name apart: step and record."""
    return f"step-{record.step or 0}-{_digest(record, number)}"


def _drawable(picture: Any) -> Any:
    return picture if picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else picture.convert("RGB")


def _small(picture: Any) -> Any:
    """The copy that MLflow's grid shows (mlflow/tracking/client.py log_image)."""
    small = picture.convert("RGBA" if "A" in picture.mode else "RGB")
    small.thumbnail((256, 256))
    return small


def _encoded(picture: Any, kind: str) -> bytes:
    out = io.BytesIO()
    picture.save(out, format=kind)
    return out.getvalue()
