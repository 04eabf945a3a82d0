"""Entry of the helper processes: ``relay RUN``, ``delivery RUN TRACKER``, ``sync RUN TRACKERS``, ``sample RUN PLAN``,
``reduce RUN TASK``, ``tee RUN TASK``, ``alerts RUN PARENT``, ``outpost FOLDER PLAN NICE``, ``carry FOLDER TASK NICE``,
``fetch RUN TASK``, ``code RUN TASK``, ``agent DIRECTORY NAME PLAN``, ``sampler DESCRIPTOR``,
``relays DESCRIPTOR KEPT``.
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
from collections.abc import Sequence
from types import FrameType
from typing import Any

import msgspec

from trackers.journal import detached_helper, helper_process
from trackers.journal.helper_process import AGAIN, DONE, STOPPED
from trackers.journal.lease import Lease
from trackers.journal.messages import Masking, MessageHandler, Messages, print_masked
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import preempting
from trackers.support import confined, process_info, temporary_directories
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
        if code != HANDED_OVER:  # then another process says it
            detached_helper.say_code(line, code)
    return code


def _work(arguments: Sequence[str], line: int) -> int:
    role, directory, *rest = arguments
    if role == "agent":
        from trackers.relay.agent.server import serve
        from trackers.relay.agent.start import AgentPlan

        return serve(main, directory, rest[0], msgspec.json.decode(rest[1], type=AgentPlan))
    if role == "relays":
        from trackers.relay.agent.relays import serve as serve_relays

        return serve_relays(main, int(directory), json.loads(rest[0]))
    if role == "sampler":
        from trackers.relay.sampling.many import serve as serve_sampler

        return serve_sampler(int(directory))
    run = RunDirectory(directory)
    helper_process.ignore_interrupts()
    messages = Messages(run.messages)
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(Masking("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    sys.excepthook = print_masked
    if role == "relay":
        return relay(run, messages, json.loads(rest[0]), line)
    if role == "sync":
        from trackers.relay.sync import sync

        return DONE if sync([run], json.loads(rest[0]), lambda work: None) else AGAIN
    if role == "tee":
        from trackers.relay.console_tee import TeeTask
        from trackers.relay.console_tee import serve as serve_tee

        return serve_tee(msgspec.json.decode(rest[0], type=TeeTask))
    if role == "outpost":
        from trackers.hardware.plan import SamplingPlan
        from trackers.relay.sampling.child import serve_agent

        helper_process.lower_priority(int(rest[1]))
        return serve_agent(run.path, msgspec.json.decode(rest[0], type=SamplingPlan))
    if role == "carry":
        return carry(run, rest[0], int(rest[1]))
    if role == "code":
        from trackers.relay.code_keeper import CaptureTask, keep

        return keep(run, msgspec.json.decode(rest[0], type=CaptureTask))
    if role == "fetch":
        from trackers.relay.nodes.fetcher import FetchTask, fetch

        return fetch(run, messages, msgspec.json.decode(rest[0], type=FetchTask))
    if role == "sample":
        from trackers.hardware.plan import SamplingPlan
        from trackers.relay.sampling.worker import sample

        return sample(run, messages, msgspec.json.decode(rest[0], type=SamplingPlan))
    if role == "reduce":
        from trackers.relay.aggregation.worker import ReducerTask, reduce

        return reduce(run, messages, msgspec.json.decode(rest[0], type=ReducerTask))
    if role == "alerts":
        from trackers.relay.alerting.sender import send_all

        return send_all(run, int(rest[0]), lambda text: messages.say(text, source="alerts"))
    with helper_process.seldom_collected():
        name, parent, *more = rest
        attempt = int(more[0]) if more else 0
        bell = int(more[1]) if more[1:] else -1
        return delivery(run, name, messages, parent=int(parent), attempt=attempt, bell=bell)


def relay(run: RunDirectory, messages: Messages, options: dict[str, Any], line: int = -1) -> int:
    """Serve one run until all is delivered.

    Args:
        options: ``trackers`` (names), ``pid`` and ``pid_start`` of training, ``pidfd``, its ``attempt``, ``nice``,
            ``bell`` (a pipe over which training says that the run has ended),
            ``agent`` (the key of the agent that later runs are to have), ``places`` (how many delivery processes it
            lets work at once), ``beginning`` (see :class:`trackers.relay.agent.slot_locks.SlotLocks`, ``fd``).
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
    turns = Turns(str(options.get("agent", "")), int(options.get("places", 0)), int(options.get("beginning", -1)))
    is_trainings = os.getppid() == int(options["pid"])  # it is given all orphans, an agent, too
    if not is_trainings and joining.hand_over(run, options, turns, line, lambda: not asked):
        turns.close()
        return HANDED_OVER
    from trackers.relay.supervisor import Supervisor  # what waits for an agent has loaded little

    attempt = int(str(options["attempt"]))
    pidfd = int(str(options.get("pidfd", -1)))
    if pidfd >= 0:
        os.set_inheritable(pidfd, False)
    bell = int(str(options.get("bell", -1)))
    if bell >= 0:
        os.set_inheritable(bell, False)
        os.set_blocking(bell, False)
    lease = Lease(run.path / "relay.lease")
    until = time.monotonic() + LEASE_WAIT_S
    while not lease.acquire():  # the relay of an earlier attempt hands over, or is found dead
        if run.attempt() > attempt:
            return helper_process.SUPERSEDED
        if time.monotonic() > until:
            return STOPPED
        time.sleep(0.1)
    names = options.get("trackers", [])
    assert isinstance(names, list)
    watch = (int(str(options["pid"])), float(str(options["pid_start"])))
    supervisor = Supervisor(
        run,
        names,
        watch=watch,
        pidfd=pidfd,
        bell=bell,
        attempt=attempt,
        say=lambda text, name: messages.say(text, source=name),
        nice=int(str(options.get("nice", 0))),
        turns=turns,
    )
    starter = Starter("" if is_trainings else turns.name, supervisor.info, supervisor.own_trackers(), turns)

    awaited_at = 0.0

    def alive() -> bool:
        nonlocal awaited_at
        starter.poll()
        if is_trainings and time.monotonic() >= awaited_at:
            awaited_at = time.monotonic() + AWAITED_S
            if process_info.waits_for_this_alone(watch[0]):  # else for ever; the next call of training's starts another
                return False
        return lease.beat()

    def asked_to_end(*_: object) -> None:
        # SLURM asks every process of a job at once, this one and training.
        if grace_signals():
            confined.touch(preempting(run, attempt))
        supervisor.leave()

    signal.signal(signal.SIGTERM, asked_to_end)
    if asked:
        asked_to_end()
    try:
        supervisor.serve(alive)
    finally:
        lease.release()
    starter.start()
    return helper_process.SUPERSEDED if supervisor.superseded else DONE


