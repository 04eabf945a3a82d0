"""One tracker's delivery: read records after the cursor, write them to the tracker, commit the cursor.

The loop is a method that does one step, so that the same code runs in a process of its own (the relay), by hand
(``trackers sync``) and inside training (``InlineDelivery``).

Records that a tracker refused are kept one a line with the reason: ``delivery/<tracker>.rejected.jsonl``.
"""

from __future__ import annotations

import contextlib
import errno
import math
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
from trackers.formats.vendor_system_names import placed
from trackers.journal import trust
from trackers.journal.checksums import skipped
from trackers.journal.messages import RECOVERED
from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.journal.status import last_status
from trackers.ranks.progress import ReductionProgress
from trackers.records import Record, storable
from trackers.relay.delivery.cursor_file import is_outdated
from trackers.relay.delivery.cursor_file import read_account as read_account
from trackers.relay.delivery.merge_order import Order, Position
from trackers.relay.delivery.pace import BeginPace, Pace
from trackers.support import client_versions, confined, processes
from trackers.support.failpoints import failpoint
from trackers.support.redaction import mask_source
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker, Verified


class DeadLetters:
    """The file of records that one tracker refused. ``ids``: those of its records.

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
"""Pause while there are no new records, in seconds: it grows from the first to the second."""
GATHER_S = 0.2
"""Pause after a batch that wasn't full, so that records are collected into batches, in seconds."""
BURST_RECORDS = 2000
"""Number of records after which the next pause returns freed memory to the system."""
TICK_S = 1.0
QUIET_S = 15.0
"""Time without a failure after which a reopened tracker that is up to date counts as recovered, in seconds."""
RETRY_S = (0.5, 5.0)
"""Pauses between retries, in seconds: delivery resumes within ten seconds of a server's return."""
REFUSED_RETRY_S = (5.0, 60.0)  # somebody has to do something first
STRANGE_TRIES = 3
"""Number of retries of a batch after an unexpected exception, before it is halved."""
WARNED_KINDS = frozenset({"metrics", "text", "media", "artifact", "summary", "alert"})
"""Kinds of records that a user is warned of if a tracker doesn't take them."""
STRANGE_REJECTS = 20
"""Number of consecutive records refused with unexpected exceptions after which the tracker counts as faulty."""
TRACEBACKS, TRACEBACK_CHARACTERS = 20, 20_000
"""Maximum number of different tracebacks kept for a delivery, and the characters kept of each one's end."""


class Stop(Exception):
    """The delivery can't go on in this process. restart: it can in a new one, after ``delay_s``."""

    def __init__(self, reason: str, *, restart: bool, delay_s: float = 0.0) -> None:
        super().__init__(reason)
        self.restart = restart
        self.delay_s = delay_s


