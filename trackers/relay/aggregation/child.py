"""The reducer's process, as a part of the relay: started when there is a stream of a rank, waited for at the end."""

from __future__ import annotations

import os
import time
from typing import Any

from trackers.journal import helper_process
from trackers.journal.run_directory import StreamName
from trackers.ranks.launch import folder_of, rank_streams
from trackers.relay.aggregation.output import WRITER
from trackers.relay.aggregation.worker import ReducerTask, attempts
from trackers.relay.parts.helper import Helper, avoided_by, how_it_died
from trackers.relay.parts.part import TRAINING, Beside, RelayMoment, RelayPart, short_pause
from trackers.relay.parts.plans import arguments

LOOK_S = 1.0
END_S = 20.0
"""Maximum wait at the run's end for a silent reducer, in seconds, beyond the deadline for late ranks."""
RESTART_S = (0.2, 1.0, 5.0, 30.0)


class Reducing(RelayPart):
    """Starts the process, and restarts it when it dies. ``over``: there is nothing more to do."""

    name = "reduce"
    after = ("fetch",)

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._run, self._info, self._attempt = beside.run, beside.info, beside.attempt
        self._wait_s = beside.seconds("TRACKER_REDUCE_WAIT", 10)
        self._helper = Helper(self._start, RESTART_S, self._say)
        self._ended = beside.ended
        self._ended_at = 0.0
        self._look_at = 0.0
        self.over = not any(entry.get("launch") for entry in beside.info.attempts)
        self._last_growth = 0, 0.0

    @property
    def pid(self) -> int:
        return self._helper.pid

    @property
    def ending(self) -> bool:
        """It was asked to end, and hasn't ended yet."""
        return self._ended and not self.over

    def pause(self, moment: RelayMoment) -> bool:
        return self.ending and short_pause(0.01)

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Start it when there is something to reduce."""
        if self.over:
            return
        now = time.monotonic()
        code = self._helper.poll(now)
        if code == 0:
            self._look_at = now + LOOK_S
            self.over = self._ended
        elif code is not None:
            self._helper.died(now, f"the reducer died ({how_it_died(code)})")
        elif self._helper.is_due(now) and now >= self._look_at:
            self._look_at = now + LOOK_S
            if self._has_work():
                self._helper.start(now, "the reducer can't be started")

    def end(self) -> bool:
        """Pass on the rest. True once that is done, or not waited for any longer."""
        now = time.monotonic()
        if not self._ended_at:
            self._ended_at = now
            self._look_at = self._helper.due_at = 0.0
            if not self._ended:
                self._helper.ask()
            self._ended = True
        self.poll()
        if self._helper.process is None and not self.over and not self._has_work():
            self.over = True
        if not self.over and now - self._grew_at(now) > self._wait_s + END_S:
            self._tell(f"values across ranks aren't all recorded yet; later: trackers sync {self._run.quoted}")
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
        self._helper.kill()

    def _has_work(self) -> bool:
        folder = folder_of(self._run, self._info, self._attempt)
        earlier = self._attempt > 1 and bool(attempts(self._run, self._attempt - 1))
        return earlier or (
            folder is not None and bool(rank_streams(folder)) and bool(attempts(self._run, self._attempt))
        )

    def _start(self, deaths: int) -> Any:
        task = ReducerTask(self._attempt, os.getpid(), self._wait_s, self._ended)
        return helper_process.start(
            self._run,
            arguments("reduce", self._run.path.absolute(), task),
            avoid=avoided_by(self._info),
            new_session=self._beside.own_session,
            nice=0 if self._ended else self._beside.nice,
        )

    def _say(self, text: str) -> None:
        self._tell(f"{text} and is started again; see {self._run.relay_log}")

    def _tell(self, text: str) -> None:
        self._beside.say(text, "")
