"""Runs in a store: written on one machine, read on others, and gone on with there."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import forked
from tests.faults.attempts import TRAIN
from tests.helpers import wait_for
from trackers.errors import Fatal, MissingPackage, NotFound, Unavailable, UsageError
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.object_storage import addresses, mirror, removal
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store
from trackers.ranks import launch
from trackers.relay.deliveries import Child, Deliveries
from trackers.relay.delivery.cursor_file import delivery_report, read_account
from trackers.relay.sync import sync
from trackers.training import stores
from trackers.training.run import Run


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a directory; this machine's own disk is ``node-a``."""
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-a"))
    monkeypatch.chdir(tmp_path)
    return f"file://{tmp_path}/store"


def other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "node-b") -> None:
    """From now on this is a machine that has nothing yet."""
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / name))


def begin(where: str, **more: Any) -> Run:
    """A run whose records stay on this machine until they are sent by hand."""
    run = trackers.init(
        "json", project="digits", dir=where, options={"TRACKER_RELAY": False, **more.pop("options", {})}, **more
    )
    assert isinstance(run, Run)
    return run


def losses(where: str) -> list[float]:
    """The metric of the one run as a reader of the store has it; [] before its stream is there."""
    runs = list(find_runs(mirror.update_copy(addresses.normalize(where), str(Path("reader").absolute()))))
    assert len(runs) <= 1
    table = trackers.load(str(runs[0].path)).metrics() if runs else None
    return table["loss"].to_pylist() if table is not None and "loss" in table.table.column_names else []


