"""DVCLive's files, which ``dvc`` and its extension of VS Code show, written without its client and exact.

Each series (``plots/metrics/<name>.tsv``) grows by whole batches, and its committed length is in the state, so that it
is cut back to it when the folder is opened again. ``.trackers.jsonl`` names the other files. It has a number, its
generation, in its first line: a rewind to a checkpoint begins with a new one and then writes the series anew, so that a
kill before the commit is seen, and all is written again from the journal. ``metrics.json``, ``params.yaml`` and
``dvc.yaml`` are made from the state.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared import media_files, overlays
from trackers.backends.shared.append_file import (
    READ_BYTES,
    FileShrunk,
    OwnedFile,
    file_name,
    make_folder,
    remove_temporary,
    replace,
    take_with_rewinds,
    unavailable,
    unseen,
    verified,
)
from trackers.backends.shared.directory import option_directory
from trackers.backends.shared.kept_file import keep
from trackers.errors import UNDECODABLE
from trackers.formats.csv_cell import csv_cell
from trackers.formats.vendor_system_names import is_sample
from trackers.formats.yaml_text import yaml_text
from trackers.metrics.unasked import parted
from trackers.records import (
    SUMMARY_PREFIX,
    ArtifactRecord,
    Config,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    final_name,
    flatten,
    merge,
    name_floats,
    take_results,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Verified
from trackers_dvclive import layout
from trackers_dvclive.precheck import DvclivePrecheck

INDEX = ".trackers.jsonl"
SAVE_S = 1.0
"""Minimum interval between two writings of ``metrics.json`` while records come, in seconds."""


class SeriesFile(msgspec.Struct, array_like=True):
    """A file of rows. folder, name: what lies in it. path: relative, with suffix. length, crc: as committed."""

    folder: str
    name: str
    path: str
    length: int = 0
    crc: int = 0


class DvcliveState(msgspec.Struct):
    """The tracker's state, from which a new process continues.

    length, crc, generation: of the index, committed. seq: highest record taken. rewound: the newest attempt whose
    rewind was written. step: of the last value. latest, results, config: what the documents are made of. heads: length
    and checksum of each document. artifacts: their entries in ``dvc.yaml``, by name.
    """

    length: int = 0
    crc: int = 0
    generation: int = 0
    seq: int = 0
    rewound: int = 0
    step: int | None = None
    series: dict[str, SeriesFile] = {}
    latest: dict[str, Any] = {}
    results: dict[str, Any] = {}
    config: dict[str, Any] = {}
    artifacts: dict[str, Any] = {}
    heads: dict[str, tuple[int, int]] = {}


class IndexedFile(msgspec.Struct):
    """A line of the index: a file that is written whole.

    path: relative. crc: None of a file of an artifact, which isn't read for it. step: None where a rewind leaves it.
    """

    path: str
    size: int = 0
    crc: int | None = None
    step: int | None = None


class DvcliveTracker(DvclivePrecheck):
    """Writes ``DVCLIVE_DIR/<name>-<id>``, or ``dvclive`` in the run's directory."""

    machine = "apart"
    accepts = frozenset({Start, Config, Metrics, Text, Media, ArtifactRecord, Summary, Finish})
    clock = staticmethod(time.monotonic)

    @staticmethod
    def own_files(info: RunInfo, state: State) -> list[Path]:
        """What of the run lies outside of its directory (:class:`trackers.tracker.Tracker`)."""
        chosen = option_directory(info, "DVCLIVE_DIR")
        return [] if chosen is None else [chosen / f"{file_name(info.name)}-{file_name(info.id)}"]

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Cut the series back to what was committed; a folder that doesn't match the state is written anew."""
        self._info, self._state = info, state
        chosen = option_directory(info, "DVCLIVE_DIR")
        self._root = Path(info.directory) if chosen is None else chosen
        own = f"{file_name(info.name)}-{file_name(info.id)}"
        self._directory = info.path("dvclive") if chosen is None else chosen / own
        self._index, self._temporary = self._directory / INDEX, self._directory / ".trackers.tmp"
        self._saved_at, self._changed = float("-inf"), False
        self._taken_paths: dict[str, set[str]] = {}
        self._taken_of: DvcliveState | None = None
        remove_temporary(self._temporary)
        self._committed = msgspec.convert(dict(state).get("marks", {}), DvcliveState)
        state["url"] = str(self._directory)
        answer = None
        try:
            if self._committed.length:
                self._check_generation()
                self._cut_back()
                return None
        except FileShrunk:
            answer = Cursor(0)
        self._committed = DvcliveState(generation=time.time_ns())
        self._kept: dict[str, IndexedFile] = {}
        self._write_index(self._committed)
        self._remove_strangers()
        for document in ("metrics.json", "params.yaml", "dvc.yaml", layout.UNASKED):
            with contextlib.suppress(FileNotFoundError):
                confined.remove(self._directory / document, root=self._root)
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append the batch's rows and write its files, all of them or none."""
        self._check_generation()
        take_with_rewinds(unseen(records, self._committed.seq), self._committed.rewound, self._take, self._rewind)
        self._save_if_due()
        self._commit()

    def tick(self) -> None:
        """Write the documents when they are due."""
        self._save_if_due()
        self._commit()

    def verify(self) -> Verified:
        """Read all files back; see :class:`trackers.tracker.Tracker`. Damage has all of them written anew."""
        known = {entry.path: (entry.length, entry.crc) for entry in self._committed.series.values()}
        known |= {entry.path: (entry.size, entry.crc) for entry in self._kept.values() if entry.crc is not None}
        known |= {**self._committed.heads, INDEX: (self._committed.length, self._committed.crc)}
        unsummed = [entry for entry in self._kept.values() if entry.crc is None]
        bad = [str(self._directory / entry.path) for entry in unsummed if not self._holds(entry)]
        size = sum(entry.size for entry in unsummed)
        for name, (length, crc) in known.items():
            path = self._directory / name
            bad += verified([(path, self._root)], {path.name: (length, crc)}).damaged
            size += length
        if bad:
            with contextlib.suppress(FileNotFoundError):
                confined.remove(self._index, root=self._root)
        return Verified(f"{len(known) + len(unsummed)} files, {size:,} bytes", bad, Cursor(0) if bad else None)

    def _holds(self, kept_file: IndexedFile) -> bool:
        """Whether a file is there with its length."""
        try:
            with confined.open_file(self._directory / kept_file.path, root=self._root) as file:
                return os.fstat(file.fileno()).st_size == kept_file.size
        except OSError:
            return False

    def close(self, status: Status) -> None:
        """Write the documents as they are now."""
        self._check_generation()
        self._save()
        self._commit()

    def _commit(self) -> None:
        self._state["marks"] = name_floats(msgspec.to_builtins(self._committed))

    def _take(self, batch: Sequence[Record]) -> None:
        if not batch:
            return
        draft = msgspec.structs.replace(self._committed)
        for field in ("series", "latest", "results", "artifacts"):
            setattr(draft, field, dict(getattr(draft, field)))
        if any(isinstance(record, Config) for record in batch):
            draft.config = copy.deepcopy(draft.config)
        rows: dict[str, bytearray] = {}
        indexed: dict[str, IndexedFile] = {}
        if self._taken_of is not self._committed:
            self._taken_paths = _taken_paths(self._committed.series.values())
        self._taken_of = draft
        for record in batch:
            self._add(record, draft, rows, indexed)
        draft.seq = max(draft.seq, *(record.seq for record in batch))
        for key, data in rows.items():
            draft.series[key] = self._append(draft.series[key], bytes(data))
        lines = b"".join(map(_line, indexed.values()))
        if lines:
            grown = self._append(SeriesFile("", "", INDEX, draft.length, draft.crc), lines)
            draft.length, draft.crc = grown.length, grown.crc
        self._committed, self._changed = draft, True
        self._kept |= indexed

    def _add(
        self, record: Record, draft: DvcliveState, rows: dict[str, bytearray], indexed: dict[str, IndexedFile]
    ) -> None:
        """Put a record into what the state and the files become."""

        def add(folder: str, name: str, value: Any) -> None:
            key = f"{folder}:{name}"
            if key not in draft.series:
                draft.series[key] = self._new_series(folder, name)
                rows[key] = bytearray(layout.header(folder, draft.series[key].path.rpartition(".")[0]))
            line = layout.row(folder, record.time, record.step, value)
            rows.setdefault(key, bytearray()).extend(line)

        if isinstance(record, Metrics):
            for name, value in record.values.items():
                if name.startswith(SUMMARY_PREFIX):
                    draft.results[name] = value
                    continue
                add(layout.SYSTEM if record.step is None else layout.METRICS, name, value)
                draft.latest[name] = int(value) if isinstance(value, bool) else value
            draft.step = draft.step if record.step is None else record.step
        elif isinstance(record, Text):
            for name, text in record.values.items():
                add(layout.TEXT, name, text)
        elif isinstance(record, Config):
            merge(draft.config, record.values, record.whole)
        elif isinstance(record, Summary):
            take_results(draft.results, record, final_name)
        elif isinstance(record, Media):
            for item in record.items:
                folder, content, suffix = self._medium(record, item)
                path = self._free(f"{folder}/{layout.path_of(record.name)}", record.step, suffix, indexed)
                self._write_whole(path, content)
                indexed[path] = IndexedFile(path, len(content), zlib.crc32(content), record.step)
        elif isinstance(record, ArtifactRecord):
            self._artifact(record, draft, indexed)

    def _new_series(self, folder: str, name: str) -> SeriesFile:
        path = layout.path_of(name, self._taken_paths.setdefault(folder, set()))
        self._taken_paths[folder].add(path.casefold())
        return SeriesFile(folder, name, f"{folder}/{path}.{'jsonl' if folder == layout.TEXT else 'tsv'}")

    def _append(self, series: SeriesFile, data: bytes) -> SeriesFile:
        """A series with more at its end. What lies behind its length before, an earlier failure left."""
        path = self._directory / series.path
        known = {path.name: (series.length, series.crc)}
        file = OwnedFile(path, self._root, known).open(series.length)
        try:
            file.append(data)
        finally:
            file.close()
        length, crc = known[path.name]
        return msgspec.structs.replace(series, length=length, crc=crc)

    def _free(self, stem: str, step: int | None, suffix: str, indexed: dict[str, IndexedFile]) -> str:
        """A path that no other item of this name at this step has; :func:`trackers_dvclive.layout.item_path`."""
        number = 0
        while (path := layout.item_path(stem, step, number, suffix)) in self._kept or path in indexed:
            number += 1
        return path

    def _medium(self, record: Media, item: MediaFile) -> tuple[str, bytes, str]:
        """An item's folder, content and suffix.

        Raises:
            Rejected: the file is missing or isn't what it should be.
        """
        if record.type == "image":
            return layout.IMAGES, *overlays.shown(self._info, item, layout.PICTURES)
        if record.type == "histogram":
            points = list(layout.bars(*media_files.histogram(self._info, item)))
            return layout.HISTOGRAMS, json.dumps(points).encode(), "json"
        if record.type == "table":
            columns, rows = media_files.table(self._info, item)
            out = io.StringIO()
            table = csv.writer(out, lineterminator="\n")
            table.writerows(map(csv_cell, map(_cell, row)) for row in [columns, *rows])
            return layout.TABLES, out.getvalue().encode("utf-8", "replace"), "csv"
        if record.type == "audio":
            suffix = "wav" if item.format == "npy" else item.format
            return layout.MEDIA, media_files.wav(self._info, item), file_name(suffix, "bin")
        if record.type == "video" and item.format == "npy":
            return layout.MEDIA, media_files.gif(self._info, item), "gif"
        if item.file:
            return layout.MEDIA, media_files.content(self._info, item), file_name(item.format, "bin")
        return layout.MEDIA, json.dumps(name_floats(item.data)).encode(), "json"

    def _artifact(self, record: ArtifactRecord, draft: DvcliveState, indexed: dict[str, IndexedFile]) -> None:
        """Keep an artifact's files below its name; those of an earlier version at the same paths are replaced."""
        folder = f"{layout.ARTIFACTS}/{layout.path_of(record.name)}"
        references = {file.path: file.uri for file in record.files if not file.file}
        files = [file for file in record.files if file.file]
        for file in files:
            source = media_files.path(self._info, file)
            path = "/".join((folder, *map(file_name, confined.parts(file.path))))
            keep(self._info, source, self._directory / path, self._root, self._temporary)
            indexed[path] = IndexedFile(path, source.stat().st_size, None)
        if files:
            meta = {**record.metadata, **({"references": references} if references else {})}
            about = {"type": record.type, "desc": record.description, "labels": record.aliases, "meta": meta}
            entry = {"path": folder, **about}
            others = {name for name, known in draft.artifacts.items() if known["path"] != folder}
            named = layout.artifact_name(record.name, others)
            draft.artifacts[named] = {key: value for key, value in entry.items() if value}

    def _check_generation(self) -> None:
        """Raise FileShrunk when the folder is another one than the state's: a kill came between the two."""
        try:
            with confined.open_file(self._index, root=self._root) as file:
                generation = json.loads(file.readline(READ_BYTES))["generation"]
        except FileNotFoundError as error:
            raise FileShrunk(str(error)) from error
        except (ValueError, LookupError, TypeError):
            generation = None
        except OSError as error:
            raise unavailable("read", self._index, error) from error
        if generation != self._committed.generation:
            raise FileShrunk(f"{self._index} isn't what was committed")

    def _cut_back(self) -> None:
        """Cut every series to its committed length, and remove files that the state doesn't name."""
        OwnedFile(self._index, self._root).open(self._committed.length).close()
        try:
            with confined.open_file(self._index, root=self._root) as file:
                file.readline()
                self._kept = {entry.path: entry for entry in map(_decode_kept, file)}
        except UNDECODABLE as error:
            raise FileShrunk(f"{self._index} isn't what was committed") from error
        for series in self._committed.series.values():
            OwnedFile(self._directory / series.path, self._root).open(series.length).close()
        self._remove_strangers()

    def _remove_strangers(self) -> None:
        """Remove what lies in our folders and isn't in the state or the index."""
        known = {*self._kept, *(series.path for series in self._committed.series.values())}
        for folder in layout.FOLDERS:
            for parent, _, names in os.walk(self._directory / folder):
                for name in names:
                    path = Path(parent, name)
                    if path.relative_to(self._directory).as_posix() not in known:
                        with contextlib.suppress(OSError):
                            confined.remove(path, root=self._root)

    def _rewind(self, last_step: int, attempt: int) -> None:
        """A new index first, of another generation; then all series without their rows above ``last_step``."""
        state = msgspec.structs.replace(self._committed, rewound=attempt, generation=time.time_ns())
        state.latest = dict(state.latest)
        state.series = {}
        remaining, gone = {}, []
        for entry in self._kept.values():
            if entry.step is None or entry.step <= last_step:
                remaining[entry.path] = entry
            else:
                gone.append(entry.path)
        former, self._kept = self._kept, remaining
        try:
            self._write_index(state)
        except BaseException:
            self._kept = former
            raise
        for path in gone:
            with contextlib.suppress(FileNotFoundError):
                confined.remove(self._directory / path, root=self._root)
        for key, series in self._committed.series.items():
            whole = self._rewritten(series, last_step, state)
            if whole is not None:
                state.series[key] = whole
        logged = {series.name for series in state.series.values() if series.folder != layout.TEXT}
        state.latest = {name: value for name, value in state.latest.items() if name in logged}
        state.step = None if state.step is None else min(state.step, last_step)
        self._committed, self._changed = state, True

    def _rewritten(self, series: SeriesFile, last_step: int, state: DvcliveState) -> SeriesFile | None:
        """A series without its rows above a step; None where none is left, and its file is gone."""
        if series.folder == layout.SYSTEM:
            return series
        path = self._directory / series.path
        last = b""
        rows = 0

        def lines() -> Iterator[bytes]:
            nonlocal last, rows
            with confined.open_file(path, root=self._root) as file:
                left = series.length
                for number, line in enumerate(file):
                    left -= len(line)
                    if left < 0:
                        return
                    if number == 0 and series.folder != layout.TEXT:
                        yield line
                        continue
                    step = layout.step_of(series.folder, line)
                    if step is None or step <= last_step:
                        rows, last = rows + 1, line
                        yield line

        known: dict[str, tuple[int, int]] = {}
        try:
            replace(path, self._temporary, lines(), self._root, known)
            if not rows:
                confined.remove(path, root=self._root)
                return None
        except (ValueError, LookupError) as error:
            raise FileShrunk(f"{path} isn't what was committed") from error
        except OSError as error:
            raise unavailable("write", path, error) from error
        if series.folder == layout.METRICS:
            state.latest[series.name] = layout.value_of(last)
        length, crc = known[path.name]
        return msgspec.structs.replace(series, length=length, crc=crc)

    def _write_index(self, state: DvcliveState) -> None:
        known: dict[str, tuple[int, int]] = {}
        head = json.dumps({"generation": state.generation}).encode() + b"\n"
        replace(self._index, self._temporary, [head, *map(_line, self._kept.values())], self._root, known)
        state.length, state.crc = known[INDEX]

    def _save_if_due(self) -> None:
        if self._changed and self.clock() - self._saved_at >= SAVE_S:
            self._save()

    def _save(self) -> None:
        """Write the documents that differ from what is there."""
        state = self._committed
        asked, unasked = parted(state.results)
        values = {**self._of_training(state), **dict(flatten(asked))}
        folders = {series.folder for series in state.series.values()}
        folders |= {"/".join(path.split("/", 2)[:2]) for path in self._kept}
        texts = {}
        if values:
            step = {} if state.step is None else {"step": state.step}
            texts["metrics.json"] = json.dumps(layout.nested({**step, **values}), indent=4, default=str) + "\n"
        if state.config:
            texts["params.yaml"] = yaml_text(state.config)
        if unasked:
            texts[layout.UNASKED] = (
                json.dumps({final_name(name): value for name, value in unasked.items()}, indent=4, default=str) + "\n"
            )
        texts["dvc.yaml"] = yaml_text(layout.document(bool(state.config), bool(values), folders, state.artifacts))
        heads = {}
        for name, text in texts.items():
            content = text.encode("utf-8", "replace")
            heads[name] = (len(content), zlib.crc32(content))
            if self._content(name, len(content)) != content:
                self._write_whole(name, content)
        self._committed = msgspec.structs.replace(state, heads=heads)
        self._saved_at, self._changed = self.clock(), False

    @staticmethod
    def _of_training(state: DvcliveState) -> dict[str, Any]:
        """The last values without the machine's samples: in ``dvc metrics show`` they would be its first columns. One
        whose file has another name stays, since that alone tells it."""
        samples = (one for one in state.series.values() if one.folder == layout.SYSTEM and is_sample(one.name, None))
        alone = {one.name for one in samples if one.path == f"{layout.SYSTEM}/{one.name}.tsv"}
        alone -= {one.name for one in state.series.values() if one.folder == layout.METRICS}
        return {name: value for name, value in state.latest.items() if name not in alone}

    def _content(self, name: str, size: int) -> bytes | None:
        """What a document holds; None where it isn't there, or is longer than this."""
        try:
            return confined.read(self._directory / name, root=self._root, most=size)
        except OSError:
            return None

    def _write_whole(self, name: str, content: bytes) -> None:
        path = self._directory / name
        try:
            make_folder(path.parent, self._root)
            confined.write_whole(path, content, root=self._root)
        except OSError as error:
            raise unavailable("write", path, error) from error


def _taken_paths(series: Iterable[SeriesFile]) -> dict[str, set[str]]:
    """The series' paths in their folders, case folded and without suffix."""
    paths: dict[str, set[str]] = {}
    for entry in series:
        path = entry.path.removeprefix(f"{entry.folder}/").rpartition(".")[0]
        paths.setdefault(entry.folder, set()).add(path.casefold())
    return paths


def _line(kept_file: IndexedFile) -> bytes:
    return msgspec.json.encode(kept_file) + b"\n"


def _decode_kept(line: bytes) -> IndexedFile:
    return msgspec.json.decode(line, type=IndexedFile)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(name_floats(value), ensure_ascii=False, default=str)
