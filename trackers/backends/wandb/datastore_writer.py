"""W&B's offline files as a delivery reads them: which rows they hold, whether they are complete, who writes them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.backends.wandb.history_rows import STEP, Held, held_row
from trackers.errors import NotFound, Unavailable
from trackers.formats.leveldb_log import BLOCK_BYTES, HEADER
from trackers.formats.wandb_datastore import payloads, records, scan, values

WRITER_TIMEOUT_S = 30.0
OWN = frozenset({STEP, "_timestamp"})
logger = logging.getLogger("trackers.wandb")
_said: set[Path] = set()


def await_writers(paths: Sequence[Path]) -> None:
    """Wait until no wandb service has these files open: one whose client was killed may still write for a moment.

    Raises:
        Unavailable: one still does after :data:`WRITER_TIMEOUT_S`.
    """
    import psutil

    wanted = {str(path.resolve()) for path in paths}
    deadline = time.monotonic() + WRITER_TIMEOUT_S
    while wanted and any(wanted & _open_files(process) for process in psutil.process_iter(["name"])):
        if time.monotonic() > deadline:
            raise Unavailable(f"another wandb-core still writes {', '.join(sorted(wanted))}")
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
    """Cut an incomplete record off the end of a file whose writer is dead: ``wandb sync`` refuses the file else.

    Returns:
        whether there was one.

    Raises:
        NotFound: no such file, or none of W&B's.
    """
    end = max((end for _, end in scan(path)), default=min(HEADER.size, path.stat().st_size))
    if path.stat().st_size == end:
        return False
    os.truncate(path, end)
    return True


def drop_empty(path: Path) -> bool:
    """Remove the directory of a file without a record, whose writer was killed as it began: ``wandb sync`` ends at it,
    and leaves the run's later files alone.

    Returns:
        whether it was one.
    """
    if path.is_symlink() or path.stat().st_size > HEADER.size:
        return False
    shutil.rmtree(path.parent, ignore_errors=True)
    return True


def history(path: Path) -> Iterator[dict[str, Any]]:
    """Rows, each with its ``_step``."""
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            yield {**values(record.history.item), "_step": record.history.step.num}


def offline_files(directory: Path, run_id: str) -> list[Path]:
    """The offline files of one run below a ``wandb`` directory, oldest first.

    What isn't W&B's any more was overwritten: it holds nothing, as a file that is gone, and a line says so.
    """
    found = directory.glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    return [path for path in sorted(found, key=lambda path: path.parent.name) if not _foreign(path)]


def _foreign(path: Path) -> bool:
    try:
        next(payloads(path), None)
    except NotFound:
        if path not in _said and path.exists():
            _said.add(path)
            logger.warning(
                f"{path} was overwritten: its rows count as delivered; `trackers sync --verify` brings them back"
            )
        return True
    return False


def last_step(path: Path) -> int:
    """The highest ``_step`` in a file; -1 if it has no row."""
    found = (record.history.step.num for record in records(path) if record.WhichOneof("record_type") == "history")
    return max(found, default=-1)


def has_ended(path: Path) -> bool:
    """Whether the file's writer has said that it wrote everything: an exit record, complete or not."""
    return any(record.WhichOneof("record_type") == "exit" for record in records(path))


def there(paths: Iterable[Path], first: int = 0) -> Iterator[Held]:
    """What tells the rows of some files apart, from a ``_step`` on."""
    known: dict[frozenset[str], frozenset[str]] = {}
    for path in paths:
        for record in records(path):
            if record.WhichOneof("record_type") == "history" and record.history.step.num >= first:
                items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
                own = {name: json.loads(items[name]) for name in OWN & items.keys() if items[name]}
                # A medium lies there as its parts: its name is the first one of each.
                keys = frozenset(item.key or item.nested_key[0] for item in record.history.item)
                yield held_row({**own, "_step": record.history.step.num}, known.setdefault(keys, keys))


class Shares:
    """Maps records to the offline files that hold their rows. ``kept`` survives a restart: JSON values.

    A file that is gone was uploaded: its records must not come again. Which they were is told by their numbers, from
    a file's first row to the last that was seen in it. Of a file that was there before anything was noted, it isn't
    known.
    """

    def __init__(self, kept: list[list[Any]] | None, directory: Path, there: Iterable[Path]) -> None:
        """Take what is known, and look which of the files are gone.

        Args:
            directory: the ``wandb`` directory. there: the files of the run in it.
        """
        if kept is None:
            kept = [[path.parent.name, -1, -1] for path in there]
        self.kept = kept
        self._gone = [share for share in self.kept if not (directory / share[0]).exists()]

    def gone(self) -> int:
        """How many files are gone that had rows."""
        return sum(begin < 0 or begin < end for _, begin, end in self._gone)

    def known(self) -> bool:
        """Whether it is known of each file that is gone which records it held."""
        return all(begin >= 0 for _, begin, _ in self._gone)

    def uploaded(self, seq: int) -> bool:
        """Whether the record with this number was in a file that is gone."""
        return any(begin < seq <= end for _, begin, end in self._gone)

    def begin(self, path: Path, seq: int) -> None:
        """A file gets its first row: its record is the next after ``seq``; those before are in earlier files."""
        self.reach(seq)
        self.kept.append([path.parent.name, seq, seq])

    def reach(self, seq: int) -> None:
        """The records up to this number have their rows in the newest file, or before it."""
        if self.kept and self.kept[-1] not in self._gone and self.kept[-1][1] >= 0:
            self.kept[-1][2] = max(self.kept[-1][2], seq)


class Growing:
    """An offline file that another process writes, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._block = 0
        self.last = -1

    def look(self) -> int:
        """The highest ``_step`` that is in the file by now; -1 if it has no row.

        Raises:
            Unavailable: the file is gone.
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
