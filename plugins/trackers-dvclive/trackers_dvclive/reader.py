"""Directories of DVCLive, as its client and this package write them (dvclive 3, ``dvclive/live.py``).

``plots/metrics/<name>.tsv`` is a series: ``step``, the value, and ``timestamp`` in milliseconds where it was asked for;
a series without a step (``plots/system``) is of samples. ``metrics.json`` has the last values: those that have no
series are results. ``params.yaml`` is the configuration, and what lies in ``plots/images`` are pictures. Values without
a time have that of the directory's last change.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import Damaged
from trackers.formats import text_file
from trackers.formats.csv_table import rows as table_rows
from trackers.formats.yaml_text import load_yaml
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, add_note, bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.row_layout import whole
from trackers.records import (
    SUMMARY_PREFIX,
    Config,
    Media,
    MediaFile,
    Metrics,
    Number,
    Record,
    Summary,
    Text,
    flatten,
    unnamed_float,
)
from trackers.support import confined
from trackers_dvclive.layout import item_of

SERIES, TEXTS, IMAGES = ("plots/metrics", "plots/system"), "text", "plots/images"
FOLDERS = (*SERIES, TEXTS, IMAGES)
NAME, OWN_INDEX = "dvclive", ".trackers.jsonl"
DOCUMENTS = ("metrics.json", "params.yaml", "dvc.yaml")
UNASKED = "trackers.json"
"""Results that this package's tracker keeps apart from ``metrics.json``."""
PICTURES = frozenset({"png", "jpg", "jpeg", "gif", "svg"})
DOCUMENT_BYTES = 1 << 26
_CHECKSUM = re.compile(r"~([0-9a-f]{8})$")
"""At the end of a path that can't be its metric's name: of that name (:mod:`trackers.backends.dvclive`)."""


@bounded
class DvcliveReader(Reader):
    """Reads directories of DVCLive."""

    scheme = "dvclive"
    form = 2

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for itself, or for those of runs below it."""
        paths = helpers.find_paths(self.scheme, where, _directories)
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        root = Path(run.directory)
        return helpers.version([*_documents(root), *_below(root, *FOLDERS)])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        root = Path(run.directory)
        if not root.is_dir():
            raise helpers.gone_error(self.scheme, root)
        tolerant = TolerantReader(run, "files", also=(csv.Error,))
        found = {folder: _below(root, folder) for folder in FOLDERS}
        written = _written(root, [path for paths in found.values() for path in paths])
        last = dict(_each(tolerant, "metrics.json", _last_values(root)))
        names = {hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]: name for name in last}
        series = set()
        lost: list[str] = []
        values: dict[tuple[float, int, int | None], dict[str, Number]] = {}
        for folder in SERIES:
            for path in _ending(found[folder], ".tsv"):
                name = _name(path, root / folder, names)
                series.add(name)
                for time, step, value in _each(tolerant, path.name, _points(path, written, lost)):
                    place = 0
                    while name in values.setdefault((time, place, step), {}):  # a step that was logged twice
                        place += 1
                    values[time, place, step][name] = value
        for config in _each(tolerant, "params.yaml", _config(root)):
            yield Config(time=min((time for time, _, _ in values), default=written), values=config)
        for time, place, step in sorted(values, key=lambda key: (key[0], key[1], -1 if key[2] is None else key[2])):
            yield Metrics(step=step, time=time, values=values[time, place, step])
        for path in _ending(found[TEXTS], ".jsonl"):
            yield from _each(tolerant, path.name, _texts(path, _name(path, root / TEXTS, names), written))
        yield from _images(root, found[IMAGES], written)
        results = {name.removeprefix(SUMMARY_PREFIX): value for name, value in last.items()
                   if name not in series and name != "step"}  # fmt: skip
        results |= dict(_each(tolerant, UNASKED, _last_values(root, UNASKED)))
        if results:
            yield Summary(time=written, values=results)
        tolerant.add_note()
        if lost:
            add_note(run, f"{len(lost):,} rows of series are damaged, the first: {lost[0]}")


def _each(tolerant: TolerantReader, name: str, part: Iterator[Any]) -> Iterator[Any]:
    return tolerant.read(part, name)


def _directories(directory: Path) -> list[Path]:
    if _is_run(directory):
        return [directory]
    return [place for pattern in ("*/", "*/*/") for place in sorted(directory.glob(pattern)) if _is_run(place)]


def _is_run(directory: Path) -> bool:
    """A project of DVC has such documents, too: without a series, the directory must be called as DVCLive calls it."""
    if any((directory / folder).is_dir() for folder in SERIES):
        return True
    return directory.name == NAME and any((directory / name).is_file() for name in (*DOCUMENTS, OWN_INDEX))


def _below(root: Path, *folders: str) -> list[Path]:
    """Regular files of folders, none of them behind a link."""
    found = []
    tops = [root / folder for folder in folders]
    left = [str(top) for top in tops if not (top.is_symlink() or top.parent.is_symlink())]
    while left:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            for entry in os.scandir(left.pop()):
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    found.append(entry.path)
    return [Path(path) for path in sorted(found)]


def _ending(paths: Sequence[Path], suffix: str) -> list[Path]:
    return [path for path in paths if path.name.endswith(suffix)]


def _documents(root: Path) -> list[Path]:
    return [root / name for name in (*DOCUMENTS, UNASKED) if (root / name).is_file()]


def _written(root: Path, paths: Sequence[Path]) -> float:
    """When a run's files were last changed. paths: those in its folders."""
    return max((path.stat().st_mtime for path in (*_documents(root), *paths)), default=root.stat().st_mtime)


