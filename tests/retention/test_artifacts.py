"""Versions are removed only where nothing needs them: their files go, their records and numbers stay."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy
import pytest

import trackers
from tests import forked
from tests.artifacts.conftest import Begin, begin, log
from trackers.artifacts import numbers, versions
from trackers.artifacts.versions import Version
from trackers.errors import NotFound, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.retention.artifacts import (
    out_of_date,
    remove,
    remove_strays,
    strays,
    why_strays_kept,
    why_version_kept,
)
from trackers.training.run import Run

__all__ = ["begin"]
RUNS = Path("runs")


def of(name: str = "dataset") -> list[Version]:
    """The versions of a name."""
    return versions.catalogs(RUNS.absolute())[0].names[name]


def kept(run: Run) -> set[str]:
    """Contents of the files that a run keeps."""
    return {path.read_text("utf-8", "replace") for path in Path(run.path, "media").rglob("*.csv")}


def test_removed_version_leaves_no_files(begin: Begin) -> None:
    """In every run that logged it; its number stays taken, and the same content is a new version afterwards."""
    runs = [begin("one"), begin("two")]
    for run in runs:
        log(run, "a")
        log(run, "b")
        run.finish()
    assert remove(of()[0]) == 2
    assert [kept(run) for run in runs] == [{"b"}, {"b"}]
    with pytest.raises(NotFound, match=r"the content of digits/dataset:v0 was removed: there is v1 \(latest\)"):
        versions.find(RUNS.absolute(), "digits/dataset:v0")
    assert why_version_kept(of()[0], named=True, force=True) == "it is removed already"
    again = begin("three")
    assert log(again, "a") == "v2"
    assert [(one.number, bool(one.removed)) for one in of()] == [(0, True), (1, False), (2, False)]


def test_removed_version_without_a_number_stays_removed(begin: Begin) -> None:
    """Also where the record is of an earlier release, which numbered nothing."""
    run = begin()
    log(run, "a")
    log(run, "b")
    run.finish()
    path = Path(run.path, "streams/rank-0.1.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("version", None) if line["kind"] == "artifact" else None
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    shutil.rmtree(RUNS / "digits" / numbers.FOLDER)
    remove(of()[0])
    assert [(one.number, bool(one.removed)) for one in of()] == [(0, True), (1, False)]
    assert log(begin("new"), "c") == "v2"


def test_shared_files_stay(begin: Begin) -> None:
    """A file that another version, a saved file, an image or a table's cell of the run has, too, isn't removed."""
    run = begin()
    Path("shared.csv").write_text("shared")
    Path("own.csv").write_text("own")
    for name, files in (("dataset", ("shared.csv", "own.csv")), ("other", ("shared.csv",))):
        artifact = trackers.Artifact(name, "dataset")
        for file in files:
            artifact.add_file(file)
        run.log_artifact(artifact)
    trackers.Image(numpy.zeros((2, 2), "uint8")).image.save("one.png")
    picture = trackers.Image("one.png")
    artifact = trackers.Artifact("pictures", "dataset")
    artifact.add(picture, "one")
    run.log_artifact(artifact)
    run.log({"table": trackers.Table(columns=["x"], data=[[picture]] * 400)})
    run.finish()
    before = {path for path in Path(run.path, "media").rglob("*") if path.is_file()}
    assert remove(of()[0]) == len("own")
    assert kept(run) == {"shared"}
    (described,) = (file for file in of("pictures")[0].files if file.path == "one.image-file.json")
    assert remove(of("pictures")[0]) == described.size  # the picture itself is the cells', too
    assert len(before - {path for path in Path(run.path, "media").rglob("*") if path.is_file()}) == 2


def test_file_goes_with_the_last_version_that_has_it(begin: Begin) -> None:
    """Two versions share a file: it stays with the first removal, and goes with the second."""
    run = begin()
    Path("shared.csv").write_text("shared")
    for number in range(2):
        Path("own.csv").write_text(f"own {number}")
        artifact = trackers.Artifact("dataset", "dataset")
        for file in ("shared.csv", "own.csv"):
            artifact.add_file(file)
        run.log_artifact(artifact)
    run.finish()
    remove(of()[0])
    assert kept(run) == {"shared", "own 1"}
    remove(of()[1])
    assert kept(run) == set()


def test_content_that_was_logged_again_is_a_version_of_its_own(begin: Begin) -> None:
    """Its files aren't taken for what was left of the removed one, though the same run has both."""
    run = begin()
    log(run, "a")
    directory, name = run.path, run.id
    run.finish()
    remove(of()[0])
    again = trackers.init("json", project="digits", id=name, resume="must", mode="offline")
    assert log(again, "a") == "v1"
    again.finish()
    assert again.path == directory
    assert why_version_kept(of()[0], named=True, force=True) == "it is removed already"
    remove(of()[0])
    assert kept(again) == {"a"}


