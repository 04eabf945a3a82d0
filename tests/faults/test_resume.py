"""A restarted job goes on with its run: the same native run in every tracker, no gap, no double, a true end."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trackers
from tests import forked, stores
from tests.backends.wandb.support import online_at
from tests.faults.attempts import FIVE, Training, begin, delivered, points, read
from tests.helpers import wait_for
from trackers import errors, records
from trackers.analysis.run_list import overview
from trackers.formats.json_values import mapping
from trackers.journal.attempts import AttemptHistory
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory, StreamName, find_runs
from trackers.journal.status import last_status
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Config, Metrics, Start, decode, encode
from trackers.relay.delivery.merge_order import Order
from trackers.support import machines, processes, schedulers
from trackers.tracker import RunInfo
from trackers.training import resume
from trackers.training.resume import configs, differences, notice
from trackers.training.run import Run

STEPS = 200

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunInfo, dict[str, Any]]]:
    """Three processes with all five trackers: the first is killed, the second finishes, the third finishes again."""
    home = tmp_path_factory.mktemp("continued")
    with online_at(home) as server:
        Training(0, STEPS, wait=True, trackers=FIVE, id="again").kill()
        for number in (1, 2):
            process = Training(number * STEPS, (number + 1) * STEPS, trackers=FIVE, id="again", resume="allow")
            said = process.finish()
            assert f"attempt {number + 1}" in said
            assert "not delivered" not in said
        run = RunDirectory(home / "runs/digits/again")
        delivered(run, *FIVE.split(","))
        yield run.read_info(), dict(server.runs)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", FIVE.split(","))
def test_later_processes_go_on_with_the_same_native_run(
    tracker: str, continued: tuple[RunInfo, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill and after a clean end: one run with every step once, in order, and it is finished."""
    info, runs = continued
    monkeypatch.setenv("TRACKIO_DIR", str(Path(info.cwd, "trackio")))
    stored = read(tracker, info, runs)
    assert points(stored) == [(step, float(step)) for step in range(3 * STEPS)]
    assert str(stored.status).lower() == "finished"


def test_no_store_has_a_second_run(continued: tuple[RunInfo, dict[str, Any]]) -> None:
    """One id in trackio, one event directory, one JSON log; MLflow's run has no tag of the first end."""
    from mlflow import MlflowClient

    info, _ = continued
    with sqlite3.connect(Path(info.cwd, "trackio", "digits.db")) as database:
        assert database.execute("SELECT DISTINCT run_id FROM metrics").fetchall() == [("again",)]
    assert len({path.parent for path in Path(info.directory).rglob("events.out.*")}) == 1
    assert len(list(Path(info.directory).glob("*_*_*.json"))) == 1
    client = MlflowClient(tracking_uri=f"sqlite:///{info.cwd}/mlflow.db")
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.data.tags["trackers.status"] == "finished"
    assert "trackers.reason" not in run.data.tags


@pytest.mark.slow
def test_offline_wandb_files_are_one_run() -> None:
    """W&B offline, killed, finished, finished: the files carry one id and hold each row once, with rising steps."""
    Training(0, STEPS, wait=True, trackers="wandb", id="again").kill()
    for number in (1, 2):
        Training(number * STEPS, (number + 1) * STEPS, trackers="wandb", id="again", resume="must").finish()
    run = RunDirectory("runs/digits/again")
    delivered(run, "wandb")
    stored = stores.read_wandb_file(run.read_info(), {})
    assert points(stored) == [(step, float(step)) for step in range(3 * STEPS)]
    assert stored.status == "finished"


