"""Deletion: only what trackers have whole elsewhere; a kill leaves nothing half, and sizes are told by kind."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import forked
from tests.retention.support import age, delivered, program
from trackers.analysis.tables import format_size
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account
from trackers.retention import prune
from trackers.retention.archive import archive
from trackers.retention.lock import why_kept, why_not_deleted
from trackers.retention.sizes import LOOSE_KINDS, Size, loose_sizes, run_sizes, total

RUN = Path("runs/digits/one")


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        delivered(JSON_DIR=str(folder / "logs"))
        delivered("inside")
    return folder / "runs"


@pytest.fixture
def run(_made: Path, tmp_path: Path) -> RunDirectory:
    """A run that the JSON log has whole outside of its directory; beside it one whose log lies inside."""
    shutil.copytree(_made, tmp_path / "runs")
    return RunDirectory(RUN)


@pytest.mark.heavy
def test_only_what_lies_elsewhere_is_deleted(run: RunDirectory) -> None:
    """A run whose only copy is in its own directory is archived at most, never deleted."""
    inside = RunDirectory(Path("runs/digits/inside"))
    assert why_not_deleted(run, 0) == ""
    assert why_kept(inside, 0) == ""
    assert why_not_deleted(inside, 0) == "no tracker has it outside of this directory"
    assert prune.delete(run, 0) > 1000
    assert not RUN.exists()
    with pytest.raises(UsageError, match="stays as it is: no tracker has it outside"):
        prune.delete(inside, 0)
    assert inside.identity.exists()


def test_archived_run_is_deleted_and_a_link_is_not(run: RunDirectory) -> None:
    """What is archived can go later; a link to a run isn't followed."""
    archive(run)
    Path("runs/digits/link").symlink_to(RUN.absolute())
    assert "is a link" in why_not_deleted(RunDirectory(Path("runs/digits/link")), 0)
    assert prune.delete(run, 0) > 100
    assert not RUN.exists()


@pytest.mark.parametrize("end", [".gone", ".gone\0"], ids=["name", "no-name"])
def test_copy_that_has_gone_is_none(end: str, run: RunDirectory) -> None:
    """Where the tracker's file was deleted, or its address is none, the run is the only copy again."""
    account = read_account(run, "json")
    assert Path(account.state["url"]).exists()
    account.state["url"] += end
    run.delivery_state("json").write_bytes(msgspec.json.encode(account))
    assert why_not_deleted(run, 0) == "no tracker has it outside of this directory"


def test_what_no_copy_takes_is_kept(run: RunDirectory) -> None:
    """Records of a kind that no tracker outside takes are in the journal only: the run stays."""
    changed = msgspec.structs.replace(read_account(run, "json"), skipped={"media": 2})
    run.delivery_state("json").write_bytes(msgspec.json.encode(changed))
    assert why_not_deleted(run, 0) == "no tracker outside of this directory takes its media records"
    run.delivery_state("json").write_bytes(msgspec.json.encode(msgspec.structs.replace(changed, skipped={}, damaged=1)))
    assert "1 damaged lines" in why_not_deleted(run, 0)


CODE = """
import sys
from pathlib import Path
from trackers.support import failpoints
from trackers.retention.prune import delete
from trackers.journal.run_directory import RunDirectory
failpoints.arm(sys.argv[2])
delete(RunDirectory(Path(sys.argv[1])), 0)
"""


ROOT_ONLY = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files to another account")
PLACES = ("runs", "runs/digits", "runs/.ranks", "runs/digits/link")


