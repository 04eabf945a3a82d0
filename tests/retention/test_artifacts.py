"""Versions are removed only where nothing needs them: their files go, their records and numbers stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy
import pytest

import trackers
from tests.artifacts.conftest import Begin, begin, log
from trackers.artifacts import numbers, versions
from trackers.artifacts.versions import Version
from trackers.errors import NotFound
from trackers.retention.artifacts import out_of_date, remove, why_version_kept
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
    picture = trackers.Image(numpy.zeros((2, 2), "uint8"))
    artifact = trackers.Artifact("pictures", "dataset")
    artifact.add(picture, "one")
    run.log_artifact(artifact)
    run.log({"table": trackers.Table(columns=["x"], data=[[picture]] * 400)})
    run.finish()
    before = {path for path in Path(run.path, "media").rglob("*") if path.is_file()}
    assert remove(of()[0]) == len("own")
    assert kept(run) == {"shared"}
    assert remove(of("pictures")[0]) == 0
    assert len(before - {path for path in Path(run.path, "media").rglob("*") if path.is_file()}) == 1


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