def carry(folder: RunDirectory, text: str, nice: int) -> int:
    """Upload what a node's ranks have written to the store. folder: the launch's."""
    from trackers.relay.console_collector import ConsoleCollector
    from trackers.relay.nodes import carrier
    from trackers.tracker import RunInfo

    helper_process.lower_priority(nice)
    task = msgspec.json.decode(text, type=carrier.CarryTask)

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
        bell: see :func:`delivery`.
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
        if process_info.readable(self._bell, seconds):
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


def delivery(run: RunDirectory, name: str, messages: Messages, parent: int, attempt: int = 0, bell: int = -1) -> int:
    """Deliver one run to one tracker until the run has ended and is delivered, or the parent is gone.

    Args:
        attempt: the attempt whose relay the parent is; 0: deliver all attempts.
        bell: a pipe that is closed when others wait for this process's slot; a byte from it means new records. -1:
            none.
    """
    from trackers.relay.delivery.delivery import Delivery, Stop

    temporary_directories.make()
    stopping, asked_at = False, -math.inf

    def stop(_signal: int, _frame: FrameType | None) -> None:
        # Where a scheduler asks the whole job once, the relay decides: it asks again and again.
        nonlocal stopping, asked_at
        stopping = stopping or time.monotonic() - asked_at < ASKED_AGAIN_S
        asked_at = time.monotonic()

    signal.signal(signal.SIGTERM, stop)
    logging.getLogger("trackers").addHandler(MessageHandler(messages, name))
    turn = Turn(bell)
    lease = Lease(run.delivery / f"{name}.lease")
    while not _acquire(run, lease):
        if stopping or turn.over(True) or os.getppid() != parent:
            return AGAIN
        time.sleep(0.1)

    def beat(allow_s: float) -> None:
        if not lease.beat(allow_s):
            print(f"{name}: the lease was taken over", file=sys.stderr)
            os._exit(AGAIN)

    work: Delivery | None = None
    try:
        work = Delivery(
            run,
            name,
            say=lambda text: messages.say(text, source=name),
            tell=lambda text: messages.say(text, source=name, level="info"),
            beat=beat,
            attempt=attempt,
        )
        if not work.common:  # what it writes elsewhere is as private as the run
            os.umask(os.umask(0o077) | (0o777 & ~run.path.stat().st_mode))
        while not stopping and os.getppid() == parent:
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
            if os.getppid() != parent:
                break
            beat(0.0)
            time.sleep(0.1)
        return AGAIN if reason.restart else STOPPED
    finally:
        lease.release()
