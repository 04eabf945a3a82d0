"""The run of a rank other than the main one: plain values cost nothing and go nowhere, reductions are added."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trackers.errors import reason
from trackers.journal.messages import show_once
from trackers.ranks.contribution import PLAIN, ReductionRow, Transport, reductions
from trackers.records import MAX_STEP, Finish, Record
from trackers.support.clock import Clock, monotonic
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask_source
from trackers.support.run_requests import AGREED
from trackers.tracker import RunInfo
from trackers.training.console_capture import ConsoleCapture
from trackers.training.disabled import NullRun
from trackers.training.exit_hooks import Exit, exception_exit, exit_of, given_code
from trackers.training.measuring import Measuring
from trackers.training.stopping import Board, RankStopping
from trackers.values.coerce import whole_step
from trackers.values.device_copy import PendingRecord, Queue

if TYPE_CHECKING:
    from trackers.support.run_requests import Request

DRAIN_S = 10.0
LOOK_S = 5.0


class RankRecorder:
    """Handles a rank's calls: a queue for values on their way from an accelerator, and the transport to the main rank.

    Attributes:
        info: the options of this process; the run's identity is the main rank's to make.
        is_main: False: what the main rank alone records, is dropped.
        on_look: called every :data:`LOOK_S` seconds in a call of ``log`` with reductions; None for nothing.
        step: of the last call. counts: a call has said at which step training is.
    """

    is_main: ClassVar[bool] = False

    def __init__(self, info: RunInfo, across: Transport) -> None:
        self.info = info
        self.step = -1
        self.following = 0
        self.counts = False
        self.pid = os.getpid()
        self.finished = False
        self._across = across
        self._clock = Clock()
        self._queue = Queue()
        self._lock = threading.RLock()
        self._problems: set[str] = set()
        self.on_look: Callable[[], None] | None = None
        self._look_at = 0.0

    def count(self, step: int | None, commit: bool | None) -> int | None:
        """The step of a call; None where no call has given one: then the main rank alone knows where it begins."""
        whole = None if step is None else whole_step(step, self.problem)
        at = self.following if whole is None else whole
        self.following = at + (commit is not False)  # taken at once: no call and no jump lies between
        self.step = at = min(at, MAX_STEP)
        self.counts = self.counts or whole is not None
        return at if self.counts else None

    def quick(self, values: Mapping[str, Any], step: int, keep: bool) -> bool:
        """Add a call that is like an earlier one. False: nothing was done."""
        if type(step) is not int or self.finished or len(self._queue) or not -MAX_STEP <= step <= MAX_STEP:
            return False
        now = self._clock.offset + monotonic()
        if not self._across.quick(step, now, values):
            return False
        if now > self._look_at:
            self._looks(now)
        self.step, self.following, self.counts = step, step if keep else step + 1, True
        return True

    def log(self, values: Mapping[str, Any], step: int | None, commit: bool | None) -> None:
        """Add the reductions among the values."""
        if self.finished:
            return
        step, now = self.count(step, commit), self._clock.now()
        problems: list[str] = []
        reduced = reductions(values, problems)
        if now > self._look_at:
            self._looks(now)
        if reduced:
            added = ReductionRow(reduced, self._across.move, self._across.batch)
            problems += added.problems

            def build(arrived: dict[Any, Any]) -> bytes:
                self._across.end(step, now, added, arrived)
                return b""

            waiting = self._across.begin(step, now, added)
            if not waiting and not len(self._queue):
                self._across.end(step, now, added, waiting)
            else:
                with self._lock:
                    self._queue.add(PendingRecord(waiting, build))
        elif len(self._queue):
            with self._lock:
                self._queue.drain()
        for problem in problems:
            self.problem(f"log: {problem}")

    def _looks(self, now: float) -> None:
        self._look_at = now + LOOK_S
        if self.on_look is not None and os.getpid() == self.pid:
            self.guard("log", self.on_look)

    def add_beside(self, values: Mapping[str, Any]) -> None:
        """Nothing: plain values are the main rank's."""

    def log_beside(self) -> None:
        """Nothing: no values wait for a call."""

    def take(self, record: Record) -> None:
        """Nothing: what another library has logged is the main rank's."""

    def record(self, record: Record) -> None:
        """Nothing: records are the main rank's."""

    def look(self) -> None:
        """Nothing: no trackers run inside this process."""

    def problem(self, text: str, about: str = "") -> None:
        """Say on stderr, once, what couldn't be done. about: what counts as the same, where the text differs."""
        with suppress(Exception):  # as Recorder.problem
            show_once(text, self._problems, about)

    def guard(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function; what it raises becomes a problem named once."""
        try:
            function(*arguments)
        except Exception as error:
            pass_on(error)
            self.problem(f"{what}: {reason(error)}")

    def end(self, status: str, exit_code: int | None, reason: str) -> None:
        """Add what still waits, and say that this rank has ended."""
        if self.finished or os.getpid() != self.pid:
            return
        with self._lock:
            self._queue.finish(DRAIN_S)
            self.finished = True
            finish = Finish(time=self._clock.now(), status=status, exit_code=exit_code, reason=mask_source(reason))
            self._across.close(finish)
        if self._queue.lost:
            self.problem(f"{self._queue.lost} values were given up: {self._queue.why}")


class RankRun(Measuring, NullRun):  # type: ignore[misc, override]
    """A rank's side of a run. Has every public name of :class:`trackers.training.run.Run`.

    ``log`` keeps the reductions (``trackers.Mean`` …), for they need every rank; all else is the main rank's to say.
    """

    disabled = False

    def __init__(
        self,
        recorder: RankRecorder,
        on_finish: Callable[[Any], None],
        console: ConsoleCapture | None = None,
        folder: Path | None = None,
        **more: Any,
    ) -> None:
        super().__init__(on_finish=on_finish, **more)
        self._console = console
        self._recorder: Any = recorder
        self._stopping = RankStopping(None if folder is None else Board(folder / AGREED), recorder.problem)

    @property
    def should_stop(self) -> bool:  # type: ignore[override]
        """Whether all ranks are to stop now: as the main one has said, at the same look on each."""
        return self._stopping.stop_due()

    @property
    def should_checkpoint(self) -> bool:  # type: ignore[override]
        """Whether all ranks are to save a checkpoint now; True once for each request."""
        return self._stopping.save_due()

    @property
    def stop_request(self) -> Request | None:  # type: ignore[override]
        """That the main rank has said that all are to stop; it alone knows who asked."""
        return self._stopping.request

    def on_stop(self, function: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Call a function, in a call of ``log``, once the main rank says that all are to stop."""
        self._stopping.call(function)
        return function

    @property
    def step(self) -> int:  # type: ignore[override]
        """The step of the last call; 0 before the first."""
        return max(int(self._recorder.step), 0)

    @property
    def finished(self) -> bool:  # type: ignore[override]
        """This rank has ended."""
        return bool(self._recorder.finished)

    def log(
        self,
        data: Mapping[str, Any] | None = None,
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Add this rank's part of values across ranks (Mean, Max, …); plain values are the main rank's to log.

        As on the main rank: never raises, never waits for an accelerator, a disk or another rank.
        """
        recorder = self._recorder
        if data is None:
            data = {} if values is None else values
        if self._stopping.is_awaited:
            recorder.guard("on_stop", self._stopping.poll)
        try:
            if step is not None and recorder.quick(data, step, commit is False):
                return
            if PLAIN.issuperset(map(type, data.values())):
                recorder.count(step, commit)
                return
        except Exception as error:  # whatever it was, the slow way finds out and says it
            pass_on(error)
        recorder.guard("log", recorder.log, data, step, commit)

    log_metrics = log

    def flush(self, timeout: float = 30.0) -> bool:
        """Every row that can be written is: True."""
        return True

    def finish(self, exit_code: int | None = None, quiet: bool | None = None, timeout: float | None = None) -> None:
        """This rank has ended; nothing is waited for."""
        code = given_code(exit_code, self._recorder.problem)
        self._end("failed" if code else "finished", code, "")

    close = finish

    def fail(self, exit_code: int, reason: str, timeout: float | None = None) -> None:
        """This rank has failed."""
        self._end("failed", given_code(exit_code, self._recorder.problem), reason)

    def leave(self, exit_code: int, reason: str, *, certain: bool | None = None) -> None:
        """The process ends with this exit code."""
        self._end("finished" if not exit_code else "failed", exit_code, reason)

    def notice_fork(self) -> None:
        """In a forked child: it has no part of its own in values across ranks, and says so when it adds to them."""

    def adopt(self) -> bool:
        """Whether this process made it."""
        return bool(os.getpid() == self._recorder.pid)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._console is not None and error is not None and not isinstance(error, SystemExit):
            self._recorder.guard("finish", self._console.add_traceback, error)
        end = Exit(0) if error is None else exit_of(error) if isinstance(error, SystemExit) else exception_exit(error)
        self.leave(end.code, end.reason)

    def _end(self, status: str, exit_code: int | None, reason: str) -> None:
        recorder = self._recorder
        if not recorder.finished and os.getpid() == recorder.pid:
            recorder.guard("finish", self._close_instruments)
            if self._console is not None:
                recorder.guard("finish", self._console.end)
            recorder.guard("finish", recorder.end, status, exit_code or 0, reason)
            recorder.guard("finish", self._on_finish, self)

    def __repr__(self) -> str:
        return f"<trackers.RankRun {self.project}>"