def test_old_process_that_still_lives_is_left_out_from_then_on() -> None:
    """The newest claim wins: the old relay hands over at once, and what the old process still logs isn't the run's."""
    Path("old.py").write_text(
        "import os, time, trackers\n"
        "run = trackers.init('json', project='digits', name='baseline', id='again')\n"
        "for step in range(100):\n    run.log({'loss': step}, step=step)\n"
        "print('logged', flush=True)\n"
        "while not os.path.exists('second'):\n    time.sleep(0.02)\n"
        "while not os.path.exists('stop'):\n    run.log({'loss': -1.0}, step=5000); time.sleep(0.02)\n"
        "run.finish(timeout=60)\n"
    )
    import subprocess
    import sys

    old = subprocess.Popen([sys.executable, "old.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert old.stdout is not None
    assert old.stdout.readline() == "logged\n"
    run = RunDirectory("runs/digits/again")
    before = wait_for(lambda: read_holder(run.path / "relay.lease"))
    new = Training(100, 150, wait=True, trackers="json", id="again", resume="allow")
    Path("second").touch()
    wait_for(lambda: (now := read_holder(run.path / "relay.lease")) is not None and now.pid != before.pid)
    wait_for(lambda: not processes.alive(before.pid, before.pid_start), why="the old relay is gone")
    assert old.poll() is None
    superseded = run.stream(trackers.journal.run_directory.StreamName("rank", 0, 1))
    size = superseded.stat().st_size
    wait_for(lambda: superseded.stat().st_size > size + 2000, why="the old process goes on logging")
    Path("stop").touch()
    _, said = old.communicate(timeout=60)
    new.kill()
    assert old.returncode == 0
    assert said.count("another process goes on with this run") == 1
    assert "not delivered within" not in said
    delivered(run, "json")
    stored = stores.read_json(run.read_info())
    assert points(stored) == [(step, float(step)) for step in range(150)]
    assert stored.status == "crashed"
    assert overview(run).step == 149


@pytest.fixture
def no_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_RELAY", "n")


def leave(run: Run) -> str:
    """Leave a run as a kill does: no finish record, and its process isn't there any more."""
    run._recorder.writer.release()
    run._recorder.finished = True
    directory = RunDirectory(run.dir)
    info = directory.read_info()
    info.pid_start = 1.0
    directory.write_info(info)
    return run.id


@pytest.mark.usefixtures("no_relay")
def test_resumed_run_keeps_its_name_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Another name for a run that goes on is not taken in silence; the same name is no matter."""
    begin(id="again", name="first").finish()
    begin(id="again", resume="must", name="first").finish()
    assert "keeps the name" not in capsys.readouterr().err
    resumed = begin(id="again", resume="must", name="second")
    assert resumed.name == "first"
    resumed.finish()
    assert "run again keeps the name 'first': name='second' isn't taken" in capsys.readouterr().err


@pytest.mark.usefixtures("no_relay")
def test_config_differences_are_recorded_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    """What changed between attempts stands in run.json and on one line; a change made while training counts."""
    first = begin(id="again", config={"lr": 0.1, "model": {"depth": 4}, "seed": 1})
    first.config.seed = 2
    first.finish()
    capsys.readouterr()
    second = begin(id="again", resume="must", config={"lr": 0.01, "model": {"depth": 4, "width": 8}, "seed": 2})
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "config" in line]
    assert line.endswith("the config differs from the last attempt's: lr 0.1 → 0.01, model/width (new) → 8")
    assert second.config.as_dict() == {"lr": 0.01, "model": {"depth": 4, "width": 8}, "seed": 2}
    second.finish()
    attempts = json.loads(Path(second.dir, "run.json").read_text())["attempts"]
    assert "changed" not in attempts[0]
    assert attempts[1]["changed"] == {"lr": {"old": 0.1, "new": 0.01}, "model/width": {"new": 8}}
    third = begin(id="again", resume="must")
    assert third.config.as_dict()["lr"] == 0.01
    assert "config" not in capsys.readouterr().err
    third.finish()


@pytest.mark.usefixtures("no_relay")
def test_nan_in_the_configuration_stays_a_float(capsys: pytest.CaptureFixture[str]) -> None:
    """For a script that resumes, whether it gives it again or not, and for who reads the run; no change is said."""
    given = {"a": math.nan, "l": [math.inf, math.nan], "m": {"x": -math.inf}, "t": "nan"}
    begin(id="again", config=given).finish()
    (run,) = find_runs(Path("runs"))
    assert run.read_info().config == {"a": "NaN", "l": ["Infinity", "NaN"], "m": {"x": "-Infinity"}, "t": "nan"}
    for config in (given, {}):
        resumed = begin(id="again", resume="must", config=config)
        assert str(resumed.config.as_dict()) == str(given)
        resumed.summary["worst"] = math.inf
        resumed.finish()
    assert "config" not in capsys.readouterr().err
    found = trackers.load("again")
    assert (str(found.config), found.summary) == (str(given), {"worst": math.inf})


def test_differences_name_changes_and_additions_only() -> None:
    """Equal values, NaN twice and what is left out are no differences; a long list is cut."""
    nan = float("nan")
    assert differences({"a": nan, "b": {"c": 1}, "d": 2}, {"a": nan, "b": {"c": 1}}) == {}
    assert differences({"a": 1, "b": 0.0, "c": True}, {"a": 1.0, "b": 0, "c": True}) == {}
    pairs = [(1, True), (True, 1), (False, 0.0), (0.0, -0.0), (-0.0, 0), (True, "True"), (-0.0, "-0.0"), (False, None)]
    for old, new in pairs:  # the stores have the new one
        for wrap in (lambda value: value, lambda value: [2, {"b": value}]):
            (found,) = differences({"a": wrap(old)}, {"a": wrap(new)}).values()
            assert (repr(found["old"]), repr(found["new"])) == (repr(wrap(old)), repr(wrap(new)))
    assert differences({"a": [1]}, {"a": [1, 2]}) == {"a": {"old": [1], "new": [1, 2]}}
    assert notice({str(k): {"new": "x" * 99} for k in range(9)}).count("→") == 5
    assert "\n" not in notice({"a": {"old": 1, "new": 2}})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5)
    | st.dates() | st.decimals() | st.complex_numbers()
    | st.sampled_from([begin, st, Path("x"), range(3), int, {1, "a"}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(config=st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_configuration_that_is_given_again_is_the_same(config: dict[str, Any]) -> None:
    """Whatever is in it, before and after it was in the journal."""
    stored = decode(encode(Config(time=0.0, values=mapping(config))))
    assert isinstance(stored, Config)
    assert differences(stored.values, mapping(config)) == {}
    assert differences(mapping(config), mapping(config)) == {}


UNSTABLE = """
import functools, threading, trackers

class Model:
    def forward(self): ...

def schedule(): ...

config = {
    "nan": float("nan"), "inf": [float("-inf"), {"x": float("nan")}], "schedule": schedule, "lambda": lambda: 1,
    "object": Model(), "bound": Model().forward, "partial": functools.partial(schedule, 1), "lock": threading.Lock(),
    "nested": {"generator": (x for x in [])}, "thread": threading.current_thread(), "empty": {}, "set": {"a", "b", "c"},
}
run = trackers.init("json", project="p", id="r", resume="allow", mode="offline", config=config)
run.finish()
"""


@pytest.mark.usefixtures("no_relay")
def test_objects_without_a_stable_value_are_no_changes() -> None:
    """What a process shows with its address, or as NaN, is the same in the next process."""
    for _ in range(3):
        done = forked.run([sys.executable, "-c", UNSTABLE], preload=forked.HELPERS, check=True)
        assert "differs" not in done.stderr
    run = RunDirectory("runs/p/r")
    assert not [entry for entry in run.read_info().attempts if "changed" in entry]
    told = [record.values for record in configs(AttemptHistory(run))]
    assert len({str(values["schedule"]) + str(values["nested"]) for values in told}) == 1, "trackers see no change"
    done = forked.run(
        [sys.executable, "-c", UNSTABLE.replace('"schedule": schedule', '"schedule": Model.forward')],
        preload=forked.HELPERS, check=True,
    )  # fmt: skip
    assert "the last attempt's: schedule __main__.schedule → __main__.Model.forward" in done.stderr


def test_part_that_is_left_out_is_no_difference() -> None:
    """An empty mapping leaves out what was in it; texts with hexadecimal numbers are compared whole."""
    assert differences({"model": {"depth": 4}}, {"model": {}}) == {}
    assert differences({"model": {}}, {"model": {"depth": 4}}) == {"model/depth": {"new": 4}}
    assert differences({}, {"model": {}}) == {"model": {"new": {}}}
    assert differences({"mask": "0x1f"}, {"mask": "0x2f"}) == {"mask": {"old": "0x1f", "new": "0x2f"}}


@pytest.mark.usefixtures("no_relay")
def test_auto_goes_on_with_the_unfinished_run_of_that_name() -> None:
    """Of this project and name, the newest that didn't finish; a finished one, another name or project don't count."""
    done = begin(name="baseline", resume="auto")
    done.finish()
    other = leave(begin(name="other"))
    older = leave(begin(name="baseline", resume=True))
    assert older != done.id
    newest = leave(begin(name="baseline"))
    leave(begin(name="baseline", project="elsewhere"))
    second = begin(name="baseline", resume="auto")
    assert (second.id, second.resumed) == (newest, True)
    second.finish()
    third = begin(name="baseline", resume="auto")
    assert third.id == older
    third.finish()
    fourth = begin(name="baseline", resume="auto")
    assert fourth.id not in {done.id, older, newest, other}
    assert not fourth.resumed
    fourth.finish()


@pytest.mark.usefixtures("no_relay")
def test_auto_leaves_a_run_that_still_runs_alone() -> None:
    """A second process of the same name, while the first lives, begins a run of its own."""
    first = begin(name="baseline", resume="auto")
    second = begin(name="baseline", resume="auto", reinit="create_new")
    assert second.id != first.id
    second.finish()
    first.finish()


@pytest.mark.usefixtures("no_relay")
@pytest.mark.parametrize("lives", [True, False])
def test_auto_waits_for_a_process_that_just_claimed_a_run(lives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a claim and its run.json there is only a stream: who lives names itself, and keeps its run; who has died
    meanwhile does not, and the run is gone on with.
    """
    crashed = begin(name="baseline")
    run = RunDirectory(crashed.dir)
    leave(crashed)
    StreamWriter(run.stream(StreamName("rank", 0, 2))).release()
    look = resume.sightings.look
    start = processes.process_start(os.getpid())

    def looked(*arguments: Any) -> Any:
        info = run.read_info()
        if lives and info.attempts[-1]["number"] == 1:
            info.pid_start = start
            info.attempts.append({**info.attempts[-1], "number": 2, "pid_start": start})
            run.write_info(info)
        return look(*arguments)

    monkeypatch.setattr(resume.sightings, "look", looked)
    monkeypatch.setattr(resume, "CLAIMED_S", 0.2)
    second = begin(name="baseline", resume="auto")
    assert (second.id != crashed.id) == lives
    second.finish()


@pytest.mark.usefixtures("no_relay")
def test_requeued_job_goes_on_with_its_run_though_it_seems_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's job id with a higher restart count names the run: no id, no name, and the old process still seen."""
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    first = begin(resume="auto")
    same = begin(resume="auto", reinit="create_new")
    assert same.id != first.id, "the same life of the job, and it runs"
    same.finish()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    second = begin(resume="auto", reinit="create_new")
    assert second.id == first.id
    attempts = json.loads(Path(second.dir, "run.json").read_text())["attempts"]
    assert [(a["job"], a["restart"]) for a in attempts] == [("123", 0), ("123", 1)]
    second.finish()
    first.finish()
    monkeypatch.setenv("SLURM_JOB_ID", "124")
    third = begin(resume="auto")
    assert third.id != first.id
    third.finish()


@pytest.mark.usefixtures("no_relay")
def test_requeued_job_with_two_runs_tells_them_apart_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one job: each name goes on with its own."""
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    ids = {name: leave(begin(name=name, resume="auto")) for name in ("teacher", "student")}
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    for name in ids:
        run = begin(name=name, resume="auto")
        assert run.id == ids[name]
        run.finish()


@pytest.mark.usefixtures("no_relay")
@pytest.mark.parametrize("named", [False, True])
def test_task_of_an_array_goes_on_with_its_own_run(monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """Tasks have one command line and perhaps one name: none takes another's run, not even of an array sent anew."""

    def task(array: str, number: str) -> Run:
        monkeypatch.setenv("SLURM_JOB_ID", f"{array}{number}")
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", array)
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", number)
        return begin(resume="auto", **({"name": "array"} if named else {}))

    crashed = {number: leave(task("70", number)) for number in ("3", "4")}
    new = task("70", "5")
    assert new.id not in crashed.values()
    new.finish()
    for array in ("70", "80"):
        for number, run_id in crashed.items():
            run = task(array, number)
            assert run.id == run_id
            leave(run)


@pytest.mark.usefixtures("no_relay")
def test_pod_that_comes_again_goes_on_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An indexed job's pod is known by its host name, its restart by its container's first process."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    monkeypatch.setenv("HOSTNAME", "train-0")
    first = begin(resume="auto")
    other = begin(resume="auto", reinit="create_new")
    assert other.id != first.id, "the same container, and it runs"
    other.finish()
    monkeypatch.setattr(schedulers, "_life", lambda: "the next container")
    second = begin(resume="auto", reinit="create_new")
    assert second.id == first.id
    attempts = json.loads(Path(second.dir, "run.json").read_text())["attempts"]
    assert [entry["job"] for entry in attempts] == ["kubernetes train-0"] * 2
    second.finish()
    first.finish()


@pytest.mark.usefixtures("no_relay")
def test_environment_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACKER_RUN_ID and TRACKER_RESUME resume a run of an unchanged script."""
    monkeypatch.setenv("TRACKER_RUN_ID", "again")
    monkeypatch.setenv("TRACKER_RESUME", "auto")
    begin().finish()
    second = begin()
    assert (second.id, second.resumed) == ("again", True)
    second.finish()
    monkeypatch.setenv("TRACKER_RESUME", "never")
    with pytest.raises(errors.UsageError, match="resume='allow'"):
        begin()
    monkeypatch.delenv("TRACKER_RUN_ID")
    begin().finish()


@pytest.mark.usefixtures("no_relay")
def test_clock_that_is_behind_cuts_nothing() -> None:
    """A new node whose clock is an hour behind: what the first attempt logged stays, and comes first."""
    first = begin(id="again")
    first.log({"loss": 0.0}, step=0)
    ahead = first._recorder.now() + 3600
    first._recorder.write(Metrics(step=1, time=ahead, values={"loss": 1.0}))
    leave(first)
    second = begin(id="again", resume="must")
    assert second._recorder.now() < ahead
    second.log({"loss": 2.0})
    second.finish()
    order = Order(RunDirectory(second.dir), Path("test.order"))
    found = [record for record in order.read() if isinstance(record, Metrics)]
    order.close()
    assert [(record.step, record.values["loss"]) for record in found] == [(0, 0.0), (1, 1.0), (2, 2.0)]


@pytest.mark.usefixtures("no_relay")
def test_each_attempt_counts_until_the_next_one_whoever_looks_when(tmp_path: Path) -> None:
    """What attempt 1 wrote after attempt 2 began never counts, though attempt 3 began later still."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    for attempt, began in ((1, 10.0), (2, 20.0), (3, 30.0)):
        writer = StreamWriter(run.stream(trackers.journal.run_directory.StreamName("rank", 0, attempt)))
        writer.write(records.encode(Start(time=began, attempt=attempt)))
        for late in (1, 11, 21):
            value = {"loss": float(attempt)}
            writer.write(records.encode(Metrics(step=int(began) + late, time=began + late, values=value)))
        writer.release()
    expected = [11, 21, 31, 41, 51]
    order = Order(run, tmp_path / "test.order")
    assert [record.step for record in order.read() if isinstance(record, Metrics)] == expected
    order.close()
    assert [record.step for record in AttemptHistory(run).records() if isinstance(record, Metrics)] == expected
    assert AttemptHistory(run).last_step() == 51


@pytest.mark.usefixtures("no_relay")
def test_next_step_follows_the_last_one_even_far_back_in_the_journal() -> None:
    """``log`` without a step goes on where the last attempt stopped, though a megabyte without steps follows it."""
    first = begin(id="again")
    first.log({"loss": 1.0}, step=41)
    for _ in range(30):
        first.alert("long", "x" * 50_000)
    first.finish()
    stream = Path(first.dir, "streams/rank-0.1.jsonl")
    assert stream.stat().st_size > 1_200_000
    for line in StreamReader(stream).read():
        assert not isinstance(line, Metrics) or line.step == 41
    begin(id="again", resume="must").finish()
    third = begin(id="again", resume="must")
    third.log({"loss": 2.0})
    assert third.step == 42
    third.finish()
    assert last_status(RunDirectory(third.dir)).name == "finished"
    assert len(list(find_runs(Path("runs")))) == 1


@pytest.mark.usefixtures("no_relay")
def test_resuming_a_living_run_by_id_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever takes a run over that still seems to run is told so."""
    first = begin(id="again")
    second = begin(id="again", resume="allow", reinit="create_new")
    assert f"process {os.getpid()} on {machines.host()} seemed to be still at this run" in capsys.readouterr().err
    second.finish()
    first.finish()
