"""W&B's offline files as a delivery reads them: their rows, whether they are complete, and who writes them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.backends.wandb.history_rows import STEP, DestinationRow, destination_row, word
from trackers.errors import NotFound, Unavailable
from trackers.formats.leveldb_log import BLOCK_BYTES, HEADER
from trackers.formats.wandb_datastore import payloads, records, scan, values

WRITER_TIMEOUT_S = 30.0
OWN = frozenset({STEP, "_timestamp"})
logger = logging.getLogger("trackers.wandb")
_warned: set[Path] = set()


def await_writers(paths: Sequence[Path]) -> None:
    """Wait until no wandb service has these files open: a service may still write briefly after its client was killed.

    Raises:
        Unavailable: a service still has one open after :data:`WRITER_TIMEOUT_S`.
    """
    import psutil

    targets = {str(path.resolve()) for path in paths}
    deadline = time.monotonic() + WRITER_TIMEOUT_S
    while targets and any(targets & _open_files(process) for process in psutil.process_iter(["name"])):
        if time.monotonic() > deadline:
            raise Unavailable(f"another wandb-core still writes {', '.join(sorted(targets))}")
        time.sleep(0.05)


def _open_files(process: Any) -> set[str]:
    if "wandb-core" not in (process.info["name"] or ""):
        return set()
    import psutil

    try:
        return {file.path for file in process.open_files()}
    except psutil.Error:
        return set()


def repair(path: Path) -> bool:
    """Truncate an incomplete record at the end of a file whose writer is dead: ``wandb sync`` would refuse the file.

    Returns:
        whether the file was truncated.

    Raises:
        NotFound: the file doesn't exist, or isn't one of W&B's.
    """
    end = max((end for _, end in scan(path)), default=min(HEADER.size, path.stat().st_size))
    if path.stat().st_size == end:
        return False
    os.truncate(path, end)
    return True


def drop_empty(path: Path) -> bool:
    """Remove the directory of a file without a record, whose writer was killed as it began: ``wandb sync`` stops at
    such a file and doesn't upload the run's later ones.

    Returns:
        whether it was removed.
    """
    if path.is_symlink() or path.stat().st_size > HEADER.size:
        return False
    shutil.rmtree(path.parent, ignore_errors=True)
    return True


def drop_repetitions(paths: Sequence[Path]) -> list[Path]:
    """Remove the directories of files that say nothing which files before them don't, as a verification that finds
    everything writes.

    Returns:
        the files that remain.
    """
    said: dict[tuple[str, str], str] = {}
    kept: list[Path] = []
    for path in paths:
        known, adds = dict(said), not kept
        for record in records(path):
            kind = record.WhichOneof("record_type")
            adds = adds or kind not in _REPEATED
            said.update(_said(record, str(kind)))
        if adds or said != known:
            kept.append(path)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)
    return kept


def point_to(path: Path) -> None:
    """Have W&B's link to the latest run lead to a file's directory, where there is such a link."""
    link = path.parent.parent / "latest-run"
    if link.is_symlink():
        link.unlink()
        link.symlink_to(path.parent.name)


_REPEATED = ("header", "run", "config", "metric", "summary", "exit", "telemetry", "environment", "stats")
"""Records that each session begins and ends with."""


def _said(record: Any, kind: str) -> Iterator[tuple[tuple[str, str], str]]:
    """What a record says of the run itself, by what it is about; not of the session."""
    if kind == "run":
        run = record.run
        about = {"name": run.display_name, "group": run.run_group, "notes": run.notes, "type": run.job_type,
                 "tags": ",".join(run.tags)}  # fmt: skip
        yield from (((kind, name), text) for name, text in about.items() if text)
    changes = {"run": record.run.config, "config": record.config, "summary": record.summary}.get(kind)
    for item in changes.update if changes is not None else ():
        name = item.key or ".".join(item.nested_key)
        if not name.startswith("_"):
            yield ("config" if kind == "run" else kind, name), item.value_json
    for item in changes.remove if changes is not None else ():
        yield ("config" if kind == "run" else kind, item.key or ".".join(item.nested_key)), ""
    if kind == "metric":
        yield (kind, record.metric.name or record.metric.glob_name), record.metric.SerializeToString().hex()
    if kind == "exit" and not record.exit.not_complete:
        yield (kind, ""), str(record.exit.exit_code)


def history(path: Path) -> Iterator[dict[str, Any]]:
    """A file's rows, each with its ``_step``."""
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            yield {**values(record.history.item), "_step": record.history.step.num}


