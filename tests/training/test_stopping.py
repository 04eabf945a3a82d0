"""``run.should_stop`` and its kin: what training sees of a request, how a run then ends, how ranks agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status
from trackers.support import run_requests
from trackers.support.run_requests import ControlState, Request, control_path, new_request, read_control
from trackers.tracker import RunInfo
from trackers.training import stopping as module
from trackers.training.run import Run
from trackers.training.stopping import Board, RankStopping, Stopping


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that looks are timed by."""
    moved = Clock()
    monkeypatch.setattr(module, "monotonic", moved)
    return moved


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Run]:
    """A run without a relay, in this process."""
    monkeypatch.chdir(tmp_path)
    made = trackers.init("json", project="p", name="one", mode="offline", options={"TRACKER_RELAY": False})
    assert isinstance(made, Run)
    yield made
    made.finish()


def ask(run: Run, clock: Clock, **what: Any) -> Request:
    """Ask, and let the second pass after which training looks again."""
    asked = new_request(1, **{"stop": True, "checkpoint": False, "who": "alice", "by": "trackers stop", **what})
    run_requests.ask(Path(run.path), asked)
    clock.now += 2.0
    return asked


def looks(run: Run, most: int = module.MOST_LOOKS + 2) -> int:
    """After how many looks a stop is seen."""
    return next(number for number in range(1, most) if run.should_stop)


def control(run: Run) -> ControlState:
    """What training says of requests."""
    return read_control(control_path(Path(run.path), 1))


def test_stop_is_seen_and_the_run_ends_as_stopped_with_who_and_why(run: Run, clock: Clock) -> None:
    """Its status, its reason and a result that every tracker gets say it."""
    assert not run.should_stop
    assert run.stop_request is None
    ask(run, clock, reason="the loss diverges")
    assert looks(run) <= module.MOST_LOOKS + 1
    assert run.should_stop
    assert run.stop_request is not None
    assert run.stop_request.who == "alice"
    run.finish()
    status = last_status(RunDirectory(run.path))
    assert (status.name, status.exit_code) == ("stopped", 0)
    assert status.reason == "by alice (trackers stop): the loss diverges"
    assert trackers.load(run.path).summary["stopped"] == status.reason


def test_run_that_never_looks_goes_on_and_ends_as_it_ends(run: Run, clock: Clock) -> None:
    """A request alone changes no status, and it is written down that nobody looked."""
    ask(run, clock)
    run.log({"a": 1.0}, step=1)
    run._stopping.poll()
    assert len(control(run).heard) == 1
    assert not control(run).stop
    run.finish()
    assert last_status(RunDirectory(run.path)).name == "finished"


def test_that_training_looks_is_known_before_anybody_asks(run: Run) -> None:
    """The command says at once whether anybody will see its request."""
    assert not control_path(Path(run.path), 1).exists()
    assert not run.should_stop
    assert (control(run).stop, control(run).checkpoint) == (True, False)
    assert not run.should_checkpoint
    assert (control(run).stop, control(run).checkpoint) == (True, True)


def test_checkpoint_is_true_once_and_comes_before_the_stop(run: Run, clock: Clock) -> None:
    """A loop that asks for the stop first doesn't leave before it has saved."""
    assert not run.should_stop
    assert not run.should_checkpoint
    asked = ask(run, clock, checkpoint=True)
    saved = 0
    for _ in range(2 * module.MOST_LOOKS):
        if run.should_stop:
            break
        saved += run.should_checkpoint
    assert saved == 1
    assert control(run).saved == [asked.id]
    assert control(run).stopping == asked.id


def test_script_that_never_saves_stops_all_the_same(run: Run, clock: Clock) -> None:
    """A checkpoint that nobody looks for doesn't hold up the stop; the request says that it was asked for."""
    ask(run, clock, checkpoint=True)
    looks(run)
    assert run.stop_request is not None
    assert run.stop_request.checkpoint


def test_two_checkpoints_are_two(run: Run, clock: Clock) -> None:
    """Each request to save is answered by itself, and the run goes on as finished."""
    for _ in range(2):
        ask(run, clock, stop=False, checkpoint=True)
        assert sum(run.should_checkpoint for _ in range(2 * module.MOST_LOOKS)) == 1
    assert not any(run.should_stop for _ in range(2 * module.MOST_LOOKS))
    run.finish()
    assert last_status(RunDirectory(run.path)).name == "finished"


