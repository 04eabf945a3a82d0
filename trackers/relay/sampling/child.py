"""The sampler's process, for what starts it: the run's supervisor, and on a machine without one its first rank.

The supervisor starts it a moment after training, and abandons it when it hangs. It is a separate process because a GPU
driver may hang for minutes inside one call: neither a delivery nor the end of a run waits for that.

On a machine without a relay, the job's first rank starts an agent, which ends with the run.

The agent finds the run as the ranks do, from the main rank's entry in the launch's folder, and writes a stream of its
own to the run. The directory must be one that all machines see.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.hardware.gpus.detect import AMD_DEVICE, NVIDIA_DEVICE
from trackers.hardware.plan import BEAT, READING, SamplingPlan, planned
from trackers.journal import helper_process
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import find_finish
from trackers.ranks import launch
from trackers.relay.parts.helper import Helper, avoided_by, how_it_died
from trackers.relay.parts.part import TRAINING, Beside, RelayMoment, RelayPart
from trackers.relay.parts.plans import arguments
from trackers.support import confined, processes
from trackers.support.descriptors import readable

CLAIM_S = 0.5
"""Pause between checks for the main rank's entry, in seconds."""


def done_file(run: RunDirectory, node: int, attempt: int) -> Path:
    """A file that exists once this machine's sampler has written everything."""
    return run.path / f"sampler-{node}.{attempt}.done"


class OutpostPlan(msgspec.Struct):
    """What a sampler on a machine without a relay is told. nice: its niceness."""

    sampling: SamplingPlan
    nice: int


def start_agent(folder: Path, plan: SamplingPlan, nice: int) -> Any:
    """Start the process.

    Args:
        folder: the launch's. plan: with this rank's pid, whose end ends it.

    Returns:
        what it can be stopped by (:func:`stop_agent`).

    Raises:
        OSError: it can't be started.
    """
    confined.make_own(folder)
    words = arguments("outpost", folder, OutpostPlan(plan, nice))
    return helper_process.start(RunDirectory(folder), words, nice=nice, detached=True)


def stop_agent(helper: Any) -> None:
    """Have it write its last interval, without waiting for it."""
    helper.terminate()


def serve_agent(folder: Path, plan: SamplingPlan) -> int:
    """Sample for the launch's run until it ends, or this machine's rank does. Returns the exit code."""
    from trackers.relay.sampling.worker import sample

    run_and_attempt = _find_run(folder, plan)
    if run_and_attempt is None:
        return 0
    run, attempt = run_and_attempt
    plan = msgspec.structs.replace(plan, attempt=attempt)
    stream = run.stream(StreamName("rank", 0, attempt))
    code = sample(run, Messages(run.messages), plan, over=lambda: not _trains(plan) or _has_ended(run, stream, attempt))
    confined.touch(done_file(run, plan.node, attempt))
    return code


def _find_run(folder: Path, plan: SamplingPlan) -> tuple[RunDirectory, int] | None:
    """Wait for the main rank's entry. Returns its run and attempt; None if this machine's rank ends before."""
    while _trains(plan):
        for registration in reversed(launch.registrations(folder)):
            run = RunDirectory(Path(os.path.abspath(folder / registration.run)))
            if not launch.is_of(
                folder, run, registration.attempt
            ):  # others may write to the folder: theirs don't count
                continue
            if not _has_ended(run, run.stream(StreamName("rank", 0, registration.attempt)), registration.attempt):
                return run, registration.attempt
            break
        time.sleep(CLAIM_S)
    return None


def _trains(plan: SamplingPlan) -> bool:
    return processes.alive(plan.pid, plan.pid_start)


def _has_ended(run: RunDirectory, stream: Path, attempt: int) -> bool:
    return find_finish(stream) is not None or run.attempt() > attempt


