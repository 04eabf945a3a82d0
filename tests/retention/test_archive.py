"""Archives: nothing is lost at any point, runs are read from them, and restoring gives the same files back."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

import trackers
from tests import forked
from tests.retention.support import ROWS, age, delivered, files, program
from trackers.analysis.run_list import listing, overview
from trackers.errors import Damaged, MissingPackage, NotFound, UsageError
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import DeliveryState, read_account
from trackers.relay.sync import sync
from trackers.retention.archive import archive, packable, restore
from trackers.retention.lock import DAY_S, why_kept


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        delivered()
    return folder / "runs"


@pytest.fixture
def run(_made: Path, tmp_path: Path) -> RunDirectory:
    """A delivered run in ``runs/`` of the test's own directory."""
    shutil.copytree(_made, tmp_path / "runs")
    return RunDirectory(Path("runs/digits/one"))


@pytest.mark.heavy
def test_archive_and_restore_give_the_same_files(run: RunDirectory) -> None:
    """Contents, times and permissions of every file are as before; in between, streams are packed and small."""
    run.relay_log.chmod(0o640)
    before = files(run.path)
    change = archive(run)
    assert run.archived()
    assert packable(run) == []
    assert change.after < change.before / 2
    assert not any(path.name.endswith(".jsonl") for path in run.streams.iterdir())
    restore(run)
    assert files(run.path) == before


def test_archived_run_reads_as_before(run: RunDirectory) -> None:
    """``load``, ``ls`` and ``show`` say of an archived run what they said before."""
    frame, line = trackers.load(str(run.path)).metrics().to_pandas(), listing(Path("runs")).lines
    view = overview(run).to_dict()
    archive(run)
    assert trackers.load(str(run.path)).metrics().to_pandas().equals(frame)
    assert len(frame) == len(ROWS)
    assert listing(Path("runs")).lines == line
    assert overview(run).to_dict() == view


@pytest.mark.slow
def test_archived_run_is_compared(run: RunDirectory) -> None:
    """``trackers compare`` gives the same table of an archived run."""
    first = program("compare", str(run.path), "--json")
    assert first.returncode == 0, first.stderr
    archive(run)
    again = program("compare", str(run.path), "--json", XDG_CACHE_HOME=str(Path("elsewhere").absolute()))
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout


POINTS = ("archive.packed", "archive.rename.before", "archive.rename.after", "archive.manifest.before",
          "archive.manifest.after", "archive.unlink.after", "file.rename.before")  # fmt: skip
CODE = """
import sys
from pathlib import Path
from trackers.support import failpoints
from trackers.retention.archive import {name}
from trackers.journal.run_directory import RunDirectory
failpoints.arm(sys.argv[2])
{name}(RunDirectory(Path(sys.argv[1])))
"""


def killed(name: str, run: RunDirectory, plan: str) -> None:
    """Archive or restore in another process that dies by SIGKILL at a point."""
    done = forked.run([sys.executable, "-c", CODE.format(name=name), str(run.path), plan], preload=forked.PACKAGE)
    assert done.returncode == -9


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("passing", [1, 2])
def test_killed_archive_loses_nothing_and_goes_on(run: RunDirectory, point: str, passing: int) -> None:
    """Wherever it is killed, the run reads whole, the next call ends the work, and restoring gives all back."""
    if point.startswith("archive.manifest") and passing == 2:
        point = "file.rename.after"
    before = files(run.path)
    frame = trackers.load(str(run.path)).metrics().to_pandas()
    killed("archive", run, f"{point}=kill:{passing}")
    assert trackers.load(str(run.path)).metrics().to_pandas().equals(frame)
    archive(run)
    assert packable(run) == []
    assert trackers.load(str(run.path)).metrics().to_pandas().equals(frame)
    restore(run)
    assert files(run.path) == before


@pytest.mark.parametrize("point", ["restore.unpacked", "restore.rename.after", "restore.unlink.before",
                                   "restore.unlink.after"])  # fmt: skip
