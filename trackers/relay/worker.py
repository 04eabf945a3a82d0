"""Entry of the helper processes. Their words are ``ROLE DIRECTORY PLAN`` (:mod:`trackers.relay.parts.plans`); those of
this machine, ``agent DIRECTORY NAME PLAN``, ``sampler DESCRIPTOR`` and ``relays DESCRIPTOR KEPT``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from msgspec.json import decode

from trackers.journal import detached_helper, helper_process
from trackers.journal.helper_process import AGAIN, DONE, STOPPED
from trackers.journal.lease import Lease
from trackers.journal.messages import Masking, MessageHandler, Messages, print_masked
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import preempting
from trackers.relay.parts.plans import AlertsPlan, DeliveryPlan, RelayPlan, SyncPlan
from trackers.support import confined, descriptors, processes, temporary_directories
from trackers.support.schedulers import grace_signals

LEASE_WAIT_S = 150.0
HANDED_OVER = 77
"""Exit code of a relay whose work another process goes on with."""
AWAITED_S = 0.5
"""Interval at which a relay that training was given as an orphan sees whether training waits for it, in seconds."""
CLOSING_S = 10.0
"""Time for which a delivery that isn't up to date goes on when others wait for its slot, in seconds."""
ASKED_AGAIN_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says, for the run in the second; returns the exit code."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # training's, and no exit code would be known
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(ImportError, OSError, ValueError):  # what training has limited itself to, for a while
        import resource

        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    line = int(os.environ.pop(detached_helper.LINE, "-1"))
    if line < 0:
        return _work(arguments, line)
    detached_helper.introduce(line)
    code = 1
    try:
        code = _work(arguments, line)
    finally:
        if code == HANDED_OVER:  # another process goes on and says it; a crowd of these must not end slowly beside it
            os._exit(code)
        detached_helper.say_code(line, code)
    return code


