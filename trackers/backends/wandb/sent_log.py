"""``wandb-sent.jsonl``: a log of what was sent that W&B can't be queried for later. It outlives the delivery's state.

Which samples were left out because W&B's own agent covered their time, and which alerts were sent. Rows aren't noted:
the server, or the offline files, say which they hold. The file only grows; a line is one fact.
"""

from __future__ import annotations

import os

import msgspec

from trackers.errors import UNDECODABLE, Unavailable
from trackers.support import confined
from trackers.tracker import RunInfo

NAME = "wandb-sent.jsonl"


class Fact(msgspec.Struct, omit_defaults=True):
    """One line. agent: begin and end of a time, in Unix seconds, and the machine's number. alert: a record's id."""

    agent: tuple[float, float, int] | None = None
    alert: str = ""


class Sent:
    """The file of one run, read once.

    Attributes:
        times: begin to end, by begin and machine. alerts: ids of records.
    """

    def __init__(self, info: RunInfo) -> None:
        self._path = info.path(NAME)
        self.times: dict[tuple[float, int], float] = {}
        self.alerts: set[str] = set()
        try:
            lines = confined.read(self._path, root=self._path.parent).split(b"\n")
        except OSError:
            lines = []
        decode = msgspec.json.Decoder(Fact).decode
        for line in lines:
            try:
                fact = decode(line)
            except UNDECODABLE:  # a torn line, or none
                continue
            self._take(fact)

    def cover(self, begin: float, end: float, node: int) -> None:
        """Note that the agent covers a time on a machine.

        Raises:
            Unavailable: it can't be written; nothing was noted.
        """
        self._add(Fact(agent=(begin, end, node)))

    def alert(self, record_id: str) -> None:
        """Note an alert that was sent.

        Raises:
            Unavailable: it can't be written.
        """
        self._add(Fact(alert=record_id))

    def _add(self, fact: Fact) -> None:
        try:
            fd = confined.open_fd(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, root=self._path.parent)
            try:
                size = os.fstat(fd).st_size
                if size:
                    os.lseek(fd, size - 1, os.SEEK_SET)
                torn = b"\n" if size and os.read(fd, 1) != b"\n" else b""
                os.write(fd, torn + msgspec.json.encode(fact) + b"\n")
            finally:
                os.close(fd)
        except OSError as error:
            raise Unavailable(f"can't write {self._path}: {error.strerror or error}; it is tried again") from error
        self._take(fact)

    def _take(self, fact: Fact) -> None:
        if fact.agent is not None:
            begin, end, node = fact.agent
            self.times[begin, node] = max(end, self.times.get((begin, node), end))
        if fact.alert:
            self.alerts.add(fact.alert)
