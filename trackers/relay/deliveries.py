"""The deliveries of a run: a process a tracker, started in its turn, again when it dies, and ended when it is stuck."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.errors import UsageError
from trackers.journal import helper_process
from trackers.journal.helper_process import AGAIN, DONE, STOPPED
from trackers.journal.lease import read_holder
from trackers.object_storage import addresses
from trackers.relay.agent.client import AgentRelay
from trackers.relay.agent.others import BELL, OtherAgents
from trackers.relay.agent.turns import Turns
from trackers.relay.agent.work_slots import ENDED, GROWN, NEW
from trackers.relay.delivery.cursor_file import is_outdated, read_account
from trackers.relay.parts.helper import Helper, avoided_by, how_it_died
from trackers.relay.parts.part import Beside
from trackers.relay.parts.plans import DeliveryPlan, arguments
from trackers.support import machines, processes

RESTART_S = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0)
ASK_S = 0.1
"""Between two requests to a delivery to end: it ends at the second one that comes soon after the first."""
STUCK_GRACE_S = 5.0
RESEND_S = 2.0
"""Wait after a delivery's end for others to end too, before a store with all records is told of it, in seconds."""
LOOK_S = 0.5
"""Interval between checks for new records and for stuck deliveries, in seconds."""


class Child:
    """One delivery process.

    Attributes:
        size: number of processes it consists of.
        turns: number of times it gave its slot to other deliveries.
        is_resting: it gave its slot back when it had everything; new records restart it.
        offsets: how far it had read each stream then.
        sign: its last sign of life. moved: when that was seen.
        redo: it closed its tracker with an outdated status, and has to run again.
    """

    def __init__(self, name: str, start: Callable[[Child, int], Any], say: Callable[[str, str], None]) -> None:
        self.name = name
        self.helper = Helper(lambda deaths: start(self, deaths), RESTART_S, lambda text: say(text, name), jitter=0.3)
        self.size = _processes(name)
        self.turns = 0
        self.is_resting = False
        self.bell = self.pidfd = -1
        self.checked = 0.0
        self.sign, self.moved = "", 0.0
        self.offsets: dict[str, int] = {}
        self.done = False
        self.redo = False
        self.stopped = False

    @property
    def is_over(self) -> bool:
        """Whether it has delivered everything, or can't."""
        return self.done or self.stopped

    def wake(self) -> None:
        """Have it check for records at once."""
        if self.bell >= 0:
            with contextlib.suppress(OSError):
                os.write(self.bell, b".")

    def end_turn(self) -> None:
        """Tell it that its turn is over."""
        if self.bell >= 0:
            os.close(self.bell)
            self.bell = -1


def _processes(name: str) -> int:
    try:
        return registry.precheck(name).processes
    except UsageError:  # a plug-in that is missing: its delivery says so
        return 1


