"""``trackers sync --follow``, as a login node runs it for compute nodes: live, for every run, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.faults.driven import ROOT, Training
from tests.helpers import T0, keep_silent, run_info, wait_for
from tests.stores import read_csv, read_json
from trackers.journal.lease import Lease, read_holder
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import SILENT_S, last_status, observe
from trackers.journal.stream import StreamWriter
from trackers.records import Finish, Metrics, Start, encode
from trackers.relay import sync
from trackers.relay import sync as module
from trackers.relay.delivery.cursor_file import delivery_report, read_account
from trackers.relay.sync import Follower, runs_below
from trackers.testing import Stored

ALONE = {"TRACKER_MODE": "offline", "TRACKER_RELAY": "n"}


class Following:
    """A ``trackers sync --follow`` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = forked.Program(
            [sys.executable, "-m", "trackers", "sync", "--follow", *arguments],
            preload=forked.HELPERS,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def listens(self) -> bool:
        """Whether it has got so far as to handle SIGTERM, or has ended."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (caught,) = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
        return self.process.poll() is not None or bool(caught >> (signal.SIGTERM - 1) & 1)

    def stop(self) -> tuple[int, list[str]]:
        """Ctrl-C: its exit code and the lines it printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        assert "Traceback" not in err
        return self.process.returncode, out.splitlines()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()


def has(run: RunDirectory, tracker: str, steps: int) -> bool:
    return read_account(run, tracker).delivered >= steps


def is_whole(run: RunDirectory, steps: int) -> None:
    """Wait until the files have it all: while a run goes on, the JSON log is written every few records."""
    expected = [(step, step / 7) for step in range(steps)]

    def written(read: Callable[..., Stored]) -> bool:
        return [(point.step, point.value) for point in read(run.read_info()).metrics["loss"]] == expected

    for read in (read_json, read_csv):
        wait_for(lambda read=read: written(read))


def log(first: int, last: int) -> str:
    return f"[run.log({{'loss': s / 7}}, step=s) for s in range({first}, {last})]"


@pytest.mark.slow
def test_runs_are_delivered_live_and_new_ones_are_picked_up(tmp_path: Path) -> None:
    """Deep in the tree, begun before and after it: each is delivered while it runs; one line a change, as JSON too."""
    early, late = tmp_path / "users/ada/early", tmp_path / "users/eve/deep/late"
    for directory in (early, late):
        directory.mkdir(parents=True)
    with Following(str(tmp_path / "users"), "--json") as following:
        runs = []
        for directory in (early, late):
            with Training(directory, **ALONE) as training:
                training.do('run = trackers.init("json,csv", project="p", id="r")')
                training.do(log(0, 50))
                wait_for(lambda run=training.run: has(run, "json", 50) and has(run, "csv", 50))
                assert observe(training.run).name == "running"
                training.do(log(50, 60) + "; run.finish()")
                training.end()
                runs.append(training.run)
        wait_for(lambda: all(read_account(run, name).closed for run in runs for name in ("json", "csv")))
        code, lines = following.stop()
    assert code == 0
    for run in runs:
        is_whole(run, 60)
        assert last_status(run).name == "finished"
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        entry = json.loads(line)
        assert (entry["run"], entry["project"]) == ("r", "p")
        seen.setdefault((entry["tracker"], entry["directory"]), []).append(entry)
    assert sum(entries[-1]["state"] == "delivered" for entries in seen.values()) >= 2
    assert len(lines) == len(set(lines))


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["runs"], ["--dir", "others"]])
def test_follower_that_was_there_before_the_first_run(words: list[str], tmp_path: Path) -> None:
    """The runs' directory isn't there yet: it is waited for. A name that nobody knows is still an error."""
    place = words[-1] if words else "runs"
    with Following(*words) as following, Training(tmp_path, **ALONE) as training:
        wait_for(following.listens)
        training.do(f'run = trackers.init("json", project="p", id="r", dir="{place}")')
        training.do(log(0, 20) + "; run.finish()")
        training.end()
        run = RunDirectory(tmp_path / place / "p/r")
        wait_for(lambda: following.process.poll() is not None or read_account(run, "json").closed)
        assert following.stop()[0] == 0
    assert [point.step for point in read_json(run.read_info(), None).metrics["loss"]] == list(range(20))
    with Following("rnus") as following:
        assert following.process.wait(60) == 1


