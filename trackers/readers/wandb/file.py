"""``.wandb`` files and W&B's offline directories, without a server or an account.

One run may lie in several files, when it was resumed: they are read one after the other. A file that is still
written, or whose writer was killed, is read as far as it is whole; damaged records are left out.
A run whose end isn't recorded is running while somebody writes the file, and crashed, at its last record's time, once
nobody does: no process of the machine that wrote it has it open, or it got no record for :data:`SILENT_S`.
Artifacts that were staged beside them are read, too.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from trackers.errors import NotFound, examples
from trackers.formats import wandb_datastore
from trackers.formats.leveldb_log import Damage
from trackers.formats.terminal_text import TerminalLine, TerminalText
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, add_note, bounded
from trackers.readers.reader import PAUSES, REPEATED, Reader, SourceRun
from trackers.readers.wandb import rows
from trackers.readers.wandb.fetch import FOLDER, INTERNAL, artifact_record
from trackers.readers.wandb.rows import Decoder
from trackers.records import (
    ArtifactFile,
    ArtifactRecord,
    Config,
    Console,
    Environment,
    Finish,
    Info,
    Media,
    Record,
    Start,
    merge,
    name_floats,
)
from trackers.support import confined, machines, processes
from trackers.support.redaction import LineMask

SHOWN = 3


class StagedArtifacts:
    """The artifacts of one reading.

    Args:
        directory: where their files are put; None: they are listed only. near: where relative paths may begin: the
            directories around the run's.

    ``missing``: files that aren't there, as ``artifact/path``.
    """

    def __init__(self, directory: Path | None, near: list[Path]) -> None:
        self._directory = directory
        self._search_roots = near
        self._seen: set[tuple[str, str]] = set()
        self.missing: list[str] = []

    def artifact(self, logged: Any, time: float) -> Iterator[ArtifactRecord]:
        """The artifact of an ``ArtifactRecord``; none where it is W&B's own, or came before."""
        if logged.type in INTERNAL or (logged.name, logged.digest) in self._seen:
            return
        self._seen.add((logged.name, logged.digest))
        metadata = dict(json.loads(logged.metadata or "{}"))
        name = str(metadata.pop("name", "") or logged.name)
        folder = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', logged.name)}-{len(self._seen)}"
        files = []
        for entry in sorted(_entries(logged.manifest), key=lambda entry: str(entry["path"])):
            path, size = str(entry["path"]), int(entry.get("size") or 0)
            if entry.get("ref"):
                files.append(ArtifactFile(path=path, uri=str(entry["ref"]), size=size))
            elif self._directory is None:
                files.append(ArtifactFile(path=path, size=size))
            elif self._stage(entry, self._directory / folder):
                files.append(ArtifactFile(path=path, file=f"{folder}/{path}", size=size))
            else:
                self.missing.append(f"{name}/{path}")
        yield artifact_record(logged, time, name, files, metadata)

    @property
    def note(self) -> str:
        """What is missing, in one line; "" if nothing."""
        if not self.missing:
            return ""
        shown = ", ".join(self.missing[:SHOWN]) + (", …" if len(self.missing) > SHOWN else "")
        what = "1 file isn't" if len(self.missing) == 1 else f"{len(self.missing):,} files aren't"
        return (
            f"artifacts: {what} on this machine as logged ({shown}): "
            "read the run where it was written, or `wandb sync` it there and read it from the server"
        )

    def _stage(self, entry: dict[str, Any], folder: Path) -> bool:
        path = str(entry["path"])
        if not confined.is_inside(path):
            return False
        target = folder / path
        for source in self._candidates(str(entry.get("local_path") or "")):
            if os.path.isfile(source) and _copied(source, target, entry.get("digest"), int(entry.get("size") or 0)):
                return True
        return False

    def _candidates(self, local: str) -> Iterator[Path]:
        if not local:
            return
        if os.path.isabs(local):
            yield Path(local)
        else:
            yield from (directory / local for directory in self._search_roots)


def _entries(manifest: Any) -> list[dict[str, Any]]:
    """The files of a manifest; one of more than 100,000 lies in a file of its own, where W&B's client puts those.

    Whoever wrote the run may have named any other file of the reader's, too, or a pipe.
    """
    if not manifest.manifest_file_path:
        names = ("path", "digest", "ref", "size", "local_path")
        return [{name: getattr(entry, name) for name in names} for entry in manifest.contents]
    from wandb.env import get_data_dir

    place = Path(os.path.abspath(Path(get_data_dir(), "artifacts/staging/artifact_manifests").expanduser()))
    try:
        with (
            confined.open_file(manifest.manifest_file_path, root=place) as packed,
            gzip.open(packed, "rt", encoding="utf-8") as lines,
        ):
            return [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError):
        return [{"path": manifest.manifest_file_path}]


