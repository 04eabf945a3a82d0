"""W&B's own agent, which fills a run's system tab: when it runs, its samples, and a log of what was sent.

It reads the machine that it is on, so it runs only where training runs, while that lives, and for the job's GPUs.
Everywhere else the samples of the run's journal go to W&B instead, as ``system/…`` in the history; those from while
the agent was at work don't, or all would be there twice. Of a run on several machines it stands for one: the others'
samples are always the history's.

``wandb-sent.jsonl`` is a log of what was sent that W&B can't be queried for later. It outlives the delivery's state.

Which samples were left out because W&B's own agent covered their time, and which alerts were sent. Rows aren't noted:
the server, or the offline files, say which they hold. The file only grows; a line is one fact.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, Unavailable
from trackers.formats.vendor_system_names import is_machine
from trackers.records import SYSTEM_PREFIX, Metrics
from trackers.support import confined
from trackers.tracker import RunInfo, State

SENT_NAME = "wandb-sent.jsonl"


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
        self._path = info.path(SENT_NAME)
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


PASSED = "TRACKER_JOB_PASSED"
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
AHEAD_S = 60.0
"""Time after the last sample that is recorded in advance as covered by the agent, in seconds."""
_NODE = re.compile(re.escape(SYSTEM_PREFIX) + r"node(\d+)\.")


def runs(info: RunInfo, lives: bool) -> bool:
    """Whether the agent is to run: training lives on this host, sampling is wanted, and its GPUs can be named.

    Args:
        lives: training runs now, on this host.
    """
    if not lives or not info.option("TRACKER_SAMPLE", True):
        return False
    try:
        return device_ids(info) != []
    except ValueError:
        return False


def settings(info: RunInfo, lives: bool) -> dict[str, Any]:
    """W&B's settings for it."""
    if not runs(info, lives):
        return {"x_disable_stats": True, "x_stats_pid": info.pid if lives else None}
    return {"x_disable_stats": False, "x_stats_pid": info.pid, "x_stats_gpu_device_ids": device_ids(info)}


def device_ids(info: RunInfo, environ: Mapping[str, str] = os.environ) -> list[int] | None:
    """The job's GPUs by index, as the agent takes them; None for all.

    Raises:
        ValueError: the job names them otherwise, by UUID or by two variables at once, or it can't be told how.
    """
    if info.option("TRACKER_GPU_SCOPE", "job") == "node":
        return None
    chosen = _chosen(info, environ)
    if not chosen:
        return None
    if len(chosen) > 1:
        raise ValueError("two variables choose GPUs")
    found: list[int] = []
    for entry in chosen[0].split(",") if chosen[0].strip() else []:
        index = int(entry)
        if index < 0:
            break
        found.append(index)
    return found


def _chosen(info: RunInfo, environ: Mapping[str, str]) -> list[str]:
    """The variables that training passed on to its relay; those of training itself where somebody else delivers."""
    if environ.get(PASSED) == str(info.pid):
        return [environ[f"TRACKER_JOB_{name}"] for name in VARIABLES if f"TRACKER_JOB_{name}" in environ]
    import psutil

    try:
        own = psutil.Process(info.pid).environ()
    except (psutil.Error, OSError) as error:
        raise ValueError(f"training's environment can't be read: {error}") from None
    return [own[name] for name in VARIABLES if name in own]


def node(info: RunInfo) -> int:
    """The number of the machine that the run is delivered from while it is trained: its main rank's."""
    return int(info.attempts[-1].get("node", 0)) if info.attempts else 0


class Coverage:
    """The times that the agent covered, and on which machine, over all processes that ever delivered this run.

    What was decided once stays so: a stream that is delivered again must give the same rows, also where the delivery's
    state was lost. So the end of a time is written down before a sample in it is left out.

    Args:
        state: what an older version wrote the times to.
        on: the agent runs from now on. node: this machine's number in the run.
    """

    def __init__(self, sent: Sent, state: State, on: bool, node: int = 0) -> None:
        self._sent = sent
        self._older = [(times[0], times[1], int([*times, 0][2])) for times in state.get("agent", [])]
        self._on = on
        self._node = node
        self._begin = time.time()
        self._end = self._begin

    def covers(self, record: Metrics) -> bool:
        """Whether these are samples of a machine, from a time that the agent covers there.

        Raises:
            Unavailable: that can't be written down.
        """
        if not all(is_machine(record, name) for name in record.values):
            return False
        said = _NODE.match(next(iter(record.values), ""))
        node = int(said[1]) if said else 0
        at = record.time
        if self._on and node == self._node and at > self._end and at >= self._begin:
            self._sent.cover(self._begin, at + AHEAD_S, node)
            self._end = at + AHEAD_S
        return any(begin <= at <= end and node == where for (begin, where), end in self._sent.times.items()) or any(
            begin <= at <= end and node == where for begin, end, where in self._older
        )
