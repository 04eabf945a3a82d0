"""Edits: in the journal when the call returns, seen by every reader, delivered once to every tracker."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

import trackers
from tests import forked
from tests.helpers import wait_for
from trackers.analysis.run_list import glance, overview
from trackers.cli import editing as cli_editing
from trackers.cli.app import app
from trackers.editing import delivering, edits
from trackers.editing.edits import Attributes, attributes, edit
from trackers.errors import UsageError
from trackers.journal import attempts
from trackers.journal.helper_process import command
from trackers.journal.lease import read_holder
from trackers.journal.naming import find_run
from trackers.journal.run_directory import EDITS_STREAM, RunDirectory, find_runs
from trackers.journal.stream import StreamReader
from trackers.object_storage import addresses, mirror
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store
from trackers.readers.journal import JournalReader
from trackers.records import Info
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.relay.parts.plans import DeliveryPlan, arguments
from trackers.retention.archive import archive, restore


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A finished run, in the JSON log."""
    monkeypatch.chdir(tmp_path)
    return made()


def made(tracker: str = "json", **more: object) -> RunDirectory:
    """A finished run, delivered inside this process."""
    given = {"project": "p", "id": "one", "name": "first", "tags": ["draft"], **more}
    run = trackers.init(tracker, inline=True, **given)  # type: ignore[arg-type]
    run.log({"loss": 1.0}, step=1)
    run.finish()
    return RunDirectory(Path(run.path))


def change(**values: object) -> object:
    """A change that sets some attributes."""
    return lambda now: msgspec.structs.replace(now, **values)


