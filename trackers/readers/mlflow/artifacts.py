"""The artifacts of an MLflow run as records: texts, pictures, tables, histograms, files.

Our tracker's have the paths that ``trackers/backends/mlflow_files.py`` lists; ``mlflow.log_image`` and ``log_table``
lay theirs out likewise. Everything else becomes one artifact for each entry at the top.
"""

from __future__ import annotations

import functools
import inspect
import json
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trackers.errors import NotFound
from trackers.formats.mlflow_names import is_served, local_store, reach, refusal, unmap
from trackers.readers.boundary import TolerantReader
from trackers.readers.helpers import warn
from trackers.readers.mlflow import bounded_http
from trackers.readers.mlflow.translation import translated
from trackers.records import Alert, ArtifactFile, ArtifactRecord, Media, MediaFile, Record, Text
from trackers.support import confined

FOLDERS = 10_000
DEPTH = 64
"""Maximum number and depth of folders that are searched."""

UNSIZED_BYTES = 10_000_000_000
"""A file for which a server gives no size may have so many bytes."""

OWN_FILES = ("config.json", "summary.json", "environment.json", "metric_names.json")
KINDS = {"audio": "audio", "video": "video", "html": "html", "histograms": "histogram"}
TABLES_TAG = "mlflow.loggedArtifacts"
"""mlflow/utils/mlflow_tags.py: a list of {"path", "type": "table"}."""

_IMAGE = re.compile(
    r"(?P<name>.+?)[+%]step[+%](?P<step>-?\d+)[+%]timestamp[+%](?P<ms>\d+)[+%](?P<id>[^+%]+)\.(?P<ext>\w+)"
)
"""mlflow/tracking/client.py log_image: % or +, by version; the small copy beside it is ``+compressed.webp``."""

_VERSION = re.compile(r"step-(\d+)-[0-9a-f]+")
_ALERT = re.compile(r"\[(INFO|WARN|WARNING|ERROR)\] (.*?)(?:: (.*))?", re.DOTALL)


