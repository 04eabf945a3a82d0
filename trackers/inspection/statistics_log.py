"""The text logs of statistics, line for line as nvdlfw-inspect writes its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.values.device_copy import PendingRecord, Queue, Transfer

FOLDER = "nvdlfw_inspect_statistics_logs"
"""Source: nvdlfw_inspect/logging.py, as of version 0.2.2."""
DRAIN_S = 10.0


class TextLog:
    """One rank's file. What an earlier start has written stays.

    Args:
        directory: where ``nvdlfw_inspect_statistics_logs`` is. rank: of all processes.
        say: called, once, when the file can't be written any more.

    Raises:
        UsageError: the file can't be made.
    """

    def __init__(self, directory: str | os.PathLike[str], rank: int, say: Callable[[str], None]) -> None:
        self.path = Path(directory).expanduser() / FOLDER / f"nvdlfw_inspect_globalrank-{rank}.log"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd: int | None = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UsageError(
                f"tensor inspection: log_dir {os.fspath(directory)!r} can't be written: {error.strerror}: give another"
            ) from None
        self._say = say
        self._queue = Queue(self._write)

    def log(self, values: Mapping[str, Any], iteration: int) -> None:
        """Write a line for each value; those that come from a GPU when they are there, in order."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f",{int(now * 1000) % 1000:03d}"

        def build(arrived: Mapping[str, Any]) -> bytes:
            return "".join(line(stamp, name, iteration, value) for name, value in arrived.items()).encode()

        numbers = dict(values)
        if len(self._queue) or any(isinstance(value, Transfer) for value in numbers.values()):
            self._queue.add(PendingRecord(numbers, build))
        else:
            self._write(build(numbers))

    def drain(self) -> None:
        """Write what has arrived meanwhile."""
        if len(self._queue):
            self._queue.drain()

    def close(self) -> None:
        """Write the rest, waiting some seconds for what is on its way."""
        self._queue.finish(DRAIN_S)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, lines: bytes) -> None:
        if self._fd is None:
            return
        try:
            os.write(self._fd, lines)
        except OSError as error:
            os.close(self._fd)
            self._fd = None
            self._say(f"tensor inspection: {self.path} can't be written ({error.strerror}): the trackers go on")


def line(stamp: str, name: str, iteration: int, value: float) -> str:
    """A line of the log."""
    return f"{stamp} - INFO - {name} \t\t\t\t iteration={iteration:06d} \t\t\t\t value={value:.4f}\n"
