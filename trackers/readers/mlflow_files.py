"""The artifacts of an MLflow run as records: texts, pictures, tables, histograms, files.

Our tracker's have the paths that ``trackers/backends/mlflow_files.py`` lists; ``mlflow.log_image`` and ``log_table``
lay theirs out likewise. Everything else becomes one artifact for each entry at the top.
"""

from __future__ import annotations

import json
import posixpath
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trackers.backends.mlflow_names import unmap
from trackers.records import Alert, Artifact, ArtifactFile, Media, MediaFile, Record, Text

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


class RunFiles:
    """The artifacts of one run.

    directory: what files are relative to: the store itself where it is on this machine, else ``files``, or "".
    config, summary, environment, names: what our tracker keeps in files of its own.

    Args:
        files: where to put files of a store elsewhere; None: they aren't fetched.
    """

    def __init__(self, client: Any, run: Any, files: Path | None) -> None:
        self._client, self._run, self._files = client, run, files
        self._local = local_store(run.info.artifact_uri)
        self.directory = str(self._local or files or "")
        self._top = self._list(None)
        names = {path for path, is_folder in self._top if not is_folder}
        known = {name: self._json(name) if name in names else None for name in OWN_FILES}
        self.config: dict[str, Any] | None = known["config.json"]
        self.summary: dict[str, Any] = known["summary.json"] or {}
        self.environment: dict[str, Any] = known["environment.json"] or {}
        self.names: dict[str, str] = known["metric_names.json"] or {}

    def records(self, time: float) -> Iterator[Record]:
        """Everything in the artifacts.

        Args:
            time: for what has none of its own.
        """
        for path, is_folder in self._top:
            if not is_folder:
                if path not in OWN_FILES and path not in self._tables():
                    yield from self._plain(path, [path], time)
            elif path == "text":
                for file, _ in self._list(path):
                    yield from self._text(file, time)
            elif path == "images":
                yield from self._images(time)
            elif path == "artifacts":
                for name, _ in self._list(path):
                    for version, _ in self._list(name):
                        yield from self._artifact(version, time)
            elif path in KINDS:
                for name, _ in self._list(path):
                    yield from self._media(name, KINDS[path], time)
            elif path not in ("tables", "table_images"):
                yield from self._plain(path, [file for file in self._walk(path) if file not in self._tables()], time)
        for path in self._tables():
            yield from self._table(path, time)

    def _images(self, time: float) -> Iterator[Record]:
        files = [file for file, _ in self._list("images")]
        for file in files:
            found = _IMAGE.fullmatch(posixpath.basename(file))
            if found is None or found["ext"] in ("webp", "json"):
                continue
            local = self._fetch(file)
            if local is None:
                continue
            caption = f"{file.removesuffix(found['ext'])}json"
            said = self._json(caption) if caption in files else None
            item = MediaFile(format=found["ext"], file=local, caption=(said or {}).get("caption"))
            name = unmap(found["name"].replace("~", "/").replace("#", "/"))
            yield Media(name=name, type="image", items=[item], step=int(found["step"]), time=int(found["ms"]) / 1000)

    def _media(self, folder: str, kind: str, time: float) -> Iterator[Record]:
        name = _name(folder)
        files = [file for file, _ in self._list(folder)]
        for file in files:
            stem, _, format = posixpath.basename(file).partition(".")
            found = _VERSION.fullmatch(stem)
            if found is None or format == "caption.json":
                continue
            step = int(found[1])
            if kind == "histogram":
                said = self._json(file) or {}
                data = {"counts": said.get("counts", []), "edges": said.get("edges", [])}
                item = MediaFile(format="json", data=data)
                step = said.get("step", step)
            else:
                local = self._fetch(file)
                if local is None:
                    continue
                item = MediaFile(format=format, file=local)
            caption = posixpath.join(folder, f"{stem}.caption.json")
            if caption in files:
                item.caption = (self._json(caption) or {}).get("caption")
            yield Media(name=name, type=kind, items=[item], step=step, time=time)

    def _table(self, path: str, time: float) -> Iterator[Record]:
        said = self._json(path)
        if not isinstance(said, dict) or "columns" not in said:
            return
        found = _VERSION.match(posixpath.basename(path))
        name = _name(posixpath.dirname(path)) if found else path.removesuffix(".json")
        data = {"columns": said["columns"], "rows": said.get("data", [])}
        step = int(found[1]) if found else None
        yield Media(name=name, type="table", items=[MediaFile(format="json", data=data)], step=step, time=time)

    def _text(self, file: str, time: float) -> Iterator[Record]:
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
        there = {file for file in self._walk(folder) if posixpath.basename(file) != "artifact.json"}
        files = []
        for entry in about.get("files", []):
            stored = posixpath.join(folder, *(_mapped(part) for part in _parts(entry["path"])))
            local = self._fetch(stored) if stored in there else None
            files.append(ArtifactFile(path=entry["path"], file=local or "", uri=entry.get("uri", ""),
                                      size=entry.get("size", 0), digest=entry.get("digest", "")))  # fmt: skip
        files = [file for file in files if file.file or file.uri]
        if files or not about.get("files"):
            yield Artifact(
                step=about.get("step"),
                time=time,
                name=about["name"],
                type=about.get("type", "file"),
                files=files,
                aliases=about.get("aliases", []),
                description=about.get("description"),
                metadata=about.get("metadata", {}),
            )

    def _plain(self, name: str, files: list[str], time: float) -> Iterator[Record]:
        """What somebody else keeps with the run."""
        found = []
        for file in files:
            local = self._fetch(file)
            if local is not None:
                inside = posixpath.relpath(file, name) if file != name else posixpath.basename(file)
                found.append(ArtifactFile(path=inside, file=local, size=Path(self.directory, local).stat().st_size))
        if found:
            kind = "model" if any(file.path == "MLmodel" for file in found) else "file"
            yield Artifact(time=time, name=name, type=kind, files=found)

    def _tables(self) -> list[str]:
        try:
            listed = json.loads(self._run.data.tags.get(TABLES_TAG, "[]"))
        except ValueError:
            listed = []
        paths = [entry["path"] for entry in listed if isinstance(entry, dict) and entry.get("type") == "table"]
        if any(path == "tables" for path, _ in self._top):  # the tag has room for the newest only
            paths += [file for file in self._walk("tables") if file not in paths]
        return paths

    def _list(self, folder: str | None) -> list[tuple[str, bool]]:
        if self._local is not None:
            place = self._local / folder if folder else self._local
            if not place.is_dir():
                return []
            return sorted((str(entry.relative_to(self._local)), entry.is_dir()) for entry in place.iterdir())
        return [(entry.path, entry.is_dir) for entry in self._client.list_artifacts(self._run.info.run_id, folder)]

    def _walk(self, folder: str) -> Iterator[str]:
        for path, is_folder in self._list(folder):
            if is_folder:
                yield from self._walk(path)
            else:
                yield path

    def _fetch(self, path: str) -> str | None:
        """The file, relative to ``directory``; None where it would have to be fetched and may not be."""
        if self._local is not None:
            return path
        if self._files is None:
            return None
        # A folder for each: some stores keep the path below it, others the file's name alone.
        folder = self._files / posixpath.dirname(path)
        folder.mkdir(parents=True, exist_ok=True)
        local = self._client.download_artifacts(self._run.info.run_id, path, str(folder))
        return str(Path(local).relative_to(self._files.absolute()))

    def _bytes(self, path: str) -> bytes | None:
        if self._local is not None:
            file = self._local / path
            return file.read_bytes() if file.is_file() else None
        with tempfile.TemporaryDirectory() as place:
            return Path(self._client.download_artifacts(self._run.info.run_id, path, place)).read_bytes()

    def _json(self, path: str) -> Any:
        try:
            return json.loads(self._bytes(path) or b"null")
        except ValueError:
            return None


def _name(path: str) -> str:
    """The logged name of a folder or file that our tracker named after it."""
    return unmap(posixpath.basename(path).replace("~", "/"))


def _mapped(part: str) -> str:
    from trackers.backends.mlflow_names import map_file

    return map_file(part)


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]


def local_store(uri: str) -> Path | None:
    """The folder of an artifact store on this machine's disk."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(uri)
