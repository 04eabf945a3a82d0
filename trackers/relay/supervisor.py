"""The relay's main process: it watches training, runs what stands beside it, and writes its end if training can't.

What runs beside training are deliveries (:mod:`trackers.relay.deliveries`) and parts (:mod:`trackers.relay.beside`);
the supervisor knows of them only when they are to begin, to work, to end and to go.

The same supervisor serves ``trackers sync``, where there is no training to watch.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from trackers import records
from trackers.journal import helper_process, trust
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import last_status, outlived
from trackers.journal.stream import StreamWriter, find_finish, last_record
from trackers.records import Environment, Finish, Start
from trackers.relay.agent import client
from trackers.relay.agent.turns import Turns
from trackers.relay.beside import parts_of
from trackers.relay.deliveries import Deliveries
from trackers.relay.environment import gathered, keep_patch
from trackers.relay.parts.part import Beside, Phase, RelayMoment, RelayPart
from trackers.relay.training_end import LastRecords, TrainingEnd
from trackers.support import descriptors, machines
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo

POLL_S = 0.1
AFTER_FINISH_S = 24 * 3600.0
"""Time after the end of training for which the relay keeps trying to deliver, in seconds."""
LEAVE_S = 25.0
"""The same for one that was asked to end: schedulers kill 30 s after they asked (SLURM's KillWait, Kubernetes)."""
SETTLE_S = 0.3
"""Time for which training has the processor to itself when it starts, in seconds, unless it ends sooner."""
LOOK_S = 0.5
"""Interval between checks for a newer attempt, and for the node's stream, in seconds."""


class Supervisor:
    """Runs a run's deliveries until all is delivered.

    Args:
        trackers: which deliveries to run.
        watch: the training process whose death ends the run: pid, start, and a descriptor of it where one is
            inherited, which is taken over (:class:`trackers.support.processes.Watched`); None for none.
        bell: a pipe over which it says that the run has ended; taken over. -1 for none.
        attempt: whose relay this is; None: the newest's. Where a newer one begins, the work is left to its relay.
        owner: this supervisor may write the node's stream: no other relay lives.
        info: of the run as it is to be delivered (:mod:`trackers.journal.trust`); default: found out here.
        say: called with (text, tracker) for what the user must know.
        limit_s: how long to go on after the run has ended.
        nice: niceness of the processes that it starts while training runs. When training has ended, it waits for
            them, and they have the priority of any other process.
        turns: which of the deliveries may work, beside those of other runs; taken over. Default: all, always.
    """

    def __init__(
        self, run: RunDirectory, trackers: Sequence[str], *, watch: tuple[int, float] | tuple[int, float, int] | None,
        bell: int = -1, attempt: int | None = None, owner: bool = True, info: RunInfo | None = None,
        say: Callable[[str, str], None], limit_s: float = AFTER_FINISH_S, nice: int = 0, turns: Turns | None = None,
    ) -> None:  # fmt: skip
        self.run = run
        self.info: RunInfo = trust.delivered(run)[0] if info is None else info
        turns = turns or Turns()
        self._settled_at = time.monotonic() + SETTLE_S if watch else 0.0
        self._say = say
        self._bell = bell
        self._leaving_finish: Finish | None = None
        self._last: LastRecords | None = None
        self._owner = owner
        self._nice = nice
        self._limit_s = limit_s
        self._attempt = run.attempt() if attempt is None else attempt
        self._may_yield = attempt is not None
        self._training = TrainingEnd(run, self._attempt, watch)
        self._attempt_checked = self._node_checked = 0.0
        self.superseded = False
        self._node: StreamWriter | None = None
        shared = functools.partial(client.sample, turns.name) if turns.enabled else None
        beside = Beside(
            run, self.info, self._attempt, say, pid=watch[0] if watch else 0, nice=nice, sampler=shared,
            own_session=watch is None,
        )  # fmt: skip
        self._number = int(beside.entry().get("node", 0))
        self.deliveries = Deliveries(beside, trackers, attempt=self._attempt if self._may_yield else 0, turns=turns)
        self.parts: list[RelayPart] = parts_of(beside) if watch is not None and owner else []
        self._ended_at = 0.0
        self.stopping = False

    def serve(self, alive: Callable[[], bool] = lambda: True) -> None:
        """Work until the run has ended and every delivery is done or stopped.

        Args:
            alive: asked at each turn, ten times a second; False ends the work at once.
        """
        self.begin()
        try:
            while not self.stopping and alive() and not self._yield() and self.step():
                self._pause()
        finally:
            self.end()

    def _yield(self) -> bool:
        # The relay of the newer attempt waits for this one's lease, and delivers the rest of this attempt too.
        now = time.monotonic()
        if self._may_yield and now - self._attempt_checked >= LOOK_S:
            self._attempt_checked = now
            self.superseded = self.run.attempt() > self._attempt
        return self.superseded

    def begin(self) -> None:
        """Open the node's stream, if this supervisor owns it; deliveries of a run that has ended start at once."""
        is_new = self._owner and self._open_node_stream()
        if self._training.process is None:
            return
        if not self._is_over():
            helper_process.lower_priority(self._nice)
        if not self._yield():
            self._deliver()
        if self._node is None:
            return
        if is_new:
            values = gathered(self.info, self.run, self._number, self._is_over)
            if self.info.option("TRACKER_PRIVATE", True):
                keep_patch(values, self.run, self._attempt)
            self._node.write(records.encode(Environment(time=time.time(), values=values)))
        for part in self.parts:
            part.begin()

    def _is_over(self) -> bool:
        """Whether training has written its finish record; if so, the rest is done at normal priority."""
        over = self._training.stated() is not None
        if over:
            self._raise_priority()
        return over

    def step(self) -> bool:
        """Do one round of all work. False when nothing is left to do."""
        self._deliver()
        self._poll_parts()
        self._mend_node_stream()
        if not self._ended_at and self._has_ended():
            self._ended_at = time.monotonic()
            self.deliveries.ended = True
            self._deliver()  # training waits for these, and for parts only then
            if self._leaving_finish is None:
                self._poll_parts()
        if not self._ended_at or self._awaits_exit():
            return True
        idle = self.deliveries.idle and all(part.idle for part in self.parts)
        if self.deliveries.resend(now=idle):
            return True
        return not idle and time.monotonic() - self._ended_at <= self._limit_s

    def end(self) -> None:
        """End the deliveries at their next record and release everything."""
        for part in self.parts:
            part.close()
        self.deliveries.close()
        if self._node is not None:
            self._node.release()
            self._node = None
        self._training.close()
        self._close_bell()

    def _moment(self) -> RelayMoment:
        if not self._ended_at:
            return RelayMoment("training", self.deliveries.turns.waits)
        phase: Phase = "over" if self._leaving_finish is None else "leaving"
        return RelayMoment(phase, self.deliveries.crowded, time.monotonic() - self._ended_at)

    def _poll_parts(self) -> None:
        moment = self._moment()
        for part in self.parts:
            part.poll(moment)

    def _deliver(self) -> None:
        self.deliveries.poll(settled=time.monotonic() >= self._settled_at or self._is_over())

    def _open_node_stream(self) -> bool:
        """Open the node's stream; False if it already has the environment, or the attempt's finish record."""
        name = StreamName("node", 0, self._attempt)
        path = self.run.stream(name)
        last = last_record(path)
        if find_finish(path) is not None and not outlived(self.run, name):
            return False
        self._node = StreamWriter(path)
        if last is None:
            now = time.time()
            start = Start(time=now, attempt=self._attempt, host=machines.host(), pid=os.getpid())
            self._node.write(records.encode(start))
        return last is None or isinstance(last, Start)

    def _mend_node_stream(self) -> None:
        """Restore the node's stream if it was deleted. Training restores its folder."""
        now = time.monotonic()
        if self._node is not None and now - self._node_checked >= LOOK_S:
            self._node_checked = now
            self._node.mend(lambda: None)

    def _has_ended(self) -> bool:
        """Whether this attempt has ended; writes its finish record to the node's stream if training couldn't."""
        if self._node is None:
            return last_status(self.run).name != "running"
        finish = self._training.found()
        if finish is None:
            return False
        self._raise_priority()
        if self.deliveries.crowded:
            for part in self.parts:
                part.give_way()
        return self._end_with(finish)

    def _raise_priority(self) -> None:
        """Return to normal priority: training has ended, and may be waiting for the rest."""
        if not self._nice:
            return
        self._nice = self.deliveries.nice = 0
        helper_process.usual_priority([*self.deliveries.pids, *(part.pid for part in self.parts if part.pid)])

    def _end_with(self, finish: Finish) -> bool:
        """Write the finish record, once all parts have written their last: deliveries stop at it."""
        if not self._parts_have_ended():
            return False
        self._training.watch_child()
        if finish.leaving and self._training.process is not None:
            if self._training.process.alive():
                self._leaving_finish = finish
            else:
                finish = self._training.corrected(finish)
        for part in self.parts:
            part.ended(finish)
        if self._node is not None and self._training.stated() is None:
            self._last = self._last or LastRecords(self.run, self._attempt, finish.time, self.info)
            last = self._last.placed(self._say)
            if last is None:
                return False
            for record in last:
                self._node.write(records.encode(record))
        self._write_finish(finish)
        self._training.forget_files()
        return True

    def _parts_have_ended(self) -> bool:
        """Have each part end that may; whether all have."""
        pending: set[str] = set()
        for part in self.parts:  # in their order: what one comes after stands before it
            if not pending.isdisjoint(part.after) or not part.end():
                pending.add(part.name)
        return not pending

    def _awaits_exit(self) -> bool:
        """Whether training has written its finish record and is still exiting; after that, corrects the record."""
        process = self._training.process
        if self._leaving_finish is None or process is None or process.alive():
            return self._leaving_finish is not None
        stated, self._leaving_finish = self._leaving_finish, None
        finish = self._training.corrected(stated)
        if finish is not stated:
            for part in self.parts:
                part.ended(finish)
            self._node = StreamWriter(self.run.stream(StreamName("node", 0, self._attempt)))
            self._write_finish(finish)
            self._ended_at = time.monotonic()
            self.deliveries.close_again()
        return False

    def _write_finish(self, finish: Finish) -> None:
        assert self._node is not None
        self._node.mend(lambda: None)
        failpoint("relay.finish.before")
        self._node.write(records.encode(finish))
        self._node.release()
        self._node = None
        failpoint("relay.finish.after")
        self.deliveries.wake()

    def _pause(self) -> None:
        moment = self._moment()
        if any(part.pause(moment) for part in self.parts):
            return
        training = self._training.process
        if training is not None and moment.phase != "over":
            training.wait(POLL_S, self._bell, self.deliveries.turns.descriptor)
            self._answer_bell()
        elif fds := self.deliveries.descriptors:
            descriptors.readable_ones(fds, POLL_S)
        else:
            time.sleep(POLL_S)

    def _answer_bell(self) -> None:
        if self._bell < 0:
            return
        try:
            if os.read(self._bell, 64):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close_bell()

    def _close_bell(self) -> None:
        if self._bell >= 0:
            with contextlib.suppress(OSError):
                os.close(self._bell)
            self._bell = -1

    def stop(self, *_: Any) -> None:
        """Stop soon: as a signal handler."""
        self.stopping = True

    def leave(self, *_: Any) -> None:
        """Stop when training has ended and its last records are delivered, or LEAVE_S after it: as a signal handler.

        Asked a second time, or after the run's end, stop soon.
        """
        if self._ended_at or self._limit_s == LEAVE_S:
            self.stopping = True
        self._limit_s = LEAVE_S