def test_text_lines_name_run_and_tracker(tmp_path: Path) -> None:
    """For people: one line per run and tracker when something changed, the last of which says delivered."""
    with Training(tmp_path, **ALONE) as training:
        training.do('run = trackers.init("json,csv", project="p", id="r")')
        training.do(log(0, 20) + "; run.finish()")
        training.end()
    with Following("runs") as following:
        wait_for(lambda: all(read_account(training.run, name).closed for name in ("json", "csv")))
        wait_for(lambda: not list(training.run.delivery.glob("*.lease")))
        code, lines = following.stop()
    assert code == 0
    for name in ("json", "csv"):
        own = [line for line in lines if line.startswith(f"p/r {name}: ")]
        assert own[-1].startswith(f"p/r {name}: delivered, ")
    assert all(line.startswith("p/r ") for line in lines)


@pytest.mark.slow
def test_killed_follower_that_is_started_again_doubles_nothing(tmp_path: Path) -> None:
    """SIGKILL while it delivers, three times: each record is there once, and the run's end is its true one."""
    with Training(tmp_path, **ALONE) as training:
        training.do('run = trackers.init("json,csv", project="p", id="r")')
        for number in range(3):
            with Following("runs") as following:
                training.do(log(number * 500, number * 500 + 500))
                wait_for(lambda number=number: has(training.run, "json", number * 500 + 1))
                following.process.kill()
        training.do("run.fail(3, 'asked to')")
        training.end()
    with Following("runs") as following:
        wait_for(lambda: all(read_account(training.run, name).closed for name in ("json", "csv")))
        assert following.stop()[0] == 0
    is_whole(training.run, 1500)
    assert read_json(training.run.read_info(), None).status == "failed"


@pytest.mark.slow
def test_stopped_follower_says_by_its_code_that_something_is_missing(tmp_path: Path) -> None:
    """A run that goes on, a tracker that is away, records that one refused: exit code 1."""
    with Training(tmp_path, **ALONE) as training:
        training.do('run = trackers.init("json", project="p", id="r")')
        training.do(log(0, 20))
        with Following("runs") as following:
            wait_for(lambda: has(training.run, "json", 20))
            assert following.stop()[0] == 1
        training.do("run.finish()")
        training.end()
    with Following("runs", "--to", "wandb") as following:
        wait_for(lambda: read_account(training.run, "wandb").closed, 90)
        assert following.stop()[0] == 0
    account = training.run.delivery / "wandb.json"
    account.write_text(json.dumps({**json.loads(account.read_text()), "rejected": 2}))
    with Following("runs", "--to", "wandb") as following:
        wait_for(following.listens)
        assert following.stop()[0] == 1


@pytest.mark.slow
def test_relay_of_the_next_attempt_starts_at_once(tmp_path: Path) -> None:
    """A follower serves a killed run: the restarted job's relay takes its place without waiting for anybody."""
    with Training(tmp_path, **ALONE) as training:
        training.do('run = trackers.init("json,csv", project="p", id="r")')
        training.do(log(0, 30))
        with Following("runs") as following:
            wait_for(lambda: has(training.run, "json", 30))
            training.process.kill()
            training.process.wait()
            with Training(tmp_path) as second:
                second.do('run = trackers.init("json,csv", project="p", id="r", resume="must")')
                wait_for(lambda: read_holder(second.run.path / "relay.lease"), 15)
                second.do(log(30, 60) + "; assert run.flush(60)")
                second.process.kill()  # and its relay says so, though a follower is there
                second.process.wait()
                wait_for(lambda: all(read_account(second.run, name).closed for name in ("json", "csv")))
                wait_for(lambda: not (second.run.path / "relay.lease").exists())
            following.stop()
    is_whole(second.run, 60)
    assert last_status(second.run).name == "crashed"
    assert second.run.stream(StreamName("node", 0, 2)).exists()


