"""Runs of another machine, another container on this one, or a machine whose clock is wrong: none is taken for dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trackers
from tests.faults.driven import ROOT
from tests.helpers import T0, begun_run, keep_silent, run_info, wait_for
from trackers.backends.mlflow import store as mlflow_store
from trackers.editing import trash
from trackers.errors import UsageError
from trackers.journal import status as module
from trackers.journal.attempts import AttemptHistory
from trackers.journal.lease import Holder, Lease, living_holder, read_holder
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import SILENT_S, declare_gone, is_doubtful, last_status, may_be_gone, observe
from trackers.journal.stream import StreamWriter
from trackers.records import Metrics, encode
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.relay.sync import RunSync, record_crash
from trackers.support import machines, sightings
from trackers.training import resume

PROCESS: dict[str, Any] = {"host": "node7", "boot_id": "b", "pid_namespace": "7", "pid": 1, "pid_start": 1.0}
THERE = {**PROCESS, "attempts": [{"number": 1}]}
"""A run of a process on another machine."""
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child"]
"""A PID namespace of its own on this host, as a container with the host's name has."""


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts Python in a PID namespace of its own; what is left of it is killed with its first process."""
    try:
        works = subprocess.run([*CONTAINER, "--mount-proc", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        works = False
    if not works:
        pytest.skip("this machine allows no PID namespaces")
    monkeypatch.setenv("TRACKER_AGENT", "n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    begun: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str, own_proc: bool = True) -> subprocess.Popen[str]:
        words = [*CONTAINER, *(["--mount-proc"] if own_proc else []), sys.executable, "-c", code, *arguments]
        begun.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


JOB = """
import sys, trackers
run = trackers.init("json", project="p", name="job", resume="auto")
print(run.id, run.resumed, flush=True)
for step, _ in enumerate(sys.stdin):
    run.log({"loss": float(step)}, step=run.step)
    print("logged", flush=True)
run.finish(timeout=60)
"""


def log(job: subprocess.Popen[str], count: int) -> None:
    assert job.stdin is not None
    assert job.stdout is not None
    for _ in range(count):
        job.stdin.write("\n")
        job.stdin.flush()
        assert job.stdout.readline() == "logged\n"


def begin(job: subprocess.Popen[str]) -> tuple[RunDirectory, bool]:
    assert job.stdout is not None
    name, resumed = job.stdout.readline().split()
    return RunDirectory(f"runs/p/{name}"), resumed == "True"


def is_refused(run: RunDirectory) -> bool:
    """Whether this machine has seen that a run lives which somebody calls gone."""
    try:
        declare_gone(run)
    except UsageError:
        return True
    return False


@pytest.mark.processes
def test_containers_on_one_host_leave_each_others_runs_alone(container: Callable[..., Any]) -> None:
    """A living run of another PID namespace is running, keeps its lease, isn't removed, and isn't gone on with; once
    its silence was watched it has crashed, and is."""
    first = container(JOB)
    run, _ = begin(first)
    log(first, 3)
    wait_for(lambda: read_holder(run.path / "relay.lease"))
    assert not machines.is_here(run.read_info())
    assert observe(run).name == "running"
    assert living_holder(run.path / "relay.lease") is not None
    assert not Lease(run.path / "relay.lease").acquire()
    assert not record_crash(run, Lease(run.path / "relay.lease"))
    assert trash.why_not(run) == "it is running: end it first"
    wait_for(lambda: is_refused(run))
    second = container(JOB)
    other, resumed = begin(second)
    assert (other.path != run.path, resumed) == (True, False)
    log(second, 2)
    for job, directory, count in ((second, other, 2), (first, run, 3)):
        job.communicate()
        assert last_status(directory).name == "finished"
        assert len(json.loads(next(directory.path.glob("job_*.json")).read_text())["training_iterations"]) == count
    killed = container(JOB)
    gone, _ = begin(killed)
    log(killed, 2)
    killed.kill()
    killed.wait()
    keep_silent(gone, SILENT_S + 1)
    assert observe(gone).name == "crashed"
    again, resumed = begin(container(JOB))
    assert (again.path, resumed) == (gone.path, True)


SELF = """
import os, sys, time
from trackers.support import machines, processes
from trackers.support.processes import Watched
child = os.fork()
if not child:
    time.sleep(60)
for pid in (os.getpid(), child):
    start = processes.process_start(pid)
    assert start and processes.alive(pid, start) and Watched(pid, start).alive(), (pid, start)
assert not processes.alive(1, processes.process_start(child) + 1)
os.kill(child, 9)
os.waitpid(child, 0)
assert not processes.alive(child, start)
print(machines.pid_namespace())
"""


@pytest.mark.processes
def test_pids_where_proc_is_of_another_namespace(container: Callable[..., Any]) -> None:
    """As bubblewrap and Apptainer leave it: ``/proc/7`` isn't process 7, and no other process is taken for that."""
    out, _ = container(SELF, own_proc=False).communicate()
    assert out.strip() not in ("", machines.pid_namespace())


