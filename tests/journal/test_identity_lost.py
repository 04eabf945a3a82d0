"""``run.json`` is emptied, deleted or damaged: the journal says who the run is, and it is put back."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import trackers
from tests.helpers import T0
from trackers.cli.app import app
from trackers.errors import Damaged, NotFound
from trackers.journal import signature
from trackers.journal.naming import find_run
from trackers.journal.run_directory import DOOMED, RunDirectory, StreamName, find_runs, is_run
from trackers.journal.status import observe
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Config, Finish, Metrics, Start, encode
from trackers.training.run import Run

HARMS: dict[str, Any] = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "NUL bytes": lambda path: path.write_bytes(b"\0" * 4096),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfegarbage"),
    "not ours": lambda path: path.write_text('{"a": 1}'),
    "a list": lambda path: path.write_text("[]"),
}


def look(run: Run) -> None:
    run._recorder.poll(run._recorder.poll_at + 1)


IN_ITS_PLACE: dict[str, Any] = {
    "a link": lambda path: (path.rename(path.with_name("kept")), path.symlink_to("kept")),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
}
"""What ``run.json`` is never read through: the journal is asked once it is gone."""


@pytest.mark.parametrize("harm", [*HARMS.values(), *IN_ITS_PLACE.values()], ids=[*HARMS, *IN_ITS_PLACE])
def test_identity_is_put_back_while_training_runs(harm: Any, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """At the next look it is there as before, and one line says so; the end looks once more."""
    directory = RunDirectory(run.dir)
    before = json.loads(directory.identity.read_bytes())
    run.log({"loss": 1.0}, step=0)
    look(run)
    harm(directory.identity)
    look(run)
    assert json.loads(directory.identity.read_bytes()) == before
    look(run)
    harm(directory.identity)
    run.finish()
    assert json.loads(directory.identity.read_bytes()) == before
    assert capsys.readouterr().err.count("run.json was deleted or damaged while training runs: it is put back") == 1


@pytest.mark.parametrize("what", ["streams", "."])
def test_folder_that_is_deleted_is_made_again(what: str, run: Run) -> None:
    """The streams' folder alone, or the run's directory: journal and identity are there again, whole."""
    directory = RunDirectory(run.dir)
    before = json.loads(directory.identity.read_bytes())
    run.log({"loss": 0.0}, step=0)
    shutil.rmtree(directory.path / what)
    run.log({"loss": 1.0}, step=1)
    look(run)
    run.log({"loss": 2.0}, step=2)
    assert json.loads(directory.identity.read_bytes()) == before
    found = StreamReader(directory.stream(StreamName("rank", 0, 1))).read(100)
    assert [record.step for record in found if isinstance(record, Metrics)] == [0, 1, 2]


def test_identity_that_another_attempt_wrote_stays(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A new ``run.json`` that can be read is somebody's who may: it isn't replaced."""
    directory = RunDirectory(run.dir)
    info = directory.read_info()
    info.tags = ["of another attempt"]
    directory.write_info(info)
    look(run)
    run.finish()
    assert directory.read_info().tags == ["of another attempt"]
    assert "put back" not in capsys.readouterr().err


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run of two attempts that has ended, undelivered."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    common: dict[str, Any] = {"project": "of/a team", "id": "r", "mode": "offline"}
    first = trackers.init(
        "json", name="baseline", config={"lr": 0.1, "api_key": "hunter2"}, tags=["a", "b"], group="g", notes="n",
        job_type="train", **common,
    )  # fmt: skip
    first.log({"loss": 1.0}, step=0)
    first.finish()
    second = trackers.init("csv", config={"lr": 0.2}, resume="must", **common)
    second.log({"loss": 0.5}, step=1)
    second.config.update({"late": True})
    second.finish()
    return RunDirectory(second.dir)


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_run_without_an_identity_is_read_from_its_journal(harm: Any, finished: RunDirectory) -> None:
    """Where nobody lives: everything that run.json said comes from the streams, its seal too; nothing is written."""
    before = finished.read_info()
    harm(finished.identity)
    content = finished.identity.read_bytes() if finished.identity.exists() else None
    after = finished.read_info()
    assert after == before
    assert signature.valid(after)
    assert after.config["lr"] == 0.2
    assert "hunter2" not in str(after)
    assert observe(finished).name == "finished"
    assert [run.path for run in find_runs(Path("runs"))] == [Path("runs/of%2Fa team/r")]
    assert (
        find_run("baseline", Path("runs")).path == find_run("latest", Path("runs")).path == Path("runs/of%2Fa team/r")
    )
    assert (finished.identity.read_bytes() if finished.identity.exists() else None) == content
    assert trackers.load(str(finished.path)).config["late"] is True
    resumed = trackers.init("json", project="of/a team", id="r", mode="offline", resume="must")
    assert (resumed.name, resumed.resumed, resumed.step) == ("baseline", True, 1)
    resumed.finish()
    assert json.loads(finished.identity.read_bytes())["name"] == "baseline"