def _document(root: Path, name: str) -> str:
    """The text of a document; "" where there is none."""
    path = root / name
    if not confined.is_file(path, root=root):
        return ""
    if path.stat().st_size > DOCUMENT_BYTES:
        raise Damaged(f"{path} has more than {DOCUMENT_BYTES:,} bytes")
    return text_file.read_text(path)


def _last_values(root: Path, document: str = "metrics.json") -> Iterator[tuple[str, Any]]:
    text = _document(root, document)
    content = json.loads(text) if text.strip() else {}
    for name, value in flatten(content):
        value = unnamed_float(value)
        if value is not None and not isinstance(value, (list, dict)):
            yield name, value


def _config(root: Path) -> Iterator[dict[str, Any]]:
    text = _document(root, "params.yaml")
    content: Any = {}
    if text.strip():
        try:
            content = json.loads(text)  # as this package writes it, but for NaN
        except ValueError:
            content = load_yaml(text)
    if isinstance(content, dict) and content:
        yield {str(name): value for name, value in content.items()}


def _name(path: Path, folder: Path, names: Mapping[str, str]) -> str:
    """A series' name: its path, or the name whose checksum the path ends in."""
    found = path.relative_to(folder).as_posix().removesuffix(path.suffix)
    match = _CHECKSUM.search(found)
    return found if match is None else names.get(match[1], found)


def _points(path: Path, written: float, lost: list[str]) -> Iterator[tuple[float, int | None, Number]]:
    """Time, step and value of each row. lost: where to note rows that can't be read."""
    last = ""

    def lines(file: Iterable[str]) -> Iterator[str]:
        nonlocal last
        for line in file:
            last = line
            yield line

    with text_file.open_text(path) as file:
        rows = table_rows(lines(file), "\t")
        head = next(rows, [])
        step_at = head.index("step") if "step" in head[:-1] else None
        time_at = head.index("timestamp") if "timestamp" in head[:-1] else None
        for number, row in enumerate(rows, 2):
            ended = last.endswith(("\n", "\r"))
            value, stamp, step = None, None, None
            if len(row) == len(head):
                value = _number(row[-1])
                stamp = None if time_at is None else _number(row[time_at])
                step = None if step_at is None else whole(_number(row[step_at]))
            if value is None or (time_at is not None and stamp is None) or (step_at is not None and step is None):
                lost += [f"{path.name}: row {number} is left out"] * bool(row and (ended or len(row) == len(head)))
                continue  # one of fewer cells, without an end, is being written
            lost += [] if ended else [f"{path.name}: the last value may be cut, its row has no end"]
            yield written if stamp is None else float(stamp) / 1000, step, value


def _number(cell: str) -> Number | None:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(cell)


def _texts(path: Path, name: str, written: float) -> Iterator[Record]:
    with text_file.open_text(path) as file:
        for line in file:
            row = json.loads(line)
            stamp = row.get("timestamp")
            time = stamp / 1000 if isinstance(stamp, (int, float)) else written
            yield Text(step=row.get("step"), time=time, values={name: str(row["text"])})


def _images(root: Path, paths: Sequence[Path], written: float) -> Iterator[Record]:
    for path in paths:
        format = path.suffix.removeprefix(".").lower()
        if format in PICTURES:
            name = path.relative_to(root / IMAGES).as_posix()
            name, at = item_of(name.rpartition("/")[0], path.stem) or (name, None)
            item = MediaFile(format=format, file=path.relative_to(root).as_posix())
            yield Media(name=name, type="image", items=[item], step=at, time=min(path.stat().st_mtime, written))


def _source_run(path: Path) -> SourceRun:
    name = path.parent.name if path.name == NAME else path.name
    created = _written(path, _below(path, *FOLDERS))
    return SourceRun(source=f"dvclive:{path}", id=helpers.identity(path), name=name, created=created,
                     directory=str(path))  # fmt: skip
