"""What runs beside a training: the parts of the relay, in the order in which they are polled, ended and closed.

A plug-in's parts come by the entry-point group ``trackers.parts``: each names a callable that is given the
:class:`~trackers.relay.parts.part.Beside` and answers with a :class:`~trackers.relay.parts.part.RelayPart`, or with
None where it isn't needed. What it raises ends that part alone, and is said once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from trackers.errors import UsageError, reason
from trackers.journal.integrity import JournalChecksums
from trackers.records import Finish
from trackers.relay.aggregation.child import Reducing
from trackers.relay.alerting.child import Sending
from trackers.relay.alerting.watch import AlertWatch, has_alerts
from trackers.relay.code_keeper import CodeKeeper
from trackers.relay.console_collector import ConsoleCollector
from trackers.relay.nodes.child import Fetching
from trackers.relay.parts.part import Beside, RelayMoment, RelayPart
from trackers.relay.sampling.child import SamplerProcess
from trackers.support import plugins
from trackers.support.interruption import pass_on

GROUP = "trackers.parts"
END_S = 10.0
"""Maximum wait at the run's end for the part of a plug-in, in seconds."""


class Checksums(RelayPart):
    """Writes the checksums of the run's streams."""

    name = "checksums"

    def __init__(self, beside: Beside) -> None:
        self._checksums = JournalChecksums(beside.run)
        self._ended = False

    def poll(self, moment: RelayMoment) -> None:
        if moment.phase == "training":
            self._checksums.poll()
        elif not self._ended:
            self._ended = True
            self._checksums.end()

    def close(self) -> None:
        self._checksums.end()


def _watch(beside: Beside) -> RelayPart | None:
    if not has_alerts(beside.info):
        return None
    return AlertWatch(beside.run, beside.info, beside.attempt, lambda text: beside.say(text, "alerts"))


OWN: tuple[Callable[[Beside], RelayPart | None], ...] = (
    SamplerProcess, Fetching, Reducing,
    lambda beside: ConsoleCollector(beside.run, beside.info, beside.attempt, beside.pid, lambda s: beside.say(s, "")),
    CodeKeeper, _watch, Checksums,
    lambda beside: Sending(beside) if has_alerts(beside.info) and beside.info.mode != "offline" else None,
)  # fmt: skip


class Isolated(RelayPart):
    """A plug-in's part: one whose method raises, or that doesn't end in time, is left out, and that is said once."""

    def __init__(self, name: str, part: RelayPart, say: Callable[[str], None]) -> None:
        self.name = f"plugin {name}"  # type: ignore[misc]
        self.after = tuple(part.after)  # type: ignore[misc]
        self._part, self._say = part, say
        self._end_by = 0.0

    def _call(self, method: Callable[[RelayPart], object], otherwise: object = None) -> object:
        try:
            return method(self._part)
        except Exception as error:
            pass_on(error)
            self._leave_out(reason(error))
            return otherwise

    def _leave_out(self, why: str) -> None:
        self._say(f"{self.name} is left out from now on: {why}")
        self._part = RelayPart()

    @property
    def idle(self) -> bool:
        return bool(self._call(lambda part: part.idle, True))

    @property
    def pid(self) -> int:
        pid = self._call(lambda part: part.pid)
        return pid if isinstance(pid, int) else 0

    def begin(self) -> None:
        self._call(lambda part: part.begin())

    def poll(self, moment: RelayMoment) -> None:
        self._call(lambda part: part.poll(moment))

    def end(self) -> bool:
        self._end_by = self._end_by or time.monotonic() + END_S
        if self._call(lambda part: part.end(), True):
            return True
        if time.monotonic() < self._end_by:
            return False
        self._call(lambda part: part.close())
        self._leave_out(f"it hadn't ended {END_S:.0f} s after training")
        return True

    def ended(self, finish: Finish) -> None:
        self._call(lambda part: part.ended(finish))

    def give_way(self) -> None:
        self._call(lambda part: part.give_way())

    def pause(self, moment: RelayMoment) -> bool:
        return bool(self._call(lambda part: part.pause(moment), False))

    def close(self) -> None:
        self._call(lambda part: part.close())


def parts_of(beside: Beside) -> list[RelayPart]:
    """The parts of a run, this package's own and those of plug-ins."""
    own = [part for make in OWN if (part := make(beside)) is not None]
    return [*own, *_of_plugins(beside)]


def _of_plugins(beside: Beside) -> Iterator[RelayPart]:
    for name, target in plugins.targets(GROUP).items():
        what = f"part {name!r} of {plugins.distribution(GROUP, name)}"
        try:
            part = plugins.load(what, target)(beside)
        except UsageError as error:
            beside.say(str(error), "")
        except Exception as error:
            pass_on(error)
            beside.say(f"{what} can't be made: {reason(error)}", "")
        else:
            if isinstance(part, RelayPart):
                yield Isolated(name, part, lambda text: beside.say(text, ""))
            elif part is not None:
                beside.say(f"{what} made no RelayPart but {type(part).__name__}: {plugins.PAGE}", "")
