"""The reducer's process: reduces the rest of earlier attempts, then the ranks' streams until training is over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import msgspec

from trackers.errors import NotFound
from trackers.journal.lease import Lease
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory
from trackers.ranks.launch import folder_of
from trackers.relay.aggregation.aggregator import Reducer
from trackers.relay.aggregation.output import read_state

PAUSE_S = 0.1
"""Pause between passes, so that rows come in batches, in seconds."""
INSIDE_S = 0.25
"""The same inside the training process, in seconds."""
IDLE_SHARE = 20
"""Pause after a check, as a multiple of its duration: checks take at most a twentieth of the time."""


class ReducerTask(msgspec.Struct):
    """Instructions for a reducer. attempt: the last one. parent: the reducer ends with it. ended: training is over."""

    attempt: int
    parent: int
    wait_s: float
    ended: bool = False


def attempts(run: RunDirectory, upto: int) -> list[int]:
    """Attempts with values across ranks that aren't all passed on, the earlier ones first."""
    info = run.read_info()
    numbers = [int(entry["number"]) for entry in info.attempts if entry.get("launch")]
    return [n for n in numbers if n <= upto and _has_streams(run, n) and not read_state(run, n).done]


def _has_streams(run: RunDirectory, attempt: int) -> bool:
    folder = folder_of(run, run.read_info(), attempt)
    return folder is not None and (folder.exists() or (run.path / "ranks").exists())


def reduce(run: RunDirectory, messages: Messages, task: ReducerTask) -> int:
    """Reduce until everything is passed on, or the parent has ended. SIGTERM means that training is over.

    Returns the exit code: 0 when all is done, 75 when there is more to do.
    """
    ended = [signal.SIGTERM.value] if task.ended else []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    lease = Lease(run.path / "reducer.lease")
    while not lease.acquire():
        if os.getppid() != task.parent:
            return 75
        time.sleep(PAUSE_S)
    try:
        for attempt in attempts(run, task.attempt):
            try:
                reducer = Reducer(
                    run,
                    attempt,
                    wait_s=task.wait_s,
                    ended=attempt < task.attempt,
                    say=lambda text: messages.say(text, source="ranks"),
                )
            except NotFound:
                continue
            while not reducer.done:
                if os.getppid() != task.parent or not lease.beat():
                    return 75
                if ended:
                    reducer.end()
                began = time.monotonic()
                if not reducer.step():
                    duration_s = time.monotonic() - began
                    time.sleep(min(max(PAUSE_S if not ended else 0.01, IDLE_SHARE * duration_s), 2.0))
                elif not ended:
                    time.sleep(PAUSE_S)
            reducer.close()
    finally:
        lease.release()
    return 0


class InlineReducer:
    """Reduces inside the training process, where no relay is started. Never raises.

    Args:
        say: called with one line for the user.
    """

    def __init__(self, run: RunDirectory, attempt: int, wait_s: float, say: Callable[[str], None]) -> None:
        self._run = run
        self._attempt = attempt
        self._wait_s = wait_s
        self._say = say
        self._lease = Lease(run.path / "reducer.lease")
        self._reducer: Reducer | None = None
        self._poll_at = 0.0
        self._failed = False

    def poll(self) -> None:
        """Reduce new rows, a few times a second."""
        now = time.monotonic()
        if now < self._poll_at or self._failed:
            return
        self._poll_at = now + INSIDE_S
        try:
            if self._reducer is None and _has_streams(self._run, self._attempt) and self._lease.acquire():
                self._reducer = Reducer(self._run, self._attempt, wait_s=self._wait_s, ended=False, say=self._say)
            if self._reducer is not None:
                self._lease.beat()
                self._reducer.step()
        except Exception as error:
            self._failed = True
            self._say(f"values across ranks: {type(error).__name__}: {error}; later: trackers sync {self._run.quoted}")

    def finish(self) -> None:
        """Reduce the rest; waits for running ranks as long as a value does."""
        self._poll_at = 0.0
        self.poll()
        if self._reducer is not None:
            self._reducer.end()
            while not self._failed and not self._reducer.done:
                self._poll_at = 0.0
                self.poll()
                time.sleep(0.01)
            self._reducer.close()
        self._lease.release()