def offline_files(directory: Path, run_id: str) -> list[Path]:
    """The offline files of one run below a ``wandb`` directory, oldest first.

    A file that isn't in W&B's format any more was overwritten: it counts as missing, and a warning is logged.
    """
    files = directory.glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    return [path for path in sorted(files, key=lambda path: path.parent.name) if not _foreign(path)]


def _foreign(path: Path) -> bool:
    try:
        next(payloads(path), None)
    except NotFound:
        if path not in _warned and path.exists():
            _warned.add(path)
            logger.warning(
                f"{path} was overwritten: its rows count as delivered; `trackers sync --verify` brings them back"
            )
        return True
    return False


def last_step(path: Path) -> int:
    """The highest ``_step`` in a file; -1 if it has no row."""
    steps = (record.history.step.num for record in records(path) if record.WhichOneof("record_type") == "history")
    return max(steps, default=-1)


def has_ended(path: Path) -> bool:
    """Whether the file has an exit record, complete or not: its writer has written everything."""
    return any(record.WhichOneof("record_type") == "exit" for record in records(path))


def destination_rows(paths: Iterable[Path], first: int = 0, compared: bool = False) -> Iterator[DestinationRow]:
    """The rows of some files from a ``_step`` on, reduced to what identifies each.

    Args:
        compared: with words of their values.
    """
    interned: dict[frozenset[str], frozenset[str]] = {}
    for path in paths:
        for record in records(path):
            if record.WhichOneof("record_type") == "history" and record.history.step.num >= first:
                items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
                names = items.keys() if compared else OWN & items.keys()
                decoded = {name: json.loads(items[name]) for name in names if items[name]}
                words = {name: known for name, value in decoded.items() if (known := word(value)) is not None}
                # A media value is stored as nested items: the first part of each key is its name.
                keys = frozenset(item.key or item.nested_key[0] for item in record.history.item)
                row = {**decoded, "_step": record.history.step.num}
                yield destination_row(row, interned.setdefault(keys, keys), words if compared else None)


class FileRanges:
    """Maps ranges of records to the offline files with their rows. ``entries`` survives a restart: JSON values.

    A missing file was uploaded and removed, so its records must not be written again. They are known by their numbers,
    from the file's first row to the last row that was seen in it; unknown for files that are older than the entries.
    Each entry is ``[directory name, number before the first record, number of the last record]``; -1 if unknown.
    """

    def __init__(self, entries: list[list[Any]] | None, directory: Path, files: Iterable[Path]) -> None:
        """Take the stored entries, and find out which of the files are missing.

        Args:
            entries: as stored; None if nothing was stored yet.
            directory: the ``wandb`` directory.
            files: the run's files in it.
        """
        if entries is None:
            entries = [[path.parent.name, -1, -1] for path in files]
        self.entries = entries
        self._missing = [entry for entry in self.entries if not (directory / entry[0]).exists()]

    def missing_count(self) -> int:
        """Number of missing files that had rows, or may have had."""
        return sum(begin < 0 or begin < end for _, begin, end in self._missing)

    def ranges_known(self) -> bool:
        """Whether the record range of each missing file is known."""
        return all(begin >= 0 for _, begin, _ in self._missing)

    def uploaded(self, seq: int) -> bool:
        """Whether the record with this number was in a missing file."""
        return any(begin < seq <= end for _, begin, end in self._missing)

    def begin_file(self, path: Path, seq: int) -> None:
        """Note a file whose first row is of the record after ``seq``; records up to ``seq`` are in earlier files."""
        self.extend(seq)
        self.entries.append([path.parent.name, seq, seq])

    def extend(self, seq: int) -> None:
        """Note that the rows of all records up to this number are in the newest file or in earlier ones."""
        if self.entries and self.entries[-1] not in self._missing and self.entries[-1][1] >= 0:
            self.entries[-1][2] = max(self.entries[-1][2], seq)


class GrowingFile:
    """An offline file that another process writes, read incrementally."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._block = 0
        self.last = -1

    def read_new(self) -> int:
        """Read what was appended. The highest ``_step`` in the file so far; -1 if it has no row.

        Raises:
            Unavailable: the file was removed, or can't be read.
        """
        from wandb.proto import wandb_internal_pb2 as protocol

        try:
            for payload, end in scan(self.path, self._block):
                record = protocol.Record.FromString(payload)
                if record.WhichOneof("record_type") == "history":
                    self.last = max(self.last, record.history.step.num)
                self._block = end // BLOCK_BYTES
        except (NotFound, OSError) as error:
            if self.path.exists():
                raise Unavailable(f"{self.path} can't be read: {error}") from error
            raise Unavailable(f"{self.path} was removed while it was written; a new file goes on") from error
        return self.last