@pytest.mark.slow
def test_run_is_sent_while_it_is_written_and_read_elsewhere(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process with its relay: what it logged is in the store before it ends; commands read it there."""
    monkeypatch.setenv("TRACKER_DIR", where)
    monkeypatch.setenv("TRACKER_STORE_EVERY", "1")
    Path("train.py").write_text(TRAIN)
    words = ["train.py", "0", "50", "0.5", "wait", "id=abc", "trackers=json"]
    process = forked.Program([sys.executable, *words], preload=forked.HELPERS, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: Path("store/digits/abc/streams").is_dir() and losses(where), why="nothing is in the store")
        wait_for(lambda: losses(where) == [step + 0.5 for step in range(50)])
    finally:
        process.kill()
        process.communicate()
    other_machine(tmp_path, monkeypatch)
    said = forked.run([sys.executable, "-m", "trackers", "ls", "--json"], preload=forked.HELPERS)
    (line,) = json.loads(said.stdout)
    assert (line["info"]["id"], line["info"]["project"]) == ("abc", "digits")
    shown = forked.run([sys.executable, "-m", "trackers", "show", "--dir", where, "abc"], preload=forked.HELPERS)
    assert "loss" in shown.stdout
    assert shown.returncode == 0


@pytest.mark.slow
def test_short_run_is_there_whole(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written at its end, too: its code, the files of other trackers, and that they have all."""
    monkeypatch.setenv("TRACKER_DIR", where)
    monkeypatch.setenv("TRACKER_CODE", "y")
    Path("train.py").write_text(TRAIN)
    words = ["train.py", "0", "5", "0.5", "finish", "id=abc", "trackers=json"]
    assert forked.run([sys.executable, *words], preload=forked.HELPERS).returncode == 0
    (written,) = find_runs(addresses.local_directory(where, str(tmp_path / "node-a")))
    (there,) = find_runs(mirror.update_copy(addresses.normalize(where), str(tmp_path / "reader")))
    logs = [path.name for path in written.path.glob("*.json")]
    assert {"run.json", "code-1.json"} < set(logs)
    for name in (*logs, "code-1.zip", "delivery/json.json"):
        assert (there.path / name).read_bytes() == (written.path / name).read_bytes(), name
    assert not list(there.path.glob("*.modules"))


def test_artifacts_of_other_machines_are_found(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run elsewhere logged is found by name in the store; what this machine has just logged, too."""
    run = begin(where, id="abc")
    Path("rows.csv").write_text("a")
    run.log_artifact("rows.csv", name="dataset", type="dataset", aliases=["raw"])
    deliver(run)
    trackers.finish()
    other_machine(tmp_path, monkeypatch)
    later = begin(where, id="def")
    found = later.use_artifact("dataset:latest")
    assert Path(found.download("out"), "rows.csv").read_text() == "a"
    Path("rows.csv").write_text("b")
    later.log_artifact("rows.csv", name="dataset", type="dataset")
    assert Path(later.use_artifact("dataset:latest").download("out"), "rows.csv").read_text() == "b"
    assert Path(later.use_artifact("dataset:raw").download("out"), "rows.csv").read_text() == "a"
    trackers.finish()
    monkeypatch.setenv("TRACKER_DIR", where)
    assert Path(trackers.Api().artifact("digits/dataset:raw").download("out"), "rows.csv").read_text() == "a"
    for words in (["alias", "digits/dataset:v0", "prod"], ["rm", "digits/dataset:v0", "--yes"]):
        done = forked.run([sys.executable, "-m", "trackers", "artifacts", *words], preload=forked.HELPERS)
        assert done.returncode == 2
        assert "is a copy of a store's runs" in done.stderr


def test_dead_machine_s_run_goes_on_elsewhere(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps are there, the next attempt is this machine's, and what is said names what isn't there."""
    run = begin(where, id="abc", options={"TRACKER_STORE_EVERY": 7})
    for step in range(10):
        run.log({"loss": float(step)}, step=step)
    deliver(run)
    run.log({"loss": 10.0}, step=10)  # lost with the machine
    other_machine(tmp_path, monkeypatch)
    trackers.finish()
    later = begin(where, id="abc", resume="must")
    assert later.step == 9
    said = capsys.readouterr().err
    assert "goes on from what the store has, up to step 9 at " in said
    assert "logged after that, at most 7 s of it if it could reach the store, isn't there" in said
    for step in range(10, 15):
        later.log({"loss": float(step)}, step=step)
    later.finish()
    deliver(later)
    assert losses(where) == [float(step) for step in range(15)]


def test_attempt_that_another_machine_has_isn_t_begun(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines continue a run at once: one of them is told, before it logs anything, and leaves nothing behind."""
    run = begin(where, id="abc")
    run.log({"loss": 0.0})
    run.finish()
    deliver(run)
    other_machine(tmp_path, monkeypatch)
    begin(where, id="abc", resume="must")
    trackers.finish()
    other_machine(tmp_path, monkeypatch, "node-c")
    monkeypatch.setattr(stores, "claimed", lambda *_: (1, "node-a"))  # it had asked before the other one claimed
    with pytest.raises(UsageError, match="attempt 2 was begun on"):
        begin(where, id="abc", resume="must")
    assert not list((tmp_path / "node-c").rglob("rank-0.2.jsonl"))


def killed_before_it_sent(where: str, **more: Any) -> str:
    """A process that was killed as soon as it had claimed its attempt; where it had its run."""
    run = begin(where, id="abc", **more)
    run.log({"loss": -1.0})
    run.finish()
    return str(run.dir)


@pytest.mark.parametrize("resume", ["allow", "auto"])
def test_run_that_was_begun_and_never_sent_goes_on_as_the_next_attempt(
    where: str, resume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose node dies in its first seconds starts anew elsewhere: what it sends is the run's."""
    killed = killed_before_it_sent(where)
    other_machine(tmp_path, monkeypatch)
    run = begin(where, id="abc", resume=resume)
    run.log({"loss": 1.0}, step=0)
    run.finish()
    deliver(run)
    assert (losses(where), run.step) == ([1.0], 0)
    with pytest.raises(Fatal, match="goes on elsewhere, as attempt 2: 3 records that weren't sent before lie in"):
        Sender(Store(where), Path(killed), "digits/abc").send()


def test_attempt_that_never_sent_is_followed_by_another(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three nodes that take a run over has a number of its own, whatever it got to."""
    run = begin(where, id="abc")
    run.log({"loss": 0.0}, step=0)
    run.finish()
    deliver(run)
    for node in ("node-b", "node-c"):
        other_machine(tmp_path, monkeypatch, node)
        killed_before_it_sent(where, resume="must")
    other_machine(tmp_path, monkeypatch, "node-d")
    last = begin(where, id="abc", resume="must")
    assert (last.step, Path(str(last.dir), "streams/rank-0.4.jsonl").exists()) == (0, True)
    last.log({"loss": 1.0}, step=1)
    last.finish()
    deliver(last)
    assert losses(where) == [0.0, 1.0]
    (shown,) = find_runs(mirror.update_copy(addresses.normalize(where), str(tmp_path / "reader")))
    assert [attempt["number"] for attempt in shown.read_info().attempts] == [1, 4]


@pytest.mark.parametrize("resume", [None, "never"])
def test_id_that_was_begun_elsewhere_is_taken(
    where: str, resume: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing of it is in the store: two programs of one id would be one run."""
    killed_before_it_sent(where)
    other_machine(tmp_path, monkeypatch)
    with pytest.raises(
        UsageError, match=r"'abc' was begun on .+, which has sent nothing of it: resume='allow' goes on"
    ):
        begin(where, id="abc", resume=resume)
    assert not list((tmp_path / "node-b").rglob("*.jsonl"))
    with pytest.raises(NotFound, match="no run 'abc'"):
        begin(where, id="abc", resume="must")


def test_note_of_a_removal_is_no_attempt(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was removed from the store leaves its id free."""
    run = begin(where, id="abc")
    run.finish()
    deliver(run)
    removal.remove(Store(where), "digits/abc")
    other_machine(tmp_path, monkeypatch)
    again = begin(where, id="abc")
    again.log({"loss": 1.0})
    again.finish()
    deliver(again)
    assert Path(str(again.dir), "streams/rank-0.1.jsonl").exists()
    assert losses(where) == [1.0]


def test_launch_of_the_same_name_gets_another_id(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of several pods that starts anew has the address of before, and its run's id follows from that."""
    for name, value in {"MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    ids = []
    for node in ("node-a", "node-b"):
        other_machine(tmp_path, monkeypatch, node)
        monkeypatch.setattr(launch, "_count", itertools.count())
        run = begin(where)
        run.log({"loss": 1.0})
        run.finish()
        deliver(run)
        ids.append(run.id)
    assert len(set(ids)) == 2


def test_offline_asks_no_store(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no way to the store a run with an id begins, and goes on with what is here."""

    def away(*_: Any) -> Any:
        raise AssertionError("offline")

    monkeypatch.setattr(Store, "_call", away)
    first = begin(where, id="abc", mode="offline")
    first.log({"loss": 1.0}, step=0)
    first.finish()
    second = begin(where, id="abc", mode="offline", resume="must")
    assert second.step == 0
    second.finish()


def test_id_that_the_store_has_is_taken(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where directories are shared."""
    run = begin(where, id="abc")
    run.finish()
    deliver(run)
    other_machine(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="exists"):
        begin(where, id="abc")


@pytest.mark.slow
def test_auto_finds_the_unfinished_run_of_another_machine(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requeued job on another node goes on with its run, without an id, though one before it sent nothing."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    run = begin(where, name="baseline")
    run.log({"loss": 0.0}, step=0)
    deliver(run)
    for restart, node in enumerate(("node-b", "node-c"), 1):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restart))
        other_machine(tmp_path, monkeypatch, node)
        trackers.finish()
        later = begin(where, name="baseline", resume="auto")
        assert later.id == run.id
        assert later.step == 0
        assert Path(str(later.dir), f"streams/rank-0.{restart + 1}.jsonl").exists()


def test_without_a_store_a_new_run_begins_and_an_old_one_doesn_t(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away keeps nobody from training; who asks for an earlier run is told what that needs."""

    def away(*_: Any) -> Any:
        raise Unavailable("no route to the store")

    monkeypatch.setattr(Store, "_call", away)
    run = begin(where)
    run.log({"loss": 1.0})
    run.finish()
    with pytest.raises(UsageError, match="resume='auto' needs what the store has: no route"):
        begin(where, resume="auto")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"TRACKER_DIR": "s4://bucket"}, "'s4://bucket' is no store: give s3://"),
        ({"TRACKER_DIR": "s3://"}, "names no bucket: give"),
        ({"TRACKER_DIR": "s3://key:secret@bucket"}, "holds no keys: give s3://bucket/prefix"),
        ({"TRACKER_STORE_EVERY": "soon"}, "TRACKER_STORE_EVERY"),
        ({"TRACKER_STORE_EVERY": "0"}, "1 to 3600|range"),
    ],
)
def test_mistakes_are_named_before_the_first_step(where: str, options: dict[str, str], message: str) -> None:
    """In one line, with what to give."""
    with pytest.raises(UsageError, match=message):
        trackers.init("json", options={"TRACKER_DIR": where, "TRACKER_RELAY": False, **options})


def test_storage_without_a_store_says_what_it_needs() -> None:
    """The tracker is there by the address; by its name alone it has nowhere to send to."""
    with pytest.raises(UsageError, match="give s3://bucket/prefix"):
        trackers.init("storage")


def test_missing_client_is_named(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings it."""
    monkeypatch.setattr("trackers.backends.registry._installed", lambda module: module != "obstore")
    with pytest.raises(MissingPackage, match=r"pip install 'trackers-relay\[storage\]'"):
        trackers.init("json", dir=where)


@pytest.mark.slow
def test_copy_isn_t_changed(where: str, tmp_path: Path) -> None:
    """What would write to runs refuses a copy, whose changes nobody would get."""
    run = begin(where)
    run.finish()
    deliver(run)
    for words in (["sync"], ["edit", "latest", "--name", "x"], ["archive"]):
        said = forked.run([sys.executable, "-m", "trackers", *words, "--dir", where], preload=forked.HELPERS)
        assert said.returncode == 2, words
        assert "is a copy of a store's runs" in said.stderr, said.stderr


@pytest.mark.slow
def test_run_of_this_node_is_synced_by_its_path(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As messages name it, though TRACKER_DIR is the store; the same path in a copy is refused."""
    run = begin(where)
    run.finish()
    deliver(run)
    monkeypatch.setenv("TRACKER_DIR", where)
    own = str(run.dir)
    done = forked.run([sys.executable, "-m", "trackers", "sync", own], preload=forked.HELPERS)
    assert done.returncode == 0, done.stderr
    copy = mirror.update_copy(addresses.normalize(where)) / Path(own).parent.name / Path(own).name
    said = forked.run([sys.executable, "-m", "trackers", "sync", str(copy)], preload=forked.HELPERS)
    assert said.returncode == 2
    assert "is a copy of a store's runs" in said.stderr


def standing_there(where: str, tmp_path: Path) -> dict[str, str]:
    """How the one run's trackers stand, as a reader of the store is told."""
    (there,) = find_runs(mirror.update_copy(addresses.normalize(where), str(tmp_path / "reader")))
    return {name: entry["state"] for name, entry in delivery_report(there, there.read_info().trackers).items()}


@pytest.mark.slow
def test_store_hears_of_trackers_that_end_after_it(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is delivered by hand later, the next sync sends the files and that it is delivered."""
    run = begin(where)
    run.log({"loss": 0.0}, step=0)
    run.finish()
    own = RunDirectory(Path(str(run.dir)))
    assert sync([own], ["storage"], lambda work: None)
    assert standing_there(where, tmp_path) == {"json": "not begun", "storage": "delivered"}
    assert sync([own], ["json"], lambda work: None)
    assert delivery_report(own, ["storage"])["storage"]["state"] == "waiting"
    assert sync([own], [], lambda work: None)
    assert delivery_report(own, ["storage"])["storage"]["state"] == "delivered"
    mirror._following.clear()
    assert standing_there(where, tmp_path) == {"json": "delivered", "storage": "delivered"}
    (log,) = own.path.glob("*_*.json")
    assert list((tmp_path / "store").rglob(log.name))


@pytest.mark.processes
def test_one_sync_tells_the_store_of_trackers_that_begin_late(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may be delivered before another tracker's process has begun: that it is delivered arrives there."""
    run = begin(where)
    run.log({"loss": 0.0}, step=0)
    run.finish()
    own = RunDirectory(Path(str(run.dir)))
    start = Deliveries.start

    def start_late(deliveries: Deliveries, child: Child, deaths: int) -> Any:
        if child.name != "storage" and not read_account(own, "storage").closed:
            raise OSError("later")
        return start(deliveries, child, deaths)

    monkeypatch.setattr(Deliveries, "start", start_late)
    assert sync([own], [], lambda work: None)
    assert standing_there(where, tmp_path) == {"json": "delivered", "storage": "delivered"}


def deliver(run: Run) -> None:
    """Send what there is, as the relay would, and all of it if the run has ended."""
    directory = Path(str(run.dir))
    sender = Sender(Store(str(run._recorder.info.option("TRACKER_DIR"))), directory, "/".join(directory.parts[-2:]))
    sender.finish()


def test_run_of_another_machine_is_forked(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine hasn't is fetched from the store; the fork is sent there as a run of its own."""
    run = begin(where, id="abc")
    for step in range(10):
        run.log({"loss": float(step)}, step=step)
    run.finish()
    Sender(Store(where), Path(run.dir), "digits/abc").send()
    other_machine(tmp_path, monkeypatch)
    fork = begin(where, id="kid", fork_from="abc@4")
    assert "node-b" in fork.dir
    fork.log({"loss": 40.0}, step=5)
    fork.finish()
    assert trackers.load(fork.dir).metrics()["loss"].to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0, 40.0]
    Sender(Store(where), Path(fork.dir), "digits/kid").send()
    copy = mirror.update_copy(addresses.normalize(where), str(Path("reader").absolute()))
    assert trackers.load(str(copy / "digits/kid")).metrics()["loss"].to_pylist()[-1] == 40.0
    with pytest.raises(NotFound, match="no run 'nobody'"):
        begin(where, fork_from="nobody@4")
