"""Removing runs: moved to the trash, out of their trackers, and brought back; killed at each point, nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

import trackers
from tests import forked
from tests.editing.test_edits import document, made
from trackers.backends import registry
from trackers.cli.app import app
from trackers.editing import trash
from trackers.errors import NotFound, UsageError
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.object_storage import addresses
from trackers.relay.sync import runs_below
from trackers.tracker import Tracker

ROOT = Path("runs")


def run_cli(*words: str) -> Result:
    """A command, as typer runs it."""
    return CliRunner().invoke(app, ["rm", *words], catch_exceptions=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A finished run: in the JSON log here, in TensorBoard's files and a table elsewhere."""
    monkeypatch.chdir(tmp_path)
    return made("json,csv,tensorboard", options={"CSV_DIR": "tables", "TENSORBOARD_DIR": "events"})


def contents(*folders: str) -> dict[str, bytes]:
    """Every file below some directories."""
    return {
        str(path): path.read_bytes() for folder in folders for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }


def test_removed_run_is_gone_and_comes_back_as_it_was(run: RunDirectory) -> None:
    """From every listing, and its trackers' files elsewhere; nothing that TensorBoard would show is left."""
    before = contents("runs", "tables", "events")
    removed = trash.remove(run)
    assert {name: one.state for name, one in removed.note.trackers.items()} == dict.fromkeys(
        ("json", "csv", "tensorboard"), "moved"
    )
    assert list(find_runs(ROOT)) == list(runs_below(ROOT)) == []
    assert contents("tables", "events") == {}
    assert not [path for path in Path().rglob("*tfevents*") if path.is_file()]
    with pytest.raises(NotFound):
        trackers.load("one")
    back = trash.bring_back(trash.find("p/first", ROOT))
    assert back.path.resolve() == run.path.resolve()
    assert contents("runs", "tables", "events") == before
    assert trackers.load("one").run.name == "first"
    with pytest.raises(NotFound, match="no removed run 'one'"):
        trash.find("one", ROOT)


def copies(folder: str, number: int) -> None:
    """Runs at folder/pK/rK."""
    for k in range(number):
        shutil.copytree("runs/p/one", f"{folder}/p{k}/r{k}")


@pytest.mark.heavy
@pytest.mark.parametrize("words", [("--yes",), ("--yes", "--count", "11"), ("--forever", "--yes"), ()])
def test_directory_that_is_none_of_runs_needs_their_number(run: RunDirectory, words: tuple[str, ...]) -> None:
    """A directory far above the runs says how many it has, and nothing is removed."""
    copies("lab/runs", 12)
    before = contents("lab", "runs")
    refused = run_cli("lab", *words)
    assert (refused.exit_code, refused.stdout) == (1, "") or "lab is no directory of runs" in str(refused.exception)
    said = str(refused.exception) + refused.stderr
    assert "lab is no directory of runs, and has 12 runs in 12 projects below it" in said
    assert "confirm them all with --count 12" in said
    assert contents("lab", "runs") == before


@pytest.mark.slow
def test_prune_asks_for_the_number_too(run: RunDirectory) -> None:
    """It deletes runs as well."""
    copies("lab/runs", 12)
    result = CliRunner().invoke(app, ["prune", "lab", "--older-than", "0"], catch_exceptions=True)
    assert "confirm them all with --count 12" in str(result.exception) + result.stderr
    assert CliRunner().invoke(app, ["prune", "lab", "--older-than", "0", "--count", "12"]).exit_code == 0


@pytest.mark.heavy
def test_number_of_runs_confirms_them(run: RunDirectory) -> None:
    """The right number removes them; projects, a directory of projects and a few runs need none."""
    copies("lab/runs", 12)
    assert run_cli("lab", "--count", "12", "--yes", "--local").exit_code == 0
    assert list(runs_below(Path("lab"))) == []
    copies("other", 11)
    assert run_cli("other", "--yes", "--local").exit_code == 0
    copies("deep/down/runs", 3)
    assert run_cli("deep", "--yes", "--local").exit_code == 0
    assert len(list(runs_below(Path()))) == 1
    assert run_cli("runs", "--yes").exit_code == 0