def test_version_that_is_needed_is_kept(begin: Begin) -> None:
    """A running run, a tracker that lacks it, an alias, a use: each is a reason; force leaves the first alone."""
    run = begin("maker")
    log(run, "a", aliases=["best"])
    log(run, "b")
    begin("user").use_artifact("dataset:v0")
    first, second = of()
    assert "it has the alias best" in why_version_kept(first, named=True)
    assert "running" in why_version_kept(first, named=True, force=True)
    assert "latest" in why_version_kept(second, named=False)
    assert "running" in why_version_kept(second, named=True)
    run.finish()
    first, second = of()
    assert "json lacks some of it" in why_version_kept(second, named=True)
    assert why_version_kept(first, named=True, force=True) == ""
    first.aliases = []
    assert why_version_kept(first, named=False) == "run user used it"


KILLED = """
import sys
from pathlib import Path
from trackers.artifacts import versions
from trackers.retention.artifacts import remove
from trackers.support import failpoints
failpoints.arm(sys.argv[1])
remove(versions.catalogs(Path("runs").absolute())[0].names["dataset"][0])
"""


@pytest.mark.parametrize("point", ["artifact.removed", "artifact.file.after"])
def test_killed_removal_is_finished_by_the_next(begin: Begin, point: str) -> None:
    """Wherever it is killed, the version is gone for who uses it, its files go later, and nothing else does."""
    runs = [begin("one"), begin("two")]
    for run in runs:
        log(run, "a")
        log(run, "b")
        run.finish()
    done = forked.run([sys.executable, "-c", KILLED, f"{point}=kill"], preload=forked.PACKAGE)
    assert done.returncode == -9
    with pytest.raises(NotFound, match="was removed"):
        versions.find(RUNS.absolute(), "digits/dataset:v0")
    (killed, other) = of()
    killed.aliases = []
    assert why_version_kept(killed, named=True, force=True) == ""
    assert remove(killed) == (2 if point == "artifact.removed" else 1)
    assert [kept(run) for run in runs] == [{"b"}, {"b"}]
    assert why_version_kept(of()[0], named=True, force=True) == "it is removed already"
    assert other.removed == 0.0


def test_newest_are_kept(begin: Begin) -> None:
    """Removed versions don't count among the newest."""
    run = begin()
    for content in "abcd":
        log(run, content)
    run.finish()
    assert [one.number for one in out_of_date(of(), 2)] == [0, 1]
    remove(of()[3])
    assert [one.number for one in out_of_date(of(), 2)] == [0]
    assert out_of_date(of(), 9) == []


def aged(path: Path) -> Path:
    """A file of last week."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("stray")
    os.utime(path, (time.time() - 7 * 86400,) * 2)
    return path


def test_files_that_no_record_names_are_strays(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process left goes, from runs that have ended, once it is old; all that records name stays."""
    run = begin()
    log(run, "a")
    picture = trackers.Image(numpy.zeros((2, 2), "uint8"))
    run.log({"table": trackers.Table(columns=["x"], data=[[picture]] * 400), "image": picture})
    Path("config.yaml").write_text("lr: 1")
    run.save("config.yaml")
    directory = RunDirectory(Path(run.path).absolute())
    media = Path(run.path, "media")
    there = {path for path in media.rglob("*") if path.is_file()}
    stray = [aged(media / ".tmp-1-2-abcd"), aged(media / "ab/abcdef.pt")]
    assert why_strays_kept(directory) == "it is running"
    with pytest.raises(UsageError, match="running"):
        remove_strays(directory)
    run.finish()
    assert strays(directory) == {}
    ahead = time.time() + 2 * 86400
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert strays(directory) == {path.absolute(): 5 for path in stray}
    os.symlink(Path("config.yaml").absolute(), media / "ab/link.pt")
    assert remove_strays(directory) == 10
    assert {path for path in media.rglob("*") if path.is_file() and not path.is_symlink()} == there


def test_version_that_a_running_run_uses_is_kept(begin: Begin) -> None:
    """It may be downloading it, in whatever project it is; when it has ended, or by force, the version may go."""
    maker, user = begin("maker"), begin("user", project="letters")
    log(maker, "a")
    log(maker, "b")
    maker.finish()
    user.use_artifact("digits/dataset:v0")
    assert why_version_kept(of()[0], named=True) == f"run {user.id} uses it and goes on"
    assert "goes on" not in why_version_kept(of()[1], named=True)
    assert why_version_kept(of()[0], named=True, force=True) == ""
    user.finish()
    assert "goes on" not in why_version_kept(of()[0], named=True)
