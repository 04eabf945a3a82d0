"""The file of a result: one for each run, whoever writes it, and never another run's."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.benchmark.result import file_name, text
from trackers.formats.artifact_place import claim
from trackers.support import confined

PATTERN = "benchmark_*.json"
HEAD_BYTES = 16384
"""Bytes read to find which run a result belongs to; it precedes the series."""
MOST = 10_000
"""Results of one platform and second."""


def write(document: Mapping[str, Any], directory: Path, ours: Path | None = None) -> Path:
    """Write a result into a directory, whole or not at all; returns its file.

    Args:
        ours: the file of an earlier result of the run, which is replaced; default: looked for under the documented
            name alone. A name that another run's result has gets a number.

    Raises:
        OSError: it can't be written; nothing was changed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"benchmark-{re.sub(r'[^A-Za-z0-9_-]', '_', str(document['source'].get('run_id') or os.getpid()))[:128]}"
    for stray in directory.glob(f".{stem}.*.tmp"):  # of a process that was killed
        with contextlib.suppress(OSError):
            stray.unlink()
    temporary = confined.temporary(directory / stem)
    try:
        confined.write_new(temporary, text(document).encode("utf-8"), root=directory)
        if ours is not None:
            confined.replace(temporary, ours, root=directory)
            return ours
        named = directory / file_name(document)
        for number in range(1, MOST):
            path = named if number == 1 else named.with_stem(f"{named.stem}_{number}")
            if is_of(path, document["source"]):
                confined.replace(temporary, path, root=directory)
                return path
            if claim(temporary, path):
                return path
        raise FileExistsError(f"{MOST} results are named like {named.name}")
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def save(document: Mapping[str, Any], directory: Path, known: Path | None = None) -> Path:
    """Write the result of a run, in the place of its earlier one if there is any; returns its file.

    The name stays as it was, unless the run went on to another platform.

    Args:
        known: where the earlier one was last seen.

    Raises:
        OSError: it can't be written; nothing was changed.
    """
    seen = known is not None and known.parent == directory and is_of(known, document["source"])
    before = known if seen else find(directory, document["source"])
    same = before is not None and before.name.startswith(f"benchmark_{document['platform']}_")
    path = write(document, directory, before if same else None)
    if before is not None and before != path:
        with contextlib.suppress(OSError):
            before.unlink(missing_ok=True)
    return path


def find(directory: Path, source: Mapping[str, Any]) -> Path | None:
    """The newest result of a run in a directory; None where there is none."""
    if not source.get("run_id"):
        return None
    found = [path for path in directory.glob(PATTERN) if is_of(path, source)]
    return max(found, key=lambda path: path.name, default=None)


def is_of(path: Path, source: Mapping[str, Any]) -> bool:
    """Whether a file is a result, and of the same run, by its id and project; else of the same file."""
    if str(source.get("file")).removeprefix("log:") == "-":  # standard input is another one each time
        return False
    names = ("run_id", "project") if source.get("run_id") else ("file",) if source.get("file") else ()
    try:
        with confined.open_file(path, root=path.parent) as result:
            head = result.read(HEAD_BYTES)
    except OSError:
        return False
    marks = [f'"{name}": {msgspec.json.encode(source.get(name)).decode()}'.encode() for name in names]
    return bool(marks) and all(mark in head for mark in (*marks, b'"performance_metrics"'))
