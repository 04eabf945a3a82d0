"""Runs taken out of a store: nothing of them is left, nobody sends them again, and an undo does."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import trackers
from tests import ROOT, forked
from tests.object_storage.support import grow, names, run_directory, store
from trackers.cli.app import app
from trackers.editing import trash
from trackers.errors import Fatal, Refused, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.object_storage import addresses, launches, mirror, removal
from trackers.object_storage.layout import MARKS
from trackers.object_storage.shipping import Sender, claim_attempt
from trackers.object_storage.store import Store

HOME = "p/abc"


def notes(held: Store) -> list[str]:
    """What is left in a store, but for marks that a catalogue is behind."""
    return sorted(name for name in names(held) if not name.startswith(f"{MARKS}/"))


def sent(tmp_path: Path, attempts: int = 1) -> tuple[Store, Path]:
    """A store with a run of some attempts, and the run."""
    held, run = store(tmp_path), run_directory(tmp_path / "abc")
    Sender(held, run, HOME).finish()
    for number in range(2, attempts + 1):
        grow(run, 3, begin=True, name=f"rank-0.{number}")
        Sender(held, run, HOME).finish()
    return held, run


def test_removed_run_leaves_notes_alone(tmp_path: Path) -> None:
    """For each attempt, and for the next one; a run beside it stays."""
    held, _ = sent(tmp_path, 2)
    Sender(held, run_directory(tmp_path / "abcd"), "p/abcd").finish()
    other = [name for name in notes(held) if name.startswith("p/abcd/")]
    assert removal.remove(held, HOME) > 0
    left = [f"{HOME}/@claims/{number:06d}" for number in (1, 2, 3)]
    assert notes(held) == sorted([*left, *other])
    assert removal.remove(held, HOME) == 0
    assert [run.id for run in mirror.stored_runs(held)] == ["abcd"]


def test_nobody_sends_a_removed_run_again(tmp_path: Path) -> None:
    """Neither who was sending it, nor who begins to, nor who has an earlier attempt and continues that."""
    held, run = sent(tmp_path, 2)
    early = tmp_path / "early" / "abc"
    shutil.copytree(run, early)
    (early / "streams" / "rank-0.2.jsonl").unlink()
    sender = Sender(held, run, HOME)
    sender.send()
    removal.remove(held, HOME)
    before = notes(held)
    grow(run, 3, name="rank-0.2")
    for one in (sender, Sender(held, run, HOME)):
        with pytest.raises(Fatal, match=r"run abc was removed from file:///.* on .*: it isn't sent any more"):
            one.send()
    grow(early, 3, begin=True, name="rank-0.2")
    with pytest.raises(Fatal, match="was removed"):
        claim_attempt(held, early, HOME, 2)
    assert notes(held) == before


def test_new_run_of_that_id_is_sent(tmp_path: Path) -> None:
    """Its attempts are others; the notes go, one by one, as it needs their names."""
    held, run = sent(tmp_path, 2)
    removal.remove(held, HOME)
    shutil.rmtree(run)
    run_directory(run, lines=4)
    first = (run / "streams/rank-0.1.jsonl").read_bytes()
    (run / "streams/rank-0.1.jsonl").write_bytes(first.replace(b"{", b'{"new": 1, ', 1))
    Sender(held, run, HOME).finish()
    (run / "streams/rank-0.2.jsonl").write_bytes(b'{"new": 2}\n')
    Sender(held, run, HOME).finish()
    mirror.copy(held.where, tmp_path / "copy")
    assert (tmp_path / "copy" / HOME / "streams/rank-0.1.jsonl").read_bytes().startswith(b'{"new"')
    assert (tmp_path / "copy" / HOME / "streams/rank-0.2.jsonl").exists()


def test_allowed_again_it_is_sent_whole(tmp_path: Path) -> None:
    """As after an undo."""
    held, run = sent(tmp_path, 2)
    before = [name for name in notes(held) if "@claims" not in name]
    removal.remove(held, HOME)
    removal.allow(held, HOME)
    assert notes(held) == []
    Sender(held, run, HOME).finish()
    assert [name for name in notes(held) if "@claims" not in name] == before


def test_attempt_that_is_not_here_keeps_it(tmp_path: Path) -> None:
    """An undo couldn't bring it back; so does one that another machine is just beginning."""
    held, run = sent(tmp_path, 2)
    with pytest.raises(Refused, match=r"has attempt 2, which isn't here: remove it with --dir file:///"):
        removal.remove(held, HOME, [1])
    before = notes(held)
    held.create(f"{HOME}/@claims/000003", b"0123 elsewhere\n")
    with pytest.raises(Refused, match="has attempt 3"):
        removal.remove(held, HOME, [1, 2])
    assert notes(held) == [*before[:2], f"{HOME}/@claims/000003", *before[2:]]
    assert run.is_dir()


