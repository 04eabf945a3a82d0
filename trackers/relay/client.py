"""Training's side of the relay: start it, restart it if it dies, wait for it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from trackers.journal import helper_process, status
from trackers.journal.detached_helper import KnownHelper
from trackers.journal.lease import read_holder
from trackers.journal.messages import Message, MessageReader, show
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import exit_note, is_preempted, note_exit_code, preempting, signalled
from trackers.relay.delivery.cursor_file import is_outdated, read_account
from trackers.relay.parts.helper import avoided_by
from trackers.relay.parts.plans import RelayPlan, arguments
from trackers.support import confined, processes
from trackers.support.clock import monotonic
from trackers.support.descriptors import Descriptor
from trackers.support.interruption import pass_on, suppress
from trackers.support.progress import is_terminal
from trackers.support.schedulers import grace_signals
from trackers.tracker import RunInfo

RESTARTS = 10
RESTARTS_WITHIN_S = 600.0
"""A relay that dies is restarted at once, but at most RESTARTS times within this number of seconds."""
WAIT_S = (0.005, 0.25)
"""Interval between checks whether all is delivered, in seconds: it grows from the first to the second."""
PATIENT_S = 5.0
"""Wait after which a script whose stderr is no terminal is told what came of it, in seconds."""
STARTS = "still starting"
REASON_CHARACTERS = 300
REAP_S = 3.0
"""Maximum wait for the end of a relay that has delivered everything, in seconds: mostly a tenth of one."""


class RelayClient:
    """Starts and supervises the relay of one run, from the training process.

    Args:
        names: the trackers it delivers to.
        start: False: there is none (offline without relay, or delivery inside training).
    """

    def __init__(self, run: RunDirectory, info: RunInfo, names: list[str], *, start: bool = True) -> None:
        self._run = run
        self._info = info
        self._names = names
        self._watched = False  # whether somebody was told, or may have seen, that deliveries were waited for
        self._messages = MessageReader(run.messages)
        self._process: Any = None
        self._enabled = start
        self._superseded = False
        self._preempting_marked = False
        self._deaths: list[float] = []
        self._agent = bool(info.option("TRACKER_AGENT", False)) and sys.platform == "linux"
        self._avoid = avoided_by(info)
        self._bell: Descriptor | None = None
        self._shown_texts: set[str] = set()
        self._start_at = float("inf")
        self._attempt = int(info.attempts[-1]["number"]) if info.attempts else run.attempt()

    @property
    def enabled(self) -> bool:
        """Whether a relay works on this run, or is meant to."""
        return self._enabled or self._superseded

    def start(self) -> None:
        """Start the relay. A failure is printed and doesn't affect training: the journal has every record."""
        self._watch_for_preemption()
        if self._enabled:
            self._start()

    def _start(self) -> None:
        self._start_at = float("inf")
        plan = RelayPlan(
            self._names, self._info.pid, self._info.pid_start, self._attempt, int(self._info.option("TRACKER_NICE", 10))
        )
        try:
            plan.bell = self._open_bell()
            plan.pidfd = processes.open_pidfd(self._info.pid)  # it may have exited before the relay can open one
            self._process = self._fork_by_agent(plan)
            if self._process is None:
                self._process = helper_process.start(
                    self._run,
                    self._arguments(plan),
                    avoid=self._avoid,
                    info=self._info,
                    pass_fds=plan.descriptors(),
                    detached=True,
                )
        except OSError as error:
            pass_on(error)
            self._say(f"the relay can't be started ({error}); it is tried again, or: trackers sync {self._run.quoted}")
            self._count_death()
        finally:
            for fd in plan.descriptors():
                os.close(fd)

    def _open_bell(self) -> int:
        """Open a pipe to the relay, which checks for work when something is written; returns the end that it reads.

        Raises:
            OSError: there are no descriptors left.
        """
        self._close_bell()
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._bell = Descriptor(writing)
        return reading

    def _notify_end(self) -> None:
        """Tell the relay that the run has ended, so that it doesn't notice only at its next check."""
        if self._bell is not None and self._bell.own():  # the program may have closed it
            with suppress(OSError):
                os.write(self._bell.number, b".")

    def _close_bell(self) -> None:
        if self._bell is not None:
            with suppress(OSError):
                self._bell.close()
            self._bell = None

    def _arguments(self, plan: RelayPlan) -> list[str]:
        return arguments("relay", self._run.path.absolute(), plan)

    def _fork_by_agent(self, plan: RelayPlan) -> KnownHelper | None:
        """Have this machine's agent fork the relay; None if there is no agent, or a relay of this run died earlier.

        What else is known of the agent is noted in the plan.
        """
        if not self._agent:
            return None
        from trackers.relay.agent import client, endpoint
        from trackers.relay.agent.slot_locks import SlotLocks
        from trackers.relay.agent.start import fork_job

        environment = helper_process.environment_for(self._info)
        try:
            plan.agent = endpoint.key(environment, self._avoid)
        except OSError as error:
            pass_on(error)
            return None
        plan.places = int(self._info.option("TRACKER_AGENT_DELIVERIES", 0))
        if self._deaths:  # a relay that died may have died of being a fork
            return None
        job = fork_job(self._info, self._arguments(plan), self._names, environment)
        with confined.open_file(self._run.relay_log, "ab") as log:
            relay = client.fork_relay(plan.agent, job, {1: log.fileno(), **{fd: fd for fd in plan.descriptors()}})
        if relay is None:
            plan.beginning = SlotLocks(plan.agent, 0).begin()
        return relay

    def look_after(self) -> None:
        """Print the relay's messages, and restart it if it died. Takes microseconds when all is well."""
        for message in self._messages.read():
            show(message)
        if not self._preempting_marked and self._was_asked_to_end():
            self._preempting_marked = True
            with suppress(OSError):
                self.mark_preempting()
        if self._process is not None and self._process.poll() is not None:
            if self._is_superseded():
                return
            self._process = None
            self._count_death()
        if self._process is None and monotonic() >= self._start_at:
            self._start()

    def _count_death(self) -> None:
        now = monotonic()
        self._deaths = [died for died in self._deaths if now - died < RESTARTS_WITHIN_S] + [now]
        self._start_at = now
        if len(self._deaths) > RESTARTS:
            self._start_at = self._deaths[-RESTARTS] + RESTARTS_WITHIN_S
            self._say(
                f"the relay died {RESTARTS} times within {RESTARTS_WITHIN_S / 60:.0f} minutes (see "
                f"{self._run.relay_log}); it is tried again later, or: trackers sync {self._run.quoted}"
            )

    def _is_superseded(self) -> bool:
        """Whether the relay ended because the relay of a newer attempt took over; the first time, this is printed."""
        if self._process is None or self._process.returncode != helper_process.SUPERSEDED:
            return False
        self._process, self._enabled, self._start_at = None, False, float("inf")
        self._superseded = True
        self._say("another process goes on with this run: what this one logs from now on isn't delivered")
        return True

    def mark_preempting(self) -> None:
        """If training ends without a finish record from now on, it counts as preempted."""
        confined.touch(preempting(self._run, self._attempt))

    def preempted(self) -> bool:
        """Whether the script or a signal has said that training is preempted."""
        return is_preempted(self._run, self._attempt) or self._was_asked_to_end()

    def _was_asked_to_end(self) -> bool:
        grace = sys.modules.get("trackers.support.preemption")
        return grace is not None and bool(grace.was_requested())

    def register_fork(self) -> None:
        """In a forked child: let the relay know of it, unless it is a worker of ``multiprocessing``."""
        if not status.is_worker():
            status.register_fork(self._run, self._attempt)

    def inherit(self, late: bool) -> bool:
        """Whether the relay has given the run to this forked child; this process then supervises the relay.

        Args:
            late: the relay hasn't answered in time; a daemon takes the run without its answer.
        """
        identity = os.getpid(), processes.process_start(os.getpid())
        if (late or not self._enabled) and status.daemon_child(self._run, self._attempt) == identity:
            status.follow_child(self._run, self._attempt, identity)
        if status.named_child(self._run, self._attempt) != identity:
            return False
        self._info.pid, self._info.pid_start = identity
        holder = read_holder(self._run.path / "relay.lease")
        self._process = None
        if holder is not None and holder.is_local():
            self._process = KnownHelper(holder.pid, holder.pid_start)
        self._start_at = monotonic()
        return True

    def _watch_for_preemption(self) -> None:
        if grace_signals():
            from trackers.support import preemption

            with suppress(OSError):  # a full disk: then a preemption is taken for a crash
                preemption.watch(signalled(self._run, self._attempt))

    def wait(self, timeout_s: float, *, closed: bool, progress: bool = False) -> bool:
        """Wait until every delivery has everything. True if none lags.

        Args:
            closed: wait also until each tracker has been told how the run ended.
            progress: on a terminal, show in one line that is rewritten what is waited for, and how long at most.
        """
        began = monotonic()
        until = began + timeout_s
        pause = WAIT_S[0]
        shown_at = 0.0
        sizes = self._run.sizes()
        rewritten = progress and is_terminal()
        self.look_after()
        try:
            while True:
                lagging = self._lagging(sizes, closed)
                if not lagging:
                    return True
                now = monotonic()
                if now >= until or self._process is None:
                    return self._superseded
                if rewritten and now - shown_at > 0.2:
                    shown_at = now
                    _rewrite(f"trackers: waiting for {_names(lagging)}, {until - now:.0f} s at most")
                for message in self._messages.read():
                    if rewritten:
                        _rewrite("")
                    show(message)
                if self._process.poll() is not None:
                    if self._is_superseded() or not self._lagging(sizes, closed):
                        return True
                    self.look_after()  # it died: another one goes on
                    continue
                time.sleep(min(pause, max(0.0, until - now)))
                pause = min(pause * 1.1, WAIT_S[1])
        finally:
            self._watched = rewritten or monotonic() - began >= PATIENT_S
            if rewritten and shown_at:
                _rewrite("")

    def note_exit_code(self) -> None:
        """Have the C library write this process's exit code down as it exits: Python doesn't know it."""
        note_exit_code(exit_note(self._run, self._attempt))

    def finish(
        self,
        timeout_s: float,
        quiet: bool,
        leaving: bool = False,
        asked_s: float | None = None,
        background: bool = False,
    ) -> None:
        """Wait for the deliveries and print what remains.

        Args:
            leaving: this process is ending; the relay waits for its exit code.
            background: don't wait; the relay delivers what remains.
        """
        grace = sys.modules.get("trackers.support.preemption")
        if grace is not None:
            grace.unwatch(signalled(self._run, self._attempt))
        self._notify_end()
        if not self._enabled or not self._names:
            self._reap(leaving)
            return
        if background:
            self.look_after()
            if not quiet and (waiting := ", ".join(self._lagging({}, True))):
                self._say(f"{waiting}: delivered in the background; how far it is: trackers ls")
            self._reap(True)
            return
        interrupted = False
        try:
            done = self.wait(timeout_s, closed=True, progress=not quiet)
        except KeyboardInterrupt:
            done, interrupted = False, True
        for message in self._messages.read():
            show(message)
        delivered = [name for name in self._names if not read_account(self._run, name).stopped] if done else []
        if delivered and not quiet and self._watched:  # those that stopped have said so
            self._say(f"{', '.join(delivered)}: delivered; to see the run: trackers show {self._run.quoted}")
        if not done:
            lagging = list(self._lagging({}, True))
            limit_s = timeout_s if asked_s is None else asked_s
            reason = "interrupted" if interrupted else f"not delivered within {limit_s:.0f} s"
            is_alive = self._process is not None and self._process.poll() is None
            continues = "the relay goes on; " if is_alive else ""
            reason += self._reasons(lagging, is_alive)
            trackers = ", ".join(lagging) or "the trackers"
            self._say(
                f"{trackers}: {reason}; {continues}to deliver or to see how it stands: trackers sync {self._run.quoted}"
            )
        self._reap(leaving or not done)

    def _reasons(self, names: list[str], is_alive: bool) -> str:
        """The known reasons why trackers lag, in parentheses; "" for none. is_alive: the relay is running."""
        affected: dict[str, list[str]] = {}
        for name in names:
            account = read_account(self._run, name)
            text = account.error or account.last or (STARTS if is_alive and not account.time else "")
            if text:
                affected.setdefault(text[:REASON_CHARACTERS], []).append(name)
        if len(affected) == 1 and len(names) == len(next(iter(affected.values()))):
            return f" ({next(iter(affected))})"
        parts = [f"{', '.join(trackers)}: {text}" for text, trackers in affected.items()]
        return f" ({'; '.join(parts)})" if parts else ""

    def wait_for_reducer(self, timeout_s: float) -> None:
        """Wait until values across ranks are all recorded, where no delivery beside this process waits for them."""
        attempts = self._info.attempts
        if self._process is not None and not self._names and attempts and attempts[-1].get("launch"):
            with suppress(Exception):  # the time is up: what is late isn't seen by trackers in here
                self._process.wait(timeout_s)

    def _lagging(self, sizes: dict[str, int], closed: bool) -> dict[str, float]:
        """The fraction delivered so far, by tracker, of those that lag."""
        lagging = {}
        for name in self._names:
            account = read_account(self._run, name)
            if account.stopped:
                continue
            total = sum(sizes.values())
            done = sum(min(account.offsets.get(stream, 0), size) for stream, size in sizes.items())
            if (closed and (not account.closed or is_outdated(self._run, account))) or done < total:
                lagging[name] = done / total if total else 0.0
        return lagging

    def _reap(self, leaving: bool) -> None:
        self._close_bell()
        if self._process is not None:
            with suppress(Exception):  # the relay may outlive this process
                self._process.wait(0.0 if leaving or self._lagging({}, True) else REAP_S)

    def _say(self, text: str) -> None:
        if text in self._shown_texts:
            return
        self._shown_texts.add(text)
        show(Message(time.time(), text))


def _names(lagging: dict[str, float]) -> str:
    """The trackers that lag, with how far those are that have begun and lack records."""
    return ", ".join(f"{name} ({done:.0%})" if 0.005 <= done < 0.995 else name for name, done in lagging.items())


def _rewrite(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write("\r\x1b[2K" + text[:150])
        sys.stderr.flush()
