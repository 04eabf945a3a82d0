"""The reducer's process: reduces what the ranks leave until training is over, and earlier attempts' rest before it."""

from __future__ import annotations

import os
import signal
import time

import msgspec

from trackers.errors import NotFound
from trackers.launch import folder_of
from trackers.relay.lease import Lease
from trackers.relay.messages import Messages
from trackers.relay.reduced import read_state
from trackers.relay.reducer import Reducer
from trackers.rundir import RunDirectory

PAUSE_S = 0.1
"""Between looks, so that rows come in batches."""
IDLE_SHARE = 20
"""A look that takes long is followed by a pause so many times as long: it never takes more than a twentieth."""


class Task(msgspec.Struct):
    """What a reducer is told. attempt: up to which attempt. parent: whose end is its own. ended: training is over."""

    attempt: int
    parent: int
    wait_s: float
    ended: bool = False


def attempts(run: RunDirectory, upto: int) -> list[int]:
    """Attempts with values across ranks that aren't all passed on, the earlier ones first."""
    info = run.read_info()
    numbers = [int(entry["number"]) for entry in info.attempts if entry.get("launch")]
    return [n for n in numbers if n <= upto and _left_something(run, n) and not read_state(run, n).done]


def _left_something(run: RunDirectory, attempt: int) -> bool:
    folder = folder_of(run, run.read_info(), attempt)
    return folder is not None and (folder.exists() or (run.path / "ranks").exists())


def reduce(run: RunDirectory, messages: Messages, task: Task) -> int:
    """Work until everything is passed on, or the parent is gone. SIGTERM says that training is over.

    Returns the exit code: 0 when all is done, 75 when there is more to do.
    """
    ended = task.ended

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    lease = Lease(run.path / "reducer.lease")
    while not lease.acquire():
        if os.getppid() != task.parent:
            return 75
        time.sleep(PAUSE_S)
    try:
        for attempt in attempts(run, task.attempt):
            try:
                work = Reducer(
                    run,
                    attempt,
                    wait_s=task.wait_s,
                    ended=attempt < task.attempt,
                    say=lambda text: messages.say(text, source="ranks"),
                )
            except NotFound:
                continue
            while not work.done:
                if os.getppid() != task.parent or not lease.beat():
                    return 75
                if ended:
                    work.end()
                began = time.monotonic()
                if not work.turn():
                    took = time.monotonic() - began
                    time.sleep(min(max(PAUSE_S if not ended else 0.01, IDLE_SHARE * took), 2.0))
                elif not ended:
                    time.sleep(PAUSE_S)
            work.close()
    finally:
        lease.release()
    return 0