def test_attempt_that_sent_nothing_and_was_followed_keeps_nothing(tmp_path: Path) -> None:
    """Its node died before its first records were sent, and the next attempt has taken its place."""
    held, _ = sent(tmp_path, 2)
    held.create(f"{HOME}/@claims/000003", b"0123 elsewhere\n")
    held.create(f"{HOME}/@claims/000004", b"4567 here\n")
    assert removal.newest(held, HOME) == (4, "here")
    removal.remove(held, HOME, [1, 2, 4])
    assert {name.split("/")[2] for name in notes(held)} == {"@claims"}
    assert removal.newest(held, HOME) == (0, "")


def test_note_whose_answer_was_lost_is_known_again(tmp_path: Path) -> None:
    """A client that asks again is told that the object exists: it is this removal's, and no attempt elsewhere."""

    class AskedAgain(Store):
        def create(self, name: str, content: bytes) -> bool:
            return super().create(name, content) and False

    sent(tmp_path)
    held = AskedAgain(f"file://{tmp_path}/store")
    assert removal.remove(held, HOME, [1]) > 0
    assert {name.rpartition("/")[0] for name in notes(held)} == {f"{HOME}/@claims"}


def test_what_other_nodes_sent_goes_with_it(tmp_path: Path) -> None:
    """Of launches that are this run's: ``run.json`` may name any."""
    held, _ = sent(tmp_path)
    for launch, owner in (("mine", "abc"), ("theirs", "xyz")):
        held.put(f"{launches.home(launch)}/{launches.MAIN}", json.dumps({"id": owner}).encode())
        held.put(f"{launches.home(launch)}/streams/0001/rank-8.1.jsonl/@0", b"{}")
    attempts = [{"number": 1, "launch": f"{launches.home(name)}"} for name in ("mine", "theirs", "none")]
    held.put(f"{HOME}/run.json", json.dumps({"id": "abc", "attempts": [*attempts, {"number": 2}]}).encode())
    removal.remove(held, HOME)
    assert {name.split("/")[1] for name in notes(held) if not name.startswith("p/")} == {"theirs"}


KILLED = """
import sys
from trackers.object_storage import removal
from trackers.object_storage.store import Store
from trackers.support.failpoints import arm
arm(sys.argv[2])
removal.remove(Store(sys.argv[1]), "p/abc")
"""