@pytest.mark.slow
def test_home_and_root_need_the_number_of_one_run(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few there are, and by whatever path they are named."""
    Path("link").symlink_to(".")
    for home, named in (
        (Path(), "."),
        (Path("runs"), "runs"),
        (Path("runs/p"), "runs"),
        (Path(), "link"),
        (Path(), "~"),
    ):
        monkeypatch.setenv("HOME", str(home.resolve()))
        refused = run_cli(named, "--yes")
        assert "is no directory of runs, and has 1 runs" in str(refused.exception) + refused.stderr
    assert run_cli("~", "--yes", "--count", "1").exit_code == 0
    assert run_cli("--list", "--count", "1").exit_code != 0


POINTS = ("trash.move.before", "trash.move.after", "trash.tracker.after=kill:1", "trash.tracker.after=kill:2")
BACK = ("restore.move.before", "restore.move.after", "restore.tracker.after=kill:1", "restore.tracker.after=kill:3")


@pytest.mark.slow
@pytest.mark.processes
def test_removal_killed_at_each_point_goes_on(run: RunDirectory) -> None:
    """And so does bringing it back: at the end everything is as it was."""
    before = contents("runs", "tables", "events")

    def killed(point: str, *words: str) -> None:
        env = {**os.environ, "TRACKERS_FAILPOINT": point if "=" in point else f"{point}=kill"}
        command = [sys.executable, "-m", "trackers", "rm", *words]
        assert forked.run(command, preload=forked.PACKAGE, env=env).returncode == -signal.SIGKILL, point

    for point, back in zip(POINTS, BACK, strict=True):
        killed(point, "one", "--yes")
        if list(trash.in_trash(ROOT)):
            for one in trash.unfinished(ROOT):
                trash.finish(one)
        else:
            trash.remove(run)
        assert contents("tables", "events") == {}
        killed(back, "--undo", "one")
        trash.bring_back(trash.find("one", ROOT))
        assert contents("runs", "tables", "events") == before, (point, back)


@pytest.mark.processes
def test_run_is_deleted_in_mlflow_and_trackio_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow keeps what it deletes; trackio gets the run from its journal again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    made("mlflow,trackio")

    def stages() -> list[str]:
        with sqlite3.connect(tmp_path / "mlflow.db") as found:
            return [stage for (stage,) in found.execute("select lifecycle_stage from runs")]

    def rows() -> int:
        (file,) = Path(os.environ["TRACKIO_DIR"]).glob("p*.db")
        with sqlite3.connect(file) as found:
            return int(found.execute("select count(*) from metrics").fetchone()[0])

    assert (stages(), rows()) == (["active"], 1)
    result = run_cli("one", "--yes")
    assert result.exit_code == 0, result.output
    assert "mlflow: deleted in MLflow" in result.stdout
    assert "trackio: deleted in trackio" in result.stdout
    assert (stages(), rows()) == (["deleted"], 0)
    result = run_cli("--undo", "one")
    assert result.exit_code == 0, result.output
    assert "mlflow: restored in MLflow" in result.stdout
    assert (stages(), rows()) == (["active"], 1)


def test_what_must_stay_stays(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on, that somebody works on, a store's copy, a link: one line each, and nothing is changed."""
    going = trackers.init("json", project="p", id="live", inline=True)
    assert trash.why_not(RunDirectory(Path(going.path))) == "it is running: end it first"
    result = run_cli("live", "--yes")
    assert result.exit_code == 1
    assert "stays as it is: it is running: end it first" in result.stderr
    going.finish()
    lease = Lease(run.delivery / "json.lease")
    assert lease.acquire()
    with pytest.raises(UsageError, match="works on it"):
        trash.remove(run)
    lease.release()
    Path("runs/p/link").symlink_to(run.path)
    assert "link to a directory" in trash.why_not(RunDirectory("runs/p/link"))
    Path("runs", addresses.COPY_MARKER).write_text("s3://b\n")
    with pytest.raises(UsageError, match="copy of a store's run"):
        trash.remove(run)
    Path("runs", addresses.COPY_MARKER).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path).name != "p")
        assert "may not write to" in trash.why_not(run)
    assert run.identity.exists()
    assert not Path("runs/p/.trash").exists()


def test_nothing_is_changed_without_yes(run: RunDirectory) -> None:
    """In a pipe: what would be done is said."""
    result = run_cli("one")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "1 to remove; nothing was changed; add --yes to do it",
    )
    assert run.identity.exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the runs to remove"),
        (["nothing"], "no run 'nothing'"),
        (["--undo"], "which run"),
        (["--undo", "nothing"], "no removed run 'nothing'"),
        (["--undo", "--list"], "only one of them"),
        (["--undo", "one", "--forever"], "--forever is for runs that are removed now"),
        (["one", "--older-than", "3"], "--older-than belongs to --empty"),
        (["one", "--at", "wandbb"], "unknown tracker 'wandbb'"),
    ],
    ids=lambda value: "_".join(value) or "none" if isinstance(value, list) else "",
)
def test_bad_words_are_one_line(run: RunDirectory, words: list[str], said: str) -> None:
    """And nothing is removed."""
    result = run_cli(*words)
    assert result.exit_code != 0
    assert said in f"{result.output} {result.exception}"
    assert run.identity.exists()


