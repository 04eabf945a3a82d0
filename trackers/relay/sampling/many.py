"""One sampler for all runs of a host agent: GPUs and host are read once, and each run gets its own records.

Values of a single run are read for it: its process, its filesystem, its step. A driver that hangs delays the samples of
all runs, and nothing else: each relay abandons its sampler as ever, and the agent ends this process when it doesn't
accept a new run (:mod:`trackers.relay.agent.listener`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from trackers.hardware.gpus.base import Gpu, GpuEvent, Reading
from trackers.hardware.gpus.detect import Gpus, Visible, visible_gpus
from trackers.hardware.host import Machine
from trackers.hardware.plan import BEGUN, READING, SamplingPlan
from trackers.journal import helper_process
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory
from trackers.relay.sampling.worker import Samples
from trackers.support import confined
from trackers.support.redaction import mask_source

FRESH_S = 0.2
"""Maximum age of readings that serve another run, in seconds."""
REQUEST_BYTES = 1 << 20
END = b"e"
"""Message of a relay whose run has ended."""
TAKEN = b"+"
"""Answer to the agent for each run that it has handed over."""


GpuChoice = tuple[str, tuple[str, ...], Visible]
"""Scope, groups of values, and the job's variables: runs with the same share readings."""


class SamplingRequest(msgspec.Struct, kw_only=True):
    """A run to be sampled. environment: variables of its job that choose GPUs. nice: niceness."""

    run: str
    plan: SamplingPlan
    environment: dict[str, str] = {}
    nice: int = 0


class SharedGpus:
    """GPUs chosen by one or more runs: read once for all of them.

    Args:
        entering: called before a driver is read.
    """

    def __init__(
        self, scope: str, details: Collection[str], environment: dict[str, str], entering: Callable[[], None]
    ) -> None:
        self._messages: list[str] = []
        self._listeners: dict[Samples, None] = {}
        self._entering = entering
        self._gpus = Gpus(self._say, scope=scope, details=details, entering=entering, environ=environment)
        self._readings: list[Reading] = []
        self._read_at = float("-inf")
        self.refresh(time.monotonic())

    def refresh(self, now: float, whole: bool = False) -> None:
        """Read the drivers, unless the last readings are fresh, and whole where that is asked for."""
        if now - self._read_at < FRESH_S and all(reading.counted or not whole for reading in self._readings):
            return
        if self._gpus.gpus:
            self._entering()
        self._readings = self._gpus.read(whole)
        self._read_at = time.monotonic()

    @property
    def events(self) -> list[GpuEvent]:
        """What happened to the GPUs since the first of the runs."""
        return self._gpus.events

    def read(self, whole: bool = False) -> list[Reading]:
        """The last readings; whole: readings with everything."""
        if whole:
            self.refresh(time.monotonic(), whole)
        return self._readings

    def label(self, gpu: Gpu) -> str:
        """Name of a GPU in metrics."""
        return self._gpus.label(gpu)

    def join(self, samples: Samples) -> None:
        """Add a run, and pass it the messages about these GPUs."""
        self._listeners[samples] = None
        for text in self._messages:
            samples.say(text)

    def leave(self, samples: Samples) -> bool:
        """Remove a run. True if no other run has these GPUs: then the drivers are released."""
        self._listeners.pop(samples, None)
        if not self._listeners:
            self._gpus.close()
        return not self._listeners

    def _say(self, text: str) -> None:
        self._messages.append(text)
        for samples in self._listeners:
            samples.say(text)