def made(directory: Path, *, finished: bool = False, **fields: Any) -> tuple[RunDirectory, StreamWriter]:
    """A run of twenty steps, of another machine unless told otherwise, without a relay."""
    run = RunDirectory(directory)
    run.make()
    there = {"host": "node17", "boot_id": "b", "pid": 1, "pid_start": 1.0, "trackers": ["json", "csv"]}
    run.write_info(run_info(directory, **{**there, "options": {"TRACKER_RELAY": False}, **fields}))
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    writer.write(encode(Start(time=T0)))
    for step in range(20):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
    if finished:
        writer.write(encode(Finish(time=T0 + 20, status="finished", exit_code=0)))
    return run, writer


@pytest.fixture
def served() -> Iterator[list[threading.Thread]]:
    """Followers in threads of this process, which are told to stop."""
    threads: list[threading.Thread] = []
    yield threads
    for thread in threads:
        thread.stop.set()  # type: ignore[attr-defined]
        thread.join()


def follow(threads: list[threading.Thread], root: Path, **more: Any) -> list[str]:
    complaints: list[str] = []
    stop = threading.Event()
    follower = Follower([root], more.pop("to", ()), lambda run: None, say=complaints.append, **more)
    thread = threading.Thread(target=follower.serve, args=(stop.is_set,))
    thread.stop = stop  # type: ignore[attr-defined]
    thread.start()
    threads.append(thread)
    return complaints


