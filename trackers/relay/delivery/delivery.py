"""One tracker's delivery: read records behind the cursor, give them to the tracker, commit the cursor.

The loop is a method that does one step, so that the same code runs in a process of its own (the relay), by hand
(``trackers sync``) and inside training (``InlineDelivery``).

Records that a tracker refused are kept one a line with the reason: ``delivery/<tracker>.rejected.jsonl``.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from trackers import errors, records
from trackers.backends import registry
from trackers.errors import UNDECODABLE
from trackers.journal import trust
from trackers.journal.messages import RECOVERED
from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.journal.status import last_status
from trackers.records import Record, storable
from trackers.relay.delivery.cursor_file import is_outdated
from trackers.relay.delivery.cursor_file import read_account as read_account
from trackers.relay.delivery.merge_order import Order, Position
from trackers.relay.delivery.pace import BeginPace, Pace
from trackers.support import confined, process_info
from trackers.support.failpoints import failpoint
from trackers.support.redaction import mask_source, reveal
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker, Verified


class DeadLetters:
    """The file of one tracker. ``ids``: of the records in it.

    Args:
        private: only the owner may read it: a record may be refused for what is in it.
    """

    def __init__(self, path: Path, private: bool = True) -> None:
        self.path = path
        self._mode = 0o600 if private else 0o666
        self.ids: set[str] = set()
        with contextlib.suppress(OSError), confined.open_file(path) as lines:
            for line in lines:
                with contextlib.suppress(*UNDECODABLE, KeyError, TypeError):
                    self.ids.add(msgspec.json.decode(line)["id"])

    def add(self, record: Record, reason: str) -> None:
        """Keep a record, unless it is kept already.

        Raises:
            OSError: it can't be written.
        """
        if record.id in self.ids:
            return
        line = msgspec.json.encode({"id": record.id, "reason": reason, "record": records.encode(record).decode()})
        fd = confined.open_fd(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
        with os.fdopen(fd, "ab") as file:
            file.write(line + b"\n")
        self.ids.add(record.id)


IDLE_S = (0.1, 0.5)
"""Pause when nothing new has come: it grows from the first to the second."""
GATHER_S = 0.2
"""Pause after a batch that wasn't full, so that records come in batches."""
BURST_RECORDS = 2000
"""After so many, the next pause gives back the memory that they took."""
TICK_S = 1.0
QUIET_S = 15.0
"""Time without a failure after which a reopened tracker that is up to date counts as recovered, in seconds."""
RETRY_S = (0.5, 5.0)
"""Pauses between tries: short enough that a server's return shows within ten seconds."""
REFUSED_RETRY_S = (5.0, 60.0)
STRANGE_TRIES = 3
"""Number of retries of a batch after an unexpected exception, before it is halved."""
TOLD_KINDS = frozenset({"metrics", "text", "media", "artifact", "summary", "alert"})
"""Kinds whose absence from a tracker the user should know of."""
STRANGE_REJECTS = 20
"""Number of consecutive records refused with such exceptions after which the tracker itself counts as faulty."""
TRACEBACKS, TRACEBACK_CHARACTERS = 20, 20_000
"""Maximum number of different tracebacks kept for a delivery, and the characters kept of each one's end."""


class Stop(Exception):
    """The delivery can't go on in this process. restart: it can in a new one, after ``delay_s``."""

    def __init__(self, reason: str, *, restart: bool, delay_s: float = 0.0) -> None:
        super().__init__(reason)
        self.restart = restart
        self.delay_s = delay_s