@pytest.mark.parametrize("point", ["store.remove.noted=kill", "store.remove.deleted=kill"])
def test_killed_removal_goes_on_and_nothing_is_sent_between(tmp_path: Path, point: str) -> None:
    """The notes come first."""
    held, run = sent(tmp_path)
    done = forked.run([sys.executable, "-c", KILLED, held.where, point], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(Fatal, match="was removed"):
        Sender(held, run, HOME).send()
    removal.remove(held, HOME)
    assert notes(held) == [f"{HOME}/@claims/000001", f"{HOME}/@claims/000002"]


def run_cli(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], catch_exceptions=True)


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with a finished run of this machine, ``node-a``; csv tables lie beside it."""
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-a"))
    monkeypatch.chdir(tmp_path)
    address = f"file://{tmp_path}/store"
    run = trackers.init("json,csv", project="p", name="first", id="abc", dir=address,
                        options={"TRACKER_RELAY": False, "CSV_DIR": str(tmp_path / "tables")})  # fmt: skip
    for step in range(5):
        run.log({"loss": 1.0 / (step + 1)}, step=step)
    run.finish()
    for to in ("json,csv", "storage"):
        own = addresses.local_directory(address, str(tmp_path / "node-a"))
        assert run_cli("sync", str(own / "p/abc"), "--to", to).exit_code == 0
    return address


def losses(root: Path) -> list[float]:
    found: list[float] = trackers.load(str(root)).metrics()["loss"].to_pylist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["node-a", "node-b"])
def test_rm_takes_a_run_out_of_its_store_and_undo_sends_it_again(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """On the machine that wrote it, and on one that knows the address only."""
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / machine))
    base = str(tmp_path / machine)
    asked = run_cli("rm", "abc", "--dir", where)
    assert "1 to remove; nothing was changed" in asked.output, asked.output
    done = run_cli("rm", "abc", "--dir", where, "--yes")
    assert done.exit_code == 0, done.output
    assert "storage: deleted in file://" in done.output
    assert f"back with: trackers rm --undo p/abc --dir {where}" in done.output
    assert {name.split("/")[2] for name in notes(Store(where))} == {"@claims"}
    assert not (addresses.copy_directory(where, base) / "p/abc").exists()
    listed = run_cli("rm", "--list", "--dir", where)
    assert "p/abc (first)" in listed.output
    back = run_cli("rm", "--undo", "abc", "--dir", where)
    assert back.exit_code == 0, back.output
    reader = mirror.update_copy(where, str(tmp_path / "reader"))
    assert losses(reader / "p/abc") == [1.0 / (step + 1) for step in range(5)]


@pytest.mark.slow
def test_rm_where_it_was_written_takes_it_out_of_the_store(where: str, tmp_path: Path) -> None:
    """By the directory of this machine, too; for good with --forever."""
    own = addresses.local_directory(where, str(tmp_path / "node-a"))
    done = run_cli("rm", "abc", "--dir", str(own), "--yes", "--forever")
    assert done.exit_code == 0, done.output
    assert "storage: deleted in file://" in done.output
    assert {name.split("/")[2] for name in notes(Store(where))} == {"@claims"}
    assert not list(own.rglob("*.jsonl"))


@pytest.mark.slow
def test_copy_of_a_runs_directory_does_not_reach_the_store(where: str, tmp_path: Path) -> None:
    """It isn't where runs for that store are written."""
    own = addresses.local_directory(where, str(tmp_path / "node-a"))
    shutil.copytree(own, tmp_path / "runs")
    before = notes(Store(where))
    removed = trash.remove(RunDirectory(tmp_path / "runs/p/abc"))
    assert removed.note.trackers["storage"].state == "kept"
    assert notes(Store(where)) == before


def test_note_of_somebody_else_s_trash_reaches_no_store(where: str, tmp_path: Path) -> None:
    """It may name any store."""
    own = addresses.local_directory(where, str(tmp_path / "node-a"))
    shutil.copytree(own, tmp_path / "runs")
    removed = trash.remove(RunDirectory(tmp_path / "runs/p/abc"), local=True)
    note = json.loads((removed.path / trash.NOTE).read_text())
    note |= {"store": where, "home": str(own / "p/abc"), "trackers": {"storage": {"state": "asked"}}}
    (removed.path / trash.NOTE).write_text(json.dumps(note))
    before = notes(Store(where))
    (found,) = trash.unfinished(tmp_path / "runs")
    trash.finish(found)
    assert notes(Store(where)) == before


@pytest.mark.processes
def test_removed_run_is_not_resumed(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that wrote it still has it, and is told so before it logs anything."""
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-b"))
    assert run_cli("rm", "abc", "--dir", where, "--yes").exit_code == 0
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-a"))
    with pytest.raises(UsageError, match="run abc was removed from"):
        trackers.init("json", project="p", id="abc", resume="must", dir=where, options={"TRACKER_RELAY": False})
    assert {name.split("/")[2] for name in notes(Store(where))} == {"@claims"}


def test_store_that_is_away_leaves_it_and_says_so(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call goes on."""

    def away(*_: object) -> int:
        raise Refused("the store is away")

    monkeypatch.setattr(removal, "remove", away)
    done = run_cli("rm", "abc", "--dir", where, "--yes")
    assert done.exit_code == 1
    assert "storage: not removed there: the store is away" in done.output


def test_prune_deletes_in_the_store_what_another_tracker_has(where: str, tmp_path: Path) -> None:
    """The store's own copy doesn't count; csv's does. Runs that are younger stay."""
    before = notes(Store(where))
    assert "keep: 0.0 days old" in run_cli("prune", "--yes", "--dir", where).output
    assert "1 to delete; nothing was changed" in run_cli("prune", "--older-than", "0", "--dir", where).output
    (tmp_path / "tables").rename(tmp_path / "elsewhere")
    assert "keep: no tracker has it outside" in run_cli("prune", "--older-than", "0", "--yes", "--dir", where).output
    assert notes(Store(where)) == before
    (tmp_path / "elsewhere").rename(tmp_path / "tables")
    done = run_cli("prune", "--older-than", "0", "--yes", "--dir", where)
    assert done.exit_code == 0, done.output
    assert {name.split("/")[2] for name in notes(Store(where))} == {"@claims"}, done.output
