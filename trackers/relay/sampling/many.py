"""One sampler for all runs of a host agent: GPUs and host are read once, and each run gets its own records.

What belongs to a run alone is read for it: its process, its filesystem, its step. A driver that hangs holds up the
samples of all, and nothing else: each relay leaves its sampler behind as ever, and the agent ends this process when it
doesn't take a new run (:mod:`trackers.relay.agent.sampler`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from trackers.hardware.gpus.base import Gpu, Reading
from trackers.hardware.gpus.detect import Gpus, Visible, visible_gpus
from trackers.hardware.host import Machine
from trackers.hardware.plan import BEGUN, READING, Plan
from trackers.journal import helper_process
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory
from trackers.relay.sampling.worker import Samples
from trackers.support import confined
from trackers.support.redaction import mask_source

FRESH_S = 0.2
"""Age up to which what was read serves another run, in seconds."""
REQUEST_BYTES = 1 << 20
END = b"e"
"""What a relay says when its run has ended."""
TAKEN = b"+"
"""What the agent is told of each run that it has handed over."""


class Request(msgspec.Struct, kw_only=True):
    """A run to be sampled. environment: the variables of its job that choose GPUs. nice: how much it gives way."""

    run: str
    plan: Plan
    environment: dict[str, str] = {}
    nice: int = 0


class SharedGpus:
    """GPUs of runs that have chosen the same ones: read once for all of them.

    Args:
        entering: called before a driver is asked.
    """

    def __init__(self, scope: str, environment: dict[str, str], entering: Callable[[], None]) -> None:
        self._said: list[str] = []
        self._listeners: dict[Samples, None] = {}
        self._entering = entering
        self._gpus = Gpus(self._say, scope=scope, entering=entering, environ=environment)
        self._readings: list[Reading] = []
        self._read_at = float("-inf")
        self.refresh(time.monotonic())

    def refresh(self, now: float) -> None:
        """Ask the drivers, unless they were asked a moment ago."""
        if now - self._read_at < FRESH_S:
            return
        if self._gpus.gpus:
            self._entering()
        self._readings = self._gpus.read()
        self._read_at = time.monotonic()

    def read(self) -> list[Reading]:
        """What they answered last."""
        return self._readings

    def label(self, gpu: Gpu) -> str:
        """What names a GPU in metrics."""
        return self._gpus.label(gpu)

    def join(self, samples: Samples) -> None:
        """Have a run told of what these GPUs don't tell."""
        self._listeners[samples] = None
        for text in self._said:
            samples.say(text)

    def leave(self, samples: Samples) -> bool:
        """It has ended; whether no other run has these GPUs. Then the drivers are released."""
        self._listeners.pop(samples, None)
        if not self._listeners:
            self._gpus.close()
        return not self._listeners

    def _say(self, text: str) -> None:
        self._said.append(text)
        for samples in self._listeners:
            samples.say(text)


class Sampled:
    """One run, and the line to its relay."""

    def __init__(self, line: int, samples: Samples, gpus: SharedGpus, choice: tuple[str, Visible]) -> None:
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
        """It was sampled."""
        self.due = self._next(now)

    def hear(self) -> bool:
        """What its relay says; False where it is gone, or has left this sampler behind."""
        try:
            said = os.read(self.line, 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.ends = self.ends or END in said
        return bool(said)


class Sampler:
    """Samples for runs until the agent is gone and the last of them has ended.

    Args:
        control: a socket over which the agent hands runs over: a request with two descriptors, the line to the relay
            and the pipe that it listens to.
    """

    def __init__(self, control: int) -> None:
        self._control: socket.socket | None = socket.socket(fileno=control)
        self._machine = Machine()
        self._machine_at = time.monotonic()
        self._gpus: dict[tuple[str, Visible], SharedGpus] = {}
        self._runs: dict[int, Sampled] = {}
        self._nice = 0

    def serve(self) -> None:
        """Work, to its end."""
        while self._control is not None or self._runs:
            ready = self._wait()
            for line in ready.intersection(self._runs):
                if not self._runs[line].hear():
                    self._drop(self._runs[line])
            if self._control is not None and self._control.fileno() in ready:
                self._take()
            now = time.monotonic()
            due = [one for one in self._runs.values() if one.ends or one.due <= now]
            if due:
                self._sample(due, now)

    def _wait(self) -> set[int]:
        poll = select.poll()
        for fd in self._runs if self._control is None else (self._control.fileno(), *self._runs):
            poll.register(fd, select.POLLIN)
        due = min((one.due for one in self._runs.values()), default=None)
        left = None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1
        return {fd for fd, _ in poll.poll(left)}

    def _take(self) -> None:
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
            self._begin(msgspec.json.decode(text, type=Request), line, beat)
            with contextlib.suppress(OSError):
                self._control.send(TAKEN)

    def _begin(self, request: Request, line: int, beat: int) -> None:
        run = RunDirectory(request.run)
        self._nice = request.nice
        helper_process.lower_priority(self._nice)
        choice = request.plan.scope, visible_gpus(request.environment)
        try:
            samples = Samples(run, Messages(run.messages), msgspec.structs.replace(request.plan, beat_fd=beat))
        except Exception:
            _note(run)
            os.close(line)
            os.close(beat)
            return
        gpus = self._gpus.get(choice)
        if gpus is None:
            samples.beat(READING)
            gpus = self._gpus[choice] = SharedGpus(request.plan.scope, request.environment, self._tell_reading)
        gpus.join(samples)
        one = self._runs[line] = Sampled(line, samples, gpus, choice)
        self._guarded(one, lambda: samples.begin(gpus, self._machine))
        samples.beat()

    def _tell_reading(self) -> None:
        for one in self._runs.values():
            one.samples.beat(READING)

    def _sample(self, due: list[Sampled], now: float) -> None:
        if now - self._machine_at >= FRESH_S:
            self._machine.refresh()
            self._machine_at = now
        for gpus in {id(one.gpus): one.gpus for one in due}.values():
            gpus.refresh(now)
        for one in list(self._runs.values()):
            one.samples.beat(BEGUN)
        hurries = any(one.ends for one in due)  # its relay waits for it
        if hurries:
            helper_process.usual_priority([])
        for one in due:
            if not one.hear() or not one.samples.beat():  # while a driver was asked it may have been given up
                self._drop(one)
                continue
            one.postpone(now)
            self._guarded(one, one.samples.mend)
            self._guarded(one, one.samples.finish if one.ends else one.samples.take)
            if one.ends:
                self._drop(one)
        if hurries:
            helper_process.lower_priority(self._nice)

    def _guarded(self, one: Sampled, work: Callable[[], object]) -> None:
        """Do something for one run: what is wrong with it is no fault of the others."""
        if one.line not in self._runs:
            return
        try:
            work()
        except Exception:
            _note(RunDirectory(one.samples.run.path))
            self._drop(one)

    def _drop(self, one: Sampled) -> None:
        if self._runs.pop(one.line, None) is None:
            return
        with contextlib.suppress(OSError):
            one.samples.close()
        os.close(one.line)
        if one.gpus.leave(one.samples):
            del self._gpus[one.choice]


def _note(run: RunDirectory) -> None:
    """Keep what went wrong in the run's log of its helpers."""
    with contextlib.suppress(OSError), confined.open_file(Path(run.relay_log), "ab") as log:
        log.write(mask_source(traceback.format_exc()).encode("utf-8", "replace"))


def serve(control: int) -> int:
    """Be the sampler, to its end; returns the exit code."""
    helper_process.ignore_interrupts()
    Sampler(control).serve()
    return 0
