"""Values across ranks being gathered: each part finds its step, whatever order ranks come in, and none counts twice."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import run_info
from trackers import All, Mean, Sum
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader
from trackers.ranks.contribution import ReductionRow
from trackers.ranks.launch import register
from trackers.ranks.transport import RankStream
from trackers.records import Define, Finish, Metrics, Start, Summary, encode
from trackers.reductions import Reduction
from trackers.relay.aggregation import aggregator, output
from trackers.relay.aggregation.aggregator import Reducer
from trackers.relay.aggregation.window import Gathering, StepRanges, StreamColumns, WindowRow
from trackers.support import machines
from trackers.values.device_copy import transfer

T0 = 1_763_688_000.0


@pytest.fixture(autouse=True)
def _looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregator, "LOOK_S", 0.0)


class Job:
    """A run of several ranks on paper: their streams are real, and so is the reducer."""

    def __init__(self, path: Path, ranks: int = 3, main: int = 0) -> None:
        self.folder = path / ".ranks/launch"
        self.run = RunDirectory(path / "p/abcd1234")
        self.run.make()
        info = run_info(self.run.path)
        entry = {"number": 1, "launch": os.path.relpath(self.folder, self.run.path), "ranks": ranks, "rank": main}
        info.attempts.append(entry)
        self.run.write_info(info)
        register(self.folder, self.run, 1, T0 - 10)
        self.run.stream(StreamName("rank", 0, 1)).write_bytes(encode(Start(time=T0 - 10)))
        self.said: list[str] = []
        self.streams = [RankStream(self.folder, rank, ranks, self.said.append) for rank in range(ranks)]

    def log(self, rank: int, step: int | None, **values: Reduction) -> None:
        added = ReductionRow(values, transfer)
        self.streams[rank].end(step, T0 + (step or 0) + rank / 100, added, {})

    def finish(self, *ranks: int) -> None:
        for rank in ranks or range(len(self.streams)):
            self.streams[rank].close(Finish(time=T0 + 1000, status="finished"))

    def reducer(self, wait_s: float = 1000.0, ended: bool = False) -> Reducer:
        return Reducer(self.run, 1, wait_s=wait_s, ended=ended, say=self.said.append)

    def results(self) -> list[tuple[int | None, dict[str, Any]]]:
        found = StreamReader(self.run.stream(StreamName("reducer", 0, 1))).read(10**6)
        return [(record.step, record.values) for record in found if isinstance(record, (Metrics, Summary))]


def turn_until(work: Reducer, condition: Any) -> None:
    """Turn until something is so; a reducer that never gets there fails the test."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        work.step()


def test_reduces_what_is_complete_and_waits_for_the_rest(tmp_path: Path) -> None:
    """A step is passed on as soon as every rank has added its part, at the main rank's time, and not before."""
    job = Job(tmp_path)
    work = job.reducer()
    for rank in (2, 1):
        job.log(rank, 5, loss=Mean(rank, 2), who=All(rank))
    work.step()
    assert job.results() == []
    job.log(0, 5, loss=Mean(0, 2), who=All(0))
    work.step()
    assert job.results() == [(5, {"loss": 0.5, "who/rank_0": 0.0, "who/rank_1": 1.0, "who/rank_2": 2.0})]
    found = StreamReader(job.run.stream(StreamName("reducer", 0, 1))).read(10)
    assert [record.time for record in found] == [T0 + 5, T0 + 5]
    assert job.said == []
    work.close()


def test_ended_run_passes_on_what_there_is(tmp_path: Path) -> None:
    """Ranks that have finished aren't waited for; definitions fill results; the streams move into the run."""
    job = Job(tmp_path)
    job.streams[0].note(Define(time=T0, name="n", summary=["max"]))
    for rank, steps in ((0, 3), (1, 2), (2, 1)):
        for step in range(steps):
            job.log(rank, step, n=Sum(1), **{"final/n": Sum(step)})
    job.finish()
    (job.folder / "relay.log").touch()  # of another machine's sampler, which had nothing to say
    work = job.reducer(ended=True)
    turn_until(work, lambda: work.done)
    assert job.results() == [
        (0, {"n": 3.0}),
        (0, {"final/n": 0.0}),
        (1, {"n": 2.0}),
        (1, {"final/n": 2.0}),
        (2, {"n": 1.0}),
        (2, {"final/n": 2.0}),
        (None, {"final/n": 3.0}),
    ]
    assert not job.folder.exists()
    assert len(list((job.run.path / "ranks").iterdir())) == 3
    assert job.said == []
    work.close()
    again = job.reducer(ended=True)
    assert again.done
    again.close()


