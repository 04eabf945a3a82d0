"""Slots for deliveries that work at the same time: a bounded number of processes; if there are more, they take turns.

Runs that have ended come first, for somebody may wait for them; then deliveries that haven't worked yet; then those
with new records. A delivery keeps its slots until others wait. It is then asked to give them back: at once if a more
urgent one waits, else when its turn is over. One that doesn't respond, because a server hangs, loses its slots and goes
on without. At most as many slots as exist are reassigned so, and its tracker's other deliveries wait behind those of
trackers that respond.
"""

from __future__ import annotations

import dataclasses

from trackers.support import machines

ENDED, NEW, GROWN = 0, 1, 2
"""Urgency of a delivery: its run has ended; it hasn't worked yet; there are new records."""
LEAST = 14
"""Minimum number of slots: two runs with five trackers need no turns."""
CYCLE_S = 180.0
"""Time in which each delivery gets one turn, in seconds: starting and ending a turn is costly, and W&B's offline runs
get another directory."""
TURN_S = 5.0
"""Shortest turn while no more urgent delivery waits, in seconds."""
CLOSING_S = 10.0
"""Shortest turn of a run that has ended, in seconds."""
LATE_S = 60.0
"""Time after which a delivery that was asked to give its slots back loses them, in seconds."""


def default_slots() -> int:
    """Number of slots of this machine, unless set."""
    return max(LEAST, machines.processors())


@dataclasses.dataclass(eq=False)
class SlotRequest:
    """A delivery that waits for slots, or has them.

    Attributes:
        size: number of its processes, each of which takes a slot.
        began: when it got its slots, on the monotonic clock; None while it waits.
        asked: when it was asked to give them back; None before.
        told: it had them before the agent knew of it, and may have locked them.
    """

    tracker: str
    size: int = 1
    urgency: int = NEW
    began: float | None = None
    asked: float | None = None
    told: bool = False


class WorkSlots:
    """Assigns slots to requests; the caller calls :meth:`assign` repeatedly.

    Args:
        limit: number of slots.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._requests: dict[SlotRequest, None] = {}

    def __contains__(self, request: SlotRequest) -> bool:
        return request in self._requests

    def add(self, request: SlotRequest) -> None:
        """Queue a request behind those that are as urgent; one that has begun keeps its slots."""
        self._requests[request] = None

    def remove(self, request: SlotRequest) -> None:
        """Remove a request: the delivery has ended or needs no slots."""
        self._requests.pop(request, None)

    def contended(self) -> bool:
        """Whether requests are waiting."""
        return any(request.began is None for request in self._requests)

    def assign(self, now: float, beside: int = 0) -> tuple[list[SlotRequest], list[SlotRequest]]:
        """Assign slots, and ask for some back; sets ``began`` and ``asked``.

        Args:
            now: on the monotonic clock, in seconds.
            beside: number of slots that others have, whose requests will come.

        Returns:
            the requests that begin now, and those that are asked for their slots now.
        """
        waiting = [request for request in self._requests if request.began is None]
        if not waiting:
            return [], []
        holding = [request for request in self._requests if request.began is not None]
        late = [request for request in holding if request.asked is not None and now - request.asked > LATE_S]
        hanging = {request.tracker for request in late}
        waiting.sort(key=lambda request: request.urgency + (request.tracker in hanging))
        free = self.limit - beside - _size(holding) + min(_size(late), self.limit)
        begun: list[SlotRequest] = []
        while waiting and (waiting[0].size <= free or not (holding or begun or beside)):
            request = waiting.pop(0)
            request.began, request.asked = now, None
            free -= request.size
            begun.append(request)
        return begun, self._recall(waiting, holding, free, now)

    def _recall(
        self, waiting: list[SlotRequest], holding: list[SlotRequest], free: float, now: float
    ) -> list[SlotRequest]:
        """Ask for as many slots back as the waiting requests need."""
        pressing = [request for request in waiting if request.urgency < GROWN]
        turn_s = 0.0 if pressing else max(TURN_S, CYCLE_S * self.limit / _size(self._requests))
        lacking = _size(pressing or waiting) - free
        lacking -= _size(
            [request for request in holding if request.asked is not None and now - request.asked <= LATE_S]
        )
        recalled = []
        for request in sorted(holding, key=lambda request: (request.urgency == ENDED, request.began)):
            least_s = max(turn_s, CLOSING_S) if request.urgency == ENDED else turn_s
            if lacking > 0 and request.asked is None and request.began is not None and now - request.began >= least_s:
                request.asked = now
                lacking -= request.size
                recalled.append(request)
        return recalled


def _size(requests: list[SlotRequest] | dict[SlotRequest, None]) -> int:
    return sum(request.size for request in requests)
