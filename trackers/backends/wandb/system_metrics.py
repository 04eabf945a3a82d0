"""A run's system tab: W&B's own agent, which samples it replaces, the others, and a log of what was sent.

The agent measures its own machine, so it runs only on the host of training, while training runs, and for the job's
GPUs. In all other cases the samples in the run's journal are sent to W&B as the agent sends its own, with their times
and at no step; samples from the time that the agent covered are left out, or they would appear twice. Of a run on
several machines the agent covers one: the samples of the others are always sent.

``wandb-sent.jsonl`` is a log of what W&B can't be queried for later: the times that the agent covered, so that samples
were left out, and the alerts that were sent. It outlives the delivery's state. Rows aren't in it: the server, or the
offline files, show which rows they have. The file is only appended to, one fact a line.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.wandb.private_names import interface
from trackers.errors import UNDECODABLE, Unavailable
from trackers.formats import vendor_system_names, wandb_datastore
from trackers.formats.vendor_system_names import is_machine
from trackers.records import SYSTEM_PREFIX, Metrics
from trackers.support import confined
from trackers.tracker import RunInfo

SENT_NAME = "wandb-sent.jsonl"


class Fact(msgspec.Struct, omit_defaults=True):
    """One line. agent: begin and end of a covered time, in Unix seconds, and the machine. alert: a record's id."""

    agent: tuple[float, float, int] | None = None
    alert: str = ""


class SentSamples:
    """The log of one run; it is read once.

    Attributes:
        times: end of each covered time, by its begin and machine. alerts: ids of the alerts that were sent.
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
            except UNDECODABLE:  # an incomplete line, or an empty one
                continue
            self._take(fact)

    def cover(self, begin: float, end: float, node: int) -> None:
        """Note that the agent covers a time on a machine.

        Raises:
            Unavailable: the log can't be written; nothing was noted.
        """
        self._add(Fact(agent=(begin, end, node)))

    def alert(self, record_id: str) -> None:
        """Note an alert that was sent.

        Raises:
            Unavailable: the log can't be written.
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
"""Time after the last sample that is noted in advance as covered by the agent, in seconds."""
_NODE = re.compile(re.escape(SYSTEM_PREFIX) + r"node(\d+)\.")


def runs(info: RunInfo, trains_here: bool) -> bool:
    """Whether the agent is to run: training runs on this host, sampling is on, and the job's GPUs have known indices.

    Args:
        trains_here: whether training runs now, on this host.
    """
    if not trains_here or not info.option("TRACKER_SAMPLE", True):
        return False
    try:
        return device_ids(info) != []
    except ValueError:
        return False


def settings(info: RunInfo, trains_here: bool) -> dict[str, Any]:
    """W&B's settings for the agent."""
    if not runs(info, trains_here):
        return {"x_disable_stats": True, "x_stats_pid": info.pid if trains_here else None}
    return {"x_disable_stats": False, "x_stats_pid": info.pid, "x_stats_gpu_device_ids": device_ids(info)}


def device_ids(info: RunInfo, environ: Mapping[str, str] = os.environ) -> list[int] | None:
    """Indices of the job's GPUs, as the agent takes them; None for all.

    Raises:
        ValueError: they are given by UUID or by two variables at once, or training's environment can't be read.
    """
    if info.option("TRACKER_GPU_SCOPE", "job") == "node":
        return None
    device_lists = _device_variables(info, environ)
    if not device_lists:
        return None
    if len(device_lists) > 1:
        raise ValueError("two variables choose GPUs")
    indices: list[int] = []
    for entry in device_lists[0].split(",") if device_lists[0].strip() else []:
        index = int(entry)
        if index < 0:  # CUDA takes none behind an invalid one
            break
        indices.append(index)
    return indices


def _device_variables(info: RunInfo, environ: Mapping[str, str]) -> list[str]:
    """Values of the variables that select GPUs: as passed to training's relay, else of training itself."""
    if environ.get(PASSED) == str(info.pid):
        return [environ[f"TRACKER_JOB_{name}"] for name in VARIABLES if f"TRACKER_JOB_{name}" in environ]
    import psutil

    try:
        environment = psutil.Process(info.pid).environ()
    except (psutil.Error, OSError) as error:
        raise ValueError(f"training's environment can't be read: {error}") from None
    return [environment[name] for name in VARIABLES if name in environment]


