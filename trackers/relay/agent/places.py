"""Which deliveries work at the same time: a bounded number of processes; where there are more, they take turns.

Runs that have ended come first: somebody may wait for them. Then come deliveries that haven't worked yet, then those
that have something new. Whoever has a place keeps it until others wait, and is asked to give it back: at once where a
delivery waits that is more urgent, else when its turn is over. One that doesn't answer, because a server hangs, loses
its place and goes on without; the places lent so are as many as there are, and its tracker's other deliveries wait
behind those of trackers that answer.
"""

from __future__ import annotations

import dataclasses

from trackers.support import process_info

ENDED, NEW, GROWN = 0, 1, 2
"""How urgent a delivery is: its run has ended; it hasn't worked yet; there is something new."""
LEAST = 14
"""Processes that have places on a small machine: two runs with five trackers need no turns."""
CYCLE_S = 180.0
"""Where all have had a turn, each gets one in so many seconds: a turn begins and ends with work, and W&B's offline
runs get another directory."""
TURN_S = 5.0
"""Shortest turn, in seconds, where nobody waits who is more urgent."""
CLOSING_S = 10.0
"""Shortest turn of a run that has ended, in seconds."""
LATE_S = 60.0
"""Time after which a delivery that was asked for its place loses it, in seconds."""


def usual() -> int:
    """How many places a machine has where nobody says."""
    return max(LEAST, process_info.processors())


@dataclasses.dataclass(eq=False)
class Wish:
    """A delivery that waits for a place, or has one.

    Attributes:
        size: of how many processes it consists.
        began: when it got its place, on the monotonic clock; None while it waits.
        asked: when it was asked to give it back; None before.
    """

    tracker: str
    size: int = 1
    urgency: int = NEW
    began: float | None = None
    asked: float | None = None


class Places:
    """Has nothing but the order: who asks calls :meth:`look` again and again.

    Args:
        limit: how many processes have places.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._wishes: dict[Wish, None] = {}

    def __contains__(self, wish: Wish) -> bool:
        return wish in self._wishes

    def add(self, wish: Wish) -> None:
        """Have it wait behind those that are as urgent; one that has begun keeps its place."""
        self._wishes[wish] = None

    def remove(self, wish: Wish) -> None:
        """It has ended, or wants no place any more."""
        self._wishes.pop(wish, None)

    def contended(self) -> bool:
        """Whether some wait."""
        return any(wish.began is None for wish in self._wishes)

    def look(self, now: float) -> tuple[list[Wish], list[Wish]]:
        """Give places, and ask for them; ``began`` and ``asked`` say it, too.

        Args:
            now: on the monotonic clock, in seconds.

        Returns:
            those that may begin now, and those that are asked for their place now.
        """
        waiting = [wish for wish in self._wishes if wish.began is None]
        if not waiting:
            return [], []
        holding = [wish for wish in self._wishes if wish.began is not None]
        late = [wish for wish in holding if wish.asked is not None and now - wish.asked > LATE_S]
        hanging = {wish.tracker for wish in late}
        waiting.sort(key=lambda wish: wish.urgency + (wish.tracker in hanging))
        free = self.limit - _size(holding) + min(_size(late), self.limit)
        begun: list[Wish] = []
        while waiting and (waiting[0].size <= free or not (holding or begun)):
            wish = waiting.pop(0)
            wish.began, wish.asked = now, None
            free -= wish.size
            begun.append(wish)
        return begun, self._ask(waiting, holding, free, now)

    def _ask(self, waiting: list[Wish], holding: list[Wish], free: float, now: float) -> list[Wish]:
        """Ask so many for their places as those that wait need."""
        pressing = [wish for wish in waiting if wish.urgency < GROWN]
        turn_s = 0.0 if pressing else max(TURN_S, CYCLE_S * self.limit / _size(self._wishes))
        lacking = _size(pressing or waiting) - free
        lacking -= _size([wish for wish in holding if wish.asked is not None and now - wish.asked <= LATE_S])
        found = []
        for wish in sorted(holding, key=lambda wish: (wish.urgency == ENDED, wish.began)):
            least_s = max(turn_s, CLOSING_S) if wish.urgency == ENDED else turn_s
            if lacking > 0 and wish.asked is None and wish.began is not None and now - wish.began >= least_s:
                wish.asked = now
                lacking -= wish.size
                found.append(wish)
        return found


def _size(wishes: list[Wish] | dict[Wish, None]) -> int:
    return sum(wish.size for wish in wishes)
