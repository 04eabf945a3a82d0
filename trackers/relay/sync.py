"""``trackers sync``: the relay's work done by hand, on any machine that sees the run's directory.

``record_crash`` says in the journal how an attempt ended, where none of its own processes is left to say it.

``Follower`` is ``trackers sync --follow``: it delivers live for machines that can't, every run below some directories.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.backends import registry
from trackers.errors import CredentialsMissing, MissingPackage, NotFound, UnknownTracker, UsageError
from trackers.journal import live_files, span_table, trust
from trackers.journal.attempts import results_of_killed
from trackers.journal.integrity import JournalChecksums
from trackers.journal.lease import Lease, living_holder
from trackers.journal.messages import Message, Messages
from trackers.journal.messages import show as show_message
from trackers.journal.run_directory import RunDirectory, StreamName, is_run, replace_file
from trackers.journal.status import declare_gone, last_status, last_word, may_be_gone, observe, watched
from trackers.journal.stream import StreamWriter, last_record
from trackers.media import MediaStore
from trackers.records import EDITS, Finish, Record, Start, encode
from trackers.relay.aggregation.child import Reducing
from trackers.relay.aggregation.worker import attempts
from trackers.relay.alerting import watch as alert_watch
from trackers.relay.alerting.child import Sending
from trackers.relay.alerting.watch import AlertWatch
from trackers.relay.console_collector import ConsoleCollector
from trackers.relay.delivery.cursor_file import delivery_report, is_at_rest, read_account, tracker_report
from trackers.relay.nodes.child import Fetching
from trackers.relay.parts.part import Beside
from trackers.relay.supervisor import Supervisor
from trackers.support import confined, machines, script
from trackers.support.backlog import Backlog
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo


def record_crash(run: RunDirectory, lease: Lease, *, gone: bool = False) -> bool:
    """Write a run's missing finish record, if its processes are gone. True if the run has one now.

    Args:
        lease: the relay's; held for a moment only, so that a starting relay doesn't wait.
        gone: the user says that its machine is gone.

    Raises:
        UsageError: ``gone``, and this machine sees that it goes on.
        OSError: the disk refuses what belongs to its end.
    """
    found_out = declare_gone if gone else observe
    if last_word(run) is not None:
        return True
    if found_out(run).name == "running" or not lease.acquire():
        return False
    try:
        status = found_out(run)
        if status.name != "running" and last_word(run) is None:  # nobody else wrote it meanwhile
            info = run.read_info()
            ConsoleCollector(run, info, None).end()
            moment = _last_activity(run)
            finish = Finish(time=moment, status=status.name, exit_code=status.exit_code, reason=status.reason)
            _poll_alerts(run, info, finish, lambda text: None)
            attempt = run.attempt()
            backlog = Backlog(MediaStore(run.path).place)
            made = [
                *span_table.of_killed(run, attempt, moment, info, backlog),
                *live_files.of_killed(run, attempt, moment, backlog),
                *results_of_killed(run, moment),
            ]
            if not backlog.retry(all_of_it=True) and backlog.error is not None:
                raise backlog.error
            _write_finish(run, finish, made)
            live_files.forget(run, attempt)
    finally:
        lease.release()
    return last_word(run) is not None


def _poll_alerts(run: RunDirectory, info: RunInfo, finish: Finish | None, say: Callable[[str], None]) -> None:
    """Evaluate the alert rules on new records and on the run's end. The caller holds the relay's lease."""
    if not alert_watch.has_alerts(info):
        return
    watch = AlertWatch(run, info, run.attempt(), say)
    try:
        watch.poll() if finish is None else watch.ended(finish)
    finally:
        watch.close()


def _last_activity(run: RunDirectory) -> float:
    """Time of the attempt's last record: a later record shows that the run went on."""
    attempt = run.attempt()
    others = (alert_watch.WRITER, EDITS)
    names = [name for name in run.stream_names() if name.attempt == attempt and name.writer not in others]
    ends = [last_record(run.stream(name)) for name in names]
    return max((record.time for record in ends if record is not None), default=time.time())