def test_on_stop_is_called_by_log_without_any_look(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Functions get the request, each once; what one raises is named, and the next is called."""
    seen: list[Request] = []

    @run.on_stop
    def broken(request: Request) -> None:
        raise OSError("no")

    run.on_stop(seen.append)
    asked = ask(run, clock)
    for step in range(2):
        run._recorder.poll_at = 0.0
        run.log({"a": 1.0}, step=step)
    assert seen == [asked]
    assert "on_stop: broken: OSError: no" in capsys.readouterr().err
    run.finish()
    assert last_status(RunDirectory(run.path)).name == "stopped"


def test_on_stop_after_the_request_is_called_at_once(run: Run, clock: Clock) -> None:
    """A function that is given late isn't forgotten."""
    asked = ask(run, clock)
    looks(run)
    seen: list[Request] = []
    run.on_stop(seen.append)
    assert seen == [asked]


def test_failing_run_stays_failed(run: Run, clock: Clock) -> None:
    """A request excuses no exception."""
    ask(run, clock)
    looks(run)
    run.finish(exit_code=3)
    assert last_status(RunDirectory(run.path)).name == "failed"


def test_request_to_an_earlier_attempt_isnt_this_ones(run: Run, clock: Clock) -> None:
    """A run that goes on after it was stopped isn't stopped again by the old request."""
    run_requests.ask(Path(run.path), new_request(2, stop=True, checkpoint=False))
    clock.now += 2.0
    assert not any(run.should_stop for _ in range(2 * module.MOST_LOOKS))


def test_forked_child_that_stops_makes_the_run_stopped(run: Run, clock: Clock) -> None:
    """What a child has seen counts for the run that its parent ends."""
    ask(run, clock)
    child = os.fork()
    if child == 0:
        os._exit(0 if any(run.should_stop for _ in range(2 * module.MOST_LOOKS)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    run.finish()
    assert last_status(RunDirectory(run.path)).name == "stopped"


def test_full_disk_hides_no_request(run: Run, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What training can't write down it still does."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.run_requests, "write_control", full)
    ask(run, clock)
    looks(run)
    run.finish()
    assert last_status(RunDirectory(run.path)).name == "stopped"


def test_disabled_run_is_never_asked() -> None:
    """The loop that looks runs without trackers, too."""
    run = trackers.init(mode="disabled")
    assert not run.should_stop
    assert not run.should_checkpoint
    assert run.stop_request is None
    assert run.on_stop(print) is print


class Ranks:
    """The main rank and others, each with its own pace, on a clock that a test moves. nodes: where they are."""

    def __init__(self, tmp_path: Path, ranks: int, nodes: int = 1) -> None:
        folder = tmp_path / "p" / "launch"
        directory = tmp_path / "p" / "run"
        for path in (folder, directory):
            path.mkdir(parents=True)
        entry = {"number": 1, "ranks": ranks, "rank": 0, "launch": "../launch", "nodes": nodes}
        info = RunInfo(id="run", name="run", project="p", attempts=[entry])
        self.directory = directory
        self.all: list[Any] = [Stopping(directory, info, print)]
        self.all += [RankStopping(Board(folder / run_requests.AGREED), print) for _ in range(ranks - 1)]

    def ask(self, **what: Any) -> None:
        """Ask the run."""
        run_requests.ask(self.directory, new_request(1, **{"stop": True, "checkpoint": False, **what}))


def see(rank: Any, what: str) -> bool:
    """A look of one rank."""
    if isinstance(rank, RankStopping):
        return rank.stop_due() if what == "stop" else rank.save_due()
    look = rank.stop_look if what == "stop" else rank.save_look
    look.left -= 1
    return look.left < 0 and (rank.stop_due() if what == "stop" else rank.save_due())


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("step_s", [0.001, 0.05, 0.9, 30.0])
def test_all_ranks_stop_at_the_same_look(step_s: float, nodes: int, tmp_path: Path, clock: Clock) -> None:
    """Whoever stops a step earlier leaves the others waiting in a collective for ever."""
    ranks = Ranks(tmp_path, 4, nodes)
    ended: list[int | None] = [None] * 4
    saved: list[list[int]] = [[] for _ in range(4)]
    for step in range(int(120 / step_s) + 100 if step_s < 1 else 100):
        if step == 20:
            ranks.ask(checkpoint=True)
        for number, rank in enumerate(ranks.all):
            clock.now += step_s / 4
            if see(rank, "checkpoint"):
                saved[number].append(step)
            if see(rank, "stop"):
                ended[number] = step
        if any(end is not None for end in ended):
            break
    assert len(set(ended)) == 1
    assert ended[0] is not None
    assert len(saved[0]) == 1
    assert saved == [saved[0]] * 4
    assert saved[0][0] <= ended[0]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("save_s", [0.5, 3.0, 40.0])
def test_ranks_stop_together_though_a_checkpoint_slows_them_down(
    save_s: float, nodes: int, tmp_path: Path, clock: Clock
) -> None:
    """What the pace was while it was saved says nothing of the steps behind it, which take a hundredth of that."""
    ranks = Ranks(tmp_path, 4, nodes)
    ended: list[int | None] = [None] * 4
    for step in range(200_000):
        if step == 20:
            ranks.ask(checkpoint=True)
        saved = 0
        for number, rank in enumerate(ranks.all):  # a framework asks for both at once, and saves then
            clock.now += 0.0005
            saved += see(rank, "checkpoint")
            if see(rank, "stop"):
                ended[number] = step
        clock.now += save_s if saved else 0.0
        assert saved in (0, 4)
        if any(end is not None for end in ended):
            break
    assert len(set(ended)) == 1
    assert ended[0] is not None


def test_agreement_of_an_earlier_launch_isnt_obeyed(tmp_path: Path, clock: Clock) -> None:
    """A launch of the same name finds what the last one had agreed on, and goes on."""
    folder = tmp_path / "p" / "launch"
    folder.mkdir(parents=True)
    run_requests.write_control(folder / run_requests.AGREED, ControlState(agreed=(1, 1)))
    other = RankStopping(Board(folder / run_requests.AGREED), print)
    assert not see(other, "stop")
    assert not see(other, "checkpoint")


def test_other_ranks_functions_are_called_where_nobody_looks(tmp_path: Path, clock: Clock) -> None:
    """With on_stop alone the main rank tells the others at once."""
    ranks = Ranks(tmp_path, 2)
    seen: list[str] = []
    for rank in ranks.all:
        rank.call(lambda request: seen.append(request.by))
    ranks.ask(by="trackers stop")
    for rank in ranks.all:
        clock.now += 2.0
        rank.poll()
    assert seen == ["trackers stop", "the main rank"]
