"""Deliveries that take turns: who gets a place when, who is asked to give it back, what an agent's death changes."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import wait_for
from trackers.relay.agent import endpoint, turns, work_slots
from trackers.relay.agent.client import LENGTH, READY
from trackers.relay.agent.slot_locks import SlotLocks
from trackers.relay.agent.turns import TIMES, Turns, TurnServer
from trackers.relay.agent.work_slots import ENDED, GROWN, LATE_S, NEW, SlotRequest, WorkSlots


def filled(limit: int, *requests: SlotRequest) -> WorkSlots:
    """Work slots with these requests, in this order."""
    found = WorkSlots(limit)
    for request in requests:
        found.add(request)
    return found


def test_places_that_nobody_waits_for_are_kept() -> None:
    """With few deliveries all work, and go on for as long as they like."""
    few = [SlotRequest("json"), SlotRequest("mlflow"), SlotRequest("wandb", 2)]
    kept = filled(4, *few)
    assert kept.assign(0.0) == (few, [])
    assert kept.assign(1e6) == ([], [])


def test_urgent_ones_come_first_and_long_holders_give_their_place() -> None:
    """The end of a run before the first work of one, and that before what is new; among equals whoever asked first."""
    first, second = SlotRequest("json", urgency=GROWN), SlotRequest("csv", urgency=GROWN)
    kept = filled(2, first, second)
    assert kept.assign(0.0) == ([first, second], [])
    grown, new, ended = SlotRequest("a", urgency=GROWN), SlotRequest("b"), SlotRequest("c", urgency=ENDED)
    kept.add(grown)
    assert kept.assign(1.0) == ([], [])
    kept.add(new)
    assert kept.assign(1.0) == ([], [first])
    kept.add(ended)
    assert kept.assign(1.1) == ([], [second])
    assert kept.assign(1.2) == ([], [])
    kept.remove(second)
    kept.remove(first)
    assert kept.assign(1.3) == ([ended, new], [])
    assert kept.assign(1.4) == ([], [])
    turn_s = work_slots.CYCLE_S * 2 / 3
    assert kept.assign(1.3 + turn_s - 0.1) == ([], [])
    assert kept.assign(1.3 + turn_s) == ([], [new]), "one that closes its run is asked last"


def test_one_that_hangs_loses_its_place_and_its_kind_waits_behind_others() -> None:
    """No more than the places that there are is lent so; who gives back what was lent is asked no more."""
    hanging = [SlotRequest("mlflow") for _ in range(2)]
    kept = filled(2, *hanging)
    kept.assign(0.0)
    same, other = SlotRequest("mlflow"), SlotRequest("json")
    kept.add(same)
    kept.add(other)
    assert kept.assign(0.0) == ([], hanging)
    assert kept.assign(LATE_S) == ([], [])
    assert kept.assign(LATE_S + 1) == ([other, same], [])
    more = SlotRequest("csv")
    kept.add(more)
    assert kept.assign(LATE_S + 1) == ([], [same])
    assert kept.assign(2 * LATE_S + 2) == ([], [other]), "two are lent, no third: another one gives its place"
    kept.remove(hanging[0])
    assert kept.assign(2 * LATE_S + 3) == ([more], [])


def test_large_ones_wait_for_room_and_work_alone_where_there_is_never_enough() -> None:
    """Smaller ones that asked later don't pass them for ever."""
    small, large, late = SlotRequest("json"), SlotRequest("wandb", 2), SlotRequest("csv")
    kept = filled(2, small, large, late)
    assert kept.assign(0.0) == ([small], [])
    assert kept.assign(0.0) == ([], [small])
    kept.remove(small)
    assert kept.assign(0.0)[0] == [large]
    kept.remove(large)
    huge = SlotRequest("huge", 5)
    assert filled(2, huge).assign(0.0) == ([huge], [])


def test_places_that_others_have_are_left_to_them() -> None:
    """They are no room for others, and not even for one that works alone where there is never enough."""
    large, small = SlotRequest("wandb", 3), SlotRequest("json")
    kept = filled(3, large, small)
    assert kept.assign(0.0, 3) == ([], [])
    assert kept.assign(0.0, 1) == ([], [])
    assert kept.assign(0.0) == ([large], [])
    kept.remove(large)
    assert kept.assign(0.0, 2) == ([small], [])


@pytest.mark.slow
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from((ENDED, NEW, GROWN))), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_all_get_a_place_and_never_more_than_there_are(
    limit: int, asked: list[tuple[int, int]], chance: object
) -> None:
    """Whoever was asked gives its place back and asks again: each works, and what works at once is bounded."""
    requests = [SlotRequest("json", size, urgency) for size, urgency in asked]
    kept = filled(limit, *requests)
    worked: set[SlotRequest] = set()
    for second in range(100 * len(requests)):
        begun, _ = kept.assign(float(second))
        worked.update(begun)
        holding = [request for request in requests if request.began is not None]
        assert sum(request.size for request in holding) <= max(limit, 3)
        assert len(holding) == 1 or sum(request.size for request in holding) <= limit
        for request in holding:
            if request.asked is not None and chance.random() < 0.5:  # type: ignore[attr-defined]
                kept.remove(request)
                request.began, request.asked, request.urgency = None, None, GROWN
                kept.add(request)
        if len(worked) == len(requests):
            return
    raise AssertionError(f"{len(worked)} of {len(requests)} have worked")