def _write_finish(run: RunDirectory, finish: Finish, before: Sequence[Record] = ()) -> None:
    attempt, moment = run.attempt(), finish.time
    path = run.stream(StreamName("node", 0, attempt))
    writer = StreamWriter(path)
    try:
        if last_record(path) is None:
            writer.write(encode(Start(time=moment, attempt=attempt, host=machines.host(), pid=os.getpid())))
        for record in before:
            writer.write(encode(record))
        failpoint("relay.finish.before")
        writer.write(encode(finish))
        failpoint("relay.finish.after")
    finally:
        writer.release()


TURN_S = 0.1
SHOW_S = 1.0
PATIENCE_S = 120.0
LACKING = (UnknownTracker, MissingPackage, CredentialsMissing)
"""Errors that affect every run to be delivered to a tracker, not one run's files or options."""
DAMAGE = (OSError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions that a run's damaged files may cause; they don't affect other runs."""
FIRST_LOOK_S = 10.0
"""Maximum time in which a run that has ended gets checksums that it lacks, in seconds."""
ALERTS_S = 5.0
"""Interval between evaluations of alert rules, where no relay evaluates them, in seconds."""
SENDING_S = 30.0
"""Maximum wait for alerts to be sent when everything else is delivered, in seconds."""
VERDICT_S = 0.5
"""Interval between checks whether the run's own processes are gone, in seconds."""


class RunSync:
    """Delivers one run to its trackers.

    Args:
        to: trackers; default those of the run.
        follow: continue while the run goes on; else stop when the records that exist now are delivered.
        echo: print the deliveries' messages on stderr.
        trusted: the run's options count, whoever wrote them; see :mod:`trackers.journal.trust`.
        verify: read delivered records back, and write those again that differ.
        gone: the user says that the run's machine is gone: it has crashed.

    Attributes:
        over: its work has ended.
    """

    def __init__(
        self, run: RunDirectory, to: Sequence[str], *, follow: bool, echo: bool = True, trusted: bool = False,
        verify: bool = False, gone: bool = False,
    ) -> None:  # fmt: skip
        self.run = run
        self.info = run.read_info()
        self.names = list(to) or [name for name in self.info.trackers if not registry.identity(name).inside]
        self.follow = follow
        self.verify = verify
        self.done = False
        self.over = False
        self.lacking: list[str] = []
        self._named = bool(to)
        self._trusted = trusted
        self._gone = gone
        self.held_by = ""
        self._messages = Messages(run.messages, echo=echo)
        self._lease = Lease(run.path / "relay.lease")
        self._sizes: dict[str, int] = {}
        self._end_checked = 0.0
        self._echo = echo
        self._is_watching = False
        self._rested: dict[str, dict[str, Any]] | None = None
        self._supervisor: Supervisor | None = None
        self._fetching: Fetching | None = None
        self._reducing: Reducing | None = None
        self._sending: Sending | None = None
        self._alerts_at = self._sending_until = 0.0
        self._alerts_seen = False

    def rest(self) -> bool:
        """Whether nothing is left to do, so that nothing need be started; the work is over then.

        Every tracker has all of a run that has ended, no value across ranks is to be reduced, and no alert may wait.
        """
        if self.verify or self._gone or not self.names or not self.run.identity.exists():
            return False
        if alert_watch.has_alerts(self.info) or os.environ.get("TRACKER_ALERT_TO"):
            return False
        if any(entry.get("launch") for entry in self.info.attempts) and attempts(self.run, self.run.attempt()):
            return False
        try:
            folder = os.fspath(self.run.streams)
            sizes = {str(name): os.stat(f"{folder}/{name}.jsonl").st_size for name in self.run.stream_names()}
        except FileNotFoundError:  # it is archived
            return False
        status = last_status(self.run).name
        accounts = [read_account(self.run, name) for name in self.names]
        if not all(is_at_rest(self.run, account, status, sizes) for account in accounts):
            return False
        self._rested = {account.tracker: tracker_report(self.run, account, sizes) for account in accounts}
        self.done = self.over = True
        return True

    def begin(self) -> None:
        """Check what each tracker needs, and start the deliveries.

        Raises:
            UsageError: a tracker is unknown, or its package or login is missing; a pipe, a device or a link lies where
                the run's own files must be.
        """
        run = self.run
        self._sizes = run.sizes()
        run.need_regular()
        if self._gone:
            declare_gone(run)
        if run.archived():  # nothing is lacking but by trackers that were named
            if self.verify or any(entry["state"] != "delivered" for entry in self.report().values()):
                run.need_restored()
            return
        if not self._is_writable():
            return
        if self.verify:
            self._need_verifiable()
        if self._restore_run_file():
            self._messages.say(f"{run.identity} was lost or damaged: it is put back as the journal has it")
        self.info, left_out = trust.delivered(run, trusted=self._trusted)
        if left_out:
            self._messages.say(left_out)
        pythons = registry.other_pythons(self.names, self.info.options)
        for name in list(self.names):
            try:
                options = {**trust.options_for(self.info, name), "TRACKER_MODE": "online"}  # it is delivered now
                trust.need_logins(options, name)
                registry.check(name, options, elsewhere=name in pythons)
            except UsageError as error:
                if self._named or len(self.names) == 1:
                    raise
                self._messages.say(f"{error}; the other trackers are delivered", source=name)
                self.names.remove(name)
                self.lacking.append(name)
                continue
            _reset_delivery(run, name, verify=self.verify)
        ended = observe(run).name != "running"
        if ended:
            JournalChecksums(run).end(FIRST_LOOK_S)
        beside = Beside(
            run, self.info, run.attempt(), lambda text, source: self._messages.say(text, source=source or "ranks"),
            ended=ended, own_session=True, by_hand=True,
        )  # fmt: skip
        self._fetching, self._reducing = Fetching(beside), Reducing(beside)
        # Deliveries have leases of their own. The relay's is left to relays: one that starts must not wait for us.
        self._supervisor = Supervisor(
            run,
            self.names,
            watch=None,
            owner=False,
            info=self.info,
            say=lambda text, name: self._messages.say(text, source=name),
        )
        self._poll_alerts()
        self._sending = Sending(beside)
        self._supervisor.begin()

    def _poll_alerts(self) -> None:
        """Evaluate alert rules, unless a relay does; alerts of the run's end precede the closing of trackers."""
        now = time.monotonic()
        if self._alerts_seen or now < self._alerts_at or not alert_watch.has_alerts(self.info):
            return
        self._alerts_at = now + ALERTS_S
        if not self._lease.acquire():
            return
        try:
            finish = last_word(self.run)
            _poll_alerts(self.run, self.info, finish, lambda text: self._messages.say(text, source="alerts"))
            self._alerts_seen = finish is not None
        finally:
            self._lease.release()

    def _is_sending(self) -> bool:
        """Whether it still waits for alerts to be sent."""
        if self._sending is None:
            return False
        self._sending.poll()
        if self._sending.idle:
            return False
        self._sending_until = self._sending_until or time.monotonic() + SENDING_S
        return time.monotonic() < self._sending_until

    def _is_writable(self) -> bool:
        """Whether this account can write the deliveries' progress files, and read the streams.

        Raises:
            UsageError: it can't, and there is something to deliver or to verify.
        """
        run = self.run
        delivered = not self.verify and all(entry["state"] == "delivered" for entry in self.report().values())
        streams, files = [run.stream(name) for name in run.stream_names()], [run.relay_log, run.messages]
        with contextlib.suppress(OSError):
            files += sorted(run.delivery.iterdir())
        for path in (run.path, run.delivery, *files, *streams):
            deed, mode = ("read", os.R_OK) if path in streams else ("write to", os.W_OK)
            if not os.access(path, mode) and os.path.lexists(path):  # in this order: a delivery renames its files
                if delivered:
                    return False
                why = "deliveries note there how far they are"
                remedy = f"deliver it, or deliver a copy: trackers copy {run.quoted} TRACKER"
                if path in streams:
                    why, remedy = "deliveries need every stream", "let it be read (chmod), then again"
                raise UsageError(
                    f"run {run.quoted}: {script.user()} may not {deed} {path.name}, which belongs to "
                    f"{trust.owner_of(path)}, and {why}: have its owner {remedy}"
                )
        return True

    def _need_verifiable(self) -> None:
        """Raise a UsageError if another process may be writing to a tracker."""
        for name in self.names:
            holder = living_holder(self.run.delivery / f"{name}.lease")
            if holder is not None:
                raise UsageError(f"{name} is being delivered by {holder}: verify the run when that has ended")
        if observe(self.run).name == "running":
            raise UsageError(f"run {self.run.path} goes on: verify it when it has ended")

    def _restore_run_file(self) -> bool:
        with contextlib.suppress(OSError):  # a read-only directory: the run is read from its journal each time
            return self.run.put_back()
        return False

    def step(self) -> bool:
        """Do one round of all work; False when there is nothing more to do."""
        if self._supervisor is None:
            return False
        if not self._reduce():
            return True
        self._check_end()
        self._poll_alerts()
        is_sending = self._is_sending()
        has_work = self._supervisor.step()
        status = self.report()
        self.done = all(entry["state"] == "delivered" or self._caught_up(entry) for entry in status.values())
        if self.done and is_sending:
            return True
        if not has_work:
            return False
        if all(entry["state"] == "stopped" for entry in status.values()):
            return False
        return self.follow or not self.done or observe(self.run).name != "running"

    def _reduce(self) -> bool:
        """Reduce values across ranks. False while an ended run's last ones are pending: delivery would close before."""
        if self._reducing is None or self._reducing.over:
            return True
        if self._reducing.ending or observe(self.run).name != "running":
            return (self._fetching is None or self._fetching.end()) and self._reducing.end()
        self._reducing.poll()
        return True

    def _check_end(self) -> None:
        now = time.monotonic()
        if now - self._end_checked < VERDICT_S:
            return
        self._end_checked = now
        record_crash(self.run, self._lease, gone=self._gone)
        holder = living_holder(self._lease.path)
        self.held_by = "" if holder is None else str(holder)

    def end(self) -> None:
        """Stop the deliveries and release everything."""
        for part in filter(None, (self._fetching, self._reducing, self._sending)):
            part.close()
        if self._supervisor is not None:
            self._supervisor.end()
            self._supervisor = None

    def report(self) -> dict[str, dict[str, Any]]:
        """The delivery report of each tracker."""
        if self._rested is not None:
            return self._rested
        return {name: entry for name, entry in delivery_report(self.run, self.names).items() if name in self.names}

    def complete(self) -> bool:
        """Whether every requested tracker has all records and refused none."""
        return self.done and not self.lacking and not self.refused()

    def refused(self) -> int:
        """Number of records that trackers have refused for good."""
        return sum(entry["rejected"] for entry in self.report().values())

    def progress(self) -> list[tuple[int, str]]:
        """Each tracker's sequence number and closing status: it changes while deliveries make progress."""
        accounts = [read_account(self.run, name) for name in self.names]
        waited = [(int(time.monotonic()), "")] if self._is_watching else []
        return [(account.seq, account.closed) for account in accounts] + waited

    def _watches(self) -> bool:
        """Whether this is a run elsewhere that may have died without a word, and is watched until that is known."""
        watching = not self.follow and (self._gone or may_be_gone(self.run))
        if watching and not self._is_watching and self._echo and not self._gone:
            show_message(Message(time.time(), watched([self.run])))
        self._is_watching = watching
        return watching

    def _caught_up(self, entry: dict[str, Any]) -> bool:
        # A run that goes on is done, for a sync that doesn't follow, when it has what was there at the beginning.
        if entry["state"] == "stopped" or observe(self.run).name != "running" or self._watches():
            return False
        offsets = read_account(self.run, entry["tracker"]).offsets
        return all(offsets.get(stream, 0) >= size for stream, size in self._sizes.items())


def sync(
    runs: Iterable[RunDirectory],
    to: Sequence[str],
    show: Callable[[RunSync], None],
    *,
    say: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
    patience_s: float = PATIENCE_S,
    trusted: bool = False,
    verify: bool = False,
    gone: bool = False,
    jobs: int = 1,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> bool:
    """Deliver runs to their trackers. A run that can't be delivered doesn't stop the others.

    Args:
        say: called with the reason why a run can't be delivered.
        patience_s: give a run up after so many seconds without progress; 0: never.
        show: called about once a second with a run that is being delivered, and once at its end.
        stopping: asked ten times a second.
        trusted: the runs' options count, whoever wrote them; see :mod:`trackers.journal.trust`.
        verify, gone: see :class:`RunSync`.
        jobs: maximum number of runs at once.
        tell: called with the number of runs that are finished, and the total.

    Returns:
        True if all records that existed are delivered, and no tracker refused one.

    Raises:
        UsageError, NotFound: the only run can't be served, or none can by the trackers that were asked for.
    """
    complete = True
    runs = list(runs)
    queue = list(runs)
    active: list[_Served] = []
    try:
        while (queue and not stopping()) or active:
            while queue and len(active) < jobs and not stopping():
                run = queue.pop(0)
                try:
                    work = RunSync(run, to, follow=False, trusted=trusted, verify=verify, gone=gone)
                    if work.rest():
                        show(work)
                        complete = work.complete() and complete
                        continue
                    work.begin()
                except (UsageError, NotFound) as error:
                    if len(runs) == 1 or (to and isinstance(error, LACKING)):
                        raise
                    say(f"{run.path}: {error}")
                    complete = False
                except DAMAGE as error:
                    say(f"{run.path}: it can't be delivered ({type(error).__name__}: {error})")
                    complete = False
                else:
                    active.append(_Served(work, show, patience_s))
            for served in list(active):
                try:
                    goes_on = served.step()
                except UsageError as error:  # it was said to be gone, and lives
                    say(str(error))
                    goes_on = complete = False
                if not goes_on or stopping():
                    active.remove(served)
                    complete = served.end() and complete
            tell(len(runs) - len(queue) - len(active), len(runs))
            if active:
                time.sleep(TURN_S)
    finally:
        for served in active:
            served.work.end()
    return complete and not queue


class _Served:
    """A run that is being delivered."""

    def __init__(self, work: RunSync, show: Callable[[RunSync], None], patience_s: float) -> None:
        self.work = work
        self._show, self._patience_s = show, patience_s
        self._shown = 0.0
        self._moved_at, self._last_progress = time.monotonic(), work.progress()

    def step(self) -> bool:
        """Do one round; False when there is nothing more to do, or there was no progress for too long."""
        if not self.work.step():
            return False
        now = time.monotonic()
        if now - self._shown > SHOW_S:
            self._shown = now
            self._show(self.work)
            if self.work.progress() != self._last_progress:
                self._moved_at, self._last_progress = now, self.work.progress()
            elif self._patience_s and now - self._moved_at > self._patience_s:
                return False
        return True

    def end(self) -> bool:
        """Stop, and show the result. True if everything is delivered."""
        work = self.work
        work.end()
        work.done = all(entry["state"] == "delivered" for entry in work.report().values()) or work.done
        work.over = True
        self._show(work)
        return work.complete()


def _reset_delivery(run: RunDirectory, name: str, *, verify: bool) -> None:
    """Let a delivery that stopped after a failure run again. verify: have it read back what it delivered."""
    import msgspec

    account = read_account(run, name)
    if account.stopped or verify:
        account.stopped, account.error = False, ""
        account.verify = account.verify or verify
        confined.make_folder(run.delivery)
        replace_file(run.delivery_state(name), msgspec.json.encode(account))


LEAVE_S = 25.0
"""After a request to leave, runs that have ended are delivered for so many seconds: Kubernetes kills after 30."""
LOOK_S = 2.0
"""Minimum interval between searches for new runs, in seconds: longer if a search takes over a twentieth of it."""
DEPTH = 6
"""Maximum depth below a directory at which runs are found."""
SHARE_S = 15.0
"""Minimum time for which a running run is served before another one takes its place, in seconds."""


class Follower:
    """Delivers runs, a few at once, until it is told to stop.

    Args:
        to: trackers; default each run's own.
        show: called about once a second with a run that is being delivered, and once at its end.
        say: called with the reason why a run can't be delivered.
        jobs: how many runs are served at once; where there are more, they take turns.
        trusted: the runs' options count, whoever wrote them; see :mod:`trackers.journal.trust`.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        to: Sequence[str],
        show: Callable[[RunSync], None],
        *,
        say: Callable[[str], None] = lambda text: None,
        jobs: int = 4,
        trusted: bool = False,
    ) -> None:
        self._roots = list(roots)
        self._to = list(to)
        self._show = show
        self._say = say
        self._jobs = jobs
        self._trusted = trusted
        self._active: dict[Path, RunSync] = {}
        self._begun: dict[Path, float] = {}
        self._shown: dict[Path, float] = {}
        self._queue: list[Path] = []
        self._refused: dict[Path, int] = {}
        self._look_at = 0.0

    def serve(self, stopping: Callable[[], bool], leaving: Callable[[], bool] = lambda: False) -> bool:
        """Work until ``stopping``, or, once ``leaving``, until what has ended is delivered, at most :data:`LEAVE_S`.
        True if every run has ended and is delivered then."""
        leave_by = math.inf
        try:
            while not stopping() and time.monotonic() < leave_by:
                self._look()
                self._begin()
                for path in list(self._active):
                    self._turn(path)
                paths = (*self._active, *self._queue)
                if leave_by < math.inf and all(observe(RunDirectory(path)).name == "running" for path in paths):
                    break
                if leave_by == math.inf and leaving():
                    leave_by, self._look_at = time.monotonic() + LEAVE_S, 0.0
                time.sleep(TURN_S)
        finally:
            for work in self._active.values():
                work.end()
            for work in self._active.values():  # which may end the command: all have ended by then
                self._show(work)
        return all(self._is_delivered(run) for run in self._runs())

    def _runs(self) -> Iterator[RunDirectory]:
        for root in self._roots:
            yield from runs_below(root)

    def _look(self) -> None:
        began = time.monotonic()
        if began < self._look_at:
            return
        for run in self._runs():
            path = Path(os.path.realpath(run.path))
            is_known = path in self._active or path in self._queue
            if not is_known and self._refused.get(path) != _attempt(run) and not self._is_delivered(run):
                self._queue.append(path)
        now = time.monotonic()
        self._look_at = now + max(LOOK_S, 20 * (now - began))

    def _begin(self) -> None:
        if self._queue and len(self._active) >= self._jobs:
            oldest = min(self._active, key=lambda path: self._begun[path])
            if time.monotonic() - self._begun[oldest] < SHARE_S:
                return
            self._end(oldest)
            self._queue.append(oldest)
        while self._queue and len(self._active) < self._jobs:
            path = self._queue.pop(0)
            try:
                work = RunSync(RunDirectory(path), self._to, follow=True, trusted=self._trusted)
                work.begin()
            except NotFound:
                continue  # deleted meanwhile
            except UsageError as error:
                self._refuse(path, str(error))
                continue
            except DAMAGE as error:
                self._refuse(path, f"it can't be delivered ({type(error).__name__}: {error}); see docs/security.md")
                continue
            self._active[path] = work
            self._begun[path] = time.monotonic()

    def _refuse(self, path: Path, text: str) -> None:
        self._refused[path] = _attempt(RunDirectory(path))
        self._say(f"{path}: {text}")

    def _turn(self, path: Path) -> None:
        try:
            self._serve(path)
        except DAMAGE as error:
            self._end(path, show=False)
            self._refuse(path, f"it can't be delivered any more ({type(error).__name__}: {error})")

    def _serve(self, path: Path) -> None:
        work = self._active[path]
        if not path.exists():
            self._end(path, show=False)
        elif not work.step():
            self._end(path)
            if work.lacking or any(entry["state"] == "stopped" for entry in work.report().values()):
                # The reason was printed. It is tried again with the next attempt, or by a new sync.
                self._refused[path] = _attempt(work.run)
        elif time.monotonic() - self._shown.get(path, 0.0) > SHOW_S:
            self._shown[path] = time.monotonic()
            self._show(work)

    def _end(self, path: Path, *, show: bool = True) -> None:
        work = self._active.pop(path, None)
        if work is not None:
            work.end()
        if work is not None and show:
            self._show(work)

    def _is_delivered(self, run: RunDirectory) -> bool:
        try:
            names = self._to or RunSync(run, (), follow=True, echo=False).names
            entries = [entry for name, entry in delivery_report(run, names).items() if name in names]
        except NotFound:
            return True
        except DAMAGE:
            return False
        return all(entry["state"] == "delivered" and not entry["rejected"] for entry in entries)


def _attempt(run: RunDirectory) -> int:
    """The newest attempt's number; -1 where the run's streams can't be listed."""
    try:
        return run.attempt()
    except OSError:
        return -1


def runs_below(root: Path, depth: int = DEPTH, seen: set[tuple[int, int]] | None = None) -> Iterator[RunDirectory]:
    """Every run in a directory tree, or ``root`` itself if it is a run. Unreadable directories are skipped.

    Each directory is visited once, whatever links lead to it: a directory of links to itself would never end.
    """
    seen = set() if seen is None else seen
    try:
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        if is_run(root):
            yield RunDirectory(root)
            return
        with os.scandir(root) as entries:
            folders = sorted(entry.name for entry in entries if entry.name[0] != "." and confined.is_folder(entry))
    except OSError:
        return
    for name in folders if depth else []:
        yield from runs_below(root / name, depth - 1, seen)