def test_more_runs_than_places_take_turns(
    tmp_path: Path, served: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one place and three runs that all go on, each of them is served again and again."""
    monkeypatch.setattr(module, "SHARE_S", 0.3)
    runs = [made(tmp_path / f"runs/p/r{number}") for number in range(3)]
    follow(served, tmp_path / "runs", jobs=1)
    for more in range(2):
        for run, writer in runs:
            wait_for(lambda run=run, more=more: has(run, "csv", 21 + more))
            writer.write(encode(Metrics(step=20 + more, time=T0 + 20 + more, values={"loss": (20 + more) / 7})))
    for run, writer in runs:
        wait_for(lambda run=run: has(run, "csv", 23) and has(run, "json", 23))
        writer.release()
        is_whole(run, 22)


@pytest.mark.slow
def test_run_that_cannot_be_served_stops_no_other(tmp_path: Path, served: list[threading.Thread]) -> None:
    """A tracker that nobody knows in one run: one line, and the other run is delivered."""
    bad, _ = made(tmp_path / "runs/p/bad", trackers=["from_a_plugin"])
    good, _ = made(tmp_path / "runs/p/good", finished=True)
    complaints = follow(served, tmp_path / "runs")
    wait_for(lambda: read_account(good, "json").closed)
    wait_for(lambda: complaints)
    assert len(complaints) == 1
    assert str(bad.path) in complaints[0]
    assert "from_a_plugin" in complaints[0]


def test_runs_are_found_at_any_depth_but_not_inside_runs(tmp_path: Path) -> None:
    """Six levels down; hidden folders and what lies in a run's own directory are left alone."""
    for place in ("a", "b/c", "b/d/e/f/g/h", ".hidden/x", "a/media/inner", "1/2/3/4/5/6/7/8"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "run.json").write_text("{}")
    found = [str(run.path.relative_to(tmp_path)) for run in runs_below(tmp_path)]
    assert found == ["a", "b/c", "b/d/e/f/g/h"]
    assert [run.path for run in runs_below(tmp_path / "a")] == [tmp_path / "a"]
    assert list(runs_below(tmp_path / "nowhere")) == []


def test_quiet_run_elsewhere_without_a_relay_is_no_crash(tmp_path: Path) -> None:
    """A long evaluation logs nothing; where no relay shows life, minutes of silence mean nothing, hours do."""
    run, _ = made(tmp_path / "alone")
    keep_silent(run, 2 * SILENT_S)
    assert observe(run).name == "running"
    keep_silent(run, 2 * 3600)
    assert observe(run).name == "crashed"
    relayed, _ = made(tmp_path / "relayed", options={"TRACKER_RELAY": True})
    keep_silent(relayed, 2 * SILENT_S)
    assert observe(relayed).name == "crashed"


def deliver(run: RunDirectory) -> None:
    work = sync.RunSync(run, (), follow=False)
    work.begin()
    wait_for(lambda: not work.step())
    work.end()


def test_run_that_was_silent_for_hours_and_goes_on_is_running_again(tmp_path: Path) -> None:
    """A verdict that only silence spoke for is taken back when the run logs on: its true end is what counts."""
    run, writer = made(tmp_path / "run")
    keep_silent(run, 2 * 3600)
    deliver(run)
    assert last_status(run).name == "crashed"
    assert read_json(run.read_info(), None).status == "crashed"
    writer.write(encode(Metrics(step=20, time=T0 + 5000, values={"loss": 20 / 7})))
    assert (last_status(run).name, observe(run).name) == ("running", "running")
    writer.write(encode(Finish(time=T0 + 5001, status="finished", exit_code=0)))
    writer.release()
    deliver(run)
    assert last_status(run).name == "finished"
    is_whole(run, 21)
    assert read_json(run.read_info(), None).status == "finished"
    assert {entry["state"] for entry in delivery_report(run, ["json", "csv"]).values()} == {"delivered"}


def test_verdict_is_given_once_and_by_nobody_while_a_relay_lives(tmp_path: Path) -> None:
    """Whoever holds the relay's lease speaks; else the end is written once, at the time of the last sign of life."""
    run, _ = made(tmp_path / "run")
    keep_silent(run, 2 * 3600)
    relay, other = Lease(run.path / "relay.lease"), Lease(run.path / "relay.lease")
    assert relay.acquire()
    assert not sync.record_crash(run, other)
    relay.release()
    assert sync.record_crash(run, other)
    assert sync.record_crash(run, other)
    assert last_status(run).time == T0 + 19
    node = run.stream(StreamName("node", 0, 1))
    assert node.read_text().count('"finish"') == 1
    assert not (run.path / "relay.lease").exists()


@pytest.mark.slow
@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
def test_sidecar_delivers_what_has_ended_before_it_leaves(word: signal.Signals, tmp_path: Path) -> None:
    """As a pod ends: training's container is gone, then the sidecar gets SIGTERM. Ctrl-C ends it at once."""
    with Following(str(tmp_path)) as following, Training(tmp_path, **ALONE) as training:
        wait_for(following.listens)
        training.do('run = trackers.init("json", project="p", id="r")')
        training.do(log(0, 50))
        wait_for(lambda: has(training.run, "json", 50))
        os.kill(following.process.pid, signal.SIGSTOP)  # so that it can't have seen the end
        training.do(log(50, 20_000) + "; run.finish()")
        training.end()
        following.process.send_signal(word)
        os.kill(following.process.pid, signal.SIGCONT)
        following.process.communicate(timeout=60)
        assert following.process.returncode == (0 if word == signal.SIGTERM else 1)
        assert bool(read_account(training.run, "json").closed) == (word == signal.SIGTERM)


@pytest.mark.slow
def test_follower_that_leaves_does_not_wait_for_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM while a run trains: nobody knows its end."""
    monkeypatch.setattr(module, "LEAVE_S", 1e9)
    with Training(tmp_path, **ALONE) as training:
        training.do('run = trackers.init("json", project="p", id="r")')
        training.do(log(0, 50))
        follower = Follower([tmp_path], (), lambda run: None)
        assert not follower.serve(lambda: False, lambda: has(training.run, "json", 50))
        training.do("run.finish()")
        training.end()