def test_result_whose_place_another_value_has_taken_is_none(tmp_path: Path) -> None:
    """The main rank has logged a plain value in place of the mapping; what comes afterwards is a result again."""
    job = Job(tmp_path)
    job.streams[0].note(Define(time=T0, name="*", summary=["max"]))
    for step in range(3):
        for rank in range(3):
            job.log(rank, step, **{"gone/x": Sum(1), **({"back/x": Sum(1)} if step != 1 else {})})
    with job.run.stream(StreamName("rank", 0, 1)).open("ab") as stream:
        stream.write(encode(Summary(time=T0 + 1.5, values={}, removed=["back/x"])))
        stream.write(encode(Summary(time=T0 + 2.5, values={}, removed=["gone/x"])))
    job.finish()
    work = job.reducer(ended=True)
    turn_until(work, lambda: work.done)
    assert job.results()[-1] == (None, {"final/back/x": 3.0})
    work.close()


def test_run_that_names_a_launch_of_another_gets_none_of_it(tmp_path: Path) -> None:
    """Whoever writes a ``run.json`` can name any launch beside it: the launch's own word says whose it is."""
    job = Job(tmp_path)
    for rank in range(3):
        job.log(rank, 1, loss=Mean(1, 2))
    job.finish()
    evil = RunDirectory(tmp_path / "evil/abcd1234")
    evil.make()
    info = run_info(evil.path)
    info.attempts.append({"number": 1, "launch": os.path.relpath(job.folder, evil.path), "ranks": 3, "rank": 0})
    evil.write_info(info)
    evil.stream(StreamName("rank", 0, 1)).write_bytes(encode(Start(time=T0 - 10)))
    before = {path: path.read_bytes() for path in job.folder.iterdir()}
    work = Reducer(evil, 1, wait_s=0.0, ended=True, say=job.said.append)
    turn_until(work, lambda: work.done)
    work.close()
    assert {path: path.read_bytes() for path in job.folder.iterdir()} == before
    assert not (evil.path / "ranks").exists()
    found = StreamReader(evil.stream(StreamName("reducer", 0, 1))).read(10)
    assert not any(isinstance(record, (Metrics, Summary)) for record in found)
    shutil.rmtree(evil.path)
    moved = tmp_path / "moved"
    (tmp_path / "p").rename(moved)
    job.run = RunDirectory(moved / "abcd1234")
    work = job.reducer(wait_s=0.0, ended=True)
    turn_until(work, lambda: work.done)
    work.close()
    assert (1, {"loss": 0.5}) in job.results()


def test_late_rank_is_named_and_its_part_dropped(tmp_path: Path) -> None:
    """After the deadline a step is passed on without the rank, marked; what that rank adds too late counts nowhere,
    and from where it has caught up it counts again."""
    job = Job(tmp_path)
    work = job.reducer(wait_s=0.05)
    for rank in range(3):
        job.log(rank, 0, n=Sum(1))
    for step in (1, 2):
        for rank in (0, 1):
            job.log(rank, step, n=Sum(1))
    turn_until(work, lambda: len(job.results()) == 3)
    for step in (1, 2, 3):
        job.log(2, step, n=Sum(1))
    for rank in (0, 1):
        job.log(rank, 3, n=Sum(1))
    turn_until(work, lambda: len(job.results()) == 4)
    assert job.results() == [
        (0, {"n": 3.0}),
        (1, {"n": 2.0, "stragglers/missing": 1, "stragglers/rank_2": 1}),
        (2, {"n": 2.0, "stragglers/missing": 1}),
        (3, {"n": 3.0, "stragglers/missing": 0, "stragglers/rank_2": 0}),
    ]
    assert [
        f"rank 2 (process {os.getpid()} on {machines.host()}) is late: step 1" in job.said[0],
        len(job.said),
    ] == [
        True,
        2,
    ]
    assert "is back at step 3; 2 values" in job.said[1]
    work.close()


