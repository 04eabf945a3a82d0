"""What a delivery asks of W&B's offline files: which rows they hold, whether they are whole, who writes them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import Unavailable
from trackers.formats.wandb_file import HEADER, records, scan, values

WRITER_TIMEOUT_S = 30.0


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


def history(path: Path) -> Iterator[dict[str, Any]]:
    """Rows, each with its ``_step``."""
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            yield {**values(record.history.item), "_step": record.history.step.num}


def offline_files(directory: Path, run_id: str) -> list[Path]:
    """The offline files of one run below a ``wandb`` directory, oldest first."""
    found = directory.glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    return sorted(found, key=lambda path: path.parent.name)


def last_step(path: Path) -> int:
    """The highest ``_step`` in a file; -1 if it has no row."""
    found = (record.history.step.num for record in records(path) if record.WhichOneof("record_type") == "history")
    return max(found, default=-1)


def has_ended(path: Path) -> bool:
    """Whether the file's writer has said that it wrote everything: an exit record, complete or not."""
    return any(record.WhichOneof("record_type") == "exit" for record in records(path))


def names(paths: Iterable[Path], first: int = 0) -> dict[int, frozenset[str]]:
    """The names in each row of some files, by ``_step``, from a ``_step`` on."""
    known: dict[frozenset[str], frozenset[str]] = {}
    found: dict[int, frozenset[str]] = {}
    for path in paths:
        for record in records(path):
            if record.WhichOneof("record_type") == "history" and record.history.step.num >= first:
                keys = frozenset(item.key or ".".join(item.nested_key) for item in record.history.item)
                found[record.history.step.num] = known.setdefault(keys, keys)
    return found
