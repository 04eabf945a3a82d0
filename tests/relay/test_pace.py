"""All deliveries of a machine slow down together where a server asks for fewer requests, and come back one by one."""

from __future__ import annotations

import collections
import fcntl
import heapq
import os
import random
from pathlib import Path

import pytest

from trackers.relay.delivery import pace
from trackers.relay.delivery.pace import BeginPace, Pace
from trackers.support.runtime_directory import directory

SERVER = "http://mlflow:5000"


class Clock:
    """The monotonic clock, as a test moves it."""

    def __init__(self) -> None:
        self.now = 10_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    random.seed(1)
    found = Clock()
    monkeypatch.setattr(pace, "time", found)
    return found


def test_nothing_is_made_before_a_server_asks_for_less() -> None:
    """And nobody waits."""
    one = Pace("mlflow", SERVER)
    assert one.wait() == 0.0
    one.accepted()
    assert not directory().exists()


def test_answer_to_one_is_followed_by_all(clock: Clock) -> None:
    """Of the same server: another server's deliveries, and another tracker's, go on."""
    Pace("mlflow", SERVER).slower(30.0)
    assert 30.0 <= Pace("mlflow", SERVER).wait() < 31.0
    assert Pace("mlflow", "http://other").wait() == 0.0
    assert Pace("wandb", SERVER).wait() == 0.0
    clock.now += 30.0
    assert Pace("mlflow", SERVER).wait() < 1.0


def test_deliveries_come_back_one_by_one(clock: Clock) -> None:
    """After the pause each has a moment of its own, a gap apart, however many there are."""
    runs = [Pace("mlflow", SERVER) for _ in range(200)]
    runs[0].slower(5.0)
    moments = sorted(clock.now + run.wait() for run in runs)
    assert moments[0] >= clock.now + 5.0
    assert moments[-1] - moments[0] > 190 * pace.GAP_S[0]
    for begin in moments:
        assert sum(begin <= moment < begin + 0.1 for moment in moments) <= 7
    assert [run.wait() for run in runs] == [run.wait() for run in runs]  # asked again, it is the same moment
    for run in runs:
        run.close()


def test_moment_is_moved_where_the_server_speaks_again(clock: Clock) -> None:
    """Who waits for a moment that lies before the new end of the pause waits for another one."""
    one, other = Pace("mlflow", SERVER), Pace("mlflow", SERVER)
    one.slower(1.0)
    assert other.wait() < 2.0
    clock.now += 2.0
    one.slower(60.0)
    assert other.wait() >= 60.0


def gap(one: Pace, clock: Clock) -> float:
    """The gap now, in seconds."""
    state = one._read()
    assert state is not None
    return pace._gap(state, clock.now)


def test_gap_doubles_while_the_server_asks_and_goes_when_it_does_not(clock: Clock) -> None:
    """Answers of one moment count once; without any, it halves every few seconds, to none."""
    one = Pace("mlflow", SERVER)
    for _ in range(3):
        one.slower(0.0)
    assert gap(one, clock) == pace.GAP_S[0]
    for _ in range(20):
        clock.now += pace.SAME_S + 2 * gap(one, clock) + 0.05
        one.slower(0.0)
    widest = gap(one, clock)
    assert 1.0 < widest <= pace.GAP_S[1]
    clock.now += pace.CALM_S + pace.HALF_S
    assert gap(one, clock) == pytest.approx(widest / 2)
    clock.now += 60.0
    assert gap(one, clock) == 0.0
    assert one.wait() == 0.0


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 32, pace.STATE.pack(1e300, 1e300, -1.0, 0.0)])
def test_damaged_file_holds_nobody_up(content: bytes) -> None:
    """It says nothing, and the next answer of the server replaces it."""
    one = Pace("mlflow", SERVER)
    one.slower(1.0)
    (path,) = directory().glob("pace-*")
    path.write_bytes(content)
    assert Pace("mlflow", SERVER).wait() == 0.0
    one.slower(3.0)
    assert Pace("mlflow", SERVER).wait() >= 3.0


def test_process_that_was_stopped_with_the_lock_holds_nobody_up() -> None:
    """The pause counts all the same, for a server whose name is no UTF-8, too."""
    one = Pace("mlflow", "näme \udcff")
    one.slower(3.0)
    (path,) = directory().glob("pace-*")
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert 0.0 < Pace("mlflow", "näme \udcff").wait() <= 3.0
        one.slower(5.0)


def test_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    """Who could put a file there could hold up all runs."""
    os.mkdir(tmp_path / "trackers", 0o777)
    os.chmod(tmp_path / "trackers", 0o777)
    Pace("mlflow", SERVER).slower(30.0)
    assert Pace("mlflow", SERVER).wait() == 0.0


def test_pause_that_a_server_asks_for_is_bounded() -> None:
    """A server that says a year is asked again after an hour."""
    one = Pace("mlflow", SERVER)
    one.slower(1e9)
    assert one.wait() <= pace.MOST_PAUSE_S + 60