def test_dead_rank_is_named_and_not_waited_for(tmp_path: Path) -> None:
    """A rank whose process is gone costs no deadline: what it left counts, the rest goes on without it."""
    job = Job(tmp_path)
    code = (
        "import os, sys; from pathlib import Path; from trackers.ranks.transport import RankStream; "
        "from trackers.ranks.contribution import ReductionRow as Contribution; from trackers import Sum; "
        "s = RankStream(Path(sys.argv[1]), 2, 3, print); added = Contribution({'n': Sum(1)}, None); "
        f"s.end(0, {T0}, added, {{}}); os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(job.folder)], check=False)
    assert died.returncode == -9
    for step in range(3):
        for rank in (0, 1):
            job.log(rank, step, n=Sum(1))
    work = job.reducer()
    turn_until(work, lambda: len(job.results()) == 3)
    assert [values["n"] for _, values in job.results()] == [3.0, 2.0, 2.0]
    assert job.results()[1][1]["stragglers/rank_2"] == 1
    assert len(job.said) == 1
    assert "is dead" in job.said[0]
    work.close()


def test_failed_rank_is_named_and_not_waited_for(tmp_path: Path) -> None:
    """A rank that ended by an exception is named with it, and what lacks it is marked; one that finished isn't."""
    job = Job(tmp_path)
    job.log(1, 0, n=Sum(1))
    job.log(2, 0, n=Sum(1))
    job.streams[1].close(Finish(time=T0 + 1, status="failed", exit_code=1, reason="ValueError: boom"))
    job.finish(2)
    for step in range(3):
        job.log(0, step, n=Sum(1))
    work = job.reducer()
    turn_until(work, lambda: len(job.results()) == 3)
    assert job.results() == [
        (0, {"n": 3.0}),
        (1, {"n": 1.0, "stragglers/missing": 1, "stragglers/rank_1": 1}),
        (2, {"n": 1.0, "stragglers/missing": 1}),
    ]
    assert len(job.said) == 1
    assert f"rank 1 (process {os.getpid()} on {machines.host()}) has failed (ValueError: boom): from" in job.said[0]
    work.close()


def test_rank_that_never_comes_is_named_with_what_to_do(tmp_path: Path) -> None:
    """A rank that left nothing is awaited until the deadline, then said once, with what it may be."""
    job = Job(tmp_path)
    work = job.reducer(wait_s=0.05)
    for step in range(3):
        for rank in (0, 2):
            job.log(rank, step, n=Sum(1))
    turn_until(work, lambda: len(job.results()) == 3)
    assert len(job.said) == 1
    assert "rank 1 hasn't logged any value across ranks" in job.said[0]
    assert "into the same TRACKER_DIR (of several nodes" in job.said[0]
    assert "under the same TRACKER_RUN_ID" in job.said[0]
    work.close()


def test_names_of_some_ranks_only_are_values_of_those(tmp_path: Path) -> None:
    """Ranks that disagree on names are named once; then nobody waits for what they never log."""
    job = Job(tmp_path)
    work = job.reducer(wait_s=0.05)
    for step in range(4):
        for rank in range(3):
            job.log(rank, step, grad=Sum(1))
        job.log(2, step, loss=Mean(step))
        turn_until(work, lambda at=step: sum(values.get("loss") == at for _, values in job.results()) == 1)
    assert sum(values.get("grad") == 3.0 for _, values in job.results()) == 4
    assert job.said == [
        "loss is logged by rank 2 only, rank 0-1 never did: it is a value of those that log it",
    ]
    work.close()


def test_kinds_that_disagree_are_named(tmp_path: Path) -> None:
    """One name with two meanings: the first one stands, the other rank's part is left out and said."""
    job = Job(tmp_path, ranks=2)
    work = job.reducer()
    job.log(0, 0, x=Sum(1), y=Sum(1))
    work.step()
    job.log(1, 0, x=Mean(1), y=Sum(1))
    job.finish()
    work.end()
    turn_until(work, lambda: work.done)
    assert sorted(name for _, values in job.results() for name in values if name in "xy") == ["x", "y"]
    assert "x: rank 1 logs it as Mean, another rank as Sum" in job.said[0]
    work.close()


def test_calls_without_a_step_are_matched_in_order(tmp_path: Path) -> None:
    """Only the main rank knows where a resumed run goes on; the others' n-th call belongs to its n-th."""
    job = Job(tmp_path, ranks=2)
    work = job.reducer()
    for _ in range(3):
        job.log(1, None, n=Sum(1))
    work.step()
    for step in (100, 101, 102):
        job.log(0, step, n=Sum(1))
    work.step()
    assert job.results() == [(100, {"n": 2.0}), (101, {"n": 2.0}), (102, {"n": 2.0})]
    work.close()


programs = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([("a",), ("b",), ("a", "b"), ("c", "a")])), min_size=1, max_size=12
)


