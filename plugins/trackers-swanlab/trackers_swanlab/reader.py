"""SwanLab's runs on disk: what its client wrote offline (0.8 and later), and this package's tracker.

A source is a run's directory, its ``.swanlab`` file, or a directory of runs (``swanlog``). Values of the machine, which
SwanLab calls ``__swanlab__.cpu.pct``, have no step and are ``system.cpu.pct``. What SwanLab's client copied of the
terminal isn't read. Files are read where they lie, below the run's directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import Damaged
from trackers.formats import leveldb_log, vendor_system_names
from trackers.formats.yaml_text import load_yaml
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, add_note, bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    SUMMARY_PREFIX,
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Define,
    Environment,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.support import confined
from trackers_swanlab import run_files as form

TAIL_BYTES = 1 << 20
"""How much of a file's end is looked at for how the run ended."""
TABLE, RAW = "_swanLab", "trackers"
"""Fields of charts: that of SwanLab's tables, and that of this package's histograms."""
OWN = "trackers/"
ARTIFACTS, ENVIRONMENT, UNASKED = f"{OWN}artifacts/", f"{OWN}environment", f"{OWN}results"
STATUSES = {form.FINISHED: "finished", form.CRASHED: "failed", form.ABORTED: "crashed"}
"""An exception in the script, and an interrupt (swanlab/sdk/internal/run); what ours wrote says it in words."""
_END = re.compile(r"(failed|crashed|preempted|stopped)(?: \(exit code (-?\d{1,9})\))?(?:: (.*))?", re.DOTALL)
_ALERT = re.compile(r"(INFO|WARN|ERROR): (.*?)(?:: (.*))?", re.DOTALL)


