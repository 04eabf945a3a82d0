"""A part of the relay: something that runs beside training, and that the relay knows by these methods alone.

The parts of a run stand in :mod:`trackers.relay.beside`; a plug-in brings one by the group ``trackers.parts``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import msgspec

from trackers.journal.run_directory import RunDirectory
from trackers.records import Finish
from trackers.tracker import RunInfo

Phase = Literal["training", "leaving", "over"]
"""Of a run: training goes on; it has written its finish record, and its process still exits; it has ended."""


class RelayMoment(msgspec.Struct, frozen=True):
    """What a part is told when it is polled.

    Attributes:
        phase: of the run.
        crowded: deliveries have all slots or processors: what isn't urgent waits.
        ended_s: seconds since training ended; 0 before.
    """

    phase: Phase = "training"
    crowded: bool = False
    ended_s: float = 0.0


TRAINING = RelayMoment()
"""While training runs, and nothing waits."""


class Beside(msgspec.Struct):
    """What a part is made from.

    Attributes:
        attempt: the one that is served.
        pid: training's own process; 0: there is none on this machine.
        say: called with (text, source) for what the user must know; ``source`` is "" or a tracker's name.
        nice: niceness of what is started while training runs.
        sampler: asks the host agent for this run's part of a sampler that runs share, with the run's directory, the
            plan as JSON, the niceness and a pipe; it answers with what looks like a ``subprocess.Popen``, or None.
        ended: training is over already. own_session: helpers get a session of their own.
        by_hand: a person has started this: the environment may say what the run doesn't.
    """

    run: RunDirectory
    info: RunInfo
    attempt: int
    say: Callable[[str, str], None]
    pid: int = 0
    nice: int = 0
    sampler: Callable[[str, str, int, int], Any] | None = None
    ended: bool = False
    own_session: bool = False
    by_hand: bool = False

    def entry(self) -> dict[str, Any]:
        """The attempt's own entry of the run's; empty if it has none."""
        return next((entry for entry in self.info.attempts if entry.get("number") == self.attempt), {})

    def seconds(self, symbol: str, default: float) -> float:
        """An option's value in seconds."""
        return float(self.info.option(symbol, default))


class RelayPart:
    """The methods of a part; each does nothing by default, and takes microseconds where nothing is due.

    They are called by one thread: :meth:`begin` once, :meth:`poll` ten times a second, :meth:`end` again and again when
    training has ended until it is True, :meth:`ended`, :meth:`poll` on, and :meth:`close`.

    Attributes:
        name: what others call it.
        after: parts that must have ended before this one may: it works on what they write.
        idle: when training has ended, nothing is left that the relay should go on for.
        pid: of its process; 0 while there is none. When training ends, it gets the usual priority.
    """

    name: ClassVar[str] = ""
    after: ClassVar[tuple[str, ...]] = ()

    @property
    def idle(self) -> bool:
        return True

    @property
    def pid(self) -> int:
        return 0

    def begin(self) -> None:
        """The run's own streams are open, and its environment is recorded."""

    def poll(self, moment: RelayMoment) -> None:
        """Do what is due."""

    def end(self) -> bool:
        """Training is over: write what belongs before the finish record. True once that is done, or given up."""
        return True

    def ended(self, finish: Finish) -> None:
        """The end is known, and is written next. Called again where the status is put right afterwards."""

    def give_way(self) -> None:
        """Training has ended, and its deliveries, which it waits for, need the processors."""

    def pause(self, moment: RelayMoment) -> bool:
        """Wait a few milliseconds, if the end of the run waits for this part; else False."""
        return False

    def close(self) -> None:
        """Release everything, in whatever state it is; what isn't done, another relay can go on with."""


def short_pause(seconds: float) -> bool:
    """Sleep; True: an answer for :meth:`RelayPart.pause`."""
    time.sleep(seconds)
    return True
