"""The sampler as those see it who start it: the run's supervisor, and on a machine without one its first rank.

The supervisor starts it a moment after training and leaves it behind when it hangs. It is a process of its own, for a
GPU driver may hang for minutes inside one call: neither a delivery nor the end of a run waits for that.

Where a machine of the job has no relay, its first rank starts an agent, which the run's end ends.

The agent finds the run as the ranks do, by what the main rank wrote in the launch's folder, and writes a stream of
its own there. The directory must be one that all machines see.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from trackers.hardware.plan import BEAT, READING, Plan, planned
from trackers.journal import helper_process
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import find_finish
from trackers.ranks import launch
from trackers.support import confined, process_info
from trackers.support.process_info import readable
from trackers.tracker import RunInfo

CLAIM_S = 0.5
"""Between looks for the main rank's word."""


def done_file(run: RunDirectory, node: int, attempt: int) -> Path:
    """A file that says: this machine's sampler has written its last."""
    return run.path / f"sampler-{node}.{attempt}.done"


def start_agent(folder: Path, plan: Plan, nice: int) -> Any:
    """Start the process.

    Args:
        folder: the launch's. plan: with this rank's pid, whose end ends it.

    Returns:
        the ``subprocess.Popen``.

    Raises:
        OSError: it can't be started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["outpost", str(folder), msgspec.json.encode(plan).decode(), str(nice)]
    return helper_process.start(RunDirectory(folder), arguments, nice=nice)


def stop_agent(helper: Any) -> None:
    """Have it write its last now, and don't wait for it."""
    if helper.poll() is None:
        helper.terminate()
        helper.returncode = 0  # tells subprocess that nobody waits for it: no warning at its end


def serve_agent(folder: Path, plan: Plan) -> int:
    """Sample for the run that the launch becomes, until it or the rank here ends. Returns the exit code."""
    from trackers.relay.sampling.worker import sample

    found = _find_run(folder, plan)
    if found is None:
        return 0
    run, attempt = found
    plan = msgspec.structs.replace(plan, attempt=attempt)
    stream = run.stream(StreamName("rank", 0, attempt))
    code = sample(run, Messages(run.messages), plan, over=lambda: not _trains(plan) or _has_ended(run, stream, attempt))
    confined.touch(done_file(run, plan.node, attempt))
    return code


def _find_run(folder: Path, plan: Plan) -> tuple[RunDirectory, int] | None:
    """The run, once its main rank has said which; None where the rank here ended before."""
    while _trains(plan):
        for claim in reversed(launch.claims(folder)):
            run = RunDirectory((folder / claim.run).resolve())
            if not launch.is_of(folder, run, claim.attempt):  # others may write to the folder: it isn't for them to say
                continue
            if not _has_ended(run, run.stream(StreamName("rank", 0, claim.attempt)), claim.attempt):
                return run, claim.attempt
            break
        time.sleep(CLAIM_S)
    return None


def _trains(plan: Plan) -> bool:
    return process_info.alive(plan.pid, plan.pid_start)


def _has_ended(run: RunDirectory, stream: Path, attempt: int) -> bool:
    return find_finish(stream) is not None or run.attempt() > attempt


AFTER_S = 1.0
"""Delay of the sampler's start after the relay's, in seconds, so that very short runs don't start it."""
HANG_S = 30.0
"""Time without a sample, beyond the sampling interval, that means a hung driver, in seconds; a reset is faster."""
END_S = 2.0
"""Maximum wait at the run's end for a healthy sampler, in seconds; it answers within milliseconds."""
READS_S = 1.0
"""Duration of one reading after which the sampler isn't waited for, in seconds; eight GPUs take milliseconds."""
BEGINS_S = 10.0
"""Maximum wait at a run's end for a sampler that hasn't started, in seconds: on a busy host a process takes seconds
to start."""
FIRST_S = 5.0
"""Likewise for a driver's first answer, which is slower than all others."""
LATE_S = 5.0
"""A sampler that was so late with its last sample when training ended isn't waited for at all."""
RESTART_S = (1.0, 10.0, 60.0)