class Delivery:
    """Delivers one run's records to one tracker.

    Args:
        say: called with one line for each warning to the user.
        tell: called with good news: the URL of the run's page.
        beat: called before each call that may take long, with its time limit in seconds.
        alone: this process serves this delivery only, so it may be replaced by a new one.
        attempt: the attempt whose relay runs this delivery: the end of a later attempt is delivered by that attempt's
            relay, which knows when its streams are complete. 0: deliver all attempts.
    """

    def __init__(
        self, run: RunDirectory, name: str, *, say: Callable[[str], None],
        tell: Callable[[str], None] = lambda text: None, beat: Callable[[float], None] = lambda allow_s: None,
        alone: bool = True, attempt: int = 0,
    ) -> None:  # fmt: skip
        self.run = run
        self.name = name
        self.info: RunInfo = trust.delivered(run)[0]
        self.info.options = trust.options_for(self.info, name)
        self.account = read_account(run, name)
        self._say = say
        self._tell = tell
        self._beat = beat
        self._alone = alone
        self._attempt = attempt
        self._class = registry.load(name)
        self._limit = self._class.batch_records
        self._deadline_s = self._class.deadline_s
        self._tracker: Tracker | None = None
        self._burst = 0
        self._state = State()
        server = _server_address(name, self.info)
        self._pace = Pace(name, server)
        apart_s = _apart_s(self._class, self.info)
        # Trackers that write files begin at once.
        self._begin_pace = None if not server and apart_s is None else BeginPace(name, server, apart_s or 0.0)
        self._server = server
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
            held_from=ReductionProgress(run, self.info).pending_since if self._class.whole_steps else lambda: math.inf,
        )
        self._batch: list[Record] = []
        self._batch_start: Position = self._order.position
        self._check_result: Verified | None = None
        self._held_before: int | None = None
        self._lost: list[str] = []
        self._restarts = alone and self._class.restart_after_error
        self._strange_rejects = 0
        self._tracebacks: set[int] = set()
        self._opened = 0.0
        self._retry_at = 0.0
        self._uncommitted = False
        self._warned_awaited = False
        self._idle_s = IDLE_S[0]
        self._ticked = 0.0
        self._rejections = DeadLetters(
            run.delivery / f"{name}.rejected.jsonl", bool(self.info.option("TRACKER_PRIVATE", True))
        )

    @property
    def common(self) -> bool:
        """Whether the tracker's store is one that several users write to."""
        return self._class.common

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
            if self._awaits_stream():
                return IDLE_S[1]
            if not self._batch:
                self._batch = self._read()
            if not self._batch:
                return self._idle()
            if (pause := self._wait()) > 0.0:
                self._beat(0.0)
                return pause
            self._open()
            self._deliver(self._batch)
            self._burst += len(self._batch)
            self._pace.accepted()
            self._poll_tracker()
            self._commit_batch()
        except errors.DeliveryError as error:
            return self._failed(error)
        except Stop:
            raise
        except Exception as error:
            translated = _as_delivery_error(error)
            self.note_traceback(error)
            self.account.strange += 1
            if isinstance(translated, errors.Fatal) and self.account.strange < STRANGE_TRIES:  # it may pass
                translated = errors.Unavailable(str(translated))
            return self._failed(translated)
        self._idle_s = IDLE_S[0]
        self._batch = self._read()
        return 0.0 if self._batch or self._has_ended() else GATHER_S

    def pump(self) -> None:
        """Deliver the available records in this thread; failures are retried later. For delivery inside training."""
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
        if self._begin_pace is not None:
            self._begin_pace.close()

    def _awaits_stream(self) -> bool:
        """Whether a deleted stream is going to be restored by training: the records on disk are incomplete."""
        awaited = self._order.awaited()
        if awaited and not self._warned_awaited:
            self._warned_awaited = True
            self._say(f"{awaited[0]}.jsonl was deleted: the delivery goes on when training has put it back")
        if awaited:
            self._beat(0.0)
        return bool(awaited)

    def _read(self) -> list[Record]:
        self._batch_start = self._order.position.copy()
        batch = self._order.read(self._limit)
        self._note_damage()
        return batch

    def _note_damage(self) -> None:
        new_damage = [(name, at) for name, at in self._order.damage() if at > self.account.damaged_at.get(name, -1)]
        for name, at in new_damage:
            self.account.damaged_at[name] = at
        if new_damage and not self.account.damaged:
            location = f"{new_damage[0][0]}.jsonl at byte {new_damage[0][1]}"
            self._say(f"{skipped(len(new_damage))} ({location}); all others are delivered: compare a backup, if any")
        self.account.damaged += len(new_damage)
        for name in sorted(self._order.cut):
            self._say(
                f"{name}.jsonl was cut while it was read; the delivery goes on with the next new record: "
                "what wasn't delivered before and is cut off is lost"
            )

    def _has_ended(self) -> bool:
        return self._order.ended() and not (self._attempt and self.run.attempt() > self._attempt)  # whose relay ends it

    def _idle(self) -> float | None:
        if self._has_ended():
            return self._end()
        if self._uncommitted:
            self._commit()
            self._recovered()
        self._beat(0.0)
        if self._tracker is not None and time.monotonic() - self._ticked >= TICK_S:
            self._beat(self._deadline_s)
            self._tracker.tick()
            self._poll_tracker()
            self._ticked = time.monotonic()
        elif self._tracker is None:
            if (pause := self._wait()) > 0.0:
                return pause
            self._open()  # the native run appears before the first record does
            self._pace.accepted()
        if self._restarts and time.monotonic() - self._opened > QUIET_S:
            self._recovered()
        if self._alone and self._burst >= BURST_RECORDS:  # not training's memory
            processes.give_back_memory()
            self._burst = 0
        self._idle_s = min(self._idle_s * 1.5, IDLE_S[1])
        return self._idle_s

    def _wait(self) -> float:
        """Seconds until the rate limit allows a request to the tracker, or its opening; 0.0: now."""
        pause = self._pace.wait()
        return (
            pause if pause > 0.0 or self._tracker is not None or self._begin_pace is None else self._begin_pace.wait()
        )

    def _begin_refused(self) -> None:
        """Make other runs wait: the server refused to start this one, and the client retries. From any thread."""
        pace = BeginPace(self.name, self._server)
        pace.slower(None)
        pace.close()

    def _poll_tracker(self) -> None:
        """Slow down if the server rate-limited the tracker's client, which retries itself; set aside records that were
        refused after ``write`` had returned."""
        if self._tracker is None:
            return
        if self._tracker.limited():
            self._pace.slower(None)
        for record, reason in self._tracker.refused():
            self._set_aside(record, reason)

    def _end(self) -> float | None:
        status = last_status(self.run)
        delivered = self.account.closed == status.name and self._tracker is None
        delivered = delivered and not is_outdated(self.run, self.account)
        if delivered and not self.account.verify:
            if self._order.position.offsets != self.account.offsets:  # records of a superseded attempt were skipped
                self._commit()
            return None
        if (pause := self._wait()) > 0.0:
            self._beat(0.0)
            return pause
        self._open()
        if self._batch:  # the tracker has fewer records than the cursor says
            return 0.0
        assert self._tracker is not None
        if delivered and self._check_result is None:
            self._check()
            return 0.0
        self._beat(self._deadline_s)
        failpoint(f"{self.name}.close.before")
        held_after = self._count_held() if self._check_result is not None else None
        self._tracker.close(status)
        self._poll_tracker()
        failpoint(f"{self.name}.close.after")
        self._pace.accepted()
        self._tracker = None
        self.account.closed = status.name
        if self._check_result is not None:
            self._note_check(held_after)
        self._commit()
        self._recovered()
        return 0.0 if self.account.verify else None

    def _check(self) -> None:
        """Have the tracker read back what it delivered; after a fault, everything from it on is delivered again."""
        tracker = self._tracker
        assert tracker is not None
        self._beat(self._deadline_s)
        if self._held_before is None:
            self._held_before = self._count_held()
        self._check_result = tracker.verify()
        if self._check_result.damaged:
            faults = "1 fault" if len(self._check_result.damaged) == 1 else f"{len(self._check_result.damaged)} faults"
            self._say(
                f"{self.name}: {faults}, the first: {self._check_result.damaged[0]}; "
                "it is written anew from the journal"
            )
        if self._check_result.cursor is None:
            return
        state = dict(self._state)
        with contextlib.suppress(Exception):  # its unwritten data is obsolete
            tracker.close(Status("running", time=time.time()))
        self._tracker, self._state = None, State(state)
        self._order.seek_seq(self._check_result.cursor.seq)
        self._batch_start = self._order.position
        self._commit()

    def _count_held(self) -> int | None:
        return None if self._tracker is None else self._tracker.held()

    def _note_check(self, held_after: int | None) -> None:
        """Store the result of a check, and end it."""
        check, held_before = self._check_result, self._held_before
        assert check is not None
        compared = check.comparison
        rows = max(0, held_after - held_before) if held_after is not None and held_before is not None else 0
        self.account.verify, self._check_result = False, None
        self.account.verified = {
            "time": time.time(),
            "checked": check.checked,
            "unchecked": check.unchecked,
            "damaged": [*self._lost, *check.damaged],
            "unit": "rows" if compared is None else "values",
            "missing": rows if compared is None else compared.missing,
            "changed": 0 if compared is None else compared.changed,
            "restored": rows if compared is None else compared.restored,
        }
        self._lost, self._held_before = [], None

    def _open(self) -> None:
        if self._tracker is not None:
            return
        try:
            trust.need_logins(self.info.options, self.name)
        except errors.UsageError as error:
            raise errors.Refused(str(error)) from None
        self._beat(self._deadline_s)
        tracker = self._class()
        self._state = State(self.account.state, self._save_state)
        tracker.begin_refused = self._begin_refused
        if self._check_result is not None:
            tracker.comparison = self._check_result.comparison
        status = last_status(self.run)
        tracker.ended = None if status.name == "running" else status
        try:
            client_versions.check(self._class)
        except client_versions.TooOld as error:
            raise errors.Fatal(str(error)) from None
        failpoint(f"{self.name}.open.before")
        answer = tracker.open(self.info, self._state)
        failpoint(f"{self.name}.open.after")
        is_behind = answer is not None and answer.seq < self._batch_start.seq
        if answer is not None and is_behind:
            self._go_back(tracker, answer)
        self._tracker, self._opened = tracker, time.monotonic()
        if self._begin_pace is not None:
            self._begin_pace.accepted()
        self._poll_tracker()
        self.account.closed = ""
        self.account.state = dict(self._state)
        url = str(self._state.get("url", ""))
        if url.startswith(("http://", "https://")):
            self._tell(url)
        if is_behind:
            if self.account.verify:
                location = self._state.get("url") or self.name
                self._lost.append(f"{location} (it held less than was delivered)")
                self._held_before = self._count_held()
                if self._check_result is None and tracker.compares:
                    self._check()  # before what is missing is delivered again
                    self._open()
            self._batch = self._read()
        self._commit()

    def _go_back(self, tracker: Tracker, answer: Cursor) -> None:
        try:
            self._order.seek_seq(answer.seq)
        except OSError:  # its new state doesn't match the earlier cursor: neither is committed
            with contextlib.suppress(Exception):
                tracker.close(Status("running", time=time.time()))
            raise

    def _deliver(self, batch: Sequence[Record]) -> None:
        """Write a batch; while it is refused, halve it to isolate the refused record."""
        tracker = self._tracker
        if not batch or tracker is None:
            return
        accepted = [record for record in batch if type(record) in tracker.accepts]
        if tracker.machine != "all":
            wish = str(self.info.option("TRACKER_GPU_METRICS", "training"))  # a run of before that option
            accepted = [part for record in accepted for part in placed(record, tracker.machine, wish)]
        if tracker.single_axis:
            accepted = [part for record in accepted for part in records.on_axis(record)]
        self._beat(self._deadline_s)
        try:
            failpoint(f"{self.name}.write.before")
            tracker.write(accepted, Cursor(batch[-1].seq))
            failpoint(f"{self.name}.write.after")
        except (errors.Unavailable, errors.Refused, errors.Fatal):
            raise
        except Exception as error:
            rejected = isinstance(error, errors.Rejected)
            if not rejected:
                self.note_traceback(error)
                translated = _as_delivery_error(error)
                if isinstance(translated, errors.Unavailable):
                    raise translated from error
                self.account.strange += 1
                if self.account.strange < STRANGE_TRIES:
                    raise errors.Unavailable(f"{type(error).__name__}: {error}") from error
            if len(accepted) > 1:
                parts = batch if len(batch) > 1 else accepted  # of one record: at its step, and over its axis
                middle = len(parts) // 2
                self._deliver(parts[:middle])
                self._deliver(parts[middle:])
            elif accepted:
                self._reject(accepted[0], error, strange=not rejected)
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
        """Count a delivered batch. False if all of it was counted before: it was delivered again."""
        counted_before = self.account.counted
        for record in batch:
            if record.seq <= self.account.counted:
                continue
            self.account.counted = record.seq
            if type(record) in self._class.accepts:
                self.account.delivered += record.id not in self._rejections.ids
                continue
            kind = str(type(record).__struct_config__.tag)
            self.account.skipped[kind] = self.account.skipped.get(kind, 0) + 1
            if kind in WARNED_KINDS and not self._class.partial:
                self._say(f"{self.name} can't hold records of kind {kind!r}: they are skipped there")
        return self.account.counted > counted_before

    def _commit_batch(self) -> None:
        has_new = self._count(self._batch)
        self._batch = []
        self._commit()
        if has_new or not self._restarts:  # a repeated batch in a new process isn't the one that failed
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
        position = self._batch_start if self._batch else self._order.position
        self.account.seq = position.seq
        self.account.offsets = dict(position.offsets)
        self.account.times = dict(position.times)
        self._save_state()
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
        if self._begin_pace is not None:
            self._begin_pace.failed()
        if most := _file_size_limit(error):  # for as long as this process lives, and it has the run's lease
            error = errors.Fatal(f"no file may grow beyond {most:,} bytes where training was started (`ulimit -f`)")
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
            pace = self._begin_pace if self._tracker is None else None
            (pace or self._pace).slower(error.retry_after_s)
        if isinstance(error, errors.Unavailable) and error.retry_after_s is not None:
            pause = max(pause, min(error.retry_after_s, 3600.0))
        if isinstance(error, errors.Refused) or failures >= 3:
            self._tell_failure(error)
            self._note(str(error))
        elif self.account.last != str(error):  # shown if the run ends before the failure counts as lasting
            self.account.last = str(error)
            self._note(self.account.error)
        restarts = self._class.restart_after_error or isinstance(error, errors.Refused)
        if restarts and self._alone:
            self._note(self.account.error)
            # A client that failed may keep what it read at its start: credentials, addresses, dead threads.
            raise Stop(str(error), restart=True, delay_s=pause)
        if isinstance(error, errors.Refused) or restarts or getattr(error, "reopen", False):
            self._tracker = None
        self._retry_at = time.monotonic() + pause
        return pause

    def note_traceback(self, error: BaseException) -> None:
        """Write an exception's traceback to ``relay.log``; the same one once per process."""
        if isinstance(error, OSError) and self._restarts:  # its server is away: each new process would say so
            return
        text = mask_source("".join(traceback.format_exception(error)))
        location = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[-1:]]
        fingerprint = hash((*location, type(error), re.sub(r"\d+", "", str(error))))
        if fingerprint in self._tracebacks or len(self._tracebacks) >= TRACEBACKS:
            return
        self._tracebacks.add(fingerprint)
        timestamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError), confined.open_file(self.run.relay_log, "ab") as log:
            log_entry = f"{timestamp} {os.getpid()} {self.name}\n{text[-TRACEBACK_CHARACTERS:]}"
            log.write(log_entry.encode("utf-8", "replace"))

    def _tell_failure(self, error: errors.DeliveryError) -> None:
        # One outage causes many errors (refused, reset, timed out): reported once, and again if the user must act.
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


def _file_size_limit(error: BaseException | None) -> int:
    """The limit on the size of this process's files, in bytes, if an error comes from it; else 0."""
    if any(isinstance(cause, OSError) and cause.errno == errno.EFBIG for cause in errors.causes(error)):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return 0 if limit == resource.RLIM_INFINITY else limit  # else a filesystem's own: FAT has 4 GiB
    return 0


def _server_address(name: str, info: RunInfo) -> str:
    """The address of a tracker's server; "" if it names none."""
    with contextlib.suppress(Exception):  # a plug-in's code; opening the tracker reports a wrong address
        return str(registry.precheck(name).place(info))
    return ""


def _apart_s(tracker: type[Tracker], info: RunInfo) -> float | None:
    """Minimum time between starts of runs on this machine, in seconds; None where the tracker asks for none."""
    with contextlib.suppress(Exception):  # a plug-in's code
        return tracker.begin_apart_s(info)
    return None


def _as_delivery_error(error: Exception) -> errors.DeliveryError:
    if isinstance(error, errors.DeliveryError):
        return error
    if isinstance(error, (OSError, TimeoutError)):
        return errors.Unavailable(f"{type(error).__name__}: {error}")
    return errors.Fatal(f"{type(error).__name__}: {error}")