@pytest.mark.slow
@given(programs, st.integers(1, 4), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_parts_find_their_step_in_any_interleaving(program: list[Any], ranks: int, chance: random.Random) -> None:
    """The same calls on every rank, steps repeating and going back, read in any interleaving: the n-th value of a name
    is that of the n-th call that held it, of all ranks."""
    gathering = Gathering(range(ranks), 0, pytest.fail)
    layouts = {names: StreamColumns(list(names), ["all"] * len(names)) for _, names in program}
    at = dict.fromkeys(range(ranks), 0)
    found = []
    while at:
        rank = chance.choice(list(at))
        step, names = program[at[rank]]
        values = [float(at[rank])] * len(names)
        gathering.add(rank, step, 0.0, WindowRow(0, len(names)), layouts[names], values, 0.0)
        at[rank] += 1
        if at[rank] == len(program):
            del at[rank]
        if chance.random() < 0.3:
            found += gathering.ready((), lambda series, opened: None)
    found += gathering.ready((), lambda series, opened: None)
    for name in {name for _, names in program for name in names}:
        calls = [(place, step) for place, (step, names) in enumerate(program) if name in names]
        cells = [cell for series, cell in found if series.name == name]
        assert [(set(cell.parts), {parts[0] for parts, _ in cell.parts.values()}, cell.step) for cell in cells] == [
            (set(range(ranks)), {float(place)}, step) for place, step in calls
        ]


@pytest.mark.heavy
@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=15).map(sorted), min_size=1, max_size=4),
       st.randoms(use_true_random=False))  # fmt: skip
@settings(deadline=None)
def test_ranks_may_leave_steps_out(steps: list[list[int]], chance: random.Random) -> None:
    """Each rank logs at steps of its own: every step's value is that of exactly the ranks that logged it, in order."""
    gathering = Gathering(range(len(steps)), 0, pytest.fail)
    columns = StreamColumns(["x"], ["sum"])
    left = {rank: list(own) for rank, own in enumerate(steps) if own}
    while left:
        rank = chance.choice(list(left))
        gathering.add(rank, left[rank].pop(0), 0.0, WindowRow(0, 1), columns, [1.0], 0.0)
        left = {r: own for r, own in left.items() if own}
    found = [(cell.step, set(cell.parts)) for _, cell in gathering.ready(range(len(steps)), lambda s, o: None)]
    everything = sorted({step for own in steps for step in own})
    assert sorted(found) == [(step, {r for r, own in enumerate(steps) if step in own}) for step in everything]


class Killed(Exception):
    """As if the process were killed here."""