def test_number_of_places_grows_with_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small machine has room for two runs with five trackers, of which one is three processes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(2), raising=False)
    assert work_slots.default_slots() == 14 == 2 * (4 + 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    assert work_slots.default_slots() == 64


class Served:
    """An agent's order of deliveries, in a thread of this process, that can die."""

    def __init__(self) -> None:
        self.limits: list[int] = []
        self._folder = endpoint.open_directory(endpoint.directory(), make=True)
        self._lines: list[socket.socket] = []
        self._alive = True
        self._goes_on, self._stands = threading.Event(), threading.Event()
        self._goes_on.set()
        self._door = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("k.sock", dir_fd=self._folder)
        self._door.bind(endpoint.address(self._folder, "k"))
        self._door.listen()
        self._door.settimeout(0.005)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        server = TurnServer("k")
        while self._alive:
            if not self._goes_on.is_set():
                self._stands.set()
                self._goes_on.wait()
            with contextlib.suppress(TimeoutError, BrokenPipeError):
                line, _ = self._door.accept()
                line.sendall(READY)
                (length,) = LENGTH.unpack(line.recv(LENGTH.size))
                assert line.recv(length) == b'{"places": 2}'
                server.add(line, 2)
            server.poll(set(server.descriptors()))
        server.close()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """It listens and does nothing."""
        self._stands.clear()
        self._goes_on.clear()
        assert self._stands.wait(60.0)
        try:
            yield
        finally:
            self._goes_on.set()

    def die(self) -> None:
        """As by SIGKILL."""
        self._alive = False
        self._thread.join()
        self._door.close()
        os.close(self._folder)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Served]]:
    """Starts an agent's order; all are ended after the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    begun: list[Served] = []

    def start() -> Served:
        begun.append(Served())
        return begun[-1]

    yield start
    for served in begun:
        if served._alive:
            served.die()


def of_relay(limit: int, **times: float) -> Turns:
    """A relay's, which looks for its agent each time."""
    return Turns("k", limit, times=TIMES._replace(retry_s=0.0, **times))


def give(one: Turns, **times: float) -> None:
    """Have its times be others from now on."""
    one.times = one.times._replace(**times)