class Deliveries:
    """The processes that deliver one run.

    Args:
        trackers: the names of what they deliver to.
        attempt: whose relay this is; 0: all attempts are delivered.
        turns: which of them may work, beside those of other runs.

    Attributes:
        nice: niceness of those that are started.
        ended: training is over, so that all of it is urgent.
    """

    def __init__(self, beside: Beside, trackers: Sequence[str], *, attempt: int, turns: Turns) -> None:
        self._run, self._info, self._say = beside.run, beside.info, beside.say
        self._own_session = beside.own_session
        self._attempt = attempt
        self.turns = turns
        self.nice = beside.nice
        self.ended = False
        self.children = [Child(name, self.start, beside.say) for name in trackers]
        self._pythons = registry.other_pythons(trackers, beside.info.options)
        self.agents = OtherAgents(beside.run, beside.info, self._pythons if turns.enabled else {})
        self._avoid = avoided_by(beside.info)
        self._sizes: dict[str, int] = {}
        self._sizes_read_at = 0.0
        self._resend_at = math.inf
        self._resent = 0

    @property
    def idle(self) -> bool:
        """Whether each has delivered everything, or can't."""
        return all(child.is_over for child in self.children)

    @property
    def crowded(self) -> bool:
        """Whether those that aren't over use all processors; to a store everything goes twice."""
        unfinished = sum(not child.is_over for child in self.children if child.name != addresses.STORAGE)
        return unfinished >= machines.processors()

    @property
    def pids(self) -> list[int]:
        """Processes that there are."""
        return [child.helper.pid for child in self.children if child.helper.pid]

    @property
    def descriptors(self) -> list[int]:
        """What becomes readable when one ends, or gets its turn."""
        fds = [*(child.pidfd for child in self.children), self.turns.descriptor]
        return [fd for fd in fds if fd >= 0]

    def own_trackers(self) -> list[str]:
        """Trackers whose deliveries run in this Python."""
        return [child.name for child in self.children if child.name not in self._pythons]

    def poll(self, *, settled: bool) -> None:
        """Start those that are due and have their turn, and look after those that run.

        Args:
            settled: False: none is started yet.
        """
        self.turns.poll()
        now = time.monotonic()
        for child in self.children:
            if child.is_over:
                continue
            if child.helper.process is None:
                if child.helper.is_due(now) and self._has_news(child):
                    urgency = ENDED if self.ended else GROWN if child.turns else NEW
                    has_slot = self.turns.request(child.name, child.size, urgency)
                    if has_slot and settled and not child.helper.start(now, "its delivery can't be started"):
                        self.turns.done(child.name)
                continue
            code = child.helper.poll(now)
            if code is not None:
                self._reap(child, code, now)
                continue
            self._end_if_stuck(child)
            if self.turns.is_over(child.name):
                child.end_turn()

    def wake(self) -> None:
        """Have all check for records at once."""
        for child in self.children:
            child.wake()

    def close_again(self) -> None:
        """The run's status was put right: trackers that were closed with the earlier one close again."""
        for child in self.children:
            child.done, child.redo = False, True

    def resend(self, *, now: bool) -> bool:
        """Restart a finished delivery to a store that has an outdated state of other trackers; False if none has.

        Args:
            now: don't wait for others to end, too.
        """
        if not now and time.monotonic() < self._resend_at:
            return False
        self._resend_at = math.inf
        for child in self.children:
            if (
                child.done
                and child.name == addresses.STORAGE
                and is_outdated(self._run, read_account(self._run, child.name))
            ):
                pause_s = RESTART_S[min(self._resent, len(RESTART_S) - 1)] if self._resent else 0.0
                child.done = False
                child.helper.due_at = time.monotonic() + pause_s
                self._resent += 1
                return True
        return False

    def close(self) -> None:
        """End them at their next record."""
        running = [child.helper.process for child in self.children if child.helper.process is not None]
        deadline = time.monotonic() + 15.0
        while running and time.monotonic() < deadline:
            for running_process in running:
                running_process.terminate()  # once isn't enough: a whole job is asked so, and delivers meanwhile
            time.sleep(ASK_S)
            running = [running_process for running_process in running if running_process.poll() is None]
        for running_process in running:
            running_process.kill()
            running_process.wait()
        self.turns.close()

    def start(self, child: Child, deaths: int) -> Any:
        """Start the process of one.

        Raises:
            OSError: it can't be started.
        """
        bell_reader, bell = os.pipe()
        os.set_blocking(bell, False)  # a delivery that hangs must not hold the relay up
        plan = DeliveryPlan(child.name, os.getpid(), self._attempt, bell_reader)
        try:
            process = None if deaths else self._forked(child.name, plan)  # it may have died of being a fork
            process = process or helper_process.start(
                self._run,
                arguments("delivery", self._run.path.absolute(), plan),
                python=self._pythons.get(child.name, ""),
                avoid=self._avoid,
                new_session=self._own_session,
                info=self._info,
                pass_fds=(bell_reader,),
                nice=self.nice,
                fresh=deaths > 0,
            )
        except OSError:
            os.close(bell)
            raise
        finally:
            os.close(bell_reader)
        child.bell, child.is_resting, child.redo = bell, False, False
        child.pidfd = processes.open_pidfd(process.pid) if process.pid else -1
        return process

    def _forked(self, name: str, plan: DeliveryPlan) -> AgentRelay | None:
        """A delivery that another interpreter's agent forks; it leads a session, which gives way to training's."""
        started = processes.process_start(plan.parent)
        told = msgspec.structs.replace(plan, bell=BELL, parent_start=started, nice=self.nice)
        return self.agents.fork(name, arguments("delivery", self._run.path.absolute(), told), plan.bell, self.nice)

    def _has_news(self, child: Child) -> bool:
        """Whether there are new records for a delivery that had everything when it gave its slot back."""
        if not child.is_resting or self.ended:
            return True
        now = time.monotonic()
        if now - self._sizes_read_at >= LOOK_S:
            self._sizes_read_at, self._sizes = now, self._run.sizes()
        return any(child.offsets.get(stream, 0) < size for stream, size in self._sizes.items())

    def _reap(self, child: Child, code: int, now: float) -> None:
        if child.pidfd >= 0:
            os.close(child.pidfd)
            child.pidfd = -1
        if self.turns.is_over(child.name):
            child.turns += 1
            child.is_resting, child.offsets = True, read_account(self._run, child.name).offsets
        child.end_turn()
        self.turns.done(child.name)
        if code in (DONE, STOPPED) and child.name != addresses.STORAGE:
            self._resend_at = min(self._resend_at, now + RESEND_S)
        if code == STOPPED:
            child.stopped = True
        elif code == DONE and not child.redo:
            child.done = True
        elif code in (DONE, AGAIN):  # DONE: it closed with the finish record from before the correction
            child.helper.due_at = now
        else:
            reason = f"its delivery died ({how_it_died(code)}) and is started again; see {self._run.relay_log}"
            child.helper.died(now, reason)

    def _end_if_stuck(self, child: Child) -> None:
        now = time.monotonic()
        if now - child.checked < LOOK_S:
            return
        child.checked = now
        holder = read_holder(self._run.delivery / f"{child.name}.lease")
        if holder is None or holder.pid != child.helper.pid or holder.allow_s <= 0:
            return
        if child.sign != holder.sign():  # by this process's own clock, however the machine's jumps
            child.sign, child.moved = holder.sign(), now
        silent_s = now - child.moved
        if silent_s > holder.allow_s + STUCK_GRACE_S:
            self._say(f"no progress for {silent_s:.0f} s: its delivery is started again from its cursor", child.name)
            child.helper.process.kill()
