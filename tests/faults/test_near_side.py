"""Disks that are full or read-only, files that are cut, lost, damaged or copied, clocks that jump: nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import forked
from tests.backends.wandb.support import server
from tests.fakes.scripted import Scripted, got
from tests.fakes.wandb_server import WandbServer
from tests.faults.disks import fill, free, small_disk
from tests.faults.driven import ROOT, Training
from tests.helpers import T0, begun_run, keep_silent, run_info, wait_for
from tests.stores import read_csv, read_json, read_tensorboard, read_trackio, read_wandb_server
from trackers import errors
from trackers.backends import registry
from trackers.journal import stream
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import last_status, observe
from trackers.journal.stream import StreamReader
from trackers.records import Finish, Metrics, encode
from trackers.relay.delivery import delivery as module
from trackers.relay.delivery.cursor_file import delivery_report, read_account
from trackers.relay.delivery.delivery import Delivery, Stop
from trackers.relay.sync import RunSync
from trackers.support import machines
from trackers.support.clock import Clock
from trackers.testing import Stored

__all__ = ["server", "small_disk"]

OWNED = ("json", "tensorboard", "csv")
READERS: dict[str, Callable[..., Stored]] = {"json": read_json, "tensorboard": read_tensorboard, "csv": read_csv}


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with Training(tmp_path, preload=forked.PACKAGE) as found:
        yield found


def run_directory(disk: Path) -> RunDirectory:
    return RunDirectory(disk / "runs/p/r")


def sync(run: RunDirectory, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trackers", "sync", str(run.path), *arguments]
    return forked.run(command, preload=forked.PACKAGE, env={**os.environ, "PYTHONPATH": str(ROOT)})


def is_whole(tracker: str, run: RunDirectory, steps: list[int]) -> None:
    """The tracker's own files hold each step once, in order."""
    points = READERS[tracker](run.read_info(), None).metrics["loss"]
    assert [point.step for point in points] == steps
    for point, step in zip(points, steps, strict=True):
        assert point.value == pytest.approx(step / 7, rel=1e-6)


@pytest.mark.slow
def test_full_disk_costs_no_record(small_disk: Path) -> None:
    """The disk of the run fills up and is freed again amid training: no record, no file and no exception is lost."""
    with Training(small_disk, preload=forked.PACKAGE) as training:
        training.do('run = trackers.init("json,tensorboard,csv", project="p", id="r")')
        training.do("[run.log({'loss': s / 7}, step=s) for s in range(200)]")
        wait_for(lambda: all(read_account(training.run, name).delivered > 150 for name in OWNED))
        training.do("[run.log({'loss': s / 7}, step=s) for s in range(200, 300)]")
        fill(small_disk)
        training.do("[run.log({'loss': s / 7}, step=s) for s in range(300, 5000)]")
        training.do("time.sleep(1.1); run.log({'loss': 5000 / 7}, step=5000)")
        assert training.said("the journal can't be written") == 1
        assert training.said("No space left on device") == 1
        training.do("time.sleep(4); run.log({'loss': 5001 / 7}, step=5001)")
        free(small_disk)
        training.do("time.sleep(1.1); run.log({'loss': 5002 / 7}, step=5002)")
        training.do("run.finish(timeout=60)")
        training.end()
        assert training.said("records were lost") == 0
        assert training.said("delivering again") == len(OWNED)
        assert training.said("Traceback") == 0
        for tracker in OWNED:
            is_whole(tracker, training.run, list(range(5003)))
            assert delivery_report(training.run, [tracker])[tracker]["state"] == "delivered"
        assert not list(training.run.path.rglob("*.tmp"))