@ROOT_ONLY
@pytest.mark.parametrize("place", PLACES)
def test_deletion_that_somebody_else_says_was_begun_isnt_ended(run: RunDirectory, tmp_path: Path, place: str) -> None:
    """Who can write to a folder of runs has nothing deleted there, nor through a link that leads elsewhere."""
    precious = tmp_path / ("elsewhere" if place.endswith("link") else place) / "precious/file.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    if place.endswith("link"):
        (tmp_path / place).symlink_to(precious.parents[1])
    (tmp_path / place / prune.DOOMED).touch()
    if not place.endswith("link"):
        os.chown(tmp_path / place / prune.DOOMED, 65534, -1)
    assert list(prune.unfinished_deletions(Path("runs"))) == [Path(place)]
    with pytest.raises(UsageError, match="not all there is one account's, or it is a link"):
        prune.finish(Path(place))
    assert precious.read_text() == "precious"
    assert run.identity.exists()


@pytest.mark.parametrize("kind", [pytest.param("link", marks=ROOT_ONLY), "folder"])
def test_folder_that_is_swapped_is_not_emptied(run: RunDirectory, tmp_path: Path, kind: str) -> None:
    """The one that is emptied holds the file that says what it is, also where another came into its place meanwhile."""
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep/file.txt").write_text("precious")
    aside = run.path.with_name(f".{run.path.name}.deleting")
    if kind == "link":
        (precious / prune.DOOMED).touch()
        aside.symlink_to(precious)
        os.chown(aside, 65534, -1, follow_symlinks=False)
    else:
        precious.rename(aside)
    os.replace(run.identity, run.path / prune.DOOMED)
    with pytest.raises(OSError, match=r"another account|run\.json\.deleting|Not a directory|not empty"):
        prune.finish(run.path)
    assert (tmp_path / "precious" if kind == "link" else aside).joinpath("deep/file.txt").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root: links of another account")
@pytest.mark.parametrize("moment", ["run_sizes", "_remove"])
def test_project_that_is_swapped_has_no_other_run_deleted(
    run: RunDirectory, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another account's link, to a project with a run of that id, that comes while a run of its own is deleted."""
    shutil.copytree(run.path.parent, tmp_path / "private", symlinks=True)

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "private").rglob("*") if path.is_file()}

    before = files()
    real = getattr(prune, moment)

    def swap(path: Path) -> Any:
        found = real(path) if moment == "run_sizes" else None
        path.parent.rename(tmp_path / "moved")
        path.parent.symlink_to(tmp_path / "private")
        os.chown(path.parent, 65534, -1, follow_symlinks=False)
        return found if moment == "run_sizes" else real(path)

    monkeypatch.setattr(prune, moment, swap)
    with pytest.raises(OSError, match="another account's link"):
        prune.delete(run, 0.0)
    assert files() == before


@pytest.mark.slow
@pytest.mark.parametrize("point", ["delete.before", "delete.doomed", "delete.aside", "delete.entry.after"])
def test_killed_deletion_goes_on(run: RunDirectory, point: str) -> None:
    """Before the first change the run is whole; after it there is no half a run, and the next call ends the work."""
    done = forked.run([sys.executable, "-c", CODE, str(run.path), f"{point}=kill"], preload=forked.PACKAGE)
    assert done.returncode == -9
    listed = json.loads(program("ls", "--json", "--dir", "runs").stdout)
    assert sorted(view["info"]["id"] for view in listed) == (
        ["inside", "one"] if point == "delete.before" else ["inside"]
    )
    dry = program("prune", "--dir", "runs", "--older-than", "0")
    assert dry.returncode == 0, dry.stderr
    assert bool(list(prune.unfinished_deletions(Path("runs")))) is (point != "delete.before")
    done = program("prune", "--dir", "runs", "--older-than", "0", "--yes")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in Path("runs/digits").iterdir()] == ["inside"]


def test_new_run_in_the_place_of_a_doomed_one_stays(run: RunDirectory) -> None:
    """A run that began where a deletion was cut short isn't taken for its rest."""
    (RUN / prune.DOOMED).write_bytes(run.identity.read_bytes())
    with pytest.raises(UsageError, match="a new run began"):
        prune.finish(RUN)
    assert run.identity.exists()