class SamplerTimes(NamedTuple):
    """What a sampler is given, in seconds.

    after_s: delay of its start after the relay's: a shorter run starts it at its end, and only where there are GPUs to
    be told of. hang_s: without a sample, beyond the sampling interval, that means a hung driver; a reset takes less.
    end_s: wait at the run's end for a healthy one, which answers within milliseconds. reads_s: of one reading, after
    which it isn't waited for; eight GPUs take milliseconds. begins_s: wait at a run's end for one that hasn't started:
    on a busy host a process takes seconds to start. first_s: likewise for a driver's first answer, which is slower than
    all others. late_s: delay of the last sample at training's end from which it isn't waited for at all. restart_s:
    pauses before it is started again; after as many deaths and one more it isn't.
    """

    after_s: float = 1.0
    hang_s: float = 30.0
    end_s: float = 2.0
    reads_s: float = 1.0
    begins_s: float = 10.0
    first_s: float = 5.0
    late_s: float = 5.0
    restart_s: tuple[float, ...] = (1.0, 10.0, 60.0)


TIMES = SamplerTimes()


class SamplerProcess(RelayPart):
    """Starts the process, reads its beats, ends it.

    Where a host agent shares one sampler between runs, this run's part of it is used; one that doesn't answer, though
    it isn't in a driver, is left for a process of this run's own.
    """

    name = "sample"

    def __init__(self, beside: Beside, times: SamplerTimes = TIMES) -> None:
        self._beside, self._run, self.times = beside, beside.run, times
        info, entry = beside.info, beside.entry()
        self._shared = beside.sampler
        self._plan = planned(
            info.options,
            SamplingPlan(
                attempt=beside.attempt, node=int(entry.get("node", 0)), nodes=int(entry.get("nodes", 1)), pid=info.pid
            ),
        )
        self._helper = Helper(self._start, times.restart_s, self._say_stopped, most=len(times.restart_s) + 1)
        self._helper.due_at = time.monotonic() + times.after_s
        self._pipe = self._far_end = -1
        self._heard_at = 0.0
        self._is_reading = self._started = False
        self._has_begun = self._has_sampled = self._is_shared = False
        self._done = False
        self._ended = False
        self._over = not bool(info.option("TRACKER_SAMPLE", True))
        self._ending_at = self._waited_at = 0.0

    @property
    def pid(self) -> int:
        return self._helper.pid

    @property
    def ending(self) -> bool:
        """It was asked to end, and hasn't ended yet."""
        return bool(self._ending_at) and not self._ended

    def pause(self, moment: RelayMoment) -> bool:
        if self.ending:
            self.wait(0.02)
        return self.ending

    def wait(self, timeout_s: float) -> None:
        """Wait for its next beat, or its end."""
        if self._pipe >= 0:
            readable(self._pipe, timeout_s)
        else:
            time.sleep(timeout_s)

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Start it when it is due, and check whether it still works."""
        if self._over or self._ending_at:
            return
        now = time.monotonic()
        if self._helper.is_due(now):
            self._begin(now)
            return
        if self._helper.process is None:
            return
        self._read_beats(now)
        code = self._helper.poll(now)
        if code is not None:
            self._reap(now, how_it_died(code))
        elif now - self._heard_at > self.times.hang_s + self._plan.interval_s:
            if self._is_shared and not self._is_reading:  # another run's directory may hold it up
                self._shared = None
                self._abandon(over=False)
                self._helper.due_at = now
                return
            self._abandon()
            suspect = "a driver" if self._is_reading else "the sampler"
            hang_s = self.times.hang_s
            self._say(f"hardware sampling stopped: {suspect} hasn't answered for {hang_s:.0f} s; all else goes on")

    def end(self) -> bool:
        """Have it write its last interval. True once that is done, or not waited for any longer."""
        now = time.monotonic()
        if not self._over and not self._started and (NVIDIA_DEVICE.exists() or AMD_DEVICE.exists()):
            self._plan.late = True  # the GPUs of a short run are described, though it has no sample
            self._begin(now)
        if self._over or self._helper.process is None:
            self._over = True
            return self._others_are_done(now)
        self._ending_at = self._ending_at or now
        self._read_beats(now)
        if self._has_begun and not self._done:  # before that it couldn't take the signal
            self._helper.ask()
        if self._done or self._helper.poll(now) is not None:
            self._forget()
            return self._others_are_done(now)
        suspect = "a driver that is slow or hangs?" if self._is_reading else "a busy host"
        if not self._has_sampled:
            self._waited_at = now
            if now - self._ending_at <= (self.times.first_s if self._is_reading else self.times.begins_s):
                return False
            why = "didn't answer" if self._is_reading else "had no sample" if self._has_begun else "hadn't begun"
            lack = f"the hardware sampler {why} when training ended ({suspect}): the run has no hardware metrics"
        else:
            late = self._ending_at - self._heard_at > self.times.late_s + self._plan.interval_s
            stuck = self._is_reading and now - self._heard_at > self.times.reads_s
            if not (late or stuck or now - max(self._ending_at, self._waited_at) > self.times.end_s):
                return False
            lack = (
                f"the hardware sampler didn't answer when training ended ({suspect}): "
                "its last interval and the energy's totals are missing"
            )
        self._abandon()
        self._say(lack)
        self._ended = True
        return True

    def _others_are_done(self, now: float) -> bool:
        """Whether the samplers of other machines have written everything, or have had the time for it."""
        self._ending_at = self._ending_at or now
        self._ended = self._plan.nodes <= 1 or now - self._ending_at > self.times.end_s or self._have_others_ended()
        return self._ended

    def _have_others_ended(self) -> bool:
        names = [name for name in self._run.stream_names() if name.writer == "sampler"]
        own = self._plan.attempt, self._plan.node
        others = [name.number for name in names if name.attempt == own[0] and name.number != own[1]]
        return all(done_file(self._run, number, own[0]).exists() for number in others)

    def close(self) -> None:
        """End it in any state; waits at most as long as at the end of a run."""
        while not self.end():
            self.wait(0.05)

    def _begin(self, now: float) -> None:
        self._started = True
        self._pipe, self._far_end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._far_end, False)
        try:
            if self._helper.start(now):
                self._heard_at, self._is_reading, self._done = now, False, False
                self._has_begun = self._has_sampled = False
            else:
                self._forget(over=self._helper.is_given_up)
        finally:
            os.close(self._far_end)

    def _start(self, deaths: int) -> Any:
        plan = msgspec.structs.replace(self._plan, beat_fd=self._far_end)
        path, text, nice = str(self._run.path.absolute()), msgspec.json.encode(plan).decode(), self._beside.nice
        shared = None if self._shared is None or deaths >= len(self.times.restart_s) else self._shared
        process = None if shared is None else shared(path, text, nice, self._far_end)
        self._is_shared = process is not None
        return process or helper_process.start(
            self._run,
            ["sample", path, text],
            avoid=avoided_by(self._beside.info),
            new_session=False,
            pass_fds=(self._far_end,),
            nice=nice,
        )

    def _read_beats(self, now: float) -> None:
        try:
            beats = os.read(self._pipe, 4096)
        except OSError:  # no beat since
            return
        if beats:
            self._heard_at, self._is_reading = now, beats.endswith(READING)
            self._has_begun, self._has_sampled = True, self._has_sampled or BEAT in beats
        else:
            self._done = True

    def _reap(self, now: float, reason: str) -> None:
        self._helper.died(now, reason)
        self._forget(over=self._helper.is_given_up)

    def _say_stopped(self, reason: str) -> None:
        died = f"it died {self._helper.deaths} times, the last with {reason}"
        self._say(f"hardware sampling stopped: {died}; all else goes on; see {self._run.relay_log}")

    def _say(self, text: str) -> None:
        self._beside.say(text, "")

    def _abandon(self, over: bool = True) -> None:
        """Kill it without waiting: inside a driver it may not even die."""
        self._helper.kill(wait=False)
        self._forget(over)

    def _forget(self, over: bool = True) -> None:
        self._over = over
        self._helper.process = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
