"""``log:FILE``: console logs of Primus, Megatron-LM, Megatron Bridge, TorchTitan and MaxText.

What launchers put before each line (:mod:`trackers.readers.console_log.prefixes`) changes nothing. Values
keep their size and unit and get the names that other runs have (:mod:`trackers.readers.console_log.names`). ``X/Y`` and
``X (avg Y)`` are two values: of the interval, and the running average. "GB" of these programs is GiB, and so named.
Times are the lines' own stamps, in this machine's time zone where they name none; a log without stamps begins at its
file's modification time and goes on by the time that iterations took. Copies of a line that several ranks or two
handlers wrote count once, by iteration. Where training went back to a checkpoint, a Start record says so, and what it
trained again is left out of what was before (standard input, which passes but once, has both). A last value that lost
its end is left out.
"""

from __future__ import annotations

import glob
import hashlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.errors import NotFound, UsageError
from trackers.readers import helpers as places
from trackers.readers.boundary import bounded
from trackers.readers.console_log.stream import LogStream, may_restart, open_log, restarts
from trackers.readers.reader import SourceRun
from trackers.records import Record

STDIN = "-"
CUT = "the packed log is cut or damaged: this is what could be read of it"
FORM = 3
"""Of names and values: another one makes what was kept of logs void."""
BUFFER_BYTES = 1 << 20
SUFFIXES = (".gz", ".log", ".txt", ".out")


@bounded
class LogReader:
    """Console logs as runs: a file (perhaps gzipped), a glob, or ``-`` for standard input, which is read once."""

    scheme = "log"

    def runs(self, where: str) -> list[SourceRun]:
        """One run for each file, the one changed last first. See :class:`trackers.readers.reader.Reader`."""
        if where == STDIN:
            return [SourceRun(source="log:-", id="stdin", name="stdin", native={"path": STDIN})]
        if not where:
            raise UsageError("log: name a file, as in log:training.log, or log:- for standard input")
        paths = _paths(where)
        return sorted(places.those_of(paths, _run), key=lambda run: -run.created)

    def version(self, run: SourceRun) -> str:
        """The file's size and time, and this machine's time zone; "" for standard input."""
        try:
            stat = Path(str(run.native["path"])).stat()
        except OSError:
            return ""
        return f"{stat.st_size}:{stat.st_mtime_ns}:{time.timezone}:{FORM}"

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """The log's records. See :class:`trackers.readers.reader.Reader`.

        Raises:
            NotFound: the file has gone, or holds no line of a known program; the message shows its first line.
        """
        path = str(run.native["path"])
        if path == STDIN:
            stream = LogStream("standard input", time.time(), time.localtime().tm_year)
            yield from stream.read(open_log(sys.stdin.buffer))
            run.note = CUT if stream.cut else ""
            return
        try:
            changed = Path(path).stat().st_mtime
            year = time.localtime(changed).tm_year
            found = _restarts(path, year)
            with open(path, "rb", buffering=BUFFER_BYTES) as file:
                stream = LogStream(path, changed, year, found)
                yield from stream.read(open_log(file))
                run.note = CUT if stream.cut else ""
        except FileNotFoundError:
            raise NotFound(f"{path}: no such file") from None
        except OSError as error:
            raise NotFound(f"{path} can't be read: {error.strerror or error}") from None


def _restarts(path: str, year: int) -> list[int]:
    """See :func:`trackers.readers.console_log.stream.restarts`; most logs have none, which is told quickly."""
    with open(path, "rb", buffering=BUFFER_BYTES) as file:
        if not may_restart(open_log(file)):
            return []
    with open(path, "rb", buffering=BUFFER_BYTES) as file:
        return restarts(open_log(file), year)


def _paths(where: str) -> list[Path]:
    path = Path(where).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        raise NotFound(f"{where} is a directory: name a log in it, or several as log:{where.rstrip('/')}/*.log")
    found = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    if not found:
        near = sorted(item.name for item in path.parent.glob("*.log*"))[:5] if path.parent.is_dir() else []
        raise NotFound(f"{where}: no such file" + (f"; there are {', '.join(near)}" if near else ""))
    return found


def run_id(path: Path) -> str:
    """The id that a log has as a run: by its place alone."""
    mark = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", _name(path)).strip("-") or "log"
    return f"{clean[:100]}-{mark}"


def _name(path: Path) -> str:
    name = path.name
    while name.endswith(SUFFIXES):
        name = name[: name.rindex(".")]
    return name


def _run(path: Path) -> SourceRun:
    places.check_size(path)
    native: dict[str, Any] = {"path": str(path)}
    return SourceRun(
        source=f"log:{path}",
        id=run_id(path),
        name=_name(path) or path.name,
        project=path.resolve().parent.name,
        created=path.stat().st_mtime,
        native=native,
    )