def document(run: RunDirectory) -> dict[str, object]:
    """The run's JSON log."""
    (path,) = run.path.glob("*_*.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def test_edit_is_seen_by_every_reader(run: RunDirectory) -> None:
    """In listings, overviews, data and by the run's new name; what isn't edited stays."""
    changed = edit(run, change(name="second", tags=("best",), group="g"))  # type: ignore[arg-type]
    assert changed == {"name": ("first", "second"), "tags": (("draft",), ("best",)), "group": ("", "g")}
    assert edit(run, change(name="second")) == {}  # type: ignore[arg-type]
    assert find_run("second", Path("runs")).path.name == "one"
    (source,) = JournalReader(Path("runs")).runs("p/second")
    assert (source.name, source.tags, source.group) == ("second", ["best"], "g")
    data = trackers.load("second")
    assert (data.run.name, data.run.tags, data.run.group, data.run.notes) == ("second", ["best"], "g", None)
    for view in (glance(run), overview(run)):
        assert (view.info.name, view.info.tags, view.info.group) == ("second", ["best"], "g")
    assert overview(run).status.name == "finished"


@pytest.mark.heavy
def test_tables_and_comparisons_show_the_edit(run: RunDirectory) -> None:
    """What reads runs through its caches, too."""

    def table() -> object:
        return trackers.sql("select name, tags from runs").table.to_pylist()

    assert table() == [{"name": "first", "tags": ["draft"]}]
    edit(run, change(name="second", tags=("best", "b")))  # type: ignore[arg-type]
    edits.add_results(run, {"final/acc": 0.5})
    assert table() == [{"name": "second", "tags": ["best", "b"]}]
    assert "second" in str(trackers.compare_runs("p"))
    assert "second" in str(trackers.best_runs("final/acc", ["p"]))


def test_what_was_edited_last_counts_over_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Script and edit take turns; a run that is resumed keeps its edits, and adds the tags that init gives."""
    monkeypatch.chdir(tmp_path)
    run = made()
    edit(run, change(name="second", tags=("best",), notes="edited", group="g"))  # type: ignore[arg-type]
    again = trackers.init("json", project="p", id="one", resume="must", inline=True, tags=["more"], group="new")
    again.log({"loss": 0.5}, step=2)
    again.finish()
    assert attributes(run) == Attributes(name="second", tags=("best", "more"), notes="edited", group="new")
    for view in (glance(run), overview(run)):
        assert (view.info.name, view.info.tags, view.info.group) == ("second", ["best", "more"], "new")
    found = trackers.load("one").run
    assert (found.name, found.tags, found.group, found.notes) == ("second", ["best", "more"], "new", "edited")
    assert document(run)["tags"] == ["best", "more"]
    edit(run, change(tags=("last",)))  # type: ignore[arg-type]
    assert attributes(run).tags == ("last",)
    assert overview(run).info.tags == ["last"]
    assert trackers.load("one").run.tags == ["last"]
    third = trackers.init("json", project="p", id="one", resume="must", inline=True)
    third.tags = ["script"]
    third.finish()
    assert (attributes(run).tags, overview(run).info.tags, trackers.load("one").run.tags) == (
        ("script",), ["script"], ["script"],
    )  # fmt: skip
    assert trackers.load("one").run.name == "second"


def test_restarted_job_finds_its_renamed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """resume="auto" looks for the name that the script gives, which an edit doesn't take away."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", project="p", name="job", inline=True)
    run.finish(exit_code=1)
    edit(RunDirectory(Path(run.path)), change(name="renamed"))  # type: ignore[arg-type]
    again = trackers.init("json", project="p", name="job", inline=True, resume="auto")
    again.finish()
    assert again.id == run.id
    assert trackers.load(again.id).run.name == "renamed"


@pytest.mark.slow
@pytest.mark.processes
def test_edit_reaches_trackers_by_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has it once; the files keep the names that they were made with."""
    monkeypatch.chdir(tmp_path)
    run = made("json,csv,tensorboard")
    before = sorted(path.name for path in run.path.iterdir() if path.suffix in (".json", ".csv"))
    with trackers.open("one") as opened:
        opened.name = "second"
        opened.tags += ["best"]
        opened.summary["final/acc"] = 0.5
        assert opened.sync()
        assert (opened.name, opened.tags, dict(opened.summary)) == ("second", ("draft", "best"), {"acc": 0.5})
    found = document(run)
    assert (found["run_name"], found["tags"]) == ("second", ["draft", "best"])
    assert sorted(path.name for path in run.path.iterdir() if path.suffix in (".json", ".csv")) == before
    rows = (run.path / "metrics.csv").read_text().splitlines()
    assert len(rows) == 2
    data = trackers.load(f"tb:{run.path / 'tensorboard'}")
    assert (data.run.name, data.run.tags, data.summary) == ("second", ["draft", "best"], {"acc": 0.5})


DELIVERED = ("open.after", "write.before", "write.after", "commit.after", "close.before", "close.after")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("point", ["edit.record.before", "edit.record.after", *(f"json.{name}" for name in DELIVERED)])
def test_edit_killed_at_each_point_is_there_once_or_never(run: RunDirectory, point: str) -> None:
    """Before the record is written nothing has changed; from then on a sync brings it."""
    env = {**os.environ, "TRACKERS_FAILPOINT": f"{point}=kill"}
    words = [sys.executable, "-m", "trackers", "edit", "one", "--name", "second", "--add-tag", "best", "--later"]
    assert forked.run(words, preload=forked.PACKAGE, env=env).returncode == (
        -signal.SIGKILL if point.startswith("edit.") else 0
    )
    if not point.startswith("edit."):
        delivery = command(arguments("delivery", run.path.resolve(), DeliveryPlan("json", os.getpid())))
        assert forked.run(delivery, preload=forked.PACKAGE, env=env).returncode == -signal.SIGKILL, (
            f"{point} isn't passed"
        )
    assert forked.run([sys.executable, "-m", "trackers", "sync", "one"], preload=forked.PACKAGE).returncode == 0
    records = StreamReader(run.stream(EDITS_STREAM)).read()
    made = point != "edit.record.before"
    assert [record.tags for record in records if isinstance(record, Info)] == ([["draft", "best"]] if made else [])
    assert (document(run)["run_name"], document(run)["tags"]) == (
        ("second", ["draft", "best"]) if made else ("first", ["draft"])
    )
    assert len(document(run)["training_iterations"]) == 1  # type: ignore[arg-type]


def test_two_that_edit_at_once_lose_nothing(run: RunDirectory) -> None:
    """Tags that are added are added to what is there."""

    def add(number: int) -> None:
        edit(run, lambda now: msgspec.structs.replace(now, tags=(*now.tags, f"t{number}")))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(attributes(run).tags) == ["draft", *(f"t{number}" for number in range(8))]


def test_torn_edit_of_a_killed_process_is_cut(run: RunDirectory) -> None:
    """Half a line is no edit, and no obstacle for the next one."""
    edit(run, change(name="second"))  # type: ignore[arg-type]
    with run.stream(EDITS_STREAM).open("ab") as file:
        file.write(b'{"kind":"info","name":"torn')
    assert attributes(run).name == "second"
    edit(run, change(notes="n"))  # type: ignore[arg-type]
    assert attributes(run) == Attributes(name="second", tags=("draft",), notes="n")


def test_running_run_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deliveries read the stream of edits; what the script sets later counts."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", project="p", id="one", name="first", inline=True)
    run.log({"loss": 1.0}, step=1)
    directory = RunDirectory(Path(run.path))
    with trackers.open("one") as opened:
        opened.edit(name="second", tags="a,b")
        assert opened.status == "running"
    run.log({"loss": 0.5}, step=2)
    run.tags = ["script"]
    run.finish()
    assert (document(directory)["run_name"], document(directory)["tags"]) == ("second", ["script"])
    assert attributes(directory) == Attributes(name="second", tags=("script",))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": " \n"}, "can't be empty"),
        ({"name": "x" * 501}, "501 characters"),
        ({"tags": tuple(map(str, range(1001)))}, "1,001 tags"),
        ({"tags": ("x" * 501,)}, "501 characters"),
        ({"group": "x" * 501}, "501 characters"),
        ({"notes": "x" * 1_000_001}, "1,000,001 characters"),
    ],
    ids=["empty", "name", "tags", "tag", "group", "notes"],
)
def test_bad_values_are_one_line_and_change_nothing(run: RunDirectory, values: dict[str, object], said: str) -> None:
    """Bounds of what a run may be called."""
    with pytest.raises(UsageError, match=said):
        edit(run, change(**values))  # type: ignore[arg-type]
    assert not run.stream(EDITS_STREAM).exists()


def test_odd_values_are_kept_as_text(run: RunDirectory) -> None:
    """Line breaks of a name, repeated and empty tags, secrets, and names that aren't UTF-8."""
    edit(run, change(name=" a\n b\udce9", tags=("x", " x", "", "y,z"), notes="token hf_" + "a" * 34))  # type: ignore[arg-type]
    found = attributes(run)
    assert found.name.split() == found.name.split("\n")[0].split()
    assert found.tags == ("x", "y,z")
    assert "hf_aaaaa" not in found.notes
    assert trackers.load("one").run.notes == found.notes


def test_copies_archives_and_others_runs_refuse(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with one line that says what to do."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path).name != "streams")
        with pytest.raises(UsageError, match=r"may not write to .*streams, which belongs to"):
            trackers.open("one")
    (run.path.parent.parent / addresses.COPY_MARKER).write_text("s3://bucket\n")
    with pytest.raises(UsageError, match="is a copy of a store's run, and can't be edited"):
        trackers.open(run.path)
    (run.path.parent.parent / addresses.COPY_MARKER).unlink()
    run.archive.write_text("{}")
    with pytest.raises(UsageError, match="is archived: `trackers restore"):
        trackers.open("one")


def test_full_disk_is_said_and_nothing_is_changed(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of which only a part was written is taken back."""
    real = os.write

    def full(fd: int, line: bytes) -> int:
        return real(fd, line[:10]) if b'"kind":"info"' in line else real(fd, line)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(UsageError, match=r"can't be edited \(No space left on device\)"):
            edit(run, change(name="second"))  # type: ignore[arg-type]
    assert run.stream(EDITS_STREAM).read_bytes() == b""
    assert attributes(run).name == "first"


def test_file_that_keeps_an_edit_from_being_made_is_named(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One may not read a stream of somebody else's."""

    def refuse(of: RunDirectory) -> float:
        raise PermissionError(errno.EACCES, "Permission denied", str(of.streams / "rank-0.1.jsonl"))

    monkeypatch.setattr(edits, "_now", refuse)
    with pytest.raises(UsageError, match=r"can't be edited \(.*/rank-0\.1\.jsonl: Permission denied\); nothing was"):
        edit(run, change(name="second"))  # type: ignore[arg-type]


def test_edit_of_a_run_whose_clock_is_ahead_counts(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes behind all that training said, though this machine's clock is behind."""
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    edit(run, change(tags=("late",)))  # type: ignore[arg-type]
    assert trackers.load("one").run.tags == ["late"]


def test_results_are_values_that_trackers_take(run: RunDirectory) -> None:
    """Numbers, texts, lists; anything else is one line."""
    with trackers.open("one") as opened:
        opened.summary.update(acc=0.5, worst=float("nan"), classes=[1, 2])
        with pytest.raises(UsageError, match="result 'odd'"):
            opened.summary["odd"] = object()
        with pytest.raises(UsageError, match="can't take it back"):
            del opened.summary["acc"]
        assert list(opened.summary) == ["acc", "worst", "classes"]
        opened._changed = False
    assert [run.path.name for run in find_runs(Path("runs"))] == ["one"]


@pytest.mark.processes
def test_leaving_the_block_has_a_process_deliver(run: RunDirectory) -> None:
    """Nobody waits for it; a block in which nothing changed starts none."""
    with trackers.open("one"):
        pass
    assert not (run.delivery / "json.lease").exists()
    with trackers.open("one") as opened:
        opened.name = "second"
    wait_for(lambda: document(run)["run_name"] == "second")
    wait_for(lambda: delivery_report(run, ["json"])["json"]["state"] == "delivered")
    wait_for(lambda: read_holder(run.delivery / "json.lease") is None)


@pytest.mark.processes
def test_archived_run_keeps_its_edits(run: RunDirectory) -> None:
    """It reads as it was edited; to be edited again it is restored."""
    edit(run, change(name="second", notes="n"))  # type: ignore[arg-type]
    assert trackers.open("one").sync()
    archive(run, 0.0)
    assert (run.read_info().name, glance(run).info.notes, trackers.load("second").run.name) == ("second", "n", "second")
    with pytest.raises(UsageError, match="is archived"):
        edit(run, change(name="third"))  # type: ignore[arg-type]
    restore(run)
    edit(run, change(name="third"))  # type: ignore[arg-type]
    assert attributes(run).name == "third"


def test_copy_of_a_store_has_the_edits(run: RunDirectory, tmp_path: Path) -> None:
    """The stream of edits is sent as the others are."""
    Sender(Store(f"file://{tmp_path}/store"), run.path, "p/one").finish()
    edit(run, change(name="second", tags=("best",)))  # type: ignore[arg-type]
    Sender(Store(f"file://{tmp_path}/store"), run.path, "p/one").finish()
    mirror.copy(f"file://{tmp_path}/store", tmp_path / "copy")
    found = trackers.load(str(tmp_path / "copy" / "p" / "one")).run
    assert (found.name, found.tags) == ("second", ["best"])


def test_lost_identity_comes_back_with_the_edits(run: RunDirectory) -> None:
    """The journal says who the run is, and what was changed."""
    edit(run, change(name="second", tags=("best",)))  # type: ignore[arg-type]
    run.identity.unlink()
    assert (run.read_info().name, run.read_info().tags) == ("second", ["best"])
    run.put_back()
    assert (run.read_info().name, run.stored_info().name) == ("second", "first")


def test_damaged_and_hostile_edits_hurt_nobody(run: RunDirectory) -> None:
    """Lines that are no edits, a link in the stream's place, types that don't fit: what can be read counts."""
    edit(run, change(name="second"))  # type: ignore[arg-type]
    with run.stream(EDITS_STREAM).open("ab") as file:
        file.write(b'{"kind":"info","tags":"no list","time":1}\nnonsense\n{"kind":"info","name":["x"]}\n\0\0\n')
        file.write(b'{"kind":"info","notes":"good","time":1795459487}\n')
    assert (run.read_info().name, run.read_info().notes) == ("second", "good")
    assert trackers.load("one").run.name == "second"
    run.stream(EDITS_STREAM).rename("elsewhere.jsonl")
    run.stream(EDITS_STREAM).symlink_to(Path("elsewhere.jsonl").resolve())
    assert run.read_info().name == "first"
    with pytest.raises(UsageError, match="is a link"):
        edit(run, change(name="third"))  # type: ignore[arg-type]


def edit_cli(*words: str) -> Result:
    """A command, as typer runs it."""
    return CliRunner().invoke(app, ["edit", "one", "--later", *words], catch_exceptions=True)


@pytest.mark.slow
def test_last_edit_is_taken_back(run: RunDirectory) -> None:
    """As another edit, which --redo takes back; what somebody changed since stays."""
    assert "no edit of its name, tags, notes or group is left" in edit_cli("--undo").stderr
    edit(run, change(name="second", tags=("best",)))  # type: ignore[arg-type]
    edits.add_results(run, {"final/acc": 0.5})
    assert edit_cli("--undo").stdout == "p/one: name 'second' → 'first', tags +draft -best\n"
    assert attributes(run) == Attributes(name="first", tags=("draft",))
    assert edit_cli("--redo").exit_code == 0
    assert attributes(run) == Attributes(name="second", tags=("best",))
    again = trackers.init("json", project="p", id="one", resume="must", inline=True)
    again.tags = ["script"]
    again.finish()
    assert edit_cli("--undo").stdout == "p/one: name 'second' → 'first'\n"
    assert attributes(run) == Attributes(name="first", tags=("script",))


@pytest.mark.heavy
def test_undo_walks_back_and_redo_forth(run: RunDirectory) -> None:
    """Each --undo takes one edit further back, down to none; --redo the other way, until there is another edit."""
    for name in "bcd":
        edit(run, change(name=name))  # type: ignore[arg-type]
    assert [edit_cli("--undo").stdout.split()[-1] for _ in range(2)] == ["'c'", "'b'"]
    edit(run, change(notes="kept"))  # type: ignore[arg-type]
    assert "no edit was taken back since" in edit_cli("--redo").stderr
    assert edit_cli("--undo").stdout == "p/one: notes removed\n"
    assert edit_cli("--undo").stdout == "p/one: name 'b' → 'first'\n"
    nothing = edit_cli("--undo")
    assert (nothing.exit_code, nothing.stderr.count("\n")) == (1, 1)
    assert "is left to take back" in nothing.stderr
    assert edit_cli("--redo").stdout == "p/one: name 'first' → 'b'\n"
    assert edit_cli("--redo").stdout == "p/one: notes 'kept'\n"
    assert "no edit was taken back since" in edit_cli("--redo").stderr
    assert edit_cli("--undo").stdout == "p/one: notes removed\n"
    assert attributes(run) == Attributes(name="b", tags=("draft",))


def test_undo_passes_over_what_others_changed_again(run: RunDirectory) -> None:
    """An edit of which nothing is left doesn't stop the walk back."""
    edit(run, change(tags=("a",)))  # type: ignore[arg-type]
    edit(run, change(name="second"))  # type: ignore[arg-type]
    again = trackers.init("json", project="p", id="one", resume="must", inline=True)
    again.name = "script"
    again.finish()
    result = edit_cli("--undo")
    assert (result.stdout, result.stderr) == ("p/one: tags +draft -a\n", "")
    assert attributes(run) == Attributes(name="script", tags=("draft",))


@pytest.mark.heavy
def test_edits_are_listed(run: RunDirectory) -> None:
    """Old and new, results too; as JSON with the times."""
    assert edit_cli("--history").stderr == "no edits\n"
    edit_cli("--name", "second", "--add-tag", "a,b", "--remove-tag", "draft", "--notes", "n")
    edit_cli("--result", "final/acc=0.5", "--result", "word=x=y")
    lines = edit_cli("--history").stdout.splitlines()
    assert [line.split("  ")[2] for line in lines] == [
        "name 'first' → 'second', tags +a +b -draft, notes 'n'",
        "final/acc = 0.5, word = x=y",
    ]
    first, second = json.loads(edit_cli("--history", "--json").stdout)
    assert (first["changed"]["name"], second["results"]) == (["first", "second"], {"final/acc": 0.5, "word": "x=y"})
    assert first["time"] < second["time"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to change"),
        (("--undo", "--name", "x"), "go alone"),
        (("--undo", "--history"), "go alone"),
        (("--undo", "--redo"), "go alone"),
        (("--tags", "a", "--add-tag", "b"), "--tags replaces all tags"),
        (("--result", "x"), "give NAME=VALUE"),
        (("--name", " "), "can't be empty"),
    ],
    ids=["nothing", "undo", "both", "redo", "tags", "result", "name"],
)
def test_bad_words_are_one_line(run: RunDirectory, words: tuple[str, ...], said: str) -> None:
    """And nothing is written."""
    result = edit_cli(*words)
    assert result.exit_code != 0
    assert said in f"{result.output} {result.exception}"
    assert not run.stream(EDITS_STREAM).exists()


@pytest.mark.slow
def test_long_streams_are_searched_by_blocks(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is found wherever it lies in a stream."""
    monkeypatch.setattr(attempts, "BLOCK_BYTES", 100)
    again = trackers.init("json", project="p", id="one", resume="must", inline=True)
    for step in range(2, 30):
        again.log({"loss": 1 / step}, step=step)
        again.tags = [f"t{step}"]
    again.finish()
    assert [record.tags for record in edits.recorded_changes(run)] == [[f"t{step}"] for step in range(2, 30)]


@pytest.mark.processes
def test_several_runs_are_edited_at_once(run: RunDirectory) -> None:
    """All edits are written first, then delivered; notes come from standard input; NaN is a number."""
    other = made(id="two", name="other")
    words = ["edit", "p", "--add-tag", "x,y", "--notes", "-", "--result", "final/acc=nan", "--json"]
    result = CliRunner().invoke(app, words, input=b"two\nlines \xff")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(entry["delivered"], entry["results"]) for entry in told] == [(True, {"final/acc": "NaN"})] * 2
    for one in (run, other):
        assert document(one)["tags"] == ["draft", "x", "y"]
        assert document(one)["notes"] == "two\nlines \N{REPLACEMENT CHARACTER}"
    result = CliRunner().invoke(app, ["edit", "p", "--name", "one"])
    assert "--name is for one run, and these are 2" in f"{result.output} {result.exception}"


def test_offline_run_waits_for_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is delivered that its user keeps offline; the command says what delivers it."""
    monkeypatch.chdir(tmp_path)
    trackers.init("json", project="p", id="one", mode="offline", options={"TRACKER_RELAY": False}).finish()
    result = CliRunner().invoke(app, ["edit", "one", "--name", "second"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "  it is offline: trackers sync runs/p/one delivers it"
    with trackers.open("one") as opened:
        opened.notes = "n"
    assert not list(Path("runs/p/one/delivery").iterdir())


def test_opened_run_refuses_what_it_has_not(run: RunDirectory) -> None:
    """A slip of the pen changes nothing in silence."""
    with pytest.raises(UsageError, match="a run's name is empty"):
        trackers.open("")
    opened = trackers.open("one")
    for values in (5, ["a", None], [["a"]]):
        with pytest.raises(UsageError, match=r"give a text, as in 'a,b'"):
            opened.tags = values  # type: ignore[assignment]
    with pytest.raises(UsageError, match="can't be empty"):
        opened.name = None  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="it has name, tags"):
        opened.log({"loss": 1.0})
    with pytest.raises(AttributeError):
        opened.nmae = "x"  # type: ignore[attr-defined]
    assert not run.stream(EDITS_STREAM).exists()
    opened.tags = None  # type: ignore[assignment]
    opened.edit(add_tags=[3, 0.5])  # type: ignore[list-item]
    assert opened.tags == ("3", "0.5")


@pytest.mark.slow
@pytest.mark.processes
def test_run_of_a_store_is_edited_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the place, and the store has the edit then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_DIR", f"file://{tmp_path}/store")
    trackers.init("json", project="p", id="one", name="first", inline=True).finish()
    refused = CliRunner().invoke(app, ["edit", "one", "--name", "second"])
    told = f"{refused.output} {refused.exception}"
    assert "is a copy of a store's runs, and can't be edited: do that where they are written; those of this" in told
    directory = told.split("--dir ")[1].strip()
    edited = CliRunner().invoke(app, ["edit", "one", "--name", "second", "--dir", directory])
    assert edited.exit_code == 0, edited.output
    mirror.copy(f"file://{tmp_path}/store", tmp_path / "seen")
    assert RunDirectory(tmp_path / "seen" / "p" / "one").read_info().name == "second"


def test_changes_of_a_run_that_is_not_closed_are_delivered_as_the_program_ends(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that were made after ``close``; once, and nothing where nothing is left."""
    leaving: list[Any] = []
    delivered: list[str] = []
    monkeypatch.setattr("atexit.register", leaving.append)
    monkeypatch.setattr("atexit.unregister", lambda one: one in leaving and leaving.remove(one))
    monkeypatch.setattr(delivering, "deliver_later", lambda run: delivered.append(attributes(run).name))
    opened = trackers.open("one")
    opened.name = "second"
    opened.notes = "n"
    assert (len(leaving), delivered) == (1, [])
    opened.close()
    assert (leaving, delivered) == ([], ["second"])
    opened.name = "third"
    leaving.pop()()
    opened.close()
    assert delivered == ["second", "third"]


def test_edit_says_for_what_it_waits(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once for each tracker: a server that is away would have it wait for a minute in silence."""
    state = {"tracker": "mlflow", "last": "connection refused", "time": 1.0}
    run.delivery.mkdir(exist_ok=True)
    run.delivery_state("mlflow").write_bytes(msgspec.json.encode(state))

    def deliver(runs: list[RunDirectory], show: Any, **more: Any) -> set[Path]:
        for _ in range(2):
            show(types.SimpleNamespace(run=run, names=["json", "mlflow"], over=False))
        return set()

    monkeypatch.setattr(delivering, "deliver", deliver)
    cli_editing._deliver([run], 60.0, False)
    assert capsys.readouterr().err == (
        "trackers: p/one mlflow: connection refused; tried again for 60 s (Ctrl-C leaves it to trackers sync)\n"
    )
