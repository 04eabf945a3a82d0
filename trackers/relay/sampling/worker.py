"""The sampler's process: reads GPUs and host until it is asked to end, and writes its own stream."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers import records
from trackers.hardware import metric_names
from trackers.hardware.gpus.base import GpuEvent, Reading
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.host import Host, Machine, properties
from trackers.hardware.plan import BEAT, BEGUN, READING, SamplingPlan
from trackers.hardware.recorder import ReadsGpus, Sampling
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter, find_finish, tail
from trackers.records import Environment, Metrics, Start, Text
from trackers.support import confined, machines
from trackers.support.clock import Clock
from trackers.support.descriptors import readable

WRITER = "sampler"
"""The kind of stream that samples are in: ``sampler-<node>.<attempt>``."""
LOOK_S = 0.5
"""Time between checks for the end of a run, in seconds: each reads from a filesystem that many machines share."""


class StepFollower:
    """The newest step in another process's stream: reads only its end, and only after it has grown."""

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


class StepNote:
    """The newest step from a file that another process writes; None before the first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(confined.read(self._path, most=64))
        return None


def energy_before(run: RunDirectory, node: int) -> float:
    """Energy in J counted on this node so far, in all attempts."""
    for name in reversed([name for name in run.stream_names() if name.writer == WRITER and name.number == node]):
        for record in reversed(tail(run.stream(name), 1 << 20)):
            if isinstance(record, Metrics):
                for metric, value in record.values.items():
                    if metric.startswith(metric_names.JOB) and metric.endswith("energy_total_j"):
                        return float(value)
    return 0.0


class Samples:
    """One run's stream of samples.

    Args:
        plan: with the pipe for beats to its supervisor.
    """

    def __init__(self, run: RunDirectory, messages: Messages, plan: SamplingPlan) -> None:
        self.plan = plan
        self.run = run
        self._messages = messages
        self._clock = Clock()
        self._clock.offset -= plan.ahead_s
        self._rank = run.stream(StreamName("rank", 0, plan.attempt))
        self._before_j = energy_before(run, plan.node)
        self._writer = StreamWriter(run.stream(StreamName(WRITER, plan.node, plan.attempt)))
        self._sampling: Sampling | None = None
        if not os.fstat(self._writer.fd).st_size:  # else one that was killed began it
            start = Start(
                time=self._clock.now(), attempt=plan.attempt, node=plan.node, host=machines.host(), pid=os.getpid()
            )
            self._writer.write(records.encode(start))
        self.beat(BEGUN)

    def say(self, text: str) -> None:
        """Send a message to the run's user."""
        where = f" of node {self.plan.node}" if self.plan.nodes > 1 else ""
        self._messages.say(f"hardware{where}: {text}")

    def beat(self, what: bytes = BEAT) -> bool:
        """Send a beat to the supervisor; False if that has ended."""
        return _beat(self.plan.beat_fd, what)

    def begin(self, gpus: ReadsGpus, machine: Machine | None = None) -> None:
        """Record the GPUs, and start to sample."""
        plan, writer = self.plan, self._writer
        node = plan.node if plan.nodes > 1 else None
        values: dict[str, Any] = {"gpus": metric_names.gpu_properties(gpus.read(), gpus.label, node)}
        values["machines"] = {f"node{plan.node}": properties(str(self.run.path))}
        if plan.within_s is not None:
            values["clocks"] = {f"node{plan.node}": {"ahead_s": plan.ahead_s, "within_s": plan.within_s}}
        self.beat(BEGUN)
        writer.write(records.encode(Environment(time=self._clock.now(), values=values)))
        self._sampling = Sampling(
            plan,
            gpus,
            Host(plan.pid or None, str(self.run.path), self.say, machine),
            lambda record: writer.write(records.encode(record)),
            StepNote(Path(plan.steps)) if plan.steps else StepFollower(self._rank),
            before_j=self._before_j,
            clock=time.monotonic,
            now=self._clock.now,
        )
        self._sampling.begin()

    def mend(self) -> None:
        """Create the stream again if it was deleted. Training creates its folder."""
        self._writer.mend(lambda: None)

    def take(self) -> None:
        """Take one sample, and write what is due; nothing after training has ended: the last interval ends there."""
        assert self._sampling is not None
        if find_finish(self._rank) is None:
            self._sampling.take()

    def finish(self) -> None:
        """Write the last interval; there is none where training had ended before."""
        finish = find_finish(self._rank)
        if self._sampling is not None and not self.plan.late:
            self._sampling.finish(finish.time if finish is not None else None)

    def close(self) -> None:
        """Release the stream, and tell the supervisor that all is written."""
        self._writer.release()
        if self.plan.beat_fd >= 0:
            os.close(self.plan.beat_fd)


def sample(run: RunDirectory, messages: Messages, plan: SamplingPlan, over: Callable[[], bool] | None = None) -> int:
    """Sample until SIGTERM, or until nobody reads the beats any more. Returns the exit code.

    Args:
        over: called twice a second; True ends it as well.
    """
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    samples = Samples(run, messages, plan)  # from here on signals are handled
    gpus = Gpus(samples.say, scope=plan.scope, details=plan.details, entering=lambda: samples.beat(READING))
    samples.beat(READING if gpus.gpus else BEGUN)
    samples.begin(_ReportingGpus(gpus, plan.beat_fd))
    due = time.monotonic()
    while samples.beat():
        samples.mend()
        due = max(due + plan.interval_s, time.monotonic())
        if _wait_for_end(wake_read, due, over):
            samples.finish()
            break
        samples.take()
    samples.close()  # before this process ends
    return 0


class _ReportingGpus:
    """GPUs that beat before and after each reading: a driver may hang inside it."""

    def __init__(self, gpus: Gpus, beat_fd: int) -> None:
        self._gpus = gpus
        self._beat_fd = beat_fd
        self.label = gpus.label

    @property
    def events(self) -> list[GpuEvent]:
        return self._gpus.events

    def read(self, whole: bool = False) -> list[Reading]:
        if self._gpus.gpus:
            _beat(self._beat_fd, READING)
        readings = self._gpus.read(whole)
        _beat(self._beat_fd)
        return readings


def _wait_for_end(wake_read: int, deadline: float, over: Callable[[], bool] | None) -> bool:
    """Wait until a time on the monotonic clock; True as soon as the end is requested."""
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        if readable(wake_read, left_s if over is None else min(left_s, LOOK_S)):
            return True
        if over is not None and over():
            return True
        if time.monotonic() >= deadline:
            return False


def _beat(fd: int, what: bytes = BEAT) -> bool:
    """Send a beat to the supervisor; False if that has ended."""
    if fd >= 0:
        with contextlib.suppress(BlockingIOError):
            try:
                os.write(fd, what)
            except BrokenPipeError:
                return False
    return True