def _work(arguments: Sequence[str], line: int) -> int:
    role, directory, *rest = arguments
    if role in _MACHINE:
        return _MACHINE[role](directory, rest)
    run = RunDirectory(directory)
    helper_process.ignore_interrupts()
    messages = Messages(run.messages)
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(Masking("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    sys.excepthook = print_masked
    if role == "relay":
        return relay(run, messages, decode(rest[0], type=RelayPlan), line)
    return _RUN[role](run, messages, rest[0])


def _agent(directory: str, rest: Sequence[str]) -> int:
    from trackers.relay.agent.server import serve
    from trackers.relay.agent.start import AgentPlan

    return serve(main, directory, rest[0], decode(rest[1], type=AgentPlan))


def _relays(descriptor: str, rest: Sequence[str]) -> int:
    from trackers.relay.agent.relays import serve

    return serve(main, int(descriptor), json.loads(rest[0]))


def _sampler(descriptor: str, _: Sequence[str]) -> int:
    from trackers.relay.sampling.many import serve

    return serve(int(descriptor))


def _sync(run: RunDirectory, _: Messages, plan: str) -> int:
    from trackers.relay.sync import sync

    return DONE if sync([run], decode(plan, type=SyncPlan).trackers, lambda work: None) else AGAIN


def _tee(_: RunDirectory, __: Messages, plan: str) -> int:
    from trackers.relay.console_tee import TeeTask, serve

    return serve(decode(plan, type=TeeTask))


def _outpost(run: RunDirectory, _: Messages, plan: str) -> int:
    from trackers.relay.sampling.child import OutpostPlan, serve_agent

    outpost = decode(plan, type=OutpostPlan)
    helper_process.lower_priority(outpost.nice)
    return serve_agent(run.path, outpost.sampling)


def _code(run: RunDirectory, _: Messages, plan: str) -> int:
    from trackers.relay.code_keeper import CaptureTask, keep

    return keep(run, decode(plan, type=CaptureTask))


def _fetch(run: RunDirectory, messages: Messages, plan: str) -> int:
    from trackers.relay.nodes.fetcher import FetchTask, fetch

    return fetch(run, messages, decode(plan, type=FetchTask))


def _sample(run: RunDirectory, messages: Messages, plan: str) -> int:
    from trackers.hardware.plan import SamplingPlan
    from trackers.relay.sampling.worker import sample

    return sample(run, messages, decode(plan, type=SamplingPlan))


def _reduce(run: RunDirectory, messages: Messages, plan: str) -> int:
    from trackers.relay.aggregation.worker import ReducerTask, reduce

    return reduce(run, messages, decode(plan, type=ReducerTask))


def _alerts(run: RunDirectory, messages: Messages, plan: str) -> int:
    from trackers.relay.alerting.sender import send_all

    parent = decode(plan, type=AlertsPlan).parent
    return send_all(run, parent, lambda text: messages.say(text, source="alerts"))


def _delivery(run: RunDirectory, messages: Messages, plan: str) -> int:
    with helper_process.seldom_collected():
        return delivery(run, messages, decode(plan, type=DeliveryPlan))


def relay(run: RunDirectory, messages: Messages, plan: RelayPlan, line: int = -1) -> int:
    """Serve one run until all is delivered.

    Args:
        line: over which training hears of this process; -1: none.

    Returns:
        ``process.SUPERSEDED`` where the relay of a newer attempt has taken over or will; :data:`HANDED_OVER` where
        another process goes on in this one's place.
    """
    from trackers.relay.agent import joining
    from trackers.relay.agent.start import Starter
    from trackers.relay.agent.turns import Turns

    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    turns = Turns(plan.agent, plan.places, plan.beginning)
    is_trainings = os.getppid() == plan.pid  # it is given all orphans, an agent, too
    if not is_trainings and joining.hand_over(run, plan, turns, line, lambda: not asked):
        turns.close()
        return HANDED_OVER
    from trackers.relay.supervisor import Supervisor  # what waits for an agent has loaded little

    for fd in (plan.pidfd, plan.bell):
        if fd >= 0:
            os.set_inheritable(fd, False)
    if plan.bell >= 0:
        os.set_blocking(plan.bell, False)
    lease = Lease(run.path / "relay.lease")
    until = time.monotonic() + LEASE_WAIT_S
    while not lease.acquire():  # the relay of an earlier attempt hands over, or is found dead
        if run.attempt() > plan.attempt:
            return helper_process.SUPERSEDED
        if time.monotonic() > until:
            return STOPPED
        time.sleep(0.1)
    supervisor = Supervisor(
        run,
        plan.trackers,
        watch=(plan.pid, plan.pid_start, plan.pidfd),
        bell=plan.bell,
        attempt=plan.attempt,
        say=lambda text, name: messages.say(text, source=name),
        nice=plan.nice,
        turns=turns,
    )
    own = supervisor.deliveries.own_trackers()
    others = supervisor.deliveries.agents.start
    starter = Starter("" if is_trainings else turns.name, supervisor.info, own, turns, others)

    awaited_at = 0.0

    def alive() -> bool:
        nonlocal awaited_at
        starter.poll()
        if is_trainings and time.monotonic() >= awaited_at:
            awaited_at = time.monotonic() + AWAITED_S
            if processes.waits_for_this_alone(plan.pid):  # else for ever; the next call of training's starts another
                return False
        return lease.beat()

    def asked_to_end(*_: object) -> None:
        # SLURM asks every process of a job at once, this one and training.
        if grace_signals():
            confined.touch(preempting(run, plan.attempt))
        supervisor.leave()

    signal.signal(signal.SIGTERM, asked_to_end)
    if asked:
        asked_to_end()
    try:
        supervisor.serve(alive)
    finally:
        lease.release()
    starter.end()
    return helper_process.SUPERSEDED if supervisor.superseded else DONE


def _carry(folder: RunDirectory, _: Messages, plan: str) -> int:
    """Upload what a node's ranks have written to the store. folder: the launch's."""
    from trackers.relay.console_collector import ConsoleCollector
    from trackers.relay.nodes import carrier
    from trackers.tracker import RunInfo

    task = decode(plan, type=carrier.CarryTask)
    helper_process.lower_priority(task.nice)

    def collect(run: RunDirectory, attempt: int) -> ConsoleCollector:
        entry = {"number": attempt, "launch": os.path.relpath(folder.path, run.path), "rank": task.main}
        info = RunInfo(
            id=run.path.name, name="", project="", attempts=[entry],
            options={"TRACKER_CONSOLE_MAX_MB": task.console_mb},
        )  # fmt: skip
        return ConsoleCollector(run, info, attempt)

    return carrier.carry(folder.path, task, collect)


class Turn:
    """The time for which a delivery may work, where others wait for its slot.

    Args:
        bell: a pipe; see :class:`~trackers.relay.parts.plans.DeliveryPlan`.
    """

    def __init__(self, bell: int) -> None:
        self._bell = bell
        self._rung = math.inf
        if bell >= 0:
            os.set_inheritable(bell, False)
            os.set_blocking(bell, False)

    def over(self, idle: bool) -> bool:
        """Whether the turn is over: at once if there is nothing to deliver now, else :data:`CLOSING_S` later."""
        self._listen(0.0)
        return self._rung < math.inf and (idle or time.monotonic() - self._rung >= CLOSING_S)

    def wait(self, seconds: float) -> None:
        """Wait up to so many seconds for the bell."""
        if not self._listen(seconds):
            time.sleep(seconds)

    def _listen(self, seconds: float) -> bool:
        """Wait for the bell; False once it is closed."""
        if self._bell < 0 or self._rung < math.inf:
            return False
        if descriptors.readable(self._bell, seconds):
            try:
                if not os.read(self._bell, 64):
                    self._rung = time.monotonic()
            except OSError:
                self._bell = -1
        return True


def _acquire(run: RunDirectory, lease: Lease) -> bool:
    with contextlib.suppress(OSError):  # the run itself may be deleted: what remains of it isn't begun anew
        if not run.delivery.exists():
            confined.make_folder(run.delivery)
    return lease.acquire()


def delivery(run: RunDirectory, messages: Messages, plan: DeliveryPlan) -> int:
    """Deliver one run to one tracker until the run has ended and is delivered, or the parent is gone."""
    from trackers.relay.delivery.delivery import Delivery, Stop

    name = plan.tracker
    helper_process.lower_priority(plan.nice)
    temporary_directories.make()
    stopping, asked_at = False, -math.inf

    def stop(_signal: int, _frame: FrameType | None) -> None:
        # Where a scheduler asks the whole job once, the relay decides: it asks again and again.
        nonlocal stopping, asked_at
        stopping = stopping or time.monotonic() - asked_at < ASKED_AGAIN_S
        asked_at = time.monotonic()

    def is_wanted() -> bool:
        if plan.parent_start:
            return processes.alive(plan.parent, plan.parent_start)
        return os.getppid() == plan.parent

    signal.signal(signal.SIGTERM, stop)
    logging.getLogger("trackers").addHandler(MessageHandler(messages, name))
    turn = Turn(plan.bell)
    lease = Lease(run.delivery / f"{name}.lease")
    while not _acquire(run, lease):
        if stopping or turn.over(True) or not is_wanted():
            return AGAIN
        time.sleep(0.1)

    def beat(allow_s: float) -> None:
        if not lease.beat(allow_s):
            print(f"{name}: the lease was taken over", file=sys.stderr)
            os._exit(AGAIN)  # no clean end: what it would still write is another's now

    work: Delivery | None = None
    try:
        work = Delivery(
            run,
            name,
            say=lambda text: messages.say(text, source=name),
            tell=lambda text: messages.say(text, source=name, level="info"),
            beat=beat,
            attempt=plan.attempt,
        )
        if not work.common:  # what it writes elsewhere is as private as the run
            os.umask(os.umask(0o077) | (0o777 & ~run.path.stat().st_mode))
        while not stopping and is_wanted():
            pause = work.step()
            if pause is None:
                return DONE
            beat(0.0)
            if turn.over(pause > 0):
                break
            if pause:
                turn.wait(min(pause, 0.5))
        try:
            work.close()
        except Exception as error:
            work.note_traceback(error)
        return AGAIN
    except Stop as reason:
        until = time.monotonic() + reason.delay_s
        while reason.restart and not (stopping or turn.over(True) or time.monotonic() >= until):
            if not is_wanted():
                break
            beat(0.0)
            time.sleep(0.1)
        return AGAIN if reason.restart else STOPPED
    finally:
        lease.release()


_MACHINE: dict[str, Callable[[str, Sequence[str]], int]] = {"agent": _agent, "relays": _relays, "sampler": _sampler}
"""Roles that serve many runs; each is given the words after its own."""
_RUN: dict[str, Callable[[RunDirectory, Messages, str], int]] = {
    "sync": _sync, "tee": _tee, "outpost": _outpost, "carry": _carry, "code": _code, "fetch": _fetch,
    "sample": _sample, "reduce": _reduce, "alerts": _alerts, "delivery": _delivery,
}  # fmt: skip
"""Roles that serve one run, but its relay; each is given its plan as JSON."""