@pytest.mark.slow
def test_commands_change_nothing_without_yes(run: RunDirectory) -> None:
    """archive, restore and prune say what they would do; --yes does it; --json tells the same."""
    age(Path("runs"), 40)
    seen = program("archive", "--dir", "runs")
    assert seen.returncode == 0, seen.stderr
    assert "runs/digits/one  " in seen.stdout
    assert "2 to compress; nothing was changed; add --yes to do it" in seen.stdout
    assert "journal " in seen.stdout
    assert not run.archived()
    done = program("archive", str(RUN), "--yes", "--json")
    entry = json.loads(done.stdout)[0]
    journal = entry["sizes"]["journal"]["files"]  # a stream and its checksums
    assert (entry["action"], entry["freed"] > 0, journal) == ("compressed", True, 2)
    assert run.archived()
    assert "keep: archived already" in program("archive", "one", "--dir", "runs").stdout
    assert "1 to restore" in program("restore", "one", "--dir", "runs", "--dry-run").stdout
    assert program("restore", "one", "--dir", "runs", "--yes").returncode == 0
    assert not run.archived()
    seen = program("prune", "--dir", "runs")
    assert "runs/digits/inside" in seen.stdout
    assert "keep: no tracker has it outside of this directory" in seen.stdout
    assert "1 to delete; nothing was changed" in seen.stdout
    assert RUN.exists()
    assert program("prune", "--dir", "runs", "--yes").returncode == 0
    assert not RUN.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("archive", "nobody", "--dir", "runs"), 1, "no run 'nobody'"),
        (("restore", "nobody", "--dir", "runs"), 1, "no run 'nobody'"),
        (("prune", "--dir", "nowhere"), 1, "no runs in nowhere"),
        (("prune", "", "--older-than", "0", "--yes"), 2, "a run's name is empty"),
        (("archive", "", "--older-than", "0", "--yes"), 2, "a run's name is empty"),
        (("restore", " ", "--yes"), 2, "a run's name is empty"),
        (("prune", "--compress-after", "3"), 2, "--compress-after belongs to --logs; runs have --older-than"),
        (("prune", "--logs", "--older-than", "3"), 2, "--older-than is for runs: logs have --compress-after"),
        (("archive", "--backup", "full", "--older-than", "3"), 2, "--older-than is for runs"),
        (("restore", "one", "--into", "elsewhere"), 2, "--into is for backups"),
    ],
)
def test_wrong_input_is_one_line(run: RunDirectory, arguments: tuple[str, ...], code: int, text: str) -> None:
    """What isn't there is named on one line; an empty name, of an unset variable, doesn't mean everything here."""
    done = program(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert text in done.stderr


def test_wrong_number_is_wrong_usage() -> None:
    """Days below zero are refused."""
    done = program("prune", "--older-than", "-1")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_sizes_by_kind(run: RunDirectory) -> None:
    """Every byte of a run, and of a folder of results, counts once, under its kind."""
    sizes = run_sizes(RUN)
    assert sizes["journal"].size == sum(path.stat().st_size for path in run.streams.iterdir())
    assert total(sizes) == sum(path.stat().st_size for path in RUN.rglob("*") if path.is_file())
    day = Path("results/2026-01-05/training_logs")
    day.mkdir(parents=True)
    for name in ("../benchmark_cuda_20260105_143022.json", "../comparison_report.md", "../comparison_plot.png",
                 "primus_training_112906.log", "nemo.log.gz", "../perf_logs1.json", "../notes.txt"):  # fmt: skip
        (day / name).write_bytes(b"12345")
    shutil.copytree(RUN, "results/runs/digits/one")
    assert loose_sizes(Path("results")) == dict.fromkeys(LOOSE_KINDS, Size(1, 5))
    assert [format_size(size) for size in (0, 999, 1500, 2_340_000)] == ["0 B", "999 B", "1.5 KB", "2.3 MB"]