@bounded
class SwanlabReader(Reader):
    """Reads SwanLab's directories."""

    scheme = "swanlab"

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for the runs in it."""
        paths = helpers.find_paths(self.scheme, where, lambda directory: sorted(directory.rglob(f"run-*{form.SUFFIX}")))
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        path = Path(run.native["path"])
        return helpers.version([path, *path.parent.glob("files/config.yaml")])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        path = Path(run.native["path"])
        if not path.is_file():
            raise helpers.gone_error(self.scheme, path)
        yield from _Reading(run, path).records()


class _Reading:
    """One reading of one run."""

    def __init__(self, run: SourceRun, path: Path) -> None:
        self._run, self._path, self._directory = run, path, path.parent
        run.directory = str(self._directory)
        self._columns: dict[str, int] = {}
        self._results: dict[str, Any] = {}
        self._row: Metrics | None = None
        self._stamp: tuple[int | None, float] = (None, 0.0)
        self._end: Finish | None = None
        self._time = run.created

    def records(self) -> Iterator[Record]:
        tolerant = TolerantReader(self._run)
        yield Start(time=self._run.created, rank=0)
        yield from tolerant.read(self._config(), "files/config.yaml")
        damage = leveldb_log.Damage()
        for content, _ in leveldb_log.scan(self._path, form.MAGIC, form.SUFFIX, damage=damage):
            yield from tolerant.read(self._record(content))
        yield from self._whole_row()
        tolerant.add_note()
        for note in damage.notes(self._path, self._run.status == "running"):
            add_note(self._run, note)
        if self._results:
            yield Summary(time=self._time, values=self._results)
        if self._end is not None:
            yield self._end

    def _record(self, content: bytes) -> Iterator[Record]:
        record = form.decode(content)
        mark = record.get("mark", 0)
        if "scalar" in record:
            yield from self._scalar(record["scalar"], mark)
            return
        if "column" in record:  # before a name's first value, in the midst of a row
            yield from self._column(record["column"], mark)
            return
        yield from self._whole_row()
        if "media" in record:
            yield from self._media(record["media"], mark)
        elif "log" in record and mark:
            log = record["log"]
            match = _ALERT.fullmatch(log.get("line", ""))
            if match:
                yield Alert(
                    time=form.unix(log.get("timestamp")), level=match[1], title=match[2] or "", text=match[3] or ""
                )
        elif "save" in record and record["save"].get("type", form.SAVE_CUSTOM) == form.SAVE_CUSTOM and not mark:
            yield from self._saved_file(record["save"], form.unix(record.get("timestamp")))
        elif "finish" in record:
            self._end = _finish(record["finish"])

    def _scalar(self, item: dict[str, Any], mark: int) -> Iterator[Record]:
        key, value = item["key"], item.get("value", {}).get("number", 0.0)
        time = self._time = form.unix(item.get("timestamp"))
        if mark and key.startswith(SUMMARY_PREFIX):
            self._results[key] = value
            return
        machine = key.startswith(form.SYSTEM_PREFIX)
        step = None if machine or mark == form.NO_STEP else item.get("step", 0)
        ours = vendor_system_names.ungrouped(key.removeprefix(form.SYSTEM_PREFIX))
        name = ours if machine else self._name(key, form.SCALAR, mark)
        if self._row is not None and ((step, time) != self._stamp or name in self._row.values):
            yield from self._whole_row()
        if self._row is None:
            self._row, self._stamp = Metrics(step=step, time=time, values={}), (step, time)
        self._row.values[name] = value

    def _whole_row(self) -> Iterator[Record]:
        if self._row is not None:
            row, self._row = self._row, None
            yield row

    def _column(self, column: dict[str, Any], mark: int) -> Iterator[Record]:
        key, kind = column["column_key"], column.get("column_type", 0)
        self._columns[key] = kind
        axis = column.get("x_axis", "")
        if (axis and not axis.startswith("_")) or column.get("hidden"):
            named = (form.logged_name(axis) if mark else axis) or None
            name = self._name(key, kind, mark)
            yield Define(time=self._time, name=name, step_metric=named, hidden=bool(column.get("hidden")))

    def _name(self, key: str, kind: int, mark: int) -> str:
        """A column's name as it was logged: of two kinds under one name ours puts the second one's behind it."""
        if not mark:
            return key
        base, slash, last = key.rpartition("/")
        word = "scalar" if kind == form.SCALAR else form.FOLDERS.get(kind, "")
        if slash and last == word and self._columns.get(base, kind) != kind:
            key = base
        return form.logged_name(key)

    def _media(self, item: dict[str, Any], mark: int) -> Iterator[Record]:
        kind, key = item.get("type", 0), item["key"]
        step = None if mark == form.NO_STEP else item.get("step", 0)
        time = self._time = form.unix(item.get("timestamp"))
        name = self._name(key, kind, mark)
        files = item.get("value", {}).get("items", [])
        if kind == form.TEXT:
            for file in files:
                content = self._content(kind, file).decode("utf-8", "replace")
                yield from self._text_records(name, content, step, time, mark)
        elif kind == form.ECHARTS:
            for file in files:
                chart = self._content(kind, file)
                yield _chart(name, json.loads(chart), chart, file.get("caption"), step, time)
        elif kind in _TYPES:
            items = [self._file(kind, file) for file in files]
            gif = kind == form.IMAGE and bool(items) and all(image.format == "gif" for image in items)
            yield Media(name=name, type="video" if gif else _TYPES[kind], items=items, step=step, time=time)

    def _text_records(self, name: str, content: str, step: int | None, time: float, mark: int) -> Iterator[Record]:
        if mark and name.startswith(SUMMARY_PREFIX):
            self._results[name] = content
        elif mark and name == UNASKED:
            self._results |= json.loads(content)
        elif mark and name == ENVIRONMENT:
            yield Environment(time=time, values=json.loads(content))
        elif mark and name.startswith(ARTIFACTS):
            yield self._artifact(json.loads(content), time)
        else:
            yield Text(step=step, time=time, values={name: content})

    def _artifact(self, values: dict[str, Any], time: float) -> ArtifactRecord:
        """An artifact as the tracker described it; its files where the tracker left them."""
        folder = str(values.pop("folder", ""))
        record = msgspec.convert({**values, "kind": "artifact", "time": time}, ArtifactRecord)
        for file in record.files:
            parts = confined.parts(file.path)
            path = self._directory.joinpath("files", folder, *parts)
            if confined.is_plain_name(folder) and parts and confined.is_file(path, root=self._directory):
                file.file = path.relative_to(self._directory).as_posix()
            else:
                file.file = ""
        return record

    def _saved_file(self, save: dict[str, Any], time: float) -> Iterator[Record]:
        """What a script gave ``swanlab.save``, where its client kept it."""
        name = save.get("name", "")
        path = self._directory / "files" / name
        if name and confined.is_inside(name) and confined.is_file(path, root=self._directory):
            file = ArtifactFile(path=name, file=path.relative_to(self._directory).as_posix(), size=path.stat().st_size)
            yield ArtifactRecord(name=name, files=[file], time=time)

    def _file(self, kind: int, file: dict[str, Any]) -> MediaFile:
        path = self._file_path(kind, file)
        if not confined.is_file(path, root=self._directory):
            raise ValueError(f"no file {path}")
        named = path.relative_to(self._directory).as_posix()
        return MediaFile(format=path.suffix[1:].lower(), file=named, caption=file.get("caption") or None)

    def _content(self, kind: int, file: dict[str, Any]) -> bytes:
        return confined.read(self._file_path(kind, file), root=self._directory)

    def _file_path(self, kind: int, file: dict[str, Any]) -> Path:
        name = str(file.get("filename", ""))
        if not confined.is_plain_name(name):
            raise ValueError(f"a file called {name[:100]!r}")
        return self._directory / "media" / form.FOLDERS[kind] / name

    def _config(self) -> Iterator[Record]:
        path = self._directory / "files/config.yaml"
        if not confined.is_file(path, root=self._directory):
            return
        text = confined.read(path, root=self._directory).decode("utf-8", "replace")
        try:
            rows = json.loads(text)
        except ValueError:
            rows = _yaml(text)
        values = {key: entry["value"] if isinstance(entry, dict) else entry for key, entry in (rows or {}).items()}
        if values:
            yield Config(time=self._run.created, values=values)


_TYPES = {form.IMAGE: "image", form.AUDIO: "audio", form.VIDEO: "video", form.HTML: "html"}


def _chart(name: str, chart: Any, content: bytes, caption: str | None, step: int | None, time: float) -> Record:
    """A table of SwanLab's, a histogram of ours, or any other chart as its text."""
    if isinstance(chart, dict) and chart.get(TABLE) == "table":
        columns = [str(column["field"]) for column in chart["colDefs"]]
        rows = [[row.get(column) for column in columns] for row in chart["rowData"]]
        item = MediaFile(format="json", data={"columns": columns, "rows": rows}, caption=caption or None)
        return Media(name=name, type="table", items=[item], step=step, time=time)
    if isinstance(chart, dict) and RAW in chart:
        item = MediaFile(format="json", data=chart[RAW], caption=caption or None)
        return Media(name=name, type="histogram", items=[item], step=step, time=time)
    return Text(step=step, time=time, values={name: content.decode("utf-8", "replace")})


