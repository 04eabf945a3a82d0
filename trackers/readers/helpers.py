"""Code shared by readers: finding files, detecting changes, a path as a run's identity, merging records, progress."""

from __future__ import annotations

import glob
import hashlib
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from trackers.errors import Damaged, NotFound, UsageError
from trackers.formats import text_file
from trackers.readers.boundary import boundary
from trackers.readers.reader import SourceRun
from trackers.records import TIME_MAX, Record, Start
from trackers.support.progress import counted

T = TypeVar("T")
U = TypeVar("U")

HOLES_BYTES = 256 * 1024 * 1024
HOLES = 200
"""Longer files must hold more than a 200th of their length; filesystems that compress save less of a real one."""


Sources = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""What is given for runs: a name, or several; None for none given."""


def source_names(sources: Iterable[Sources]) -> list[str]:
    """Names of sources, each given by itself or in a list.

    Raises:
        UsageError: something else is among them.
    """
    named: list[str] = []
    for source in sources:
        if isinstance(source, (str, os.PathLike)):
            named.append(os.fspath(source))
        elif isinstance(source, Iterable):
            named += source_names(source)
        elif source is not None:
            raise UsageError(f"a source of type {type(source).__name__}: give a name, a path, or a list of them")
    return named


def find_paths(scheme: str, where: str, expand: Callable[[Path], Iterable[Path]]) -> list[Path]:
    """Find the files or directories that ``where`` names: a path, or a pattern as in ``runs/*``.

    Of what only lies there, pipes and devices are passed over: they can be read for ever, or hold a reader up. One that
    is named itself, as by a shell's ``<(…)``, is meant.

    Args:
        expand: what a directory stands for.

    Raises:
        UsageError: nothing was named. NotFound: there is nothing, or nothing of this kind in it.
    """
    if not where:
        raise UsageError(f"{scheme}: needs a path: {scheme}:PATH")
    pattern = str(Path(where).expanduser())
    paths = (
        [Path(pattern)]
        if Path(pattern).exists()
        else _files_and_directories(Path(path) for path in sorted(glob.glob(pattern, recursive=True)))
    )
    if not paths:
        raise NotFound(f"{scheme}: no file or directory {pattern}")
    resolved: dict[Path, None] = {}
    for entry in paths:
        resolved.update(
            dict.fromkeys(
                path.resolve() for path in (_files_and_directories(expand(entry)) if entry.is_dir() else [entry])
            )
        )
    if not resolved:
        raise NotFound(f"{scheme}: nothing to read in {pattern}")
    return list(resolved)


def _files_and_directories(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.is_file() or path.is_dir()]


def warn(reason: str) -> None:
    """Say why something is left out: a warning of the logger ``trackers.readers``."""
    logging.getLogger("trackers.readers").warning("trackers: left out: %s", reason)


def those_of(
    many: Sequence[T],
    make: Callable[[T], U],
    say: Callable[[str], object] = warn,
    name: Callable[[T], str] = lambda item: str(getattr(item, "source", item)),
) -> list[U]:
    """Apply ``make`` to each; of several, those that can't be read are left out, with a message.

    Args:
        name: gives the name of an item for messages; default its ``source``, or the item as text.

    Raises:
        NotFound: none can be read.
    """
    made: list[U] = []
    lost: list[NotFound] = []
    for item in counted(many, "reading", "runs"):
        try:
            with boundary(name(item)):
                made.append(make(item))
        except NotFound as error:
            lost.append(error)
    if not made:
        raise lost[0]
    for reason in lost:
        say(str(reason))
    return made


def newest_first(paths: Sequence[Path], source_run: Callable[[Path], SourceRun]) -> list[SourceRun]:
    """The runs in these files, without those of another kind: see :func:`those_of`."""

    def made(path: Path) -> SourceRun:
        check_size(path)
        return source_run(path)

    return sorted(those_of(paths, made), key=lambda run: run.created, reverse=True)


def check_size(path: Path) -> None:
    """Check that a file isn't mostly holes: such a file takes no disk, and reading it takes for ever.

    Raises:
        Damaged: it is nearly all holes. OSError: it isn't there.
    """
    if is_hollow(path):
        raise Damaged(f"{path} is damaged: it claims {path.stat().st_size:,} bytes, and is nearly all holes")


def is_hollow(path: Path) -> bool:
    """Whether a file is nearly all holes.

    Raises:
        OSError: it isn't there.
    """
    stat = path.stat()
    return stat.st_size > max(HOLES_BYTES, getattr(stat, "st_blocks", stat.st_size) * 512 * HOLES)


def gone_error(scheme: str, path: Path) -> NotFound:
    """The error for a run that was deleted after it was listed."""
    return NotFound(f"{scheme}: {path} has gone")


def version(paths: Iterable[Path]) -> str:
    """A fingerprint that changes when a file is written."""
    parts = []
    for path in sorted(paths):
        stat = path.stat()
        parts.append(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def identity(path: Path) -> str:
    """An id made from the path, for a run that has no id of its own."""
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:12]


_LOG_SUFFIXES = (*text_file.SUFFIXES, ".log", ".txt", ".out")


def log_id(path: Path) -> str:
    """The id of a console log as a run, made from its path alone: a benchmark's result names the log by it."""
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", log_name(path)).strip("-") or "log"
    return f"{clean[:100]}-{digest}"


def log_name(path: Path) -> str:
    """A console log's name without the suffixes of one, packed or not."""
    name = path.name
    while name.endswith(_LOG_SUFFIXES):
        name = name[: name.rindex(".")]
    return name


def path(run: SourceRun) -> Path:
    """The file or directory that a run's source names."""
    return Path(run.source.partition(":")[2])


def is_number(value: Any) -> bool:
    """Whether a value is a number or a truth value."""
    return isinstance(value, (int, float))


def unix(text: Any) -> float | None:
    """A time in ISO 8601 (local where it names no zone), or in Unix seconds, as Unix seconds; else None."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text) if abs(text) < TIME_MAX else None
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def unix_or(text: Any, otherwise: float) -> float:
    """:func:`unix`, or another time where that is none."""
    found = unix(text)
    return otherwise if found is None else found


def starts(times: Any, worlds: Any = None, first: Any = 1) -> Iterator[Record]:
    """The starts of a run that was resumed or forked, as our files have them: Unix seconds of each, the first first.

    Args:
        worlds: on how many ranks each trained, where these differ. first: 0 where the first is a fork's parent's.
    """
    times, worlds = (found if isinstance(found, list) else [] for found in (times, worlds))
    for number, (began, ranks) in enumerate(itertools.zip_longest(times, worlds[: len(times)]), int(first != 0)):
        if is_number(began) and abs(began) < TIME_MAX:
            world = ranks if type(ranks) is int and 0 < ranks < 2**31 else 0
            yield Start(time=float(began), attempt=number, rank=0, world_size=world)


def merged(streams: Iterable[Iterator[list[Record]]]) -> Iterator[Record]:
    """Streams as one, by time; the order inside each stays."""
    heads: list[tuple[list[Record], int, Iterator[list[Record]]]] = []
    for stream in streams:
        _advance(heads, stream)
    while len(heads) > 1:
        heads.sort(key=lambda head: head[0][head[1]].time)
        (first, at, stream), until = heads[0], heads[1][0][heads[1][1]].time
        start, at = at, at + 1  # the first one in any case: a time that is no number is later than none
        while at < len(first) and first[at].time <= until:
            at += 1
        yield from first[start:at]
        heads.pop(0)
        if at < len(first):
            heads.append((first, at, stream))
        else:
            _advance(heads, stream)
    for batch, at, stream in heads:
        yield from batch[at:]
        for more in stream:
            yield from more


def _advance(heads: list[tuple[list[Record], int, Iterator[list[Record]]]], stream: Iterator[list[Record]]) -> None:
    batch = next((batch for batch in stream if batch), None)
    if batch is not None:
        heads.append((batch, 0, stream))