@pytest.mark.parametrize("freed", [True, False], ids=["freed", "stays full"])
def test_finish_waits_for_a_full_disk(
    freed: bool, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Space that comes while finish waits costs no record, and the run is finished; else what was lost is counted."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", id="r", mode="offline", dir=small_disk / "runs")
    run.log({"loss": 0.0}, step=0)
    fill(small_disk)
    for step in range(1, 501):
        run.log({"loss": step / 7}, step=step)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3 and freed:
            free(small_disk)

    monkeypatch.setattr(stream.time, "sleep", pause)
    run.finish(timeout=25 if freed else 0.2)
    said = capsys.readouterr().err
    waiting = re.search(r"finish: (\d+) records wait up to", said)
    assert waiting is not None
    assert int(waiting[1]) > 400  # the journal's last page on the disk had room for some
    assert "No space left on device: free some space for" in said
    assert ("records were lost" in said) is not freed
    if freed:
        assert len(pauses) == 3
        records = StreamReader(run_directory(small_disk).stream(StreamName("rank", 0, 1))).read(1000)
        assert [record.step for record in records if isinstance(record, Metrics)] == list(range(501))
        assert last_status(run_directory(small_disk)).name == "finished"
    else:
        assert f"{waiting[1]} records were lost" in said


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
@pytest.mark.parametrize("room", [0, 2])
def test_full_disk_in_init_leaves_nothing(
    room: int, resumed: bool, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full, or fills up amid ``init``: an error of one line, and the disk is as it was before."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    where: dict[str, Any] = {"project": "p", "id": "r", "mode": "offline", "dir": small_disk / "runs"}
    if resumed:
        trackers.init("json", **where).finish()
        where["resume"] = "must"
    fill(small_disk)
    with (small_disk / "filler").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - room * 4096)

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() if path.is_file() else b"" for path in small_disk.rglob("*")}

    before = content()
    with pytest.raises(errors.UsageError, match=r"runs/p/r can't be written \(No space left on device\)") as caught:
        trackers.init("json", config={"text": "x" * (4096 * room)}, **where)
    assert "\n" not in str(caught.value)
    assert content() == before


def test_read_only_directory_is_said_before_the_first_step(small_disk: Path) -> None:
    """Where no run can be written, ``init`` says so in one line; what training does later can't be disturbed by it."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    code = "import trackers\ntrackers.init('json', project='p', dir='runs')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=small_disk,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("trackers.errors.")
    assert "Read-only file system" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_delivery_state_on_a_read_only_place_waits(tmp_path: Path) -> None:
    """The delivery's own folder turns read-only amid a run: it is said, and everything arrives when it is writable."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a filesystem")
    with Training(tmp_path) as training:
        training.do('run = trackers.init("json,csv", project="p", id="r")')
        training.do("[run.log({'loss': s / 7}, step=s) for s in range(50)]")
        folder = training.run.delivery
        wait_for(lambda: all(read_account(training.run, name).delivered > 40 for name in ("json", "csv")))
        subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
            training.do("[run.log({'loss': s / 7}, step=s) for s in range(50, 100)]")
            training.do("time.sleep(5); run.log({'loss': 100 / 7}, step=100)")
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        training.do("run.finish(timeout=60)")
        training.end()
        assert training.said("Traceback") == 0
        assert training.said("Read-only file system") == 2  # one for each tracker
        for tracker in ("json", "csv"):
            is_whole(tracker, training.run, list(range(101)))


@pytest.mark.slow
def test_no_descriptor_left_hurts_no_step(training: Training) -> None:
    """Training that has used up its open files goes on logging, and what it logged arrives."""
    training.do('run = trackers.init("json", project="p", id="r")')
    training.do("import resource; kept = resource.getrlimit(resource.RLIMIT_NOFILE)")
    training.do("resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')), kept[1])); taken = []")
    training.do("""exec("try:\\n while True: taken.append(os.open('/dev/null', 0))\\nexcept OSError: pass")""")
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(100)]")
    training.do("run.log({'text': 'abc', 'nan': float('nan')}, step=99); run.summary['best'] = 1; run.config['a'] = 2")
    training.do("run.log_artifact('/etc/hostname'); run.status(); run.flush(timeout=0.1)")
    training.do("time.sleep(1.1); run.log({'loss': 100 / 7}, step=100)")
    training.do("run.finish(timeout=5)")
    training.end()
    assert training.said("Traceback") == 0
    wait_for(lambda: read_account(training.run, "json").closed)
    is_whole("json", training.run, list(range(101)))
    assert last_status(training.run).name == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["deleted", "replaced", "emptied", "halved"])