def node(info: RunInfo) -> int:
    """Number of the machine that delivers the run during training: the main rank's."""
    return int(info.attempts[-1].get("node", 0)) if info.attempts else 0


class Coverage:
    """The times that the agent covered, by machine, over all processes that have delivered this run.

    A covered time never changes: a stream that is delivered again must give the same rows, even if the delivery's state
    was lost. So the end of a time is logged before a sample in it is left out.

    Args:
        agent_runs: whether the agent runs from now on.
        node: this machine's number in the run.
    """

    def __init__(self, sent: SentSamples, agent_runs: bool, node: int = 0) -> None:
        self._sent = sent
        self._agent_runs = agent_runs
        self._node = node
        self._begin = time.time()
        self._end = self._begin

    def covers_some(self, record: Metrics) -> bool:
        """Whether the agent samples, or has sampled, for the run, and samples are of its only machine."""
        several = _NODE.match(next(iter(record.values), "")) is not None
        return not several and (self._agent_runs or bool(self._sent.times))

    def covers(self, record: Metrics) -> bool:
        """Whether these are a machine's samples from a time that the agent covers on it.

        Raises:
            Unavailable: the log can't be written.
        """
        if not are_machine(record):
            return False
        match = _NODE.match(next(iter(record.values), ""))
        node = int(match[1]) if match else 0
        sampled_at = record.time
        if self._agent_runs and node == self._node and sampled_at > self._end and sampled_at >= self._begin:
            self._sent.cover(self._begin, sampled_at + AHEAD_S, node)
            self._end = sampled_at + AHEAD_S
        return any(begin <= sampled_at <= end and node == machine for (begin, machine), end in self._sent.times.items())


Event = tuple[int, frozenset[str]]
"""What identifies a line of the system tab: its time in milliseconds, and its names as W&B has them."""


def are_machine(record: Metrics) -> bool:
    """Whether a record has nothing but a machine's samples."""
    return all(is_machine(record, name) for name in record.values)


def event(time: float, names: Iterable[str]) -> Event:
    """What identifies a line. time: Unix seconds."""
    return round(time * 1000), frozenset(names)


def events_in(paths: Iterable[Path]) -> Iterator[Event]:
    """The lines of offline files."""
    for path in paths:
        for record in wandb_datastore.records(path):
            if record.WhichOneof("record_type") == "stats":
                sampled_at = record.stats.timestamp
                names = (f"{SYSTEM_PREFIX}{item.key}" for item in record.stats.item)
                yield event(sampled_at.seconds + sampled_at.nanos / 1e9, names)


class SampleSender:
    """Sends samples to the system tab, each once.

    Args:
        run: W&B's own object.
        held: the lines that W&B already has; asked for when there is something to send.
    """

    def __init__(self, run: Any, held: Callable[[], Iterable[Event]]) -> None:
        self._run = run
        self._ask = held
        self._held: set[Event] | None = None

    def reopened(self, run: Any) -> None:
        """Continue with another session's run."""
        self._run = run

    def add(self, record: Metrics, *, agent: bool = False) -> None:
        """Send a machine's samples, unless W&B has them. agent: W&B's own samples for the run, too."""
        from wandb.proto import wandb_internal_pb2 as protocol

        if self._held is None:
            self._held = set(self._ask())
        values = vendor_system_names.wandb(record.values, agent=agent)
        line = event(record.time, (SYSTEM_PREFIX + name for name in values))
        if not values:
            return
        if line in self._held:
            self._held.remove(line)
            return
        stats = protocol.StatsRecord(stats_type=protocol.StatsRecord.SYSTEM)
        stats.timestamp.FromNanoseconds(int(record.time * 1e9))
        for name, value in values.items():
            stats.item.add(key=name, value_json=json.dumps(value))
        interface(self._run)._publish(protocol.Record(stats=stats))
