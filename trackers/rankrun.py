"""The run of a rank other than the main one: plain values cost nothing and go nowhere, reductions are added."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trackers.contributions import PLAIN, Across, Contribution, reductions
from trackers.identity import Clock
from trackers.instruments.attach import Measuring
from trackers.nullrun import NullRun
from trackers.pending import Queue, Waiting
from trackers.records import Finish
from trackers.secret import mask_text
from trackers.tracker import RunInfo

DRAIN_S = 10.0


class RankRecorder:
    """What a rank does with a call: a queue for what is on its way from an accelerator, and the way to the main rank.

    Attributes:
        info: the options of this process; the run's identity is the main rank's to make.
        step: of the last call. counts: a call has said at which step training is.
    """

    def __init__(self, info: RunInfo, across: Across) -> None:
        self.info = info
        self.step = -1
        self.counts = False
        self.pid = os.getpid()
        self.finished = False
        self._across = across
        self._clock = Clock()
        self._queue = Queue(lambda line: None)
        self._lock = threading.RLock()
        self._problems: set[str] = set()

    def count(self, step: int | None, commit: bool | None) -> int | None:
        """The step of a call; None where no call has given one: then the main rank alone knows where it begins."""
        if step is not None:
            self.step, self.counts = int(step), True
            return self.step
        following = self.step + 1
        if commit is not False:
            self.step = following
        return following if self.counts else None

    def quick(self, values: Mapping[str, Any], step: int) -> bool:
        """Add a call that is like an earlier one. False: nothing was done."""
        if type(step) is not int or self.finished or len(self._queue):
            return False
        if not self._across.quick(step, self._clock.offset + time.monotonic(), values):
            return False
        self.step, self.counts = step, True
        return True

    def log(self, values: Mapping[str, Any], step: int | None, commit: bool | None) -> None:
        """Add the reductions among the values."""
        if self.finished:
            return
        step, now = self.count(step, commit), self._clock.now()
        problems: list[str] = []
        found = reductions(values, problems)
        if found:
            added = Contribution(found, self._across.move, self._across.batch)
            problems += added.problems

            def build(arrived: dict[Any, Any]) -> bytes:
                self._across.end(step, now, added, arrived)
                return b""

            waiting = self._across.begin(step, now, added)
            if not waiting and not len(self._queue):
                self._across.end(step, now, added, waiting)
            else:
                with self._lock:
                    self._queue.add(Waiting(waiting, build))
        elif len(self._queue):
            with self._lock:
                self._queue.drain()
        for problem in problems:
            self.problem(f"log: {problem}")

    def problem(self, text: str) -> None:
        """Say on stderr, once, what couldn't be done."""
        from trackers.relay.messages import Message, one_line, show

        line = one_line(text)
        if line not in self._problems and len(self._problems) < 1000:
            self._problems.add(line)
            with contextlib.suppress(Exception):
                show(Message(time.time(), line))

    def guard(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function; what it raises becomes a problem named once."""
        try:
            function(*arguments)
        except Exception as error:
            self.problem(f"{what}: {type(error).__name__}: {error}")

    def end(self, status: str, exit_code: int | None, reason: str) -> None:
        """Add what still waits, and say that this rank has ended."""
        if self.finished or os.getpid() != self.pid:
            return
        with self._lock:
            self._queue.finish(DRAIN_S)
            self.finished = True
            finish = Finish(time=self._clock.now(), status=status, exit_code=exit_code, reason=mask_text(reason))
            self._across.close(finish)
        if self._queue.lost:
            self.problem(f"{self._queue.lost} values were given up: {self._queue.why}")


class RankRun(Measuring, NullRun):  # type: ignore[misc]
    """A rank's side of a run. Has every public name of :class:`trackers.runs.Run`.

    ``log`` keeps the reductions (``trackers.Mean`` …), for they need every rank; all else is the main rank's to say.
    """

    disabled = False

    def __init__(self, recorder: RankRecorder, on_finish: Callable[[Any], None], **more: Any) -> None:
        super().__init__(**more)
        self._recorder: Any = recorder
        self._on_finish = on_finish

    @property
    def step(self) -> int:  # type: ignore[override]
        """The step of the last call; 0 before the first."""
        return max(int(self._recorder.step), 0)

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
    ) -> None:
        """Add this rank's part of values across ranks (Mean, Max, …); plain values are the main rank's to log.

        As on the main rank: never raises, never waits for an accelerator, a disk or another rank.
        """
        recorder = self._recorder
        try:
            if step is not None and recorder.quick(values, step):
                return
            if PLAIN.issuperset(map(type, values.values())):
                recorder.count(step, commit)
                return
        except Exception:  # whatever it was, the slow way finds out and says it
            pass
        recorder.guard("log", recorder.log, values, step, commit)

    log_metrics = log

    def flush(self, timeout: float = 30.0) -> bool:
        """Every row that can be written is: True."""
        return True

    def finish(self, exit_code: int | None = None, quiet: bool | None = None, timeout: float | None = None) -> None:
        """This rank has ended; nothing is waited for."""
        self._end("finished" if not exit_code else "failed", exit_code, "")

    close = finish

    def fail(self, exit_code: int, reason: str, timeout: float | None = None) -> None:
        """This rank has failed."""
        self._end("failed", exit_code, reason)

    def leave(self, exit_code: int, reason: str) -> None:
        """The process ends with this exit code."""
        self._end("finished" if not exit_code else "failed", exit_code, reason)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        code = 0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1
        self.leave(code, f"{kind.__name__}: {error}" if kind and code else "")

    def _end(self, status: str, exit_code: int | None, reason: str) -> None:
        recorder = self._recorder
        if not recorder.finished and os.getpid() == recorder.pid:
            recorder.guard("finish", self._close_instruments)
            recorder.guard("finish", recorder.end, status, exit_code or 0, reason)
            recorder.guard("finish", self._on_finish, self)

    def __repr__(self) -> str:
        return f"<trackers.RankRun {self.project}>"
