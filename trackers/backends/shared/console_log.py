"""What training printed as a text file, for trackers that have or take files: it grows, and is sent now and then.

Its length is part of the tracker's state, so that each line is in it once. Where it is sent, that is when it has grown,
after :data:`SEND_S`, then after twice as long each time, and when the run ends. Lines of other ranks begin with
``[rank 3]``; a line that hasn't ended (a progress bar) is there when it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from trackers.backends.shared.append_file import FileShrunk, OwnedFile
from trackers.records import Console

NAME = "console.log"
SEND_S = (30.0, 1800.0)
"""Time after which a file that has grown is sent, at first and at most, in seconds."""
STATE = "console"


def console_lines(record: Console) -> list[str]:
    """Lines of a record as one log of all ranks has them."""
    lines = [line.replace("\r", " ").replace("\n", " ") for line in record.lines]
    if record.left_out:
        lines.insert(0, f"… {record.left_out:,} bytes left out …")
    return lines if record.rank is None else [f"[rank {record.rank}] {line}" for line in lines]


class ConsoleLog:
    """The file of one tracker.

    Args:
        path: where it lies; made with the first line. root: the directory that it must lie beneath.
        state: the tracker's.
    """

    def __init__(self, path: Path, root: Path, state: MutableMapping[str, Any]) -> None:
        self.path = path
        self._state = state
        self._file = OwnedFile(path, root)
        self._seq = 0
        self._opened = False
        self._pause_s = SEND_S[0]
        self._send_at = 0.0

    def add(self, record: Console) -> None:
        """Append the lines of a record, unless they are there.

        Raises:
            Unavailable: they can't be written.
        """
        state = dict(self._state.get(STATE) or {})
        if not self._opened:
            self._open(state)
        if (record.seq and record.seq <= self._seq) or record.partial:
            return
        self._file.append("".join(f"{line}\n" for line in console_lines(record)).encode("utf-8", "replace"))
        self._seq = max(self._seq, record.seq)
        self._send_at = self._send_at or time.monotonic() + self._pause_s
        self._state[STATE] = {**state, "length": self._file.length, "seq": self._seq}

    def send(self, put: Callable[[Path], object], last: bool = False) -> None:
        """Send the file, if it is due. last: in any case, if it has grown.

        Args:
            put: sends it; what it raises is passed on, and the file is due again later.
        """
        state = dict(self._state.get(STATE) or {})
        length = int(state.get("length", 0))
        if length <= int(state.get("sent", 0)) or not (last or (self._send_at and time.monotonic() >= self._send_at)):
            return
        self._pause_s = min(SEND_S[1], 2 * self._pause_s)
        self._send_at = time.monotonic() + self._pause_s
        put(self.path)
        self._state[STATE] = {**state, "sent": length}
        self._send_at = 0.0

    def close(self) -> None:
        """Leave the file."""
        self._file.close()
        self._opened = False

    def _open(self, state: MutableMapping[str, Any]) -> None:
        self._seq = int(state.get("seq", 0))
        try:
            self._file.open(int(state.get("length", 0)))
        except FileShrunk:  # somebody removed it: what comes now is kept, the journal has all
            self._file.open(0)
        self._opened = True