@pytest.mark.parametrize("passing", [1, 2])
def test_killed_restore_loses_nothing_and_goes_on(run: RunDirectory, point: str, passing: int) -> None:
    """The same for restoring."""
    passing = 1 if point == "restore.unlink.before" else passing
    before = files(run.path)
    frame = trackers.load(str(run.path)).metrics().to_pandas()
    archive(run)
    killed("restore", run, f"{point}=kill:{passing}")
    assert trackers.load(str(run.path)).metrics().to_pandas().equals(frame)
    restore(run)
    assert files(run.path) == before
    assert not run.archived()


def test_archive_killed_then_restored(run: RunDirectory) -> None:
    """A half-made archive can be restored, too."""
    before = files(run.path)
    killed("archive", run, "archive.unlink.after=kill:1")
    restore(run)
    assert files(run.path) == before


def test_what_does_not_read_back_is_not_removed(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that gives back something else costs nothing: the files stay."""
    from trackers.retention import archive as module

    real = module.pack

    def spoil(source: Path, target: Path) -> object:
        content = real(source, target)
        other = Path("other")
        other.write_bytes(source.read_bytes().replace(b"loss", b"lose"))
        real(other, target)
        return content

    monkeypatch.setattr(module, "pack", spoil)
    before = files(run.streams)
    with pytest.raises(UsageError, match="doesn't read back as it was written"):
        archive(run)
    assert files(run.streams) == before
    assert not run.archived()


def test_full_disk_costs_nothing(run: RunDirectory) -> None:
    """An archive that can't be written leaves all as it was; the command says why, and fails."""
    before = files(run.path)
    done = program("archive", str(run.path), "--older-than", "0", "--yes", TRACKERS_FAILPOINT="archive.packed=raise:2")
    assert done.returncode == 1
    assert "failpoint archive.packed" in done.stderr
    there = files(run.path)
    assert {name: there[name] for name in before} == before
    assert not run.archived()
    archive(run)
    restore(run)
    assert files(run.path) == before


@pytest.mark.slow
def test_archived_run_is_copied(run: RunDirectory) -> None:
    """``trackers copy`` brings an archived run to a tracker, whole."""
    archive(run)
    done = program("copy", str(run.path), "csv:copies")
    assert done.returncode == 0, done.stderr
    tables = list(Path("copies").rglob("metrics.csv"))
    assert [len(table.read_text().splitlines()) for table in tables] == [len(ROWS) + 1]


def account(run: RunDirectory, **changes: object) -> None:
    """Have a delivery stand otherwise."""
    changed = msgspec.structs.replace(read_account(run, "json"), **changes)
    assert isinstance(changed, DeliveryState)
    run.delivery_state("json").write_bytes(msgspec.json.encode(changed))


def test_what_a_tracker_lacks_is_kept(run: RunDirectory) -> None:
    """Bytes that wait, a delivery that never closed, one that stopped, refused records, one that never began."""
    assert why_kept(run, 0) == ""
    whole = read_account(run, "json")
    account(run, offsets={**whole.offsets, "rank-0.1": 10})
    assert "json lacks some of it (waiting" in why_kept(run, 0)
    account(run, offsets=whole.offsets, closed="")
    assert "json lacks some of it" in why_kept(run, 0)
    account(run, closed="finished", stopped=True)
    assert "stopped" in why_kept(run, 0)
    account(run, stopped=False, rejected=3)
    assert why_kept(run, 0) == "json refused 3 records: they are here only"
    run.delivery_state("json").unlink()
    assert "not begun" in why_kept(run, 0)
    with pytest.raises(UsageError, match="stays as it is: json lacks"):
        archive(run)
    assert packable(run)
    assert not run.archived()


def test_values_across_ranks_that_nobody_reduced_are_kept(run: RunDirectory) -> None:
    """A tracker that has all of the journal lacks what isn't in it yet."""
    info = run.read_info()
    info.attempts = [{"number": 1, "time": info.created, "launch": "../ranks-of-one", "ranks": 2, "rank": 0}]
    run.write_info(info)
    assert why_kept(run, 0) == ""
    Path("runs/digits/ranks-of-one").mkdir()
    assert "values across its ranks aren't all recorded" in why_kept(run, 0)


def test_archived_run_without_zstandard_is_one_line(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing, the other runs are listed, and this one is named with what to install."""
    shutil.copytree(run.path, "runs/digits/plain")
    archive(run)
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    found = listing(Path("runs"))
    assert len(found.lines) == 1
    assert found.problems == ["archived runs need the zstandard package: pip install 'trackers-relay[archive]'"]
    before = files(run.path)
    with pytest.raises(MissingPackage):
        restore(run)
    assert files(run.path) == before


def test_young_held_and_running_runs_are_kept(run: RunDirectory) -> None:
    """What changed of late, is worked on, or goes on, isn't touched."""
    assert "days old" in why_kept(run, 7 * DAY_S)
    age(run.path, 8)
    assert why_kept(run, 7 * DAY_S) == ""
    lease = Lease(run.path / "relay.lease")
    assert lease.acquire()
    assert "works on it" in why_kept(run, 0)
    with pytest.raises(UsageError, match="works on it"):
        archive(run)
    lease.release()
    going = trackers.init("json", project="digits", id="two", dir="runs", options={"TRACKER_RELAY": False})
    going.log({"loss": 1.0})
    assert why_kept(RunDirectory(Path("runs/digits/two")), 0) == "it is running"
    going.finish()
    assert "json lacks some of it (not begun" in why_kept(RunDirectory(Path("runs/digits/two")), 0)


def test_archived_run_is_delivered_elsewhere_and_resumed_after_restoring(run: RunDirectory) -> None:
    """Sync to a new tracker and resume say how to restore; then they work on it as ever."""
    archive(run)
    done = program("sync", str(run.path))
    assert done.returncode == 0, done.stderr
    assert "json: delivered" in done.stdout
    assert not any(path.name.endswith(".jsonl") for path in run.streams.iterdir())
    done = program("sync", str(run.path), "--to", "csv")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "trackers restore" in done.stderr
    with pytest.raises(UsageError, match=r"is archived: `trackers restore .* --yes`"):
        trackers.init("json", project="digits", id="one", resume="must", dir="runs")
    restore(run)
    assert sync([run], ["csv"], lambda work: None)
    assert len((run.path / "metrics.csv").read_text().splitlines()) == len(ROWS) + 1
    again = trackers.init(
        "json", project="digits", id="one", resume="must", dir="runs", options={"TRACKER_RELAY": False}
    )
    again.log({"loss": 0.0}, step=201)
    again.finish()
    assert overview(run).step == 201


def test_damaged_archive_is_one_line_and_restores_nothing(run: RunDirectory) -> None:
    """A packed file that isn't what was packed is named; the others stay as they are."""
    archive(run)
    victim = sorted(run.streams.iterdir())[0]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content)
    with pytest.raises(NotFound, match="is damaged"):
        restore(run)
    assert run.archived()


def test_restore_overwrites_nothing(run: RunDirectory) -> None:
    """A file that has come to lie where an archived one belongs stays, and so does the archive."""
    archive(run)
    stream = run.streams / "rank-0.1.jsonl"
    stream.write_bytes(b"other\n")
    with pytest.raises(UsageError, match="differs from the archived file"):
        restore(run)
    assert stream.read_bytes() == b"other\n"
    assert stream.with_name("rank-0.1.jsonl.zst").exists()


def test_copied_archive_is_whole(run: RunDirectory) -> None:
    """An archived run that is copied elsewhere reads and restores there."""
    before = files(run.streams)
    archive(run)
    shutil.copytree(run.path, "elsewhere/digits/one")
    there = RunDirectory(Path("elsewhere/digits/one"))
    assert len(trackers.load(str(there.path)).metrics().to_pandas()) == len(ROWS)
    restore(there)
    assert files(there.streams) == before
    assert json.loads((run.path / "archive.json").read_text())["version"] == 1


HOSTILE = (
    "../../victim/precious.txt",
    "/etc/precious.txt",
    "streams/../../../victim/precious.txt",
    "media/../run.json",
    "run.json",
    "delivery/json.json",
    "streams/rank-0.1.jsonl.zst",
    "",
)


@pytest.mark.parametrize("path", HOSTILE)
def test_manifest_names_nothing_but_what_is_packed(run: RunDirectory, path: str) -> None:
    """A manifest that somebody changed writes and deletes nothing: it is refused as a whole."""
    archive(run)
    victim = Path("runs/victim/precious.txt")
    victim.parent.mkdir()
    victim.write_text("precious")
    packed = Path(str(victim) + ".zst")
    packed.write_bytes(next(run.streams.glob("*.zst")).read_bytes())
    manifest = json.loads(run.archive.read_bytes())
    manifest["files"].append({**manifest["files"][0], "path": path})
    run.archive.write_text(json.dumps(manifest))
    before = files(Path("runs"))
    with pytest.raises(NotFound, match="which no archive packs"):
        restore(run)
    assert files(Path("runs")) == before


def test_restored_file_runs_as_nobody_else(run: RunDirectory) -> None:
    """Permissions come back without set-user-id, whatever the manifest says."""
    archive(run)
    manifest = json.loads(run.archive.read_bytes())
    for entry in manifest["files"]:
        entry["mode"] = 0o6755
    run.archive.write_text(json.dumps(manifest))
    restore(run)
    assert {path.stat().st_mode & 0o7777 for path in run.streams.glob("*.jsonl")} == {0o755}


def test_planted_links_are_not_written_through(run: RunDirectory) -> None:
    """Links at names that earlier versions used, and in the place of a packed or a restored file, lead nowhere."""
    victim = Path("victim.txt").absolute()
    victim.write_text("precious")
    (stream,) = run.streams.glob("rank-*.jsonl")
    for name in (f".{stream.name}.part.zst", f".{stream.name}.part"):
        (run.streams / name).symlink_to(victim)
    archive(run)
    assert victim.read_text() == "precious"
    stream.symlink_to(victim)
    with pytest.raises((UsageError, OSError)):
        restore(run)
    assert victim.read_text() == "precious"
    stream.unlink()
    restore(run)
    assert stream.is_file()
    assert victim.read_text() == "precious"


def test_packed_file_that_claims_less_than_it_holds_is_damaged(run: RunDirectory) -> None:
    """Unpacking ends where the manifest's length does: a small file can't fill the disk."""
    archive(run)
    manifest = json.loads(run.archive.read_bytes())
    manifest["files"][0]["size"] = 10
    run.archive.write_text(json.dumps(manifest))
    with pytest.raises(NotFound, match="is damaged"):
        restore(run)


def test_file_of_nothing_is_neither_packed_nor_compared(run: RunDirectory) -> None:
    """Terabytes of a sparse file cost no time: the archive names it and leaves all as it was, and so does restoring
    where such a file lies in the place of a packed one."""
    log = run.relay_log.read_bytes()
    os.truncate(run.relay_log, 12 << 40)
    before = {path for path in run.path.rglob("*") if path.suffix != ".zst"}
    with pytest.raises(Damaged, match=r"relay\.log has a hole"):
        archive(run)
    assert {path for path in run.path.rglob("*") if path.suffix != ".zst"} == before
    assert not run.archived()
    run.relay_log.write_bytes(log)
    archive(run)
    with run.relay_log.open("wb") as file:
        file.truncate(12 << 40)
    with pytest.raises(UsageError, match=r"relay\.log differs from the archived file"):
        restore(run)


def test_packed_file_swapped_for_a_link_leaves_its_target_alone(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write to the run may replace what is being written: its time goes to the file itself."""
    victim = Path("victim.txt").absolute()
    victim.write_text("precious")
    os.utime(victim, (1.0, 1.0))
    real = os.fsync

    def swap(fd: int) -> None:
        real(fd)
        for part in run.streams.glob(".*.part.zst"):
            part.unlink()
            part.symlink_to(victim)

    monkeypatch.setattr(os, "fsync", swap)
    with pytest.raises((UsageError, OSError)):
        archive(run)
    assert victim.stat().st_mtime == 1.0