def has(one: Turns, tracker: str, urgency: int = NEW) -> bool:
    one.poll()
    return one.request(tracker, 1, urgency)


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_relays_share_the_places_of_their_agent(serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends gets the place of one that goes on; a relay that is gone keeps none; an agent's death gives each
    run one delivery at a time, until there is another agent, to which those that work are no news."""
    first = serve()
    one, other = of_relay(2), of_relay(2)
    wait_for(lambda: has(one, "json") and has(one, "csv"))
    wait_for(lambda: not has(other, "json") and has(one, "json") and one.is_over("json"))
    assert not one.is_over("csv")
    one.done("json")
    wait_for(lambda: one.poll() and has(other, "json"))
    assert not has(one, "json", GROWN)
    assert not other.is_over("json")
    wait_for(
        lambda: not has(one, "json", ENDED) and (one.is_over("csv") or (has(other, "json") and other.is_over("json")))
    )
    other.close()
    wait_for(lambda: has(one, "json", ENDED))
    third = of_relay(2)
    wait_for(lambda: not has(third, "json") and not has(third, "csv") and third._ready)
    first.die()
    wait_for(lambda: has(third, "json"))
    assert not has(third, "csv"), "one at a time"
    wait_for(lambda: not has(third, "csv") and third.is_over("json"))
    third.done("json")
    wait_for(lambda: has(third, "csv"))
    serve()
    wait_for(lambda: one.poll() and one._ready and third.poll() and third._ready)
    assert has(third, "csv")
    for each in (one, third):
        each.close()


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_agent_that_comes_later_counts_places_that_are_locked(
    serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a relay that it doesn't know yet, once each when that has told; none of one that hangs for a minute."""
    early, hung = of_relay(2), of_relay(2)
    assert has(early, "json")
    assert has(hung, "csv")
    serve()
    late = of_relay(2)
    wait_for(lambda: not has(late, "tensorboard") and late._ready and late._answered_at > 0)
    for _ in range(100):
        assert not has(late, "tensorboard"), "both places are locked"
    wait_for(lambda: early.poll() and early._ready and early.is_over("json"))
    assert not has(late, "tensorboard")
    early.done("json")
    wait_for(lambda: early.poll() and has(late, "tensorboard"))
    assert not has(late, "mlflow"), "the other one is the hung relay's"
    monkeypatch.setattr(turns, "LATE_S", 0.0)
    wait_for(lambda: has(late, "mlflow"))
    for each in (early, hung, late):
        each.close()


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_agent_leaves_a_place_free_for_each_relay_that_begins(serve: Callable[[], Served]) -> None:
    """A relay that begins is a process beside the fork that will go on in its place."""
    first, second = SlotLocks("k", 2), SlotLocks("k", 2)
    assert first.begin() >= 0
    assert second.begin() >= 0
    assert SlotLocks("k", 2).taken() == (0, 2)
    serve()
    late = of_relay(2)
    wait_for(lambda: not has(late, "json") and late._ready and late._answered_at > 0)
    assert not has(late, "json")
    first.close()
    wait_for(lambda: has(late, "json"))
    assert not has(late, "csv")
    second.close()
    wait_for(lambda: has(late, "csv"))
    assert SlotLocks("k", 2).taken() == (0, 0)
    late.close()


def test_without_an_agent_all_may_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none was asked for, and where there is none."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for one in (Turns(), Turns("k")):
        assert all(has(one, f"t{number}") for number in range(100))
        assert not any(one.is_over(f"t{number}") for number in range(100))
    assert not Turns().enabled


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_places_that_cant_be_locked_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel or a filesystem without locks of open files holds no delivery up."""
    import fcntl

    def unknown(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(fcntl, "fcntl", unknown)
    one, other = of_relay(1), of_relay(1)
    assert [has(one, "json"), has(other, "json"), other.is_short] == [True, True, False]
    one.close()
    other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_agent_hangs_up_on_who_says_nonsense() -> None:
    """It goes on for the others."""
    server = TurnServer()
    for nonsense in (b"{\n", b"1\n", b'["want", 1]\n', b'["want", 1, "json", "x", 1, false]\n', b"x" * 200_000):
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        server.add(theirs, 0)
        ours.setblocking(False)
        sent = 0
        while sent < len(nonsense) and len(server):
            with contextlib.suppress(OSError):
                sent += ours.send(nonsense[sent:])
            server.poll(set(server.descriptors()))
        server.poll(set(server.descriptors()))
        assert len(server) == 0
        ours.close()


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
@pytest.mark.parametrize("greeted", [False, True])
def test_nothing_waits_for_an_agent_that_hangs(serve: Callable[[], Served], greeted: bool) -> None:
    """Deliveries work one by one, whether it had ever answered or not; it can be replaced then. One that goes on knows
    who works."""
    agent = serve()
    one = of_relay(2)
    wait_for(lambda: not greeted or (has(one, "first") and one._ready))
    with agent.hanging():
        give(one, patience_s=0.0)
        one.done("first")
        wait_for(lambda: has(one, "json"))
        assert not has(one, "csv")
        assert not one.hung
        give(one, silent_s=0.0)
        wait_for(lambda: not one.poll() and one.hung)
        give(one, silent_s=1e9)
        wait_for(lambda: one.poll() and one._line is not None)
        assert not has(one, "csv"), "one by one, for what hangs is asked again"
    give(one, patience_s=1e9)
    wait_for(lambda: has(one, "csv") and one._ready and one._own_slots is None)
    assert not one.hung
    other = of_relay(2)
    wait_for(
        lambda: not has(other, "json") and other._ready and one.poll() and (one.is_over("json") or one.is_over("csv")),
        seconds=60.0,
    )
    one.done("json" if one.is_over("json") else "csv")
    wait_for(lambda: one.poll() and has(other, "json"), seconds=60.0)
    for each in (one, other):
        each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_crowd_without_an_agent_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many deliveries of all runs work as there are places; who finds none wants an agent, and goes on one by one
    where none comes. What a relay had is free when it is gone; nothing is left."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, other, third = (of_relay(3, look_s=0.0) for _ in range(3))
    assert has(one, "json")
    assert other.request("wandb", 2, NEW)
    assert not has(third, "json")
    assert not has(other, "csv")
    assert third.is_short
    assert third.slot_locks.acquire_start()
    assert not one.is_short
    assert not other.slot_locks.acquire_start(), "one of them starts it"
    one.done("json")
    assert has(third, "json")
    assert not third.is_short
    other.close()
    assert third.request("wandb", 2, NEW)
    last = of_relay(3, look_s=0.0)
    assert not has(last, "json")
    give(last, comes_s=0.0)
    wait_for(lambda: has(last, "json"))
    assert not has(last, "csv")
    last.done("json")
    assert has(last, "csv")
    for each in (one, third, last):
        each.close()
    assert list((tmp_path / "trackers").iterdir()) == []


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_places_of_a_dead_agent_are_kept_by_those_that_work(serve: Callable[[], Served]) -> None:
    """Its deliveries go on, and count for relays that come without an agent."""
    agent = serve()
    one, other = of_relay(2), of_relay(2)
    wait_for(lambda: has(one, "json") and has(one, "csv") and one._ready)
    agent.die()
    wait_for(lambda: not one.poll())
    assert not has(other, "json")
    one.close()
    wait_for(lambda: has(other, "json"))
    other.close()
