"""The reducer's process, for its supervisor: started when there is a stream of a rank, waited for at the run's end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import msgspec

from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.ranks.launch import folder_of, rank_streams
from trackers.relay.aggregation.output import WRITER
from trackers.relay.aggregation.worker import ReducerTask, attempts
from trackers.tracker import RunInfo

LOOK_S = 1.0
END_S = 20.0
"""Maximum wait at the run's end for a silent reducer, in seconds, beyond the deadline for late ranks."""
RESTART_S = (0.2, 1.0, 5.0, 30.0)


class Reducing:
    """Starts the process, and restarts it when it dies. ``over``: there is nothing more to do.

    Args:
        attempt: the last attempt to reduce. ended: training is over already.
        own_session: False if the caller has a session for its helpers. nice: niceness of the process.
        say: called with one line when values can't be reduced.
    """

    def __init__(self, run: RunDirectory, info: RunInfo, attempt: int, say: Callable[[str], None], *,
                 ended: bool, own_session: bool, nice: int = 0) -> None:  # fmt: skip
        self._run = run
        self._info = info
        self._attempt = attempt
        self._say = say
        self._wait_s = float(info.option("TRACKER_REDUCE_WAIT", 10))
        self._avoid = (info.cwd, os.path.dirname(info.program) if info.program else "")
        self._own_session = own_session
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = ended
        self._ended_at = 0.0
        self._deaths = 0
        self._look_at = 0.0
        self.over = not any(entry.get("launch") for entry in info.attempts)
        self._last_growth = 0, 0.0

    @property
    def pid(self) -> int:
        """Process id; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def ending(self) -> bool:
        """It was asked to end, and hasn't ended yet."""
        return self._ended and not self.over

    def poll(self) -> None:
        """Start it when there is something to reduce. Takes microseconds."""
        if self.over:
            return
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._reap(now, code)
        elif now >= self._look_at:
            self._look_at = now + LOOK_S
            if self._has_work():
                self._start()

    def end(self) -> bool:
        """Training is over: pass on the rest. True once that is done, or not waited for any longer."""
        now = time.monotonic()
        if not self._ended_at:
            self._ended_at = now
            self._look_at = 0.0
            if self._process is not None and not self._ended:
                self._process.terminate()
            self._ended = True
        self.poll()
        if self._process is None and not self.over and not self._has_work():
            self.over = True
        if not self.over and now - self._grew_at(now) > self._wait_s + END_S:
            self._say(f"values across ranks aren't all recorded yet; later: trackers sync {self._run.quoted}")
            self.close()
        return self.over

    def _grew_at(self, now: float) -> float:
        """Monotonic time of the last new results, at the earliest of training's end."""
        try:
            size = os.stat(self._run.stream(StreamName(WRITER, 0, self._attempt))).st_size
        except OSError:
            size = 0
        if size != self._last_growth[0]:
            self._last_growth = size, now
        return max(self._last_growth[1], self._ended_at)

    def close(self) -> None:
        """Kill the process: another reducer can continue at any time."""
        self.over = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _has_work(self) -> bool:
        folder = folder_of(self._run, self._info, self._attempt)
        earlier = self._attempt > 1 and bool(attempts(self._run, self._attempt - 1))
        return earlier or (
            folder is not None and bool(rank_streams(folder)) and bool(attempts(self._run, self._attempt))
        )

    def _start(self) -> None:
        task = ReducerTask(self._attempt, os.getpid(), self._wait_s, self._ended)
        arguments = ["reduce", str(self._run.path.resolve()), msgspec.json.encode(task).decode()]
        try:
            self._process = helper_process.start(
                self._run,
                arguments,
                avoid=self._avoid,
                new_session=self._own_session,
                nice=0 if self._ended else self._nice,
            )
        except OSError as error:
            self._back_off(time.monotonic(), f"the reducer can't be started: {error}")

    def _reap(self, now: float, code: int) -> None:
        self._process = None
        if code == 0:
            self._look_at = now + LOOK_S
            self.over = self._ended
        else:
            self._back_off(now, f"the reducer died ({f'signal {-code}' if code < 0 else f'exit code {code}'})")

    def _back_off(self, now: float, text: str) -> None:
        self._look_at = now + RESTART_S[min(self._deaths, len(RESTART_S) - 1)]
        self._deaths += 1
        if self._deaths > 2:
            self._say(f"{text} and is started again; see {self._run.relay_log}")