class Delivery:
    """Brings one run's records to one tracker.

    Args:
        say: called with one line when something must be known by the user.
        tell: the same for good news: the address of the run's page.
        beat: called before each call that may take long, with the seconds it may take.
        alone: this process serves this delivery only, so it may be replaced by a new one.
        attempt: whose relay it works for: the end of a later attempt is for that one's relay to deliver, which knows
            when its streams are complete. 0: it delivers all.
    """

    def __init__(
        self,
        run: RunDirectory,
        name: str,
        *,
        say: Callable[[str], None],
        tell: Callable[[str], None] = lambda text: None,
        beat: Callable[[float], None] = lambda allow_s: None,
        alone: bool = True,
        attempt: int = 0,
    ) -> None:
        self.run = run
        self.name = name
        self.info: RunInfo = trust.delivered(run)[0]
        self.info.options = reveal(self.info.options)
        self.account = read_account(run, name)
        self._say = say
        self._tell = tell
        self._beat = beat
        self._alone = alone
        self._attempt = attempt
        self._class = registry.load(name)
        self._limit = int(getattr(self._class, "batch_records", 1000))
        self._deadline_s = float(getattr(self._class, "deadline_s", 300.0))
        self._tracker: Tracker | None = None
        self._burst = 0
        self._state = State()
        where = _place(name, self.info)
        self._pace = Pace(name, where)
        asks = where or hasattr(self._class, "begin_apart_s") or hasattr(self._class, "begin_refused")
        self._begins = BeginPace(name, where, _apart_s(self._class, self.info)) if asks else None  # files begin at once
        self._where = where
        confined.make_folder(run.delivery)
        for stray in run.delivery.glob(f".{name}.*.tmp"):  # of a process that was killed
            with contextlib.suppress(OSError):
                confined.remove(stray)
        self._order = Order(
            run,
            run.delivery / f"{name}.order",
            Position(self.account.seq, self.account.offsets, self.account.times),
            attempt=max(
                (number for entry in self.info.attempts if isinstance(number := entry.get("number"), int)), default=0
            ),
        )
        self._batch: list[Record] = []
        self._behind: Position = self._order.position
        self._found: Verified | None = None
        self._held_before: int | None = None
        self._lost: list[str] = []
        self._restarts = alone and bool(getattr(self._class, "restart_after_error", False))
        self._strange_rejects = 0
        self._tracebacks: set[int] = set()
        self._opened = 0.0
        self._retry_at = 0.0
        self._uncommitted = False
        self._told_awaited = False
        self._idle_s = IDLE_S[0]
        self._ticked = 0.0
        self._rejections = DeadLetters(
            run.delivery / f"{name}.rejected.jsonl", bool(self.info.option("TRACKER_PRIVATE", True))
        )

    def step(self) -> float | None:
        """Do one piece of work.

        Returns:
            seconds until the next step is useful; None when the run has ended and all is delivered and closed.

        Raises:
            Stop: this process can't go on.
        """
        wait = self._retry_at - time.monotonic()
        if wait > 0:
            return wait
        try:
            if self._awaits():
                return IDLE_S[1]
            if not self._batch:
                self._batch = self._read()
            if not self._batch:
                return self._rest()
            if (pause := self._wait()) > 0.0:
                self._beat(0.0)
                return pause
            self._open()
            self._deliver(self._batch)
            self._burst += len(self._batch)
            self._pace.taken()
            self._hear()
            self._commit_batch()
        except errors.DeliveryError as error:
            return self._failed(error)
        except Stop:
            raise
        except Exception as error:
            translated = _translate(error)
            self.note_traceback(error)
            self.account.strange += 1
            if isinstance(translated, errors.Fatal) and self.account.strange < STRANGE_TRIES:
                translated = errors.Unavailable(str(translated))
            return self._failed(translated)
        self._idle_s = IDLE_S[0]
        return 0.0 if self._order_has_more() or self._has_ended() else GATHER_S

    def pump(self) -> None:
        """Deliver what there is now, in this thread; failures are left for later. For delivery inside training."""
        while self.step() == 0.0 and not self.account.failures:
            pass

    def close(self, status: Status | None = None) -> None:
        """Stop here; ``status`` "running" (the default) if the run goes on."""
        if self._tracker is not None:
            self._beat(self._deadline_s)
            self._tracker.close(status or Status("running", time=time.time()))
            self._tracker = None
            self._commit()
        self._order.close()
        self._pace.close()
        if self._begins is not None:
            self._begins.close()

    def _awaits(self) -> bool:
        """Whether a stream was deleted that training puts back: what there is of it isn't all."""
        awaited = self._order.awaited()
        if awaited and not self._told_awaited:
            self._told_awaited = True
            self._say(f"{awaited[0]}.jsonl was deleted: the delivery goes on when training has put it back")
        if awaited:
            self._beat(0.0)
        return bool(awaited)

    def _read(self) -> list[Record]:
        self._behind = self._order.position.copy()
        found = self._order.read(self._limit)
        self._note_damage()
        return found

    def _note_damage(self) -> None:
        fresh = [(name, at) for name, at in self._order.damage() if at > self.account.damaged_at.get(name, -1)]
        for name, at in fresh:
            self.account.damaged_at[name] = at
        if fresh and not self.account.damaged:
            where = f"{fresh[0][0]}.jsonl at byte {fresh[0][1]}"
            lines = "1 damaged line" if len(fresh) == 1 else f"{len(fresh)} damaged lines"
            self._say(f"{lines} of the journal skipped ({where}); all others are delivered: compare a backup, if any")
        self.account.damaged += len(fresh)
        for name in sorted(self._order.cut):
            self._say(
                f"{name}.jsonl was cut while it was read; the delivery goes on with the next new record: "
                "what wasn't delivered before and is cut off is lost"
            )

    def _has_ended(self) -> bool:
        return self._order.ended() and not (self._attempt and self.run.attempt() > self._attempt)

    def _order_has_more(self) -> bool:
        self._batch = self._read()
        return bool(self._batch)

    def _rest(self) -> float | None:
        if self._has_ended():
            return self._end()
        if self._uncommitted:
            self._commit()
            self._recovered()
        self._beat(0.0)
        tick = getattr(self._tracker, "tick", None)
        if tick is not None and time.monotonic() - self._ticked >= TICK_S:
            self._beat(self._deadline_s)
            tick()
            self._hear()
            self._ticked = time.monotonic()
        elif self._tracker is None:
            if (pause := self._wait()) > 0.0:
                return pause
            self._open()  # the native run appears before the first record does
            self._pace.taken()
        if self._restarts and time.monotonic() - self._opened > QUIET_S:
            self._recovered()
        if self._alone and self._burst >= BURST_RECORDS:  # not training's memory
            process_info.give_back_memory()
            self._burst = 0
        self._idle_s = min(self._idle_s * 1.5, IDLE_S[1])
        return self._idle_s

    def _wait(self) -> float:
        """How long until the tracker may be asked, or opened, in seconds; 0.0: now."""
        pause = self._pace.wait()
        return pause if pause > 0.0 or self._tracker is not None or self._begins is None else self._begins.wait()

    def _begin_refused(self) -> None:
        """A tracker's client was refused a beginning, and tries again by itself: others wait. From any thread."""
        pace = BeginPace(self.name, self._where)
        pace.slower(None)
        pace.close()

    def _hear(self) -> None:
        """Slow down where a tracker's client was asked to, which tries again by itself, and set aside what it was
        refused after it had taken it."""
        limited = getattr(self._tracker, "limited", None)
        if limited is not None and limited():
            self._pace.slower(None)
        for record, reason in getattr(self._tracker, "refused", list)():
            self._set_aside(record, reason)

    def _end(self) -> float | None:
        status = last_status(self.run)
        delivered = self.account.closed == status.name and self._tracker is None
        delivered = delivered and not is_outdated(self.run, self.account)
        if delivered and not self.account.verify:
            if self._order.position.offsets != self.account.offsets:  # what doesn't belong to the run was passed over
                self._commit()
            return None
        if (pause := self._wait()) > 0.0:
            self._beat(0.0)
            return pause
        self._open()
        if self._batch:  # the destination holds less than we believed
            return 0.0
        assert self._tracker is not None
        if delivered and self._found is None:
            self._check()
            return 0.0
        self._beat(self._deadline_s)
        failpoint(f"{self.name}.close.before")
        self._tracker.close(status)
        failpoint(f"{self.name}.close.after")
        self._pace.taken()
        after = self._held() if self._found is not None else None
        self._tracker = None
        self.account.closed = status.name
        if self._found is not None:
            self._note_check(after)
        self._commit()
        self._recovered()
        return 0.0 if self.account.verify else None

    def _check(self) -> None:
        """Have the tracker read back what it delivered; where that shows a fault, everything is delivered again."""
        tracker = self._tracker
        assert tracker is not None
        self._beat(self._deadline_s)
        verify = getattr(tracker, "verify", None)
        if self._held_before is None:
            self._held_before = self._held()
        self._found = Verified("", unchecked="it has no way to be read back") if verify is None else verify()
        if self._found.damaged:
            what = "1 fault" if len(self._found.damaged) == 1 else f"{len(self._found.damaged)} faults"
            self._say(f"{self.name}: {what}, the first: {self._found.damaged[0]}; it is written anew from the journal")
        if self._found.cursor is None:
            return
        state = dict(self._state)
        with contextlib.suppress(Exception):  # what it has in hand isn't wanted any more
            tracker.close(Status("running", time=time.time()))
        self._tracker, self._state = None, State(state)
        self._order.seek_seq(self._found.cursor.seq)
        self._behind = self._order.position
        self._commit()

    def _held(self) -> int | None:
        held = getattr(self._tracker, "held", None)
        return None if held is None else held()

    def _note_check(self, after: int | None) -> None:
        """Keep what a check found, and end it."""
        found, before = self._found, self._held_before
        assert found is not None
        missing = max(0, after - before) if after is not None and before is not None else 0
        self.account.verify, self._found = False, None
        self.account.verified = {
            "time": time.time(),
            "checked": found.checked,
            "unchecked": found.unchecked,
            "damaged": [*self._lost, *found.damaged],
            "missing": missing,
        }
        self._lost, self._held_before = [], None

    def _open(self) -> None:
        if self._tracker is not None:
            return
        self._beat(self._deadline_s)
        tracker = self._class()
        self._state = State(self.account.state, self._save_state)
        if hasattr(tracker, "begin_refused"):
            tracker.begin_refused = self._begin_refused
        failpoint(f"{self.name}.open.before")
        answer = tracker.open(self.info, self._state)
        failpoint(f"{self.name}.open.after")
        behind = answer is not None and answer.seq < self._behind.seq
        if answer is not None and behind:
            self._go_back(tracker, answer)
        self._tracker, self._opened = tracker, time.monotonic()
        if self._begins is not None:
            self._begins.taken()
        self._hear()
        self.account.closed = ""
        self.account.state = dict(self._state)
        url = str(self._state.get("url", ""))
        if url.startswith(("http://", "https://")):
            self._tell(url)
        if behind:
            if self.account.verify:
                where = self._state.get("url") or self.name
                self._lost.append(f"{where} (it held less than was delivered)")
                self._held_before = self._held()
            self._batch = self._read()
        self._commit()

    def _go_back(self, tracker: Tracker, answer: Cursor) -> None:
        try:
            self._order.seek_seq(answer.seq)
        except (
            OSError
        ):  # what its state says now is true together with the earlier cursor only: both are left as they were
            with contextlib.suppress(Exception):
                tracker.close(Status("running", time=time.time()))
            raise

    def _deliver(self, batch: Sequence[Record]) -> None:
        """Write a batch; halve it while it is refused, until the refused record stands alone."""
        tracker = self._tracker
        if not batch or tracker is None:
            return
        taken = [record for record in batch if type(record) in tracker.accepts]
        if getattr(tracker, "single_axis", False):
            taken = [records.on_axis(record) for record in taken]
        self._beat(self._deadline_s)
        try:
            failpoint(f"{self.name}.write.before")
            tracker.write(taken, Cursor(batch[-1].seq))
            failpoint(f"{self.name}.write.after")
        except (errors.Unavailable, errors.Refused, errors.Fatal):
            raise
        except Exception as error:
            rejected = isinstance(error, errors.Rejected)
            if not rejected:
                self.note_traceback(error)
                translated = _translate(error)
                if isinstance(translated, errors.Unavailable):
                    raise translated from error
                self.account.strange += 1
                if self.account.strange < STRANGE_TRIES:
                    raise errors.Unavailable(f"{type(error).__name__}: {error}") from error
            if len(taken) > 1:
                middle = len(batch) // 2
                self._deliver(batch[:middle])
                self._deliver(batch[middle:])
            elif taken:
                self._reject(taken[0], error, strange=not rejected)
            else:
                raise errors.Fatal(f"an empty batch was refused: {error}") from error
            return
        self._strange_rejects = 0

    def _reject(self, record: Record, error: Exception, *, strange: bool) -> None:
        reason = str(error) if not strange else f"{type(error).__name__}: {error}"
        if strange:
            self._strange_rejects += 1
            if self._strange_rejects >= STRANGE_REJECTS:
                raise errors.Fatal(f"{STRANGE_REJECTS} records in a row failed, the last with {reason}")
        self._set_aside(record, reason)

    def _set_aside(self, record: Record, reason: str) -> None:
        self._rejections.add(record, reason)
        self.account.rejected = len(self._rejections.ids)
        self._say(
            f"{self.name} refused a record ({reason}); it is kept in {self._rejections.path}, everything else goes on: "
            f"`trackers show --rejected {self.run.path.name}` lists it"
        )

    def _count(self, batch: Sequence[Record]) -> bool:
        """Count a batch that is delivered. False if it was before: it came again."""
        before = self.account.counted
        for record in batch:
            if record.seq <= self.account.counted:
                continue
            self.account.counted = record.seq
            if type(record) in self._class.accepts:
                self.account.delivered += record.id not in self._rejections.ids
                continue
            kind = str(type(record).__struct_config__.tag)
            self.account.skipped[kind] = self.account.skipped.get(kind, 0) + 1
            if kind in TOLD_KINDS and not getattr(self._class, "partial", False):
                self._say(f"{self.name} can't hold records of kind {kind!r}: they are skipped there")
        return self.account.counted > before

    def _commit_batch(self) -> None:
        fresh = self._count(self._batch)
        self._batch = []
        self._commit()
        if fresh or not self._restarts:  # what comes again in a new process isn't what the last one failed at
            self._recovered()

    def _recovered(self) -> None:
        account = self.account
        account.strange = 0
        if not account.failures and not account.error and not account.stopped:
            return
        if account.error:
            self._say(f"{self.name}: {RECOVERED}")
        account.error, account.error_since, account.failures, account.stopped = "", 0.0, 0, False
        account.last = ""
        account.told.clear()
        self._store()

    def _commit(self) -> None:
        self._uncommitted = True
        # While a batch is in hand, what is safely delivered ends before it.
        position = self._behind if self._batch else self._order.position
        self.account.seq = position.seq
        self.account.offsets = dict(position.offsets)
        self.account.times = dict(position.times)
        self.account.state = dict(self._state)
        self._store()
        self._uncommitted = False

    def _save_state(self) -> None:
        self.account.state = dict(self._state)
        self._store()

    def _store(self) -> None:
        self.account.time = time.time()
        failpoint(f"{self.name}.commit.before")
        try:
            content = msgspec.json.encode(self.account)
        except UnicodeError:  # a path that isn't UTF-8
            content = msgspec.json.encode(storable(msgspec.to_builtins(self.account)))
        try:
            replace_file(self.run.delivery_state(self.name), content)
        except OSError as error:
            raise errors.Unavailable(f"the cursor can't be written: {error}") from error
        failpoint(f"{self.name}.commit.after")

    def _failed(self, error: errors.DeliveryError) -> float:
        """Handles a failure by its kind (:mod:`trackers.errors`). Returns the pause until the next try, in seconds."""
        self.account.failures += 1
        failures = self.account.failures
        if self._begins is not None:
            self._begins.failed()
        text = f"{self.name}: {error}"
        if isinstance(error, (errors.Fatal, errors.Rejected)):
            self.account.strange = 0
            self._note(str(error), stopped=True)
            self._say(
                f"{text}; its delivery stopped, training and the other trackers go on. "
                f"Continue with: trackers sync {self.run.quoted} --to {self.name}"
            )
            raise Stop(str(error), restart=False)
        low, high = REFUSED_RETRY_S if isinstance(error, errors.Refused) else RETRY_S
        pause: float = min(high, low * 2 ** min(failures - 1, 10)) * random.uniform(0.7, 1.0)
        if isinstance(error, errors.Unavailable) and error.limited:
            pace = self._begins if self._tracker is None else None
            (pace or self._pace).slower(error.retry_after_s)
        if isinstance(error, errors.Unavailable) and error.retry_after_s is not None:
            pause = max(pause, min(error.retry_after_s, 3600.0))
        if isinstance(error, errors.Refused) or failures >= 3:
            self._tell_failure(error)
            self._note(str(error))
        elif self.account.last != str(error):  # a run that ends before it lasts says why it waits
            self.account.last = str(error)
            self._note(self.account.error)
        again = getattr(self._class, "restart_after_error", False) or isinstance(error, errors.Refused)
        if again and self._alone:
            self._note(self.account.error)
            # A client that failed may hold on to what it read at its start: credentials, addresses, dead threads.
            raise Stop(str(error), restart=True, delay_s=pause)
        if isinstance(error, errors.Refused) or again or getattr(error, "reopen", False):
            self._tracker = None
        self._retry_at = time.monotonic() + pause
        return pause

    def note_traceback(self, error: Exception) -> None:
        """Keep a tracker's mistake in ``relay.log``, for whoever mends it; the same one once in each process."""
        if isinstance(error, OSError) and self._restarts:  # one process after the other finds its server away
            return
        text = mask_source("".join(traceback.format_exception(error)))
        where = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[-1:]]
        mark = hash((*where, type(error), re.sub(r"\d+", "", str(error))))
        if mark in self._tracebacks or len(self._tracebacks) >= TRACEBACKS:
            return
        self._tracebacks.add(mark)
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError), confined.open_file(self.run.relay_log, "ab") as log:
            said = f"{when} {os.getpid()} {self.name}\n{text[-TRACEBACK_CHARACTERS:]}"
            log.write(said.encode("utf-8", "replace"))

    def _tell_failure(self, error: errors.DeliveryError) -> None:
        # One outage has many texts: refused, reset, timed out. It is told once, and again where it asks for an action.
        kind = f"{self.run.attempt()} {'refused' if isinstance(error, errors.Refused) else 'away'}"
        if kind not in self.account.told:
            self.account.told.append(kind)
            waits = "its records wait in the journal"
            self._say(f"{self.name}: {error}; training goes on, {waits}, tried again by itself")

    def _note(self, text: str, *, stopped: bool = False) -> None:
        self.account.error = text
        self.account.error_since = (self.account.error_since or time.time()) if text else 0.0
        self.account.stopped = stopped
        with contextlib.suppress(errors.DeliveryError):
            self._store()


def _place(name: str, info: RunInfo) -> str:
    """Which server a tracker asks; "" where it doesn't say."""
    with contextlib.suppress(Exception):  # a plug-in's code; what is wrong with the address, opening it says
        return str(registry.precheck(name).place(info))
    return ""


def _apart_s(tracker: type[Tracker], info: RunInfo) -> float:
    """Between beginnings of runs on this machine, in seconds, as a tracker wants it."""
    with contextlib.suppress(Exception):  # a plug-in's code
        return float(getattr(tracker, "begin_apart_s", lambda info: 0.0)(info))
    return 0.0


def _translate(error: Exception) -> errors.DeliveryError:
    if isinstance(error, errors.DeliveryError):
        return error
    if isinstance(error, (OSError, TimeoutError)):
        return errors.Unavailable(f"{type(error).__name__}: {error}")
    return errors.Fatal(f"{type(error).__name__}: {error}")
