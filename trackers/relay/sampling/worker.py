"""The sampler's process: reads GPUs and host until it is told to end, and writes its own stream."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from trackers import records
from trackers.hardware import metric_names
from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.host import Host
from trackers.hardware.plan import BEAT, BEGUN, READING, Plan
from trackers.hardware.recorder import Sampling
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter, find_finish, tail
from trackers.records import Environment, Metrics, Start, Text
from trackers.support import process_info
from trackers.support.process_info import readable

WRITER = "sampler"
"""The kind of stream that samples are in: ``sampler-<node>.<attempt>``."""
LOOK_S = 0.5
"""Between looks for the end of a run: each reads from a filesystem that many machines share."""


class StepFollower:
    """The newest step in a stream that somebody else writes: only its end is read, and only when it has grown."""

    ENDS = (4096, 65536)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = -1
        self._newest: int | None = None

    def __call__(self) -> int | None:
        """The newest step; None before the first."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return self._newest
        if size != self._size:
            self._size = size
            for end in self.ENDS:
                steps = [r.step for r in tail(self._path, end) if isinstance(r, (Metrics, Text)) and r.step is not None]
                if steps:
                    self._newest = steps[-1]
                    break
        return self._newest


def energy_before(run: RunDirectory, node: int) -> float:
    """Energy in J that was counted on this node so far, in any attempt."""
    for name in reversed([name for name in run.stream_names() if name.writer == WRITER and name.number == node]):
        for record in reversed(tail(run.stream(name), 1 << 20)):
            if isinstance(record, Metrics):
                for metric, value in record.values.items():
                    if metric.startswith(metric_names.JOB) and metric.endswith("energy_total_j"):
                        return float(value)
    return 0.0


def sample(run: RunDirectory, messages: Messages, plan: Plan, over: Callable[[], bool] | None = None) -> int:
    """Sample until SIGTERM comes, or nobody listens to the beat any more. Returns the exit code.

    Args:
        over: asked twice a second; True ends it as well.
    """
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def say(text: str) -> None:
        where = f" of node {plan.node}" if plan.nodes > 1 else ""
        messages.say(f"hardware{where}: {text}")

    clock = process_info.Clock()
    rank = run.stream(StreamName("rank", 0, plan.attempt))
    before_j = energy_before(run, plan.node)
    writer = StreamWriter(run.stream(StreamName(WRITER, plan.node, plan.attempt)))
    if not os.fstat(writer.fd).st_size:
        start = Start(time=clock.now(), attempt=plan.attempt, node=plan.node, host=process_info.host(), pid=os.getpid())
        writer.write(records.encode(start))
    _beat(plan.beat_fd, BEGUN)  # from here on it takes signals
    gpus = Gpus(say, scope=plan.scope, entering=lambda: _beat(plan.beat_fd, READING))
    _beat(plan.beat_fd, READING if gpus.gpus else BEGUN)
    told = {"gpus": metric_names.known(gpus.read(), gpus.label, plan.node if plan.nodes > 1 else None)}
    _beat(plan.beat_fd, BEGUN)
    writer.write(records.encode(Environment(time=clock.now(), values=told)))
    sampling = Sampling(
        plan,
        _Told(gpus, plan.beat_fd),
        Host(plan.pid or None, str(run.path), say),
        lambda record: writer.write(records.encode(record)),
        StepFollower(rank),
        before_j=before_j,
        clock=time.monotonic,
        now=clock.now,
    )
    sampling.begin()
    due = time.monotonic()
    while _beat(plan.beat_fd):
        writer.mend(lambda: None)  # somebody may have deleted it; its folder is for training to put back
        due = max(due + plan.interval_s, time.monotonic())
        if _asked_to_end(woken, due, over):
            finish = find_finish(rank)
            sampling.finish(finish.time if finish is not None else None)
            break
        sampling.take()
    writer.release()
    if plan.beat_fd >= 0:
        os.close(plan.beat_fd)  # tells the supervisor that all is written, before this process is gone
    return 0


class _Told:
    """GPUs of which the supervisor is told when a reading begins and when it is over: a driver may hang inside."""

    def __init__(self, gpus: Gpus, beat_fd: int) -> None:
        self._gpus = gpus
        self._beat_fd = beat_fd
        self.label = gpus.label

    def read(self) -> list[Reading]:
        if self._gpus.gpus:
            _beat(self._beat_fd, READING)
        readings = self._gpus.read()
        _beat(self._beat_fd)
        return readings


def _asked_to_end(woken: int, until: float, over: Callable[[], bool] | None) -> bool:
    """Wait until a time on the monotonic clock; True as soon as the end is asked for."""
    while True:
        left = max(0.0, until - time.monotonic())
        if readable(woken, left if over is None else min(left, LOOK_S)):
            return True
        if over is not None and over():
            return True
        if time.monotonic() >= until:
            return False


def _beat(fd: int, what: bytes = BEAT) -> bool:
    """Tell the supervisor how it stands; False where there is none any more."""
    if fd >= 0:
        with contextlib.suppress(BlockingIOError):
            try:
                os.write(fd, what)
            except BrokenPipeError:
                return False
    return True
