"""The life of a helper process, with a process and a clock that the test has in its hand."""

from __future__ import annotations

import pytest

from trackers.relay.parts.helper import QUIET_DEATHS, STEADY_S, Helper


class Process:
    """What looks like a ``subprocess.Popen``."""

    pid = 7

    def __init__(self) -> None:
        self.code: int | None = None
        self.done: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.done.append("terminate")

    def kill(self) -> None:
        self.done.append("kill")

    def wait(self) -> None:
        self.done.append("wait")


class Life:
    """A helper, what it started and what it said."""

    def __init__(self, *, most: int = 0) -> None:
        self.started: list[Process] = []
        self.deaths: list[int] = []
        self.said: list[str] = []
        self.refuses = False
        self.helper = Helper(self._start, (1.0, 5.0), self.said.append, most=most)

    def _start(self, deaths: int) -> Process:
        self.deaths.append(deaths)
        if self.refuses:
            raise OSError("no room")
        self.started.append(Process())
        return self.started[-1]

    def die(self, now: float) -> None:
        """It ends with code 1, and its part says so."""
        self.started[-1].code = 1
        assert self.helper.poll(now) == 1
        self.helper.died(now, "gone")


def test_helper_that_dies_is_due_after_growing_pauses() -> None:
    """The last pause is taken again and again, and what is started knows how often it died."""
    life, now = Life(), 100.0
    for pause in (0.0, 1.0, 5.0, 5.0):
        assert not life.helper.is_due(now + pause - 0.001) or not pause
        now += pause
        assert life.helper.is_due(now)
        assert life.helper.start(now)
        assert not life.helper.is_due(now), "it runs"
        life.die(now)
    assert life.deaths == [0, 1, 2, 3]


def test_user_is_told_only_when_it_dies_again_and_again() -> None:
    """One death is nobody's business; after steady work they are counted anew."""
    life = Life()
    for number in range(QUIET_DEATHS + 1):
        assert not life.said, number
        life.helper.start(0.0)
        life.die(0.0)
    assert life.said == ["gone"]
    life.helper.start(0.0)
    life.die(STEADY_S + 1)
    assert life.said == ["gone"]
    assert life.helper.deaths == 1


def test_helper_with_a_greatest_number_of_deaths_is_given_up_and_that_is_said_once() -> None:
    """However long it worked between them."""
    life = Life(most=4)
    for number in range(4):
        assert life.helper.is_due(1e6 * number)
        life.helper.start(1e6 * number)
        life.die(1e6 * number + 2 * STEADY_S)
    assert life.said == ["gone"]
    assert life.helper.is_given_up
    assert not life.helper.is_due(1e9)


def test_what_cannot_be_started_counts_as_a_death() -> None:
    """Its part says what can't be done, and why."""
    life = Life()
    life.refuses = True
    for number in range(QUIET_DEATHS + 1):
        assert not life.helper.start(10.0 * number, "values can't be summed up")
    assert life.helper.process is None
    assert life.helper.pid == 0
    assert life.said == ["values can't be summed up: no room"]


def test_end_is_asked_for_once_of_each_process() -> None:
    """A second signal would mean something else to it."""
    life = Life()
    life.helper.ask()
    life.helper.start(0.0)
    for _ in range(3):
        life.helper.ask()
    assert life.started[0].done == ["terminate"]
    life.die(0.0)
    life.helper.start(10.0)
    life.helper.ask()
    assert life.started[1].done == ["terminate"]


@pytest.mark.parametrize("wait", [True, False])
def test_killed_helper_is_waited_for_unless_it_may_hang(wait: bool) -> None:
    """Inside a driver a process may not even die."""
    life = Life()
    life.helper.kill(wait=wait)
    life.helper.start(0.0)
    life.helper.kill(wait=wait)
    life.helper.kill(wait=wait)
    assert life.started[0].done == (["kill", "wait"] if wait else ["kill"])
    assert life.helper.process is None