def test_journal_damaged_while_training_writes(damage: str, training: Training) -> None:
    """The journal is deleted, replaced or cut while it is written and read: what is logged later arrives, once."""
    training.do('run = trackers.init("json,csv", project="p", id="r")')
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(200)]")
    journal = training.run.stream(StreamName("rank", 0, 1))
    size = journal.stat().st_size
    wait_for(lambda: all(read_account(training.run, n).offsets.get("rank-0.1", 0) >= size for n in ("json", "csv")))
    training.do("run._recorder.poll(run._recorder.poll_at + 1)")  # the look that it takes each second
    if damage == "deleted":
        journal.unlink()
    elif damage == "replaced":
        shutil.copy(journal, journal.with_name("copy"))
        os.replace(journal.with_name("copy"), journal)
    else:
        os.truncate(journal, 0 if damage == "emptied" else size // 2 + 11)
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(200, 300)]")
    training.do("time.sleep(1.1); run.log({'loss': 300 / 7}, step=300)")
    training.do("run.finish(timeout=60)")
    training.end()
    for tracker in ("json", "csv"):
        is_whole(tracker, training.run, list(range(301)))
    whole = damage in ("deleted", "replaced")
    if damage != "halved":  # there it grows beyond its old size before training looks: the deliveries see it
        assert training.said("it is put back" if whole else "was cut while it was written") == 1
    assert training.said("was cut while it was read") == (0 if whole else 2)
    assert training.said("Traceback") == 0
    reader = StreamReader(journal)
    steps = [record.step for record in reader.read(10_000) if isinstance(record, Metrics)]
    assert steps[-101:] == list(range(200, 301))
    assert not whole or steps == list(range(301))


@pytest.mark.slow
@pytest.mark.parametrize("folder", [False, True])
def test_all_streams_of_an_attempt_deleted(folder: bool, training: Training) -> None:
    """Those of helpers are put back, too: samples go on, and the end of the killed run is told to the trackers."""
    streams = training.run.streams
    mine = "rank-0.1", "node-0.1", "sampler-0.1"
    training.do('os.environ.update(TRACKER_SAMPLE="y", TRACKER_SAMPLE_INTERVAL="1")')
    training.do('run = trackers.init("json,csv", project="p", id="r")')
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(200)]")
    wait_for(lambda: all(StreamReader(streams / f"{name}.jsonl").read(2)[1:] for name in mine))
    heads = {name: StreamReader(streams / f"{name}.jsonl").read(1) for name in mine}
    training.do("run._recorder.poll(run._recorder.poll_at + 1)")
    if folder:
        shutil.rmtree(streams.rename(streams.with_name("gone")))  # at once: a helper puts its own back
    else:
        for path in streams.iterdir():
            path.unlink()
    training.do("time.sleep(1.1); [run.log({'loss': s / 7}, step=s) for s in range(200, 301)]")
    training.do("run._recorder.poll(run._recorder.poll_at + 1)")
    wait_for(lambda: all((streams / f"{name}.jsonl").exists() for name in mine))
    assert {name: StreamReader(streams / f"{name}.jsonl").read(1) for name in mine} == heads
    training.process.kill()
    wait_for(lambda: read_account(training.run, "json").closed and read_account(training.run, "csv").closed)
    for tracker in ("json", "csv"):
        is_whole(tracker, training.run, list(range(301)))
        assert read_account(training.run, tracker).closed == "crashed"