def away(run: RunDirectory, count: int, ahead_s: float = 0.0, token: str = "t") -> None:
    """A sign of life of a relay elsewhere, whose clock is ahead."""
    holder = Holder(token=token, **PROCESS, count=count,
                    time=time.time() + ahead_s)  # fmt: skip
    (run.path / "relay.lease").write_bytes(msgspec.json.encode(holder))


SKEWS_S = (-5e8, -403602.0, -300.0, 0.0, 300.0, 403602.0, 5e8)
"""By how much a clock is wrong, in seconds."""


class Clocks:
    """This machine's clocks: the monotonic one goes as a test lets it, the other says anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s = 0.0
        monkeypatch.setattr(sightings, "now", lambda: sightings.Moment("here", 1000.0 + self.passed_s))

    def look(self, run: RunDirectory, skew_s: float) -> Any:
        """What a command says whose clock is wrong."""
        true_time = time.time
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module.time, "time", lambda: true_time() + skew_s)
            return observe(run)


events = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from(SKEWS_S)),
        st.tuples(st.just("log"), st.sampled_from(SKEWS_S)),
        st.tuples(st.just("look"), st.sampled_from(SKEWS_S)),
        st.tuples(st.just("pass"), st.floats(0.1, 90.0)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(events=events)
def test_only_watched_silence_is_a_crash(
    events: list[tuple[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Beats, records, looks and time in any order, by clocks that are days wrong: a run elsewhere has crashed exactly
    when this machine has looked at it, and looks again after two minutes in which nothing moved."""
    run, writer = begun_run(tmp_path_factory.mktemp("run"), **THERE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        clocks = Clocks(monkeypatch)
        away(run, 0)
        count, seen_since = 0, None
        for kind, number in events:
            if kind == "beat":
                count, seen_since = count + 1, None
                away(run, count, number)
            elif kind == "log":
                seen_since = None
                writer.write(encode(Metrics(step=0, time=T0 + number, values={"loss": 1.0})))
            elif kind == "pass":
                clocks.passed_s += number
            else:
                seen_since = clocks.passed_s if seen_since is None else seen_since
                silent = clocks.passed_s - seen_since >= SILENT_S
                assert clocks.look(run, number).name == ("crashed" if silent else "running")
    writer.release()


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_wrong_clock_takes_no_living_run(skew_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is minutes or days off: a living run stays running, unremoved, and isn't gone on with, and
    what it seems to be is a doubt at most."""
    run, writer = begun_run(tmp_path / "p/r", **THERE, name="job",
                            trackers=["json"])  # fmt: skip
    clocks, beats = Clocks(monkeypatch), 0
    monkeypatch.setattr(module, "WATCH_S", 0.0)
    monkeypatch.setattr(module.time, "time", lambda true=time.time: true() + skew_s)

    def beat(_: object = None) -> None:
        nonlocal beats
        beats += 1
        clocks.passed_s += 1.0
        away(run, beats, -skew_s)

    beat()
    assert is_doubtful(observe(run)) == (abs(skew_s) > SILENT_S)
    assert may_be_gone(run)
    monkeypatch.setattr(module.time, "sleep", beat)
    asker = run_info(tmp_path / "asker", name="job")
    assert resume.find(tmp_path / "p", "job", asker, watching=lambda found: module.watch([found], print)) is None
    assert not may_be_gone(run)
    assert trash.why_not(run) == "it is running: end it first"
    assert not is_doubtful(observe(run))
    writer.release()


def test_silence_is_watched_before_a_run_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job was killed with its machine: two minutes later by this machine's clock, and not before, the run is
    continued; one line says what is waited for. A run without a relay isn't waited for, and not taken."""
    run, _ = begun_run(tmp_path / "p/r", **THERE, name="job")
    alone, _ = begun_run(tmp_path / "p/alone", **THERE, name="single",
                         options={"TRACKER_RELAY": False})  # fmt: skip
    clocks = Clocks(monkeypatch)
    said: list[str] = []

    def sleep(seconds: float) -> None:
        clocks.passed_s += max(seconds, 1.0)

    monkeypatch.setattr(module.time, "sleep", sleep)
    monkeypatch.setattr(module.time, "monotonic", lambda: clocks.passed_s)
    asker = run_info(tmp_path / "asker", name="job")
    found = resume.find(tmp_path / "p", "job", asker, watching=lambda run: module.watch([run], said.append))
    assert found is not None
    assert found.path == run.path
    assert SILENT_S <= clocks.passed_s < SILENT_S + 3
    assert said == ["r: begun elsewhere, no ending: watching for a sign of life, at most 120 s"]
    assert resume.find(tmp_path / "p", "single", asker, watching=lambda run: module.watch([run], said.append)) is None
    for path in alone.streams.iterdir():
        os.utime(path, (1, 1))
    assert "trackers sync" in trash.why_not(alone)


@pytest.mark.slow
def test_sync_watches_a_run_that_may_be_gone(tmp_path: Path) -> None:
    """One sync brings a run whose machine died to its end: it waits until the silence was watched. A run that moves is
    delivered as far as it is, at once."""
    run, writer = begun_run(tmp_path / "r", **THERE, trackers=["json"])
    for step in range(5):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": 1.0})))
    work = RunSync(run, (), follow=False, echo=False)
    work.begin()
    try:
        wait_for(lambda: [work.step(), delivery_report(run, ["json"])["json"]["waiting_bytes"] == 0][1])
        assert work.step()  # it watches
        keep_silent(run, SILENT_S + 1)
        wait_for(lambda: not work.step())
    finally:
        work.end()
    assert last_status(run).name == "crashed"
    living, writer = begun_run(tmp_path / "l", **THERE, trackers=["json"])
    away(living, 1)
    observe(living)
    away(living, 2)
    work = RunSync(living, (), follow=False, echo=False)
    work.begin()
    try:
        wait_for(lambda: not work.step())
    finally:
        work.end()
    assert last_status(living).name == "running"
    assert work.complete()


def test_run_whose_machine_is_said_to_be_gone_has_crashed(tmp_path: Path) -> None:
    """Where nothing can be watched, the user's word ends a run; if it goes on, that is taken back."""
    run, writer = begun_run(tmp_path / "r", **THERE, options={"TRACKER_RELAY": False})
    writer.write(encode(Metrics(step=0, time=T0 + 1, values={"loss": 1.0})))
    lease = Lease(run.path / "relay.lease")
    assert not record_crash(run, lease)
    assert record_crash(run, lease, gone=True)
    assert last_status(run).name == "crashed"
    assert "says that it is gone" in last_status(run).reason
    writer.write(encode(Metrics(step=1, time=T0 + 100, values={"loss": 1.0})))
    assert observe(run).name == "running"


def test_copy_of_a_store_that_is_not_refreshed_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is away for an hour: what was copied before stands still, and the run goes on."""
    from trackers.object_storage import mirror
    from trackers.object_storage.shipping import Sender
    from trackers.object_storage.store import Store

    clocks = Clocks(monkeypatch)
    where, copy = f"file://{tmp_path}/store", tmp_path / "copy"
    run, writer = begun_run(tmp_path / "runs/p/r", **THERE)
    away(run, 1)
    Sender(Store(where), run.path, "p/r").send()
    mirror.refresh(where, copy)
    copied = RunDirectory(copy / "p/r")
    assert observe(copied).name == "running"
    clocks.passed_s += 3600
    assert observe(copied).name == "running"
    mirror.refresh(where, copy)
    assert observe(copied).name == "crashed"
    away(run, 2)
    Sender(Store(where), run.path, "p/r").send()
    mirror.refresh(where, copy)
    assert observe(copied).name == "running"
    writer.release()


@pytest.mark.parametrize("ahead_s", [-403602.0, -300.0, 0.0, 300.0, 403602.0])
def test_attempt_by_another_clock_takes_over_in_order(ahead_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier attempt's machine is ahead or behind: all that it had written counts, samples too, and nothing that
    a process there logs later; the steps come in order."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    there = time.time() + ahead_s
    run, writer = begun_run(Path("runs/p/r"), **THERE, id="r", project="p", created=there)  # fmt: skip
    node = StreamWriter(run.stream(StreamName("node", 0, 1)))
    for step in range(5):
        writer.write(encode(Metrics(step=step, time=there + step / 10, values={"loss": 1.0})))
    node.write(encode(Metrics(time=there + 2.0, values={"gpu/temp": 50.0})))
    again = trackers.init("json", project="p", id="r", resume="allow", inline=True)
    for step in range(5, 8):
        writer.write(encode(Metrics(step=step, time=there + 3 + step, values={"loss": -1.0})))  # the old process lives
        again.log({"loss": 1.0}, step=step)
    node.write(encode(Metrics(time=there + 9.0, values={"gpu/temp": -50.0})))
    again.finish()
    rows = trackers.load("runs/p/r").metrics(["loss"])
    assert rows["step"].to_pylist() == list(range(8))
    assert set(rows["loss"].to_pylist()) == {1.0}
    samples = [record for record in AttemptHistory(run).records() if "gpu/temp" in getattr(record, "values", {})]
    assert [record.values for record in samples] == [{"gpu/temp": 50.0}]
    (path,) = run.path.glob("*_2*.json")
    entries = json.loads(path.read_text())["training_iterations"]
    assert [entry["iter"] for entry in entries] == list(range(8))


def test_lock_of_another_container_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database's lock whose maker has a pid that only its own namespace knows: it is held until its silence was
    watched, whatever the clock says."""
    here = machines.machine()
    lock = tmp_path / "x.db.trackers-lock"
    lock.write_text(f"{here.host} 999999 1.5 abcd {here.boot_id} 1")
    os.utime(lock, (1, 1))
    mlflow_store._drop_stale(lock)
    assert lock.exists()
    clocks = Clocks(monkeypatch)
    mlflow_store._drop_stale(lock)
    clocks.passed_s += mlflow_store.LOCK_STALE_S + 1
    mlflow_store._drop_stale(lock)
    assert not lock.exists()
    lock.write_text(f"{here.host} 999999 1.5 abcd {here.boot_id} {here.pid_namespace}")
    mlflow_store._drop_stale(lock)
    assert not lock.exists()