@pytest.mark.heavy
@given(st.integers(0, 10**9))
@settings(deadline=None, max_examples=40)
def test_killed_reducer_neither_doubles_nor_loses(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Killed anywhere, again and again, or even without its state: every step's value is there once, and right."""
    job = Job(tmp_path_factory.mktemp("job"), ranks=2)
    chance = random.Random(seed)
    real = output.failpoint
    left = {0: [(step, name) for step in range(12) for name in "ab"], 1: [(step, "ab") for step in range(12)]}

    def dies(name: str) -> None:
        if chance.random() < 0.3:
            raise Killed(name)

    output.failpoint = dies  # type: ignore[assignment]
    try:
        work: Reducer | None = None
        while any(left.values()) or chance.random() < 0.5:
            rank = chance.choice([0, 1])
            if left[rank]:
                step, names = left[rank].pop(0)
                job.log(rank, step, **{name: Sum(step + 1) for name in names})
            try:
                work = work or job.reducer()
                work.step()
            except Killed:
                work = None
                if chance.random() < 0.2:
                    output.state_path(job.run, 1).unlink(missing_ok=True)
    finally:
        output.failpoint = real
    job.finish()
    last = job.reducer(ended=True)
    turn_until(last, lambda: last.done)
    last.close()
    found = [(step, name, value) for step, values in job.results() for name, value in values.items()]
    assert sorted(found) == [(step, name, 2.0 * (step + 1)) for step in range(12) for name in "ab"]


@pytest.mark.heavy
@given(st.lists(st.integers(0, 20), max_size=30), st.lists(st.integers(0, 20), max_size=30))
def test_steps_are_a_queue_of_steps(added: list[int], taken: list[int]) -> None:
    """What is kept in few bytes behaves as the list of them: taking one takes all before it."""
    steps, model = StepRanges(), list(added)
    for step in added:
        steps.add(step)
    steps = StepRanges(steps.spans)
    for step in taken:
        there = step in model
        assert steps.take(step) == there
        if there:
            model = model[model.index(step) + 1 :]
    while model:
        assert steps.take(None)
        model.pop(0)
    assert not steps


def test_long_absence_is_kept_in_few_bytes() -> None:
    """A rank that was stopped for a million steps costs no million numbers."""
    steps = StepRanges()
    for step in range(0, 1_000_000, 10):
        steps.add(step)
    assert len(steps.spans) == 1


def test_run_that_ended_long_ago_waits_for_nobody(tmp_path: Path) -> None:
    """Where the end of training is further back than the deadline, a rank that never came isn't waited for again."""
    job = Job(tmp_path, ranks=2)
    job.log(0, 0, n=Sum(1))
    job.finish(0)
    work = job.reducer(ended=True)
    turn_until(work, lambda: work.done)
    assert job.results() == [(0, {"n": 1.0, "stragglers/missing": 1, "stragglers/rank_1": 1})]
    assert "rank 1 hasn't logged any value" in job.said[0]
    work.close()


def test_rank_elsewhere_that_is_silent_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a process of another machine lives can't be seen: after two minutes of silence no step waits for it."""
    job = Job(tmp_path, ranks=2)
    with monkeypatch.context() as patch:
        patch.setattr(machines, "host", lambda: "node1")
        job.log(1, 0, n=Sum(1))
    (path,) = job.folder.glob("rank-1.*.jsonl")
    work = job.reducer(wait_s=1000.0)
    for step in range(3):
        job.log(0, step, n=Sum(1))
    os.utime(path, (1, 1))  # by a clock that is years behind
    work.step()
    work.step()
    assert job.results() == [(0, {"n": 2.0})]
    for file in work._files.values():
        file._heard_at -= 121
    turn_until(work, lambda: len(job.results()) == 3)
    assert job.results()[1:] == [
        (1, {"n": 1.0, "stragglers/missing": 1, "stragglers/rank_1": 1}), (2, {"n": 1.0, "stragglers/missing": 1}),
    ]  # fmt: skip
    assert len(job.said) == 1
    assert "on node1) is late" in job.said[0]
    work.close()


def test_full_disk_delays_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the state can't be written nothing is passed on; afterwards everything is, once."""
    job = Job(tmp_path, ranks=2)
    work = job.reducer()
    real, full = output.replace_file, [True]

    def write(path: Path, content: bytes) -> None:
        if full:
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(output, "replace_file", write)
    for step in range(3):
        for rank in (0, 1):
            job.log(rank, step, n=Sum(1))
        work.step()
    assert job.results() == []
    full.clear()
    job.finish()
    work.end()
    turn_until(work, lambda: work.done)
    assert job.results() == [(step, {"n": 2.0}) for step in range(3)]
    work.close()