@pytest.mark.slow
def test_delivery_of_a_later_attempt_waits_for_its_deleted_stream(training: Training, tmp_path: Path) -> None:
    """A delivery that begins while the stream of the newest attempt is gone doesn't take the one before for the end."""
    run = training.run
    training.do('os.environ["TRACKER_RELAY"] = "n"; run = trackers.init("json", project="p", id="r")')
    training.do("run.log({'loss': 0.0}, step=0); run.finish()")
    training.do('run = trackers.init("json", project="p", id="r", resume="must")')
    training.do("run.log({'loss': 1 / 7}, step=1)")
    training.do("run._recorder.poll(run._recorder.poll_at + 1)")
    run.stream(StreamName("rank", 0, 2)).unlink()
    said: list[str] = []
    work = Delivery(run, "json", say=said.append, alone=False)
    assert [bool(work.step()) for _ in range(3)] == [True, True, True]
    assert any("rank-0.2.jsonl was deleted: the delivery goes on when" in line for line in said)
    training.do("time.sleep(1.1); run.log({'loss': 2 / 7}, step=2); run.finish()")
    wait_for(lambda: work.step() is None)
    is_whole("json", run, [0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "uncommitted"])
@pytest.mark.parametrize("tracker", ["trackio", "wandb", "json", "csv"])
def test_records_in_the_place_of_others_arrive(
    tracker: str, committed: bool, tmp_path: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is cut at a line's end and grows again, byte for byte alike; the delivery may die in between."""
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    run, writer = begun_run(tmp_path / "run", trackers=[tracker])

    def rows(first: int, last: int) -> None:
        for step in range(first, last):
            writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 8})))

    rows(10, 50)
    state = run.delivery_state(tracker)
    work = Delivery(run, tracker, say=lambda text: None, alone=False)
    work._limit = 10
    wait_for(lambda: work.step() is not None and read_account(run, tracker).seq >= 20)
    before = state.read_bytes()
    wait_for(lambda: work.step() is not None and read_account(run, tracker).seq >= 41)
    work.close()
    if not committed:  # what it did later was sent, and its cursor never written
        state.write_bytes(before)
    lines = run.stream(StreamName("rank", 0, 1)).read_bytes().splitlines(keepends=True)
    os.truncate(run.stream(StreamName("rank", 0, 1)), len(b"".join(lines[:25])))
    rows(50, 80)
    writer.write(encode(Finish(time=T0 + 100, status="finished", exit_code=0)))
    writer.release()
    work = Delivery(run, tracker, say=lambda text: None, alone=False)
    wait_for(lambda: work.step() is None)
    read = {"trackio": read_trackio, "wandb": read_wandb_server(server.runs), "json": read_json, "csv": read_csv}
    points = read[tracker](run.read_info(), {}).metrics["loss"]
    steps = [point.step for point in points if point.step is not None]
    assert steps == sorted(set(steps))
    # A tracker that owns its file goes back to the committed length: there what was cut off is gone from it, too.
    gone = set() if committed or tracker not in OWNED else set(range(34, 50))
    assert set(range(10, 80)) - set(steps) == gone


@pytest.mark.slow
def test_clock_that_jumps_bends_no_time(training: Training) -> None:
    """The clock is put back by a day amid a run: times go on as they began, in order, in every tracker."""
    training.do('run = trackers.init("json,csv", project="p", id="r")')
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(50)]")
    training.do("real = time.time; time.time = lambda: real() - 86400")
    training.do("[run.log({'loss': s / 7, 'x': 'text'}, step=s) for s in range(50, 100)]")
    training.do("run.summary['best'] = 3; run.config['a'] = 1; run.alert('slow')")
    training.do("run.finish(timeout=60)")
    training.end()
    records = StreamReader(training.run.stream(StreamName("rank", 0, 1))).read(1000)
    times = [record.time for record in records]
    assert times == sorted(times)
    assert times[-1] - times[0] < 3600
    points = read_csv(training.run.read_info(), None).metrics["loss"]
    assert [point.step for point in points] == list(range(100))