class Sampler:
    """Starts the process, hears its beat, ends it.

    Args:
        say: called with one line when sampling stops before training does.
        nice: niceness of the process.
        shared: called with the run's directory, the plan as JSON, the niceness and a pipe; answers with this run's part
            of a sampler that it shares with others, which looks like a ``subprocess.Popen``, or with None. One that
            doesn't answer, though it isn't in a driver, is left for a process of this run's own.
    """

    def __init__(
        self,
        run: RunDirectory,
        info: RunInfo,
        attempt: int,
        say: Callable[[str], None],
        *,
        nice: int = 0,
        shared: Callable[[str, str, int, int], Any] | None = None,
    ) -> None:
        self._run = run
        self._shared = shared
        self._nice = nice
        self._say = say
        entry = next((entry for entry in info.attempts if entry.get("number") == attempt), {})
        self._plan = planned(
            info.options,
            Plan(attempt=attempt, node=int(entry.get("node", 0)), nodes=int(entry.get("nodes", 1)), pid=info.pid),
        )
        self._avoid = (info.cwd, os.path.dirname(info.program) if info.program else "")
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._heard = 0.0
        self._reads = False
        self._began = self._sampled = self._told_to_end = False
        self._shares = False
        self._done = False
        self._start_at = time.monotonic() + AFTER_S
        self._deaths = 0
        self._ended = False
        self._over = not bool(info.option("TRACKER_SAMPLE", True))
        self._ending = self._waited = 0.0

    @property
    def pid(self) -> int:
        """Of its process; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def ending(self) -> bool:
        """It was asked to end and hasn't yet."""
        return bool(self._ending) and not self._ended

    def wait(self, timeout_s: float) -> None:
        """Wait until it says something, or that it is done."""
        if self._pipe >= 0:
            readable(self._pipe, timeout_s)
        else:
            time.sleep(timeout_s)

    def poll(self) -> None:
        """Start it when it is due, and see whether it still works. Takes microseconds."""
        if self._over or self._ending:
            return
        now = time.monotonic()
        if self._process is None:
            if now >= self._start_at:
                self._start()
            return
        self._listen(now)
        code = self._process.poll()
        if code is not None:
            self._reap(now, f"signal {-code}" if code < 0 else f"exit code {code}")
        elif now - self._heard > HANG_S + self._plan.interval_s:
            if self._shares and not self._reads:  # another run's directory may hold it up
                self._shared = None
                self._process.kill()
                self._close(over=False)
                self._start_at = now
                return
            self._leave()
            whose = "a driver" if self._reads else "the sampler"
            self._say(f"hardware sampling stopped: {whose} hasn't answered for {HANG_S:.0f} s; all else goes on")

    def end(self) -> bool:
        """Have it write its last interval. True once that is done, or not waited for any longer."""
        now = time.monotonic()
        if self._over or self._process is None:
            self._over = True
            return self._others_are_done(now)
        if not self._ending:
            self._ending = now
        self._listen(now)
        if self._began and not self._done and not self._told_to_end:  # before that it couldn't take the signal
            self._told_to_end = True
            self._process.terminate()
        if self._done or self._process.poll() is not None:
            self._close()
            return self._others_are_done(now)
        if not self._sampled:
            self._waited = now
            if now - self._ending <= (FIRST_S if self._reads else BEGINS_S):
                return False
            self._leave()
            why = "didn't answer" if self._reads else "had no sample" if self._began else "hadn't begun"
            whose = "a driver that is slow or hangs?" if self._reads else "a busy host"
            self._say(f"the hardware sampler {why} when training ended ({whose}): the run has no hardware metrics")
            self._ended = True
            return True
        late = self._ending - self._heard > LATE_S + self._plan.interval_s
        stuck = self._reads and now - self._heard > READS_S
        if late or stuck or now - max(self._ending, self._waited) > END_S:
            whose = "a driver that is slow or hangs?" if self._reads else "a busy host"
            self._leave()
            self._say(
                f"the hardware sampler didn't answer when training ended ({whose}): "
                "its last interval and the energy's totals are missing"
            )
            self._ended = True
            return True
        return False

    def _others_are_done(self, now: float) -> bool:
        """Whether the samplers of other machines have written their last, or have had the time for it."""
        self._ending = self._ending or now
        self._ended = self._plan.nodes <= 1 or now - self._ending > END_S or self._have_others_ended()
        return self._ended

    def _have_others_ended(self) -> bool:
        names = [name for name in self._run.stream_names() if name.writer == "sampler"]
        mine = self._plan.attempt, self._plan.node
        others = [name.number for name in names if name.attempt == mine[0] and name.number != mine[1]]
        return all(done_file(self._run, number, mine[0]).exists() for number in others)

    def close(self) -> None:
        """End it, in whatever state it is; waits at most as long as for the end of a run."""
        while not self.end():
            self.wait(0.05)

    def _start(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        plan = msgspec.structs.replace(self._plan, beat_fd=writing)
        path, text = str(self._run.path.resolve()), msgspec.json.encode(plan).decode()
        try:
            shared = None if self._deaths >= len(RESTART_S) else self._shared
            process = None if shared is None else shared(path, text, self._nice, writing)
            self._shares = process is not None
            self._process = process or helper_process.start(
                self._run,
                ["sample", path, text],
                avoid=self._avoid,
                new_session=False,
                pass_fds=(writing,),
                nice=self._nice,
            )
            self._pipe, self._heard, self._reads, self._done = reading, time.monotonic(), False, False
            self._began = self._sampled = False
        except OSError as error:
            os.close(reading)
            self._reap(time.monotonic(), f"it can't be started: {error}")
        finally:
            os.close(writing)

    def _listen(self, now: float) -> None:
        try:
            said = os.read(self._pipe, 4096)
        except OSError:  # nothing was said
            return
        if said:
            self._heard, self._reads = now, said.endswith(READING)
            self._began, self._sampled = True, self._sampled or BEAT in said
        else:
            self._done = True

    def _reap(self, now: float, reason: str) -> None:
        self._close(over=self._deaths >= len(RESTART_S))
        if self._over:
            died = f"it died {self._deaths + 1} times, the last with {reason}"
            self._say(f"hardware sampling stopped: {died}; all else goes on; see {self._run.relay_log}")
            return
        self._start_at = now + RESTART_S[self._deaths]
        self._deaths += 1

    def _leave(self) -> None:
        """Kill it and don't wait: inside a driver it may not even die."""
        if self._process is not None:
            self._process.kill()
        self._close()

    def _close(self, over: bool = True) -> None:
        self._over = over
        self._process = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