@pytest.mark.heavy
def test_trash_is_listed_and_emptied(run: RunDirectory) -> None:
    """For good only what is old enough, and with --yes."""
    assert run_cli("one", "--yes").exit_code == 0
    assert run_cli("--list").stdout.startswith("p/one (first)  ")
    (found,) = json.loads(run_cli("--list", "--json").stdout)
    assert (found["id"], found["trackers"]["csv"]["state"]) == ("one", "moved")
    assert run_cli("--empty", "--yes").stdout == "nothing to delete; 1 younger than 30 days stay\n"
    assert run_cli("--empty", "--older-than", "0").stdout.endswith("add --yes to do it\n")
    assert "deleted for good" in run_cli("--empty", "--older-than", "0", "--yes").stdout
    assert contents("runs", "tables", "events") == {}
    assert run_cli("--list").stderr.startswith("no removed runs in")


def test_forever_leaves_nothing(run: RunDirectory) -> None:
    """The files are deleted at once."""
    result = run_cli("one", "--yes", "--forever")
    assert result.exit_code == 0, result.output
    assert "--undo" not in result.stdout
    assert contents("runs", "tables", "events") == {}


def test_id_that_is_taken_again_isn_t_replaced(run: RunDirectory) -> None:
    """Neither by bringing the old run back, nor by removing the new one; the one removed last comes first."""
    trash.remove(run)
    made("json", name="new")
    with pytest.raises(UsageError, match="is there, and would be replaced"):
        trash.bring_back(trash.find("one", ROOT))
    trash.remove(run)
    assert [one.note.name for one in trash.in_trash(ROOT)] == ["new", "first"]
    trash.bring_back(trash.find("one", ROOT))
    assert document(run)["run_name"] == "new"
    assert trash.find("first", ROOT).note.name == "first"


def test_tracker_that_fails_is_said_and_asked_again(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is removed and comes back all the same; what failed on the way back is done by the next call."""

    class Failing(Tracker):
        remove = restore = staticmethod(lambda info, state: 1 / 0)

    real = registry.load
    monkeypatch.setattr(registry, "load", lambda name: Failing if name == "csv" else real(name))
    removed = trash.remove(run)
    assert removed.note.trackers["csv"].text == "not removed there: ZeroDivisionError: division by zero"
    assert removed.note.trackers["tensorboard"].state == "moved"
    back = trash.bring_back(trash.find("one", ROOT))
    assert back.note.trackers["csv"].state == "failed"
    assert run.identity.exists()
    monkeypatch.setattr(registry, "load", real)
    again = trash.bring_back(trash.find("one", ROOT))
    assert again.note.trackers["csv"].state == "back"
    assert not (run.path / trash.NOTE).exists()


def test_note_of_somebody_else_moves_nothing_out(run: RunDirectory, tmp_path: Path) -> None:
    """A trash that was unpacked from a file can name any path: only the tracker's own directory is written to."""
    removed = trash.remove(run)
    target = tmp_path / "profile"
    removed.note.trackers["csv"].moved = [(str(target), f"{trash.FILES}/csv/0/first-one")]
    (removed.path / trash.NOTE).write_bytes(msgspec.json.encode(removed.note))
    back = trash.bring_back(trash.find("one", ROOT))
    assert "where csv has no files of this run" in back.note.trackers["csv"].text
    assert not target.exists()
    back.note.trackers["csv"].moved = [(str(tmp_path / "tables" / "x"), "../../../elsewhere")]
    (back.path / trash.NOTE).write_bytes(msgspec.json.encode(back.note))
    assert trash.bring_back(trash.find("one", ROOT)).note.trackers["csv"].state == "failed"


@pytest.mark.parametrize("place", ["tensorboard", trash.FILES])
def test_folder_of_a_run_that_is_a_link_has_nothing_renamed(run: RunDirectory, tmp_path: Path, place: str) -> None:
    """A run's directory may hold links: event files elsewhere keep their names as it goes and comes."""
    (tmp_path / "others").mkdir()
    events = tmp_path / "others/events.out.tfevents.1.host"
    events.touch()
    shutil.rmtree(run.path / place, ignore_errors=True)
    (run.path / place).symlink_to(events.parent)
    trash.remove(run)
    assert events.exists()
    trash.bring_back(trash.find("one", ROOT))
    assert sorted(path.name for path in events.parent.iterdir()) == [events.name]


@pytest.mark.parametrize("place", ["removed.files", "removed.files/csv", "removed.files/csv/0/key"])
def test_note_of_somebody_else_moves_nothing_in(run: RunDirectory, tmp_path: Path, place: str) -> None:
    """What a link in the run's directory leads to stays where it is, though the note names it."""
    (tmp_path / "home/csv/0").mkdir(parents=True)
    for secret in ("home/csv/0/key", "home/0/key"):
        (tmp_path / secret).parent.mkdir(exist_ok=True)
        (tmp_path / secret).write_text("secret")
    removed = trash.remove(run)
    shutil.rmtree(removed.path / trash.FILES)
    link = removed.path / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / ("home" if place != "removed.files/csv/0/key" else "home/csv/0/key"))
    removed.note.trackers["csv"].moved = [(str(tmp_path / "tables/key"), "removed.files/csv/0/key")]
    (removed.path / trash.NOTE).write_bytes(msgspec.json.encode(removed.note))
    back = trash.bring_back(trash.find("one", ROOT))
    assert "is a link" in back.note.trackers["csv"].text
    assert (tmp_path / "home/csv/0/key").read_text() == (tmp_path / "home/0/key").read_text() == "secret"
    assert not os.path.lexists(tmp_path / "tables/key")