def test_clock_carries_on_after_a_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's clock takes Unix time once; then only the monotonic clock moves it."""
    clock = Clock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= clock.now() < before + 60


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A finished run of a hundred steps, undelivered; its tracker keeps what it gets in a file."""
    monkeypatch.setitem(registry.BUILT_IN, "scripted", "tests.fakes.scripted:Scripted")
    monkeypatch.setattr(Scripted, "plan", staticmethod(lambda call, records: None))
    monkeypatch.setattr(Scripted, "answer", None)
    monkeypatch.setattr(Scripted, "url", "")
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    run, writer = begun_run(tmp_path / "run", trackers=["scripted"])
    for step in range(100):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
    writer.write(encode(Finish(time=T0 + 100, status="finished", exit_code=0)))
    writer.release()
    return run


def deliver(run: RunDirectory, tracker: str = "scripted", steps: int = 500, limit: int = 10) -> list[str]:
    """Deliver in this process; what was said."""
    said: list[str] = []
    work = Delivery(run, tracker, say=said.append, alone=False)
    work._limit = limit
    for _ in range(steps):
        if work.step() is None:
            break
    return said


def steps_of(run: RunDirectory) -> list[Any]:
    return [entry["step"] for entry in got(run.path) if entry.get("step") is not None]


def test_damaged_lines_are_said_once_and_counted(finished: RunDirectory) -> None:
    """Damaged lines amid the journal: everything else arrives, one line says so, status counts them, also anew."""
    path = finished.stream(StreamName("rank", 0, 1))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[20], lines[60] = b"\xffgarbage\n", lines[60][:30] + b"\n"
    path.write_bytes(b"".join(lines))
    said = deliver(finished, steps=4)
    said += deliver(finished)
    assert steps_of(finished) == [step for step in range(100) if step not in (19, 59)]
    assert len([line for line in said if "damaged line" in line]) == 1
    assert "rank-0.1.jsonl at byte" in said[0]
    assert delivery_report(finished, ["scripted"])["scripted"]["damaged"] == 2


@pytest.mark.parametrize("harm", ["lost", "empty", "garbage", "negative", "not a number", "beyond", "order lost"])
def test_cursor_that_is_lost_or_wrong_loses_nothing(harm: str, tmp_path: Path) -> None:
    """The cursor's file is lost, damaged or ahead of the journal: each tracker ends with every step once."""
    run, writer = begun_run(tmp_path / "run", trackers=list(OWNED))
    for step in range(60):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
    for tracker in OWNED:
        deliver(run, tracker, steps=3)
        path = run.delivery_state(tracker)
        account = json.loads(path.read_bytes())
        assert account["seq"] > 10
        if harm == "lost":
            path.unlink()
        elif harm == "empty":
            path.write_bytes(b"")
        elif harm == "garbage":
            path.write_bytes(path.read_bytes()[:50])
        elif harm == "negative":
            path.write_text(json.dumps({**account, "offsets": {"rank-0.1": -7}}))
        elif harm == "not a number":
            path.write_text(json.dumps({**account, "offsets": {"rank-0.1": "x"}}))
        elif harm == "beyond":
            path.write_text(json.dumps({**account, "offsets": {"rank-0.1": 10**9}}))
        else:
            (run.delivery / f"{tracker}.order").unlink()
    for step in range(60, 100):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
    writer.write(encode(Finish(time=T0 + 100, status="finished", exit_code=0)))
    writer.release()
    for tracker in OWNED:
        deliver(run, tracker)
        is_whole(tracker, run, list(range(100)))


