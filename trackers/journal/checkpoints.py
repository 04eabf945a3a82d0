"""The journal's record of a checkpoint from which training continues."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

from trackers.journal.run_directory import RunDirectory
from trackers.metrics.checkpoint_keys import ITERATION
from trackers.records import CorruptLine, Metrics, Number, decode

_MARK = f'"{ITERATION}"'.encode()


def saved(run: RunDirectory, step: int) -> dict[str, Number]:
    """The values that the newest checkpoint saved at this step was recorded by (``naming.checkpoint``); {} if none was.

    Looks for the few lines alone that speak of checkpoints: a long journal costs no more than its bytes.
    """
    for name in reversed(run.stream_names()):
        if name.writer != "rank":
            continue
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is empty
            found = _search(run.stream(name), step)
            if found:
                return found
    return {}


def _search(path: Path, step: int) -> dict[str, Number]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = len(text)
        while (place := text.rfind(_MARK, 0, end)) >= 0:
            end = text.rfind(b"\n", 0, place) + 1
            found = _values(text[end : text.find(b"\n", place)])
            if found.get(ITERATION) == step:
                return found
    return {}


def _values(line: bytes) -> dict[str, Number]:
    try:
        record = decode(line)
    except CorruptLine:
        return {}
    return record.values if isinstance(record, Metrics) else {}