def _finish(finish: dict[str, Any]) -> Finish | None:
    state, time = finish.get("state", 0), form.unix(finish.get("finished_at"))
    match = _END.fullmatch(finish.get("error", ""))
    if match:
        code = int(match[2]) if match[2] else None
        return Finish(time=time, status=match[1], exit_code=code, reason=match[3] or "")
    if state not in STATUSES:
        return None
    code = 0 if state == form.FINISHED else 1 if state == form.CRASHED else None
    return Finish(time=time, status=STATUSES[state], exit_code=code, reason=finish.get("error", ""))


def _yaml(text: str) -> Any:
    """YAML as SwanLab's client writes it.

    Raises:
        ValueError: it is something else, or PyYAML isn't installed.
    """
    try:
        return load_yaml(text)
    except ImportError:
        raise ValueError("it is YAML: pip install pyyaml") from None


def _source_run(path: Path) -> SourceRun:
    first = next((form.decode(content) for content, _ in leveldb_log.scan(path, form.MAGIC, form.SUFFIX)), {})
    if "start" not in first:
        raise Damaged(f"swanlab: {path} has no beginning")
    start = first["start"]
    run = SourceRun(
        source=f"swanlab:{path}",
        id=start.get("id") or path.stem.removeprefix("run-"),
        name=start.get("name") or path.stem,
        project=start.get("project", ""),
        group=start.get("group") or None,
        tags=start.get("tags", []),
        notes=start.get("description") or None,
        created=form.unix(start.get("started_at") or first.get("timestamp")),
        status="running",
        directory=str(path.parent),
        native={"path": str(path)},
    )
    block = max(0, path.stat().st_size - TAIL_BYTES) // leveldb_log.BLOCK_BYTES
    for content, _ in leveldb_log.scan(path, form.MAGIC, form.SUFFIX, block, leveldb_log.Damage()):
        if content.startswith(_FINISH_NUM):
            end = _finish(form.decode(content).get("finish", {}))
            run.status = end.status if end is not None else run.status
    return run


_FINISH_NUM = form.encode({"num": form.FINISH_NUM})
"""How the record of a run's end begins."""