@pytest.mark.parametrize("tracker", OWNED)
def test_tracker_file_that_is_cut_while_it_grows_is_made_anew(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody shortens or lengthens a file that a tracker has open: no hole, no double, every step once."""
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    run, writer = begun_run(tmp_path / "run", trackers=[tracker])
    work = Delivery(run, tracker, say=lambda text: None, alone=False)
    for step in range(60):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
        if step % 20 == 19:
            while read_account(run, tracker).seq < step + 2:
                work.step()
            places = {"json": "json/*", "csv": "metrics.csv", "tensorboard": "tensorboard/*/events*"}
            (path,) = [path for path in run.path.glob(places[tracker]) if path.stat().st_size]
            if step == 19:
                os.truncate(path, path.stat().st_size // 2)
            elif step == 39:
                with path.open("ab") as file:
                    file.write(b"of somebody who was stopped for long\n")
    writer.write(encode(Finish(time=T0 + 60, status="finished", exit_code=0)))
    writer.release()
    wait_for(lambda: work.step() is None)
    is_whole(tracker, run, list(range(60)))


def test_file_that_another_sync_renames_is_no_hindrance(
    finished: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a delivery of another process writes is gone between two looks at it: that says nothing of permissions."""
    passing = finished.delivery / ".json.json.0123456789abcdef.tmp"
    passing.parent.mkdir(exist_ok=True)
    passing.touch()
    access = os.access

    def renamed(path: Any, mode: int) -> bool:
        if Path(path) == passing:
            passing.unlink()
        return access(path, mode)

    monkeypatch.setattr(os, "access", renamed)
    work = RunSync(finished, ["scripted"], follow=False)
    assert work._is_writable()
    assert not passing.exists()


def test_two_syncs_at_once_deliver_once(finished: RunDirectory) -> None:
    """Two ``trackers sync`` of one run: one delivers, the other waits for it; each step is there once."""
    finished.write_info(run_info(finished.path, trackers=["json", "csv"]))
    command = [sys.executable, "-m", "trackers", "sync", str(finished.path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        forked.Program(
            command,
            preload=forked.PACKAGE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for _ in "ab"
    ]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    for tracker in ("json", "csv"):
        is_whole(tracker, finished, list(range(100)))
    assert not list(finished.path.rglob("*.lease*"))


def test_sync_says_who_holds_the_run(finished: RunDirectory) -> None:
    """While another process delivers, status names it."""
    lease = Lease(finished.delivery / "scripted.lease")
    assert lease.acquire()
    entry = delivery_report(finished, ["scripted"])["scripted"]
    assert entry["state"] == "delivering"
    assert entry["held_by"] == f"process {os.getpid()} on {machines.host()}"
    lease.release()
    assert delivery_report(finished, ["scripted"])["scripted"]["held_by"] == ""


def test_copied_directory_is_delivered_on_another_machine(training: Training, tmp_path: Path) -> None:
    """A run that was killed elsewhere, half delivered there, and copied here: sync brings all of it, as crashed."""
    training.do('run = trackers.init("json,tensorboard,csv", project="p", id="r")')
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(50)]")
    training.do("run.flush()")
    source = training.run
    tree = json.loads((source.path / "relay.lease").read_bytes())["pid"]
    os.kill(tree, signal.SIGSTOP)  # the relay is cut off with its machine
    training.do("[run.log({'loss': s / 7}, step=s) for s in range(50, 100)]")
    copy = RunDirectory(tmp_path / "elsewhere" / "r")
    shutil.copytree(source.path, copy.path)
    os.kill(tree, signal.SIGCONT)
    training.do("run.finish(timeout=60)")
    training.end()
    for path in [copy.identity, *copy.path.rglob("*.lease")]:
        there = {**json.loads(path.read_bytes()), "host": "node17", "boot_id": "another"}
        path.write_text(json.dumps(there))
        if path.suffix == ".lease":
            path.unlink()  # as after a minute without a sign of life
    info = copy.read_info()
    info.cwd, info.program = "/nowhere/at/all", "/nowhere/at/all/train.py"
    copy.write_info(info)
    keep_silent(copy, 121)
    assert observe(copy).name == "crashed"
    done = sync(copy)
    assert done.returncode == 0, done.stderr + done.stdout
    for tracker in OWNED:
        is_whole(tracker, copy, list(range(100)))
    assert last_status(copy).name == "crashed"
    before = {path: path.read_bytes() for path in source.path.rglob("*") if path.is_file()}
    assert sync(copy).returncode == 0
    assert {path: path.read_bytes() for path in source.path.rglob("*") if path.is_file()} == before


def test_nothing_needs_locks_or_links() -> None:
    """No lock and no hard link is asked of the filesystem of the runs: network filesystems and FAT have none."""
    package = Path(errors.__file__).parent
    rooms = ("support", "journal", "ranks", "training", "values", "relay")
    places = [*package.glob("*.py"), *(path for room in rooms for path in (package / room).rglob("*.py"))]
    words = ("fcntl", "flock", "lockf", "os.link(", "hardlink_to", "os.symlink", "symlink_to", "mkfifo")
    found = {(path.name, word) for path in places for word in words if word in path.read_text()}
    # Of a descriptor fcntl only asks for another number, of a process for its exit code.
    asking = {("descriptors.py", "fcntl"), ("processes.py", "fcntl"), ("forked_helper.py", "fcntl")}
    # The host agent's directory is of this machine and holds its socket; where there is no lock there is no agent.
    agents = {("endpoint.py", "fcntl"), ("endpoint.py", "flock"), ("slot_locks.py", "fcntl")}
    # In the same directory; where there is no lock each delivery keeps to what the server says by itself.
    agents |= {("pace.py", "fcntl"), ("pace.py", "flock")}
    # In the user's configuration; of files that a run keeps live, for its death alone: both do without.
    elsewhere = {("signature.py", "os.link("), ("live_files.py", "os.link(")}
    # Media of a fork's parent, which are copied where there are no links.
    elsewhere |= {("forking.py", "os.link(")}
    # TensorBoard's names of runs, without which it shows them by their folders.
    elsewhere |= {("confined.py", "os.symlink")}
    # In the user's data directory, while a command changes environments of trackers.
    elsewhere |= {("environments.py", "fcntl"), ("environments.py", "flock")}
    assert (
        found - {("file_snapshot.py", "os.link("), ("file_snapshot.py", "fcntl"), *asking, *agents, *elsewhere} == set()
    )
    assert not any("F_SETLK" in path.read_text() for path in places)


def test_each_state_is_reached_and_true(finished: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """``status`` tells not begun, waiting, delivering, stopped and delivered apart, with counts and the reason."""

    def state() -> dict[str, Any]:
        return delivery_report(finished, ["scripted"])["scripted"]

    size = finished.stream(StreamName("rank", 0, 1)).stat().st_size
    assert (state()["state"], state()["waiting_bytes"]) == ("not begun", size)

    away = [True]

    def plan(call: str, records: Any) -> None:
        if call == "write" and away[0]:
            raise errors.Unavailable("no answer from there")
        if any(record.step == 5 for record in records):
            raise errors.Rejected("a bad name")
        if any(record.step == 30 for record in records) and not away[0]:
            raise errors.Fatal("too old")

    monkeypatch.setattr(Scripted, "plan", staticmethod(plan))
    deliver(finished, steps=5)
    assert (state()["state"], state()["error"], state()["waiting_bytes"]) == ("waiting", "no answer from there", size)
    away[0] = False
    with pytest.raises(Stop):
        deliver(finished)
    stopped = state()
    assert (stopped["state"], stopped["error"], stopped["rejected"]) == ("stopped", "too old", 1)
    assert 0 < stopped["waiting_bytes"] < size
    rejected = [json.loads(line) for line in (finished.delivery / "scripted.rejected.jsonl").read_text().splitlines()]
    assert [json.loads(entry["record"])["step"] for entry in rejected] == [5]
    assert rejected[0]["reason"] == "a bad name"
    monkeypatch.setattr(Scripted, "plan", staticmethod(lambda call, records: None))
    lease = Lease(finished.delivery / "scripted.lease")
    assert lease.acquire()
    assert state()["state"] == "stopped"
    deliver(finished)
    lease.release()
    ended = state()
    assert (ended["state"], ended["waiting_bytes"], ended["closed"]) == ("delivered", 0, "finished")
    assert (ended["rejected"], ended["delivered"], ended["error"]) == (1, 101, "")
    assert steps_of(finished) == [step for step in range(100) if step != 5]