def _copied(source: Path, target: Path, digest: object, size: int) -> bool:
    """Copy a file that has this digest, and this size unless it is 0; the very file that was hashed, whatever takes its
    name meanwhile. No other file is read, and of none more than its length."""
    hashed = hashlib.md5(usedforsecurity=False)
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # of another account, or a socket
        return False
    with open(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if helpers.is_hollow(source) or not stat.S_ISREG(status.st_mode) or size not in (0, status.st_size):
            return False

        def blocks() -> Iterator[bytes]:  # of /proc a file has no length, and may have no end
            return iter(lambda: file.read(min(1 << 20, status.st_size - file.tell())), b"")

        for block in blocks():
            hashed.update(block)
        if base64.b64encode(hashed.digest()).decode() != digest:
            return False
        file.seek(0)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as copy:
            copy.writelines(blocks())
    os.replace(temporary, target)
    return True


SCHEME = "wandb-file"
SILENT_S, SILENT_UNSAMPLED_S = 3600.0, 86400.0
"""W&B's client samples the machine every 15 s, unless that is switched off: a file without a newer record, with samples
and without, isn't written any more."""
CRASHED = "crashed"
HEAD_RECORDS = 200
"""Maximum number of records before a run's identity."""


@bounded
class WandbFileReader(Reader):
    """Reads a ``.wandb`` file, a run's directory, or a ``wandb`` directory with many runs; globs name several."""

    scheme = SCHEME
    needs = ("wandb",)

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`."""
        files = _files(where)
        if not files:
            raise NotFound(f"{where}: no .wandb file there, nor in a run directory (offline-run-…, run-…) below it")
        by_id: dict[str, SourceRun] = {}
        writers = _Writers()
        for path, run in helpers.those_of(files, lambda path: (path, _run(path, writers))):
            known = by_id.get(run.id)
            if known is None:
                by_id[run.id] = run
            else:
                known.native["paths"].append(str(path))
                known.directory = os.path.commonpath([known.directory, run.directory])
                known.source = f"{SCHEME}:{path.parent.parent}#{run.id}"
                known.name, known.status = run.name, run.status
        _, sign, run_id = where.rpartition("#")
        runs = [run for run in by_id.values() if not sign or run.id == run_id]
        if not runs:
            raise NotFound(f"{where}: no run {run_id!r}; there are {examples(by_id)}")
        return sorted(runs, key=lambda run: -run.created)

    def version(self, run: SourceRun) -> str:
        """Sizes and times of the run's files, and whether they are written."""
        stats = [Path(path).stat() for path in run.native["paths"] if Path(path).exists()]
        ended = [run.status] if run.status == CRASHED else []
        return ",".join([*(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats), *ended])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Media lie beside the file and are taken where they lie.

        The files of artifacts come with ``files`` alone: they are staged elsewhere.
        """
        paths = [Path(path) for path in run.native["paths"]]
        reading = _Reading(run, paths, files)
        for path in paths:
            yield from reading.file(path)
        yield from reading.end()


class _Reading:
    """One reading of one run's files."""

    def __init__(self, run: SourceRun, paths: list[Path], files: Path | None) -> None:
        self._run = run
        self._spared = TolerantReader(run)
        self._decoder = Decoder(any(map(_is_own_file, paths)), self._fetch)
        self._config: dict[str, Any] = {}
        self._dropped: set[str] = set()  # of the configuration, until they come again
        self._summary: dict[str, Any] = {}
        self._exit: int | None = None
        self._time = 0.0
        self._preempting = False
        self._begun = False
        self._changed: dict[str, Any] = {}
        self._console: dict[str, tuple[TerminalText, LineMask]] = {}
        self._directory = Path(os.path.commonpath([path.resolve().parent / "files" for path in paths]))
        self._run_files = self._directory
        self._damages: dict[Path, Damage] = {}
        folders = [path.resolve().parent.parent for path in paths]
        near = [directory for folder in folders for directory in (folder.parent, folder)]
        self._staged = StagedArtifacts(files, [*dict.fromkeys(near), Path.cwd()])
        self._directory = files or self._directory
        run.directory = str(self._directory)

    def file(self, path: Path) -> Iterator[Record]:
        self._run_files = path.resolve().parent / "files"
        damage = self._damages[path] = Damage()
        for record in wandb_datastore.records(path, damage):
            yield from self._spared.read(self._record(record))

    def _record(self, record: Any) -> Iterator[Record]:
        kind = record.WhichOneof("record_type")
        self._time = max(self._time, _time_of(record, kind))
        if kind == "history":
            row = wandb_datastore.tree(record.history.item)
            row.setdefault("_step", record.history.step.num)
            yield from map(self._relocated, self._decoder.row(row))
        elif kind == "stats":
            row = {**wandb_datastore.tree(record.stats.item), "_timestamp": _seconds(record.stats.timestamp)}
            yield from self._decoder.event(row)
        elif kind == "summary":
            self._take_summary(record.summary)
        elif kind in ("run", "config"):
            yield from self._take_config(record)
        elif kind == "environment":
            yield Environment(time=self._run.created, values=_environment(record.environment))
        elif kind == "artifact":
            yield from self._staged.artifact(record.artifact, self._decoder.time or self._run.created)
            self._run.note = self._staged.note
        elif kind == "output_raw":
            yield from self._printed(record.output_raw)
        elif kind == "preempting":
            self._preempting = True
        elif kind == "exit":
            # "not complete" is a pause of our delivery: the run goes on.
            self._exit = None if record.exit.not_complete else record.exit.exit_code

    def _take_summary(self, summary: Any) -> None:
        """Follow a record of results, as W&B does: a value replaces what was there by its key."""
        for item in summary.update:
            path = (item.key,) if item.key else tuple(item.nested_key)
            tree = wandb_datastore.tree([item])
            if len(path) == 1:
                self._summary |= tree
            else:
                merge(self._summary, tree)
        for item in summary.remove:
            *above, name = (item.key,) if item.key else item.nested_key
            place: Any = self._summary
            for key in above:
                place = place.get(key) if isinstance(place, dict) else None
            if isinstance(place, dict):
                place.pop(name, None)

    def _printed(self, output: Any) -> Iterator[Record]:
        stream = "stderr" if output.output_type == output.OutputType.STDERR else "stdout"
        text, _ = self._console.setdefault(stream, (TerminalText(), LineMask()))
        yield from self._console_records(stream, text.feed(output.line.encode(), _seconds(output.timestamp)))

    def _console_records(self, stream: str, lines: list[TerminalLine]) -> Iterator[Record]:
        if lines:
            printed = self._console[stream][1].lines([line.text for line in lines])
            yield Console(time=lines[0].time, lines=printed, stream=stream, source=stream)

    def _take_config(self, record: Any) -> Iterator[Record]:
        message = record.config if record.WhichOneof("record_type") == "config" else record.run.config
        if record.WhichOneof("record_type") == "run":
            self._exit, self._preempting = None, False
            if not self._begun:
                self._begun = True
                yield Start(time=self._run.created, rank=0)
            yield from self._renamed(record.run)
        values = {name: value for name, value in wandb_datastore.tree(message.update).items() if name != "_wandb"}
        before = deepcopy(self._config)
        anew = not self._dropped.isdisjoint(values)
        merge(self._config, deepcopy(values), anew)
        self._dropped -= values.keys()
        if name_floats(self._config) != name_floats(before):  # NaN is equal to NaN
            changed = {name: self._config[name] for name in values} if anew else values
            yield Config(time=max(self._run.created, self._decoder.time), values=deepcopy(changed), whole=anew)
        self._dropped |= {item.key for item in message.remove if item.key}

    def _renamed(self, message: Any) -> Iterator[Record]:
        """The run's name, tags and notes where the script changed them: each such record has them all."""
        known = {"name": self._run.name, "tags": list(self._run.tags), "notes": self._run.notes or ""}
        known |= self._changed
        fields = {"name": message.display_name or known["name"], "tags": list(message.tags), "notes": message.notes}
        changed = {key: value for key, value in fields.items() if value != known[key]}
        if changed:
            self._changed |= changed
            yield Info(time=max(self._run.created, self._decoder.time), **changed)

    def end(self) -> Iterator[Record]:
        for stream, (text, _) in self._console.items():
            yield from self._console_records(stream, text.finish())
        yield from self._spared.read(self._decoder.results(self._summary))
        self._run.native[REPEATED] = self._decoder.repeated
        self._run.native[PAUSES] = self._decoder.pauses
        self._spared.add_note()
        self._note_damage()
        if self._exit is not None:
            status = "preempted" if self._preempting and self._exit else "failed" if self._exit else "finished"
            yield Finish(time=self._decoder.time or self._run.created, status=status, exit_code=self._exit)
        elif self._run.status == CRASHED:
            yield Finish(time=max(self._time, self._run.created), status=CRASHED)

    def _note_damage(self) -> None:
        latest = list(self._damages)[-1:]
        for path, damage in self._damages.items():
            for note in damage.notes(path, self._run.status == "running" and path in latest):
                add_note(self._run, note)

    def _relocated(self, record: Record) -> Record:
        """Media that lie where they are, relative to the run's directory: a run in several files has one above them."""
        if isinstance(record, Media) and self._staged is None and self._run_files != self._directory:
            for item in record.items:
                if item.file:
                    item.file = (self._run_files / item.file).relative_to(self._directory).as_posix()
        return record

    def _fetch(self, path: str) -> Path | None:
        source = self._run_files / path
        if not confined.is_file(source, root=self._run_files):  # a link leads to a file that isn't the run's
            return None
        if self._staged is None or self._run_files == self._directory.resolve():
            return source
        target = self._directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another file system
            target.unlink(missing_ok=True)
            os.link(source.resolve(), target)
            return target
        shutil.copyfile(source, target)
        return target


class _Writers:
    """Tells whether files are still written: asks the system once for all of them."""

    @functools.cached_property
    def _open(self) -> set[str] | None:
        return processes.open_files()

    def writes(self, path: Path, host: str, last: float, sampled: bool) -> bool:
        """Whether somebody may still write a file.

        Args:
            host: of the machine that wrote it, where W&B's own client did; else "". last: the last record's time; 0.0
                where none has one. sampled: it has samples.
        """
        stat = path.stat()
        if host == machines.host() and os.geteuid() in (0, stat.st_uid) and self._open is not None:
            return os.path.realpath(path) in self._open  # this account sees whoever has it open
        written = min(stat.st_mtime, last or stat.st_mtime)  # a copy is younger than what it has
        return time.time() - written < (SILENT_S if sampled else SILENT_UNSAMPLED_S)


def _run(path: Path, writers: _Writers) -> SourceRun:
    """Who a file's run is, and how it ended, without its rows."""
    helpers.check_size(path)
    run = SourceRun(
        source=f"{SCHEME}:{path}",
        id=path.stem.removeprefix("run-"),
        directory=str(path.parent.resolve() / "files"),
        native={"paths": [str(path)]},
    )
    host = ""
    for number, record in enumerate(wandb_datastore.records(path, Damage())):
        if record.WhichOneof("record_type") == "run":
            message = record.run
            host = message.host
            run.id, run.name, run.project = message.run_id or run.id, message.display_name, message.project
            run.group, run.tags, run.notes = message.run_group or None, list(message.tags), message.notes or None
            run.created = _seconds(message.start_time)
            run.native["entity"] = message.entity
        if run.created or number > HEAD_RECORDS:
            break
    run.status, last, sampled = "running", 0.0, False
    for record in wandb_datastore.tail(path):
        kind = record.WhichOneof("record_type")
        if kind == "exit" and not record.exit.not_complete:
            run.status = "failed" if record.exit.exit_code else "finished"
        elif kind in ("run", "exit"):
            run.status = "running"
        last, sampled = max(last, _time_of(record, kind)), sampled or kind == "stats"
    if run.status == "running" and not writers.writes(path, "" if _is_own_file(path) else host, last, sampled):
        run.status = CRASHED
    run.name = run.name or run.id
    run.created = run.created or path.stat().st_mtime
    return run


def _time_of(record: Any, kind: str) -> float:
    """When a record was made; 0.0 where it doesn't say."""
    if kind == "history":
        stamps = (item.value_json for item in record.history.item if "_timestamp" in (item.key, *item.nested_key))
        with contextlib.suppress(ValueError):
            return float(next(stamps, 0.0))
    if kind == "stats":
        return _seconds(record.stats.timestamp)
    return _seconds(record.output_raw.timestamp) if kind == "output_raw" else 0.0


def _is_own_file(path: Path) -> bool:
    """Whether our tracker wrote the file: all its metrics have the training step as x axis."""
    for record in wandb_datastore.records(path, Damage()):
        kind = record.WhichOneof("record_type")
        if kind == "metric" and record.metric.glob_name == "*":
            return record.metric.step_metric in rows.OUR_STEPS
        if kind == "history":
            return False
    return False


def _files(where: str) -> list[Path]:
    """The ``.wandb`` files that a path, a directory or a glob names, the oldest first."""
    plain = where.rpartition("#")[0] if "#" in where and not Path(where).exists() else where
    roots = [Path(plain).expanduser()]
    if not roots[0].exists():
        roots = [Path(name) for name in sorted(glob.glob(str(roots[0])))]
    paths: dict[Path, None] = {}
    for root in roots:
        if root.is_file():
            paths[root] = None
            continue
        for pattern in ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb"):
            for path in sorted(root.glob(pattern)):
                if not path.parent.is_symlink():  # latest-run
                    paths[path] = None
    return sorted(paths, key=lambda path: path.parent.name)


def _environment(message: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    environment: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return environment


def _seconds(stamp: Any) -> float:
    return float(stamp.seconds + stamp.nanos / 1e9)