class ArtifactReader:
    """The artifacts of one run.

    directory: what files are relative to: the store itself where it is on this machine, else ``files``, or "".
    config, summary, environment, names: what our tracker keeps in files of its own.

    Args:
        uri: of the tracking server or database.
        files: where to put files of a store elsewhere; None: they aren't fetched.
        say: called with why they can't be read.
    """

    def __init__(
        self, client: Any, run: Any, uri: str, files: Path | None, say: Callable[[str], object] = warn
    ) -> None:
        self._client, self._run, self._files = client, run, files
        self._sizes: dict[str, int | None] = {}
        self._refused = refusal(uri, run.info.artifact_uri, run.info.run_id)
        if not self._refused:
            reach(client, uri, run)
        elif is_served(uri, run.info.artifact_uri):
            say(f"artifacts of the runs in {uri}: {self._refused}")
        else:
            say(f"artifacts of MLflow's run {run.info.run_id}: {self._refused}")
        self._local = None if self._refused else local_store(run.info.artifact_uri)
        self.directory = str(self._local or files or "")
        self._top = self._list(None)
        names = {path for path, is_folder in self._top if not is_folder}
        known = {name: self._json(name) if name in names else None for name in OWN_FILES}
        objects = {name: value if isinstance(value, dict) else {} for name, value in known.items()}
        self.config: dict[str, Any] | None = None if known["config.json"] is None else objects["config.json"]
        self.summary: dict[str, Any] = objects["summary.json"]
        self.environment: dict[str, Any] = objects["environment.json"]
        self.names: dict[str, str] = {name: str(value) for name, value in objects["metric_names.json"].items()}

    def records(self, time: float) -> Iterator[Iterator[Record]]:
        """Everything in the artifacts, each by itself, so that one that is damaged doesn't keep others from being read.

        Args:
            time: for what has none of its own.
        """
        tables = self._tables()
        for path, is_folder in self._top:
            if not is_folder:
                if path not in OWN_FILES and path not in tables:
                    yield self._logged_files(path, [path], time)
            elif path == "text":
                yield from (self._text_records(file, time) for file, _ in self._list(path))
            elif path == "images":
                files = [file for file, _ in self._list(path)]
                yield from (self._image(file, files) for file in sorted(files, key=_logged))
            elif path == "artifacts":
                for name, _ in self._list(path):
                    yield from (self._artifact(version, time) for version, _ in self._list(name))
            elif path in KINDS:
                yield from (self._media(name, KINDS[path], time) for name, _ in self._list(path))
            elif path not in ("tables", "table_images"):
                yield self._logged_files(path, [file for file in self._walk(path) if file not in tables], time)
        yield from (self._table(path, time) for path in tables)

    def _image(self, file: str, files: list[str]) -> Iterator[Record]:
        match = _IMAGE.fullmatch(posixpath.basename(file))
        if match is None or match["ext"] in ("webp", "json"):
            return
        local = self._fetch(file)
        if local is None:
            return
        caption = self._caption(local, f"{file.removesuffix(match['ext'])}json", files)
        item = MediaFile(format=match["ext"], file=local, caption=caption)
        name = unmap(match["name"].replace("~", "/").replace("#", "/"))
        yield Media(name=name, type="image", items=[item], step=int(match["step"]), time=int(match["ms"]) / 1000)

    def _media(self, folder: str, kind: str, time: float) -> Iterator[Record]:
        name = _name(folder)
        files = [file for file, _ in self._list(folder)]
        for file in sorted(files, key=_logged):
            stem, _, format = posixpath.basename(file).partition(".")
            match = _VERSION.fullmatch(stem)
            if match is None or format == "caption.json" or (kind == "histogram" and format != "json"):
                continue
            step = int(match[1])
            if kind == "histogram":
                histogram = self._json(file) or {}
                data = {"counts": histogram.get("counts", []), "edges": histogram.get("edges", [])}
                item = MediaFile(format="json", data=data)
                step = histogram.get("step", step)
            else:
                local = self._fetch(file)
                if local is None:
                    continue
                item = MediaFile(format=format, file=local)
            item.caption = self._caption(item.file, posixpath.join(folder, f"{stem}.caption.json"), files)
            yield Media(name=name, type=kind, items=[item], step=step, time=time)

    def _caption(self, file: str, path: str, files: list[str]) -> str | None:
        """The caption that is stored beside a file."""
        content = self._json(path) if path in files else None
        return content.get("caption") if isinstance(content, dict) else None

    def _table(self, path: str, time: float) -> Iterator[Record]:
        content = self._json(path)
        if not isinstance(content, dict) or "columns" not in content:
            return
        match = _VERSION.match(posixpath.basename(path))
        name = _name(posixpath.dirname(path)) if match else path.removesuffix(".json")
        rows = content.get("data", [])
        if isinstance(rows, list):
            rows = [[self._cell(cell) for cell in row] if isinstance(row, list) else row for row in rows]
        data = {"columns": content["columns"], "rows": rows}
        step = int(match[1]) if match else None
        yield Media(name=name, type="table", items=[MediaFile(format="json", data=data)], step=step, time=time)

    def _cell(self, cell: Any) -> Any:
        """A cell that names a picture as our tables have it; the picture is fetched where files are."""
        path = cell.get("filepath") if isinstance(cell, dict) and cell.get("type") == "image" else None
        if not isinstance(path, str) or not confined.is_inside(path):
            if isinstance(cell, dict):
                return {key: self._cell(item) for key, item in cell.items()}
            return [self._cell(item) for item in cell] if isinstance(cell, list) else cell
        if self._files is not None and self._local is None:
            self._fetch(path)
        return {"_type": "image", "format": path.rpartition(".")[2].lower(), "file": path, "caption": None}

    def _text_records(self, file: str, time: float) -> Iterator[Record]:
        name = _name(re.sub(r"(\.\d+)?\.jsonl$", "", file))
        for line in (self._bytes(file) or b"").splitlines():
            try:
                row = json.loads(line)
                step, at, text = row.get("step"), float(row.get("time", time)), str(row["text"])
            except (ValueError, KeyError, AttributeError, TypeError):
                continue
            alert = _ALERT.fullmatch(text) if name == "alerts" else None
            if alert is not None:
                yield Alert(step=step, time=at, title=alert[2], text=alert[3] or "", level=alert[1])
            else:
                yield Text(step=step, time=at, values={name: text})

    def _artifact(self, folder: str, time: float) -> Iterator[Record]:
        about = self._json(posixpath.join(folder, "artifact.json"))
        if about is None:
            return
        existing = {file for file in self._walk(folder) if posixpath.basename(file) != "artifact.json"}
        files = []
        for entry in about.get("files", []):
            stored = posixpath.join(folder, *(_mapped(part) for part in confined.parts(entry["path"])))
            local = self._fetch(stored) if stored in existing else None
            files.append(ArtifactFile(path=entry["path"], file=local or "", uri=entry.get("uri", ""),
                                      size=entry.get("size", 0), digest=entry.get("digest", "")))  # fmt: skip
        files = [file for file in files if file.file or file.uri]
        if files or not about.get("files"):
            yield ArtifactRecord(
                step=about.get("step"),
                time=time,
                name=about["name"],
                type=about.get("type", "file"),
                files=files,
                aliases=about.get("aliases", []),
                description=about.get("description"),
                metadata=about.get("metadata", {}),
            )

    def _logged_files(self, name: str, files: list[str], time: float) -> Iterator[Record]:
        """Files that another program logged with the run."""
        fetched = []
        for file in files:
            local = self._fetch(file)
            if local is not None:
                relative = posixpath.relpath(file, name) if file != name else posixpath.basename(file)
                fetched.append(ArtifactFile(path=relative, file=local, size=Path(self.directory, local).stat().st_size))
        if fetched:
            kind = "model" if any(file.path == "MLmodel" for file in fetched) else "file"
            yield ArtifactRecord(time=time, name=name, type=kind, files=fetched)

    def _tables(self) -> list[str]:
        try:
            listed = json.loads(self._run.data.tags.get(TABLES_TAG, "[]"))
        except (ValueError, RecursionError):
            listed = []
        known = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        paths = [str(entry.get("path")) for entry in known if entry.get("type") == "table"]
        paths = [path for path in paths if confined.is_inside(path)]
        if any(path == "tables" for path, _ in self._top):  # the tag has room for the newest only
            paths += [file for file in self._walk("tables") if file not in paths]
            folders = {posixpath.dirname(path) for path in paths}
            # Our tracker's newest of a name lies beside the folder of all.
            paths = [path for path in paths if path.removesuffix(".json") not in folders]
            paths.sort(key=_logged)  # stable: what has no step stays where it is, before all others
        return paths

    def _list(self, folder: str | None) -> list[tuple[str, bool]]:
        if self._refused:
            return []
        if self._local is not None:
            directory = self._local / folder if folder else self._local
            if not directory.is_dir():
                return []
            entries = (entry for entry in directory.iterdir() if not entry.is_symlink())
            return sorted((str(entry.relative_to(self._local)), entry.is_dir()) for entry in entries)
        within = folder.rstrip("/") + "/" if folder is not None else ""  # a server's list may name anything
        listed = [entry for entry in self._store.list_artifacts(folder)
                  if confined.is_inside(entry.path) and entry.path.startswith(within)]  # fmt: skip
        self._sizes.update({entry.path: entry.file_size for entry in listed if not entry.is_dir})
        return [(entry.path, entry.is_dir) for entry in listed]

    @functools.cached_property
    def _store(self) -> Any:
        """The store of the run's files.

        The client's own way, by the run's id, takes four requests for each file (the run, its address, the models of
        the same name, the file), and looks for models at whatever server is set for the whole process.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        tracking = self._client.tracking_uri
        plain = "tracking_uri" in inspect.signature(get_artifact_repository).parameters  # else MLflow 2, see reach
        if plain and not tracking.startswith("databricks"):
            return get_artifact_repository(self._run.info.artifact_uri, tracking_uri=tracking)
        return self._client._tracking_client._get_artifact_repo(self._run.info.run_id)

    def _walk(self, folder: str) -> Iterator[str]:
        """The files below a folder.

        Raises:
            ValueError: there are more folders in one another, or more of them, than any run has.
        """
        waiting, count = [folder], 0
        while waiting:
            count += 1
            entries = self._list(waiting.pop(0))
            if count > FOLDERS or any(path.count("/") > DEPTH for path, _ in entries):
                raise ValueError(f"folders without an end in {folder!r}")
            yield from (path for path, is_folder in entries if not is_folder)
            waiting[:0] = [path for path, is_folder in entries if is_folder]

    def _fetch(self, path: str) -> str | None:
        """The file, relative to ``directory``; None where it would have to be fetched and may not be."""
        if self._local is not None:
            return path
        if self._files is None:
            return None
        if folder := posixpath.dirname(path):
            confined.make_folder(self._files / folder, root=self._files)
        size = self._sizes.get(path)
        self._download(path, self._files / path, UNSIZED_BYTES if size is None else size)
        return path

    def _bytes(self, path: str) -> bytes | None:
        if self._local is not None:
            try:
                return confined.read(self._local / path, root=self._local)
            except OSError:
                return None
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary, "file")
            self._download(path, file, bounded_http.ANSWER_BYTES)
            return file.read_bytes()

    def _download(self, path: str, target: Path, most_bytes: int) -> None:
        """Fetch one file. MLflow's ``download_artifacts`` asks first whether it is a folder, and a server that lists
        a folder in itself keeps it going for ever."""
        free = shutil.disk_usage(target.parent).free
        with bounded_http.download(min(most_bytes, free)):
            self._store._download_file(path, str(target))

    def _json(self, path: str) -> Any:
        try:
            return json.loads(self._bytes(path) or b"null")
        except (ValueError, RecursionError):
            return None


class ServedArtifacts(ArtifactReader):
    """Pictures, sounds, videos and pages of a run on a server: see :class:`trackers.readers.reader.ServedMedia`."""

    def __init__(self, client: Any, run: Any, uri: str, files: Path, say: Callable[[str], object] = warn) -> None:
        super().__init__(client, run, uri, files, say)
        self._uri, self._directory = uri, files
        self._captions: dict[str, str] = {}
        self.on_disk = self._local is not None
        self.media: list[Media] = []

    def name(self, tolerant: TolerantReader, time: float) -> None:
        """Fill ``media``.

        Args:
            tolerant: counts what is damaged. time: for what has none of its own.
        """
        for folder in [path for path, is_folder in self._top if is_folder]:
            if folder == "images":
                files = [file for file, _ in self._list(folder)]
                parts = [self._image(file, files) for file in sorted(files, key=_logged)]
            elif folder in KINDS and KINDS[folder] != "histogram":
                parts = [self._media(name, KINDS[folder], time) for name, _ in self._list(folder)]
            else:
                continue
            records = [record for part in parts for record in tolerant.read(part)]
            self.media.extend(record for record in records if isinstance(record, Media))

    def whole(self, record: Media, most_bytes: int) -> Media:
        """See :class:`trackers.readers.reader.ServedMedia`."""
        with translated(self._uri):
            for item in record.items:
                path = self._captions.get(item.file)
                if path is not None:
                    item.caption = super()._caption(item.file, path, [path])
                    del self._captions[item.file]
        return record

    def fetch(self, record: Media, number: int, most_bytes: int) -> None:
        """See :class:`trackers.readers.reader.ServedMedia`."""
        self.fetch_cell(record.items[number].file, most_bytes)

    def fetch_cell(self, path: str, most_bytes: int) -> None:
        """See :class:`trackers.readers.reader.ServedMedia`."""
        if not confined.is_inside(path):
            raise NotFound(f"mlflow: {path!r:.200} is no path inside of the run")
        target = self._directory / path
        if target.is_file():
            return
        size = self._sizes.get(path)
        if size is not None and size > most_bytes:
            raise NotFound(f"mlflow: {path} has {size:,} bytes, more than {most_bytes:,}")
        if folder := posixpath.dirname(path):
            confined.make_folder(self._directory / folder, root=self._directory)
        part = target.with_name(f"{target.name}.part")
        try:
            with translated(self._uri):
                self._download(path, part, most_bytes)
            part.replace(target)
        except bounded_http.TooLong as error:
            raise NotFound(f"mlflow: {path}: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def _fetch(self, path: str) -> str | None:
        return path

    def _caption(self, file: str, path: str, files: list[str]) -> str | None:
        if path in files:
            self._captions[file] = path
        return None


def _logged(path: str) -> tuple[int, int]:
    """The time (ms) and step that a file's name gives it, by which names aren't sorted: ``step-99``, ``step-149``."""
    name = posixpath.basename(path)
    image = _IMAGE.fullmatch(name)
    if image is not None:
        return int(image["ms"]), int(image["step"])
    match = _VERSION.match(name)
    return 0, int(match[1]) if match is not None else -1


def _name(path: str) -> str:
    """The logged name of a folder or file that our tracker named after it."""
    return unmap(posixpath.basename(path).replace("~", "/"))


def _mapped(part: str) -> str:
    from trackers.formats.mlflow_names import map_file

    return map_file(part)