@pytest.mark.parametrize("harm", IN_ITS_PLACE.values(), ids=IN_ITS_PLACE)
def test_identity_that_is_no_file_is_named_with_what_to_do(harm: Any, finished: RunDirectory) -> None:
    """A link isn't followed and a FIFO isn't waited for; once it is removed, the journal says who the run is."""
    before = finished.read_info()
    harm(finished.identity)
    with pytest.raises(NotFound, match=r"run\.json can't be read: .*; remove it: the journal says who the run is"):
        finished.read_info()
    finished.identity.unlink()
    assert finished.read_info() == before


@pytest.mark.processes
def test_commands_show_and_deliver_a_run_without_an_identity(finished: RunDirectory) -> None:
    """ls, show and sync work; sync puts the identity back and says so."""
    before = json.loads(finished.identity.read_bytes())
    finished.identity.unlink()
    runner = CliRunner()
    for command in (["ls"], ["show", "r"]):
        answer = runner.invoke(app, command)
        assert answer.exit_code == 0, answer.output
        assert "baseline" in answer.output
    assert not finished.identity.exists()
    answer = runner.invoke(app, ["sync", "r"])
    assert answer.exit_code == 0, answer.output
    assert "run.json was lost or damaged: it is put back as the journal has it" in finished.messages.read_text()
    assert json.loads(finished.identity.read_bytes()) == before
    assert (finished.path / "metrics.csv").exists()


def test_journal_of_an_earlier_version_still_names_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the streams don't hold the identity: id and project are the directory's, the rest is what they do hold."""
    monkeypatch.setattr(signature, "_written", set())  # the same instructions, none, as another test's run may have
    run = RunDirectory(tmp_path / "runs/my%2Fproject/abc")
    run.make()
    for attempt in (1, 2):
        writer = StreamWriter(run.stream(StreamName("rank", 0, attempt)))
        writer.write(encode(Start(time=T0 + attempt, attempt=attempt, rank=0, host="node", pid=7, boot_id="b")))
        writer.write(encode(Config(time=T0, values={"lr": attempt, f"only{attempt}": 1})))
        writer.write(encode(Metrics(step=attempt, time=T0 + attempt, values={"loss": 1.0})))
        writer.write(encode(Finish(time=T0 + 10, status="finished")))
        writer.release()
    info = run.read_info()
    assert (info.id, info.name, info.project, info.created) == ("abc", "abc", "my/project", T0 + 1)
    assert info.config == {"lr": 2, "only1": 1, "only2": 1}
    assert [attempt["number"] for attempt in info.attempts] == [1, 2]
    assert (info.host, info.pid, info.boot_id) == ("node", 7, "b")
    assert not signature.valid(info)
    assert run.put_back()
    assert not run.put_back()
    assert run.stored_info().project == "my/project"


def test_what_is_no_run_stays_none(finished: RunDirectory, tmp_path: Path) -> None:
    """A directory without a beginning, one that is being deleted, and other folders aren't runs."""
    finished.identity.rename(finished.path / DOOMED)
    assert not is_run(finished.path)
    with pytest.raises(NotFound, match="no run in"):
        finished.read_info()
    empty = RunDirectory(tmp_path / "runs/p/empty")
    empty.make()
    assert not is_run(empty.path)
    empty.stream(StreamName("rank", 0, 1)).touch()
    assert not is_run(empty.path)
    empty.stream(StreamName("rank", 0, 1)).write_bytes(b"garbage\n")
    empty.identity.write_bytes(b"")
    with pytest.raises(Damaged, match=r"run\.json is damaged"):
        empty.read_info()
    shutil.rmtree(empty.path)


def test_identity_in_a_journal_is_data(tmp_path: Path) -> None:
    """A hostile head of a stream makes no exception but ours, and its options are no instructions."""
    run = RunDirectory(tmp_path / "runs/p/r")
    run.make()
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    path = run.stream(StreamName("rank", 0, 1))
    path.write_bytes(json.dumps({"kind": "start", "time": T0, "run": {"options": deep}}).encode() + b"\n")
    with pytest.raises(NotFound):  # a record that is nested so deep is damage, and there is no other
        run.read_info()
    with path.open("ab") as stream:
        stream.write(encode(Metrics(step=1, time=T0 + 1, values={"loss": 1.0})))
    assert (run.read_info().id, run.read_info().project, run.read_info().created) == ("r", "p", T0 + 1)
    assert trackers.load(str(run.path)).keys() == ["loss"]
    for said in ({"id": 5}, {"id": "x", "name": [], "project": "p"}, {"id": "x"}, {"attempts": 3}):
        path.write_bytes(json.dumps({"kind": "start", "time": T0, "run": said}).encode() + b"\n")
        assert run.read_info().id == "r"
    said = {"id": "r", "name": "n", "project": "p", "options": {"TRACKER_PYTHON": "mlflow=/tmp/evil"}, "seal": "0" * 64}
    path.write_bytes(json.dumps({"kind": "start", "time": T0, "run": said}).encode() + b"\n")
    assert run.read_info().name == "n"
    assert run.put_back()
    assert not signature.valid(run.read_info())
