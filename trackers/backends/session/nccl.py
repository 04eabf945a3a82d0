"""NCCL's debug output (``NCCL_DEBUG``): reads the growing files of all ranks on this machine's filesystem.

Training's side gives each rank a file (``trackers.training.environment``). NCCL's lines say which host and process
they are from, but no time, so they are passed on as they are.
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug-file
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from trackers.support import confined

FOLDER = "nccl"
BLOCK_BYTES = 1 << 20
"""Read from a file at a time: with NCCL_DEBUG_SUBSYS=ALL they are large."""
_LEVEL = re.compile(r"\bNCCL (WARN|TRACE|ERROR)\b")
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "TRACE": logging.DEBUG}
_WHO = re.compile(r"nccl|gloo|mpi|ucc|collective|process ?group|watchdog|communicator|recv|rendezvous", re.IGNORECASE)
_TIMEOUT = re.compile(r"time[d ]*-?out", re.IGNORECASE)
_INITIALIZATION = re.compile(
    r"init_process_group|DistStoreError|DistNetworkError|rendezvous|TCPStore|ncclCommInit|NCCL(?:(?!NCCL).)*initiali[sz]"
    r"|initiali[sz](?:(?!initiali[sz]).)*(process ?group|NCCL|backend)|ncclUniqueId",
    re.IGNORECASE,
)


def gather(places: Sequence[Path], offsets: dict[str, int], *, last: bool = False) -> list[str]:
    """Lines that have come since the last time, of one file, a block at most; [] when there are no more.

    Args:
        places: folders, in which files of the same name are the same. offsets: by file, what was read; it is changed.
        last: take a line that has no end yet, too.
    """
    for path in sorted((path for place in places for path in _files(place)), key=lambda path: path.name):
        offset = offsets.get(path.name, 0)
        with contextlib.suppress(OSError), confined.open_file(path, root=path.parent) as file:
            file.seek(offset)
            block = file.read(BLOCK_BYTES)
            whole = len(block) == BLOCK_BYTES or last
            end = block.rfind(b"\n") + 1 or (len(block) if whole else 0)
            if end:
                offsets[path.name] = offset + end
                return block[:end].decode("utf-8", "replace").splitlines()
    return []


def _files(place: Path) -> list[Path]:
    try:
        return [path for path in place.iterdir() if path.suffix == ".log" and not path.is_symlink()]
    except OSError:
        return []


def collect(places: Sequence[Path], home: Path) -> None:
    """Move the files of an ended run to its own directory, so that they go where it goes."""
    for place in places:
        if place == home:
            continue
        for path in _files(place):
            with contextlib.suppress(OSError):  # another filesystem, a file that is gone: it stays where it is
                confined.make_folder(home)
                confined.move(path, home / path.name)
        with contextlib.suppress(OSError):
            place.rmdir()
            place.parent.rmdir()


def level_of(line: str) -> int:
    """The level of one of NCCL's lines."""
    found = _LEVEL.search(line)
    return _LEVELS[found[1]] if found else logging.INFO


def timeout(text: str) -> str:
    """The warning for a text about a collective that timed out; "" for any other text."""
    who, what = _WHO.search(text), _TIMEOUT.search(text)
    if who is None or what is None or not (_TIMEOUT.search(text, who.end()) or _WHO.search(text, what.end())):
        return ""
    return f"{'NCCL communication' if 'nccl' in text.lower() else 'Communication'} timeout: {text}"


def failed_start(text: str) -> str:
    """The error for an exception that says that ranks didn't connect; "" for any other."""
    return f"Distributed backend initialization failed: {text}" if _INITIALIZATION.search(text) else ""