class SampledRun:
    """One run, and the line to its relay."""

    def __init__(self, line: int, samples: Samples, gpus: SharedGpus, choice: GpuChoice) -> None:
        self.line = line
        self.samples = samples
        self.gpus = gpus
        self.choice = choice
        self.ends = False
        self.interval_s = max(samples.plan.interval_s, 1e-3)
        self.due = self._next(time.monotonic())

    def _next(self, now: float) -> float:
        """The next common time: runs with one interval are sampled together."""
        return (now // self.interval_s + 1) * self.interval_s

    def postpone(self, now: float) -> None:
        """Set the time of the next sample."""
        self.due = self._next(now)

    def read_line(self) -> bool:
        """Read messages of its relay; False if that has ended, or has abandoned this sampler."""
        try:
            received = os.read(self.line, 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.ends = self.ends or END in received
        return bool(received)


class MachineSampler:
    """Samples for runs until the agent and the last run have ended.

    Args:
        control: a socket over which the agent hands runs over: a request with two descriptors, the line from the relay
            and the pipe for beats.
    """

    def __init__(self, control: int) -> None:
        self._control: socket.socket | None = socket.socket(fileno=control)
        self._machine = Machine()
        self._machine_at = time.monotonic()
        self._gpus: dict[GpuChoice, SharedGpus] = {}
        self._runs: dict[int, SampledRun] = {}
        self._nice = 0

    def serve(self) -> None:
        """Sample until the end."""
        while self._control is not None or self._runs:
            ready = self._wait()
            for line in ready.intersection(self._runs):
                if not self._runs[line].read_line():
                    self._drop(self._runs[line])
            if self._control is not None and self._control.fileno() in ready:
                self._receive_request()
            now = time.monotonic()
            due = [sampled for sampled in self._runs.values() if sampled.ends or sampled.due <= now]
            if due:
                self._sample(due, now)

    def _wait(self) -> set[int]:
        poll = select.poll()
        for fd in self._runs if self._control is None else (self._control.fileno(), *self._runs):
            poll.register(fd, select.POLLIN)
        due = min((sampled.due for sampled in self._runs.values()), default=None)
        left = None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1
        return {fd for fd, _ in poll.poll(left)}

    def _receive_request(self) -> None:
        assert self._control is not None
        try:
            text, descriptors, _, _ = socket.recv_fds(self._control, REQUEST_BYTES, 2)
        except OSError:
            text, descriptors = b"", []
        if not text:
            self._control.close()
            self._control = None
        elif len(descriptors) == 2:
            line, beat = descriptors
            for fd in descriptors:
                os.set_inheritable(fd, False)
                os.set_blocking(fd, False)
            self._add_run(msgspec.json.decode(text, type=SamplingRequest), line, beat)
            with contextlib.suppress(OSError):
                self._control.send(TAKEN)

    def _add_run(self, request: SamplingRequest, line: int, beat: int) -> None:
        run = RunDirectory(request.run)
        self._nice = request.nice
        helper_process.lower_priority(self._nice)
        choice = request.plan.scope, request.plan.details, visible_gpus(request.environment)
        try:
            samples = Samples(run, Messages(run.messages), msgspec.structs.replace(request.plan, beat_fd=beat))
        except Exception:  # one run's fault is no other's
            _log_exception(run)
            os.close(line)
            os.close(beat)
            return
        gpus = self._gpus.get(choice)
        if gpus is None:
            samples.beat(READING)
            gpus = self._gpus[choice] = SharedGpus(*choice[:2], request.environment, self._beat_reading)
        gpus.join(samples)
        sampled = self._runs[line] = SampledRun(line, samples, gpus, choice)
        self._guarded(sampled, lambda: samples.begin(gpus, self._machine))
        samples.beat()

    def _beat_reading(self) -> None:
        for sampled in self._runs.values():
            sampled.samples.beat(READING)

    def _sample(self, due: list[SampledRun], now: float) -> None:
        if now - self._machine_at >= FRESH_S:
            self._machine.refresh()
            self._machine_at = now
        for gpus in {id(sampled.gpus): sampled.gpus for sampled in due}.values():
            gpus.refresh(now)
        for sampled in list(self._runs.values()):
            sampled.samples.beat(BEGUN)
        hurries = any(sampled.ends for sampled in due)  # a relay waits for its end
        if hurries:
            helper_process.usual_priority([])
        for sampled in due:
            if (
                not sampled.read_line() or not sampled.samples.beat()
            ):  # its relay may have abandoned it during the reading
                self._drop(sampled)
                continue
            sampled.postpone(now)
            self._guarded(sampled, sampled.samples.mend)
            self._guarded(sampled, sampled.samples.finish if sampled.ends else sampled.samples.take)
            if sampled.ends:
                self._drop(sampled)
        if hurries:
            helper_process.lower_priority(self._nice)

    def _guarded(self, sampled: SampledRun, work: Callable[[], object]) -> None:
        """Do something for one run; an error ends that run's samples only."""
        if sampled.line not in self._runs:
            return
        try:
            work()
        except Exception:
            _log_exception(RunDirectory(sampled.samples.run.path))
            self._drop(sampled)

    def _drop(self, sampled: SampledRun) -> None:
        if self._runs.pop(sampled.line, None) is None:
            return
        with contextlib.suppress(OSError):
            sampled.samples.close()
        os.close(sampled.line)
        if sampled.gpus.leave(sampled.samples):
            del self._gpus[sampled.choice]


def _log_exception(run: RunDirectory) -> None:
    """Write the current exception to the run's relay log."""
    with contextlib.suppress(OSError), confined.open_file(Path(run.relay_log), "ab") as log:
        log.write(mask_source(traceback.format_exc()).encode("utf-8", "replace"))


def serve(control: int) -> int:
    """Run the sampler until its end. Returns the exit code."""
    helper_process.ignore_interrupts()
    MachineSampler(control).serve()
    return 0
