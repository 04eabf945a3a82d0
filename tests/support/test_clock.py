"""Unix time carried by the monotonic clock."""

from __future__ import annotations

import pytest

from trackers.support import clock
from trackers.support.clock import Clock


class Machine:
    """Both clocks of a machine on which each reading takes a microsecond, and the process may have to wait after it.

    Args:
        waits: seconds that the process has to wait, by the number of the reading.
    """

    def __init__(self, waits: dict[int, float]) -> None:
        self.now, self.readings, self._waits = 100.0, 0, waits

    def monotonic(self) -> float:
        self.readings += 1
        found = self.now
        self.now += 1e-6 + self._waits.get(self.readings, 0.0)
        return found

    def unix_time(self) -> float:
        return 1_800_000_000 + self.monotonic()


@pytest.mark.parametrize("waits", [{}, {1: 0.03}, {2: 0.03}, {1: 0.01, 4: 0.02, 8: 1.0}], ids=str)
def test_process_that_had_to_wait_between_two_readings_is_not_behind(
    waits: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a run's rows had the times of calls before theirs."""
    machine = Machine(waits)
    monkeypatch.setattr(clock, "monotonic", machine.monotonic)
    monkeypatch.setattr(clock, "unix_time", machine.unix_time)
    assert Clock().offset == pytest.approx(1_800_000_000, abs=1e-5)


def test_process_that_always_waits_takes_the_shortest_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """And begins in bounded time."""
    machine = Machine({number: 0.5 / number for number in range(1, 1000)})
    monkeypatch.setattr(clock, "monotonic", machine.monotonic)
    monkeypatch.setattr(clock, "unix_time", machine.unix_time)
    assert Clock().offset == pytest.approx(1_800_000_000, abs=0.02)
    assert machine.readings == 3 * clock.TRIES