def test_refused_beginning_puts_off_beginnings_alone(clock: Clock) -> None:
    """Values of runs that have begun are asked for as before; where values are refused, runs begin as before, too."""
    values = Pace("wandb", SERVER)
    BeginPace("wandb", SERVER).slower(5.0)
    assert BeginPace("wandb", SERVER).wait() >= 5.0
    assert values.wait() == 0.0
    clock.now += 60.0
    values.slower(5.0)
    assert BeginPace("wandb", SERVER).wait() == 0.0


def test_runs_begin_one_by_one_and_faster_with_each_that_is_taken(clock: Clock) -> None:
    """The first begins at once, a single one later, too; nothing is made for a tracker that wants none of it."""
    assert BeginPace("mlflow", SERVER).wait() == 0.0
    assert not directory().exists()
    begin, waiting, moments = clock.now, [BeginPace("wandb", SERVER, 0.5) for _ in range(40)], []
    while waiting:
        pauses = [(one.wait(), one) for one in waiting]
        for pause, one in pauses:
            if not pause:
                waiting.remove(one)
                moments.append(clock.now - begin)
                one.accepted()
                one.close()
        clock.now += 0.01
    assert moments[:2] == [0.0, pytest.approx(0.5 * pace.BEGIN_SHRINKS[0], abs=0.02)]
    assert moments[-1] < 7.0
    clock.now += pace.BEGIN_FORGET_S
    assert BeginPace("wandb", SERVER, 0.5).wait() == 0.0
    assert 0.5 <= BeginPace("wandb", SERVER, 0.5).wait() <= 0.75


def test_refused_beginnings_come_seconds_apart(clock: Clock) -> None:
    """At once, not after a row of refusals, for each is several requests; those that were on their way count once, and
    aren't taken for a sign that the server takes more."""
    one, other = BeginPace("wandb", SERVER, 0.1), BeginPace("wandb", SERVER, 0.1)
    assert one.wait() == 0.0
    for _ in range(3):
        other.slower(None)
    one.accepted()
    assert other.wait() >= pace.PAUSE_S
    clock.now += pace.PAUSE_S
    assert other.wait() == 0.0
    assert pace.BEGIN_REFUSED_S <= one.wait() <= 1.5 * pace.BEGIN_REFUSED_S
    clock.now += 1.5
    other.slower(None)
    clock.now += 2.0
    assert one.wait() == 0.0
    assert other.wait() >= 2 * pace.BEGIN_REFUSED_S


def test_beginning_that_fails_otherwise_waits_for_another_turn(clock: Clock) -> None:
    """A server that is away is asked by one after the other; its return is found by whoever's turn it is."""
    one, other = BeginPace("wandb", SERVER, 0.5), BeginPace("wandb", SERVER, 0.5)
    assert one.wait() == one.wait() == 0.0
    one.failed()
    assert one.wait() > 0.0
    clock.now += 0.5
    assert other.wait() == 0.0


def fleet(clock: Clock, runs: int, seconds: float, *, limit: int, shared: bool) -> tuple[int, int, int]:
    """Runs that begin with ten requests, then ask once a second, of a server that takes ``limit`` requests a second and
    answers all others 429 with ``Retry-After: 1``; a beginning that is refused begins again.

    Returns:
        how many requests were taken and refused in the second half of the time, and how many runs have begun.
    """
    begin = clock.now
    paces = [Pace("mlflow", SERVER if shared else f"{SERVER}/{number}") for number in range(runs)]
    due = [(begin + random.random(), number, 0) for number in range(runs)]
    heapq.heapify(due)
    begun: set[int] = set()
    taken = refused = 0
    window: collections.deque[float] = collections.deque()
    while due:
        clock.now, number, sent = heapq.heappop(due)
        if clock.now > begin + seconds:
            break
        if not sent and (pause := paces[number].wait()) > 0.0:
            heapq.heappush(due, (clock.now + pause, number, 0))
            continue
        while window and window[0] < clock.now - 1.0:
            window.popleft()
        late = clock.now > begin + seconds / 2
        if len(window) >= limit:
            refused += late
            paces[number].slower(1.0)
            heapq.heappush(due, (clock.now + 1.0, number, 0))
            continue
        window.append(clock.now)
        taken += late
        sent += 1
        if number not in begun and sent < 10:
            heapq.heappush(due, (clock.now + 0.02, number, sent))
            continue
        begun.add(number)
        paces[number].accepted()
        heapq.heappush(due, (clock.now + 1.0, number, 0))
    for one in paces:
        one.close()
    return taken, refused, len(begun)


@pytest.mark.slow
def test_two_hundred_runs_keep_to_a_limit_that_each_alone_breaks(clock: Clock) -> None:
    """200 runs that would ask 200 times a second, of a server that takes 20: all begin, it refuses few, and takes more
    than a third of what it could. Each run alone, with the same rules, is refused far more often."""
    taken, refused, begun = fleet(clock, 200, 600.0, limit=20, shared=True)
    assert begun == 200
    assert refused < 0.1 * taken
    assert taken > 20 * 300 / 3
    each_taken, each_refused, each_begun = fleet(clock, 200, 600.0, limit=20, shared=False)
    assert each_refused > each_taken
    assert each_begun < 20