def test_note_names_files_of_trackers_that_have_some(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker whose files are moved nowhere has none brought back: another project in trackio's directory, say."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    removed = trash.remove(run)
    kept = removed.path / trash.FILES / "trackio/0/p.db"
    kept.parent.mkdir(parents=True)
    kept.touch()
    moved = [(str(tmp_path / "trackio/p.db"), "removed.files/trackio/0/p.db")]
    removed.note.trackers["trackio"] = trash.RemovalOutcome(state="moved", moved=moved)
    (removed.path / trash.NOTE).write_bytes(msgspec.json.encode(removed.note))
    back = trash.bring_back(trash.find("one", ROOT))
    assert "where trackio has no files of this run" in back.note.trackers["trackio"].text
    assert not (tmp_path / "trackio/p.db").exists()


def test_artifacts_that_others_use_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is removed."""
    monkeypatch.chdir(tmp_path)
    Path("data.txt").write_text("1,2,3")
    maker = trackers.init("json", project="p", id="maker", inline=True)
    maker.log_artifact("data.txt", name="data", type="dataset")
    maker.finish()
    user = trackers.init("json", project="p", id="user", name="trained", inline=True)
    user.use_artifact("data:latest")
    user.finish()
    result = run_cli("maker")
    assert "p/data:v0 goes with it, and is used by trained" in result.stderr
    assert run_cli("maker", "user").stderr == ""


@pytest.mark.slow
def test_copy_of_a_directory_is_removed_locally(run: RunDirectory, tmp_path: Path) -> None:
    """The original keeps its files at trackers; what lies outside of the directory of runs is named by its path."""
    shutil.copytree(run.path, tmp_path / "elsewhere" / "one")
    before = contents("runs", "tables", "events")
    result = run_cli("elsewhere/one", "--local", "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "  back with: trackers rm --undo elsewhere/one"
    assert contents("runs", "tables", "events") == before
    assert not Path("elsewhere/one").exists()
    assert run_cli("--undo", "elsewhere/one").exit_code == 0
    assert Path("elsewhere/one/run.json").exists()
    trash.remove(RunDirectory("elsewhere/one"), local=True)
    (inside,) = Path("elsewhere/.trash").iterdir()
    assert run_cli("--undo", str(inside)).exit_code == 0
    assert Path("elsewhere/one/run.json").exists()


def test_run_whose_files_are_gone_says_so(run: RunDirectory) -> None:
    """Not that they are kept."""
    shutil.rmtree("tables")
    removed = trash.remove(run)
    assert removed.note.trackers["csv"].text.startswith("it has no files of the run at ")
    assert trash.bring_back(removed).note.trackers["csv"].state == "back"


@pytest.mark.heavy
def test_prune_empties_the_trash(run: RunDirectory) -> None:
    """Of what was removed long enough ago, with --yes, and unless it is about certain runs."""
    trash.remove(run)

    def prune(*words: str) -> str:
        return CliRunner().invoke(app, ["prune", *words]).stderr

    assert prune("--yes") == ""
    assert "p/one, removed" in prune("--older-than", "0")
    assert list(trash.in_trash(ROOT))
    assert "deleted for good" in prune("--older-than", "0", "--yes")
    assert contents("runs", "tables", "events") == {}


def test_link_in_the_place_of_the_trash_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    """Nothing is moved elsewhere, and nothing there is listed or emptied."""
    (tmp_path / "mine" / "x.1.1").mkdir(parents=True)
    (tmp_path / "mine" / "x.1.1" / trash.NOTE).write_bytes(msgspec.json.encode(trash.Removal(id="x", name="x")))
    Path("runs/p/.trash").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="is a link"):
        trash.remove(run)
    assert run.identity.exists()
    assert list(trash.in_trash(ROOT)) == []
