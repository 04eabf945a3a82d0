"""Versions are what the runs' records say: numbered once, stable, found by name."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.artifacts.conftest import Begin, log
from trackers.artifacts import numbers, versions
from trackers.artifacts.versions import Catalog, OfRun, Version
from trackers.errors import NotFound, UsageError
from trackers.records import ArtifactFile, ArtifactRecord
from trackers.support.seekable_zstd import pack, packed_path
from trackers.training.run import Run

RUNS = Path("runs")


def listed(name: str = "dataset", project: str = "digits") -> list[Version]:
    """The versions of a name, as everybody sees them."""
    found = versions.catalogs(RUNS.absolute(), project)
    return found[0].names[name] if found else []


def numbered(name: str = "dataset") -> dict[int, str]:
    """Digests by number."""
    return {one.number: one.digest for one in listed(name)}


def test_versions_count_by_content(begin: Begin) -> None:
    """New content is the next number, whichever run logs it; the same content is the version that has it."""
    run = begin("one")
    assert [log(run, "a"), log(run, "b"), log(run, "a")] == ["v0", "v1", "v0"]
    run.finish()
    other = begin("two")
    assert [log(other, "b"), log(other, "c"), log(other, "a", name="other")] == ["v1", "v2", "v0"]
    other.finish()
    assert [one.number for one in listed()] == [0, 1, 2]
    assert [maker.name for maker in listed()[1].makers] == ["one", "two"]
    assert begin("three", project="letters").project == "letters"
    assert log(begin("three", project="letters"), "z") == "v0"


def test_saved_files_are_no_artifacts(begin: Begin) -> None:
    """What ``save`` and the run's own folder of files keep has no versions, as in W&B."""
    run = begin()
    Path("config.yaml").write_text("lr: 1")
    run.save("config.yaml")
    Path(run.files_dir, "notes.txt").write_text("x")
    run.finish()
    assert versions.catalogs(RUNS.absolute()) == []


def test_aliases_move(begin: Begin) -> None:
    """latest is what was logged last, also with an earlier version's content; others move as they are given."""
    run = begin()
    log(run, "a", aliases=["best"])
    log(run, "b", aliases=["best", "prod"])
    log(run, "a")
    assert {one.number: one.aliases for one in listed()} == {0: ["latest"], 1: ["best", "prod"]}


CLAIM = """
import sys
from pathlib import Path
from trackers.artifacts import numbers
sys.stdin.readline()
for number in range(20):
    claim = numbers.NumberHolder(f"{sys.argv[1]}-{number}", sys.argv[1], 0.0)
    print(numbers.assign(Path("project"), "model", claim, dict))
"""


def test_numbers_taken_at_once_differ(tmp_path: Path) -> None:
    """Processes that log at the same moment never get one number for different content."""
    Path("project").mkdir()
    words = [sys.executable, "-c", CLAIM]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*words, name], **pipes) for name in "abc"]  # type: ignore[call-overload]
    for one in started:
        one.stdin.write("go\n")
        one.stdin.flush()
    found = [int(word) for one in started for word in one.communicate()[0].split()]
    assert sorted(found) == list(range(60))


def test_number_stays_when_records_come_late(begin: Begin) -> None:
    """A record that reaches the journal later, with an earlier time, changes no number that was seen."""
    first, second = begin("first"), begin("second")
    log(second, "b")
    seen = numbered()
    first._recorder.offset -= 3600.0
    log(first, "a")
    assert {number: digest for number, digest in numbered().items() if number in seen} == seen
    first.finish()
    assert numbered()[0] == seen[0]


def test_removal_by_others_is_noticed(begin: Begin) -> None:
    """Content that was removed meanwhile is a new version, also in the run that has seen the old one."""
    run = begin()
    assert [log(run, content) for content in "ab"] == ["v0", "v1"]
    numbers.forget(RUNS / "digits", "dataset", 0, dict)
    assert [log(run, content) for content in "ba"] == ["v1", "v2"]


def test_content_is_compared_with_the_newest_versions(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with more of them than a run can look through at each call."""
    monkeypatch.setattr(numbers, "COMPARED", 2)
    run = begin()
    assert [log(run, content) for content in "abcba"] == ["v0", "v1", "v2", "v1", "v3"]


def test_numbers_folder_can_be_deleted(begin: Begin) -> None:
    """The numbers are in the records: without the folder they are the same, and counting goes on after them."""
    run = begin()
    for content in "abc":
        log(run, content)
    before = numbered()
    shutil.rmtree(RUNS / "digits" / numbers.FOLDER)
    assert numbered() == before
    assert [log(run, "b"), log(run, "d")] == ["v1", "v3"]
    assert {number: numbered()[number] for number in before} == before


def _edit(run: Run, change: object) -> None:
    """Rewrite the records of artifacts in a run's stream, as another program had written them."""
    path = Path(run.path, "streams/rank-0.1.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "artifact":
            change(line)  # type: ignore[operator]
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def test_records_without_numbers_are_counted_by_time(begin: Begin) -> None:
    """Runs of earlier releases have no numbers: the order of time gives them, and it stays when a run logs more."""
    run = begin("old")
    for content in "aba":
        log(run, content)
    run.finish()
    _edit(run, lambda line: line.pop("version", None))
    shutil.rmtree(RUNS / "digits" / numbers.FOLDER)
    before = numbered()
    assert list(before) == [0, 1]
    assert log(begin("new"), "c") == "v2"
    assert {number: numbered()[number] for number in before} == before


def test_number_that_no_version_has_is_none(begin: Begin) -> None:
    """What somebody wrote in the place of a number costs nothing: the record is counted with those that have none."""
    run = begin()
    for content in "ab":
        log(run, content)
    run.finish()
    _edit(run, lambda line: line.update(version=10**12))
    assert list(numbered()) == [0, 1]
    _edit(run, lambda line: line.update(version=-5))
    assert list(numbered()) == [0, 1]


def test_runs_of_two_machines_are_told_apart(begin: Begin) -> None:
    """Of two runs that say one number for different content, the one that took it here keeps it."""
    here = begin("here")
    log(here, "a")
    here.finish()
    seen = numbered()
    other = begin("there", project="copied")
    log(other, "b")
    other.finish()
    _edit(other, lambda line: line.update(time=1.0))
    shutil.move(other.path, RUNS / "digits" / Path(other.path).name)
    found = numbered()
    assert found[0] == seen[0]
    assert list(found) == [0, 1]


def test_number_that_cannot_be_taken_is_given_by_readers(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """A project's folder that can't be written keeps nothing from being logged; one line says so."""
    run = begin()
    (RUNS / "digits" / numbers.FOLDER).write_text("no folder")
    assert log(run, "a") == "None"
    assert log(run, "b") == "None"
    assert [one.number for one in listed()] == [0, 1]
    assert capfd.readouterr().err.count("kept without a number") == 1


def test_names_that_are_not_utf8_have_versions(begin: Begin) -> None:
    """Files and artifacts with names that no text file can hold are told by what the journal has of them."""
    run = begin()
    name = "caf\udce9"
    Path(f"{name}.csv").write_text("a")
    found = [run.log_artifact(f"{name}.csv", name=name, type="dataset") for _ in range(2)]
    assert [one.version for one in found] == ["v0", "v0"]
    assert Path(found[0].download("out"), "caf_udce9.csv").read_text() == "a"
    assert [one.number for one in listed("caf\\udce9")] == [0]


def test_folder_of_numbers_is_made_whole_or_not(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills while the numbers of earlier runs are written keeps no part of them; the next call does it."""
    run = begin()
    for content in "abc":
        log(run, content)
    folder = RUNS / "digits" / numbers.FOLDER
    shutil.rmtree(folder)
    real, calls = numbers.confined.write_new, []

    def fail(path: Path, content: bytes, *, root: Path | None = None) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content, root=root)

    monkeypatch.setattr(numbers.confined, "write_new", fail)
    assert log(run, "d") == "None"
    assert list((folder / "numbers").iterdir()) == []
    assert log(run, "e") == "v4"
    assert list(numbered()) == [0, 1, 2, 3, 4]


def test_planted_link_is_not_written_through(begin: Begin, tmp_path: Path) -> None:
    """A link in the place of the folder of numbers leads nowhere."""
    victim = tmp_path / "victim"
    victim.mkdir()
    run = begin()
    os.symlink(victim, RUNS / "digits" / numbers.FOLDER)
    log(run, "a")
    assert list(victim.iterdir()) == []


def test_unknown_name_says_what_is_near(begin: Begin) -> None:
    """Names, aliases and numbers that aren't there: one line each, with those that are."""
    log(begin(), "a", aliases=["raw"])
    root = RUNS.absolute()
    with pytest.raises(NotFound, match=r"did you mean 'digits/dataset'\? W&B's own: wandb artifact get datset:v0"):
        versions.find(root, "datset:v0", "digits")
    with pytest.raises(NotFound, match=r"'dataset' has no version 'best': there is v0 \(latest, raw\)"):
        versions.find(root, "digits/dataset:best")
    with pytest.raises(NotFound, match="no artifact 'letters/dataset'"):
        versions.find(root, "letters/dataset")
    assert str(versions.find(root, "team/digits/dataset:raw")) == "digits/dataset:v0"
    assert str(versions.find(root, "dataset")) == "digits/dataset:v0"


def test_name_in_two_projects_needs_one(begin: Begin) -> None:
    """Without a project, a name that several have is an error that names them."""
    log(begin(), "a")
    log(begin(project="letters"), "a")
    with pytest.raises(UsageError, match="in 2 projects: name one, as in digits/dataset, letters/dataset"):
        versions.find(RUNS.absolute(), "dataset:v0")


def test_version_of_a_deleted_run_is_named(begin: Begin) -> None:
    """A number whose run was deleted isn't given again, and asking for it says why it isn't there."""
    run, other = begin("gone"), begin("stays")
    assert [log(run, "a"), log(other, "b")] == ["v0", "v1"]
    run.finish()
    shutil.rmtree(run.path)
    with pytest.raises(NotFound, match=r"dataset:v0 was logged by a run that is gone .*: there is v1 \(latest\)"):
        versions.find(RUNS.absolute(), "dataset:v0", "digits")
    assert log(other, "c") == "v2"


def test_damaged_records_cost_nothing_else(begin: Begin) -> None:
    """Lines that are no records, or of a run whose identity is gone, are passed over."""
    run = begin()
    log(run, "a")
    run.finish()
    with open(Path(run.path, "streams/rank-0.1.jsonl"), "ab") as file:
        file.write(b'{"kind":"artifact","time":"x"}\n{"kind":"artifact","name":{}}\n{"kind":"artifact","na')
    (RUNS / "digits/broken").mkdir()
    (RUNS / "digits/broken/run.json").write_text("{")
    assert list(numbered()) == [0]


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.floats(0, 10),
        st.sampled_from("abcd"),
        st.none() | st.integers(-1, 6),
        st.lists(st.sampled_from(["best", "prod", "latest", "v3"]), max_size=2),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(RECORDS, st.randoms())
@example([(0, 0.0, "a", None, []), (0, 0.0, "b", None, [])], Random(0))
def test_any_records_make_versions(made: list[tuple[int, float, str, int | None, list[str]]], chance: Random) -> None:
    """Whatever numbers and times records say: each is in one version, which has its content."""
    runs: dict[str, OfRun] = {}
    for run, time, content, number, aliases in made:
        files = [ArtifactFile(path="a", digest=content)]
        record = ArtifactRecord(name="x", time=time, files=files, version=number, aliases=aliases)
        runs.setdefault(f"/runs/p/{run}", OfRun(str(run), f"run {run}")).logged.append(record)
    found = Catalog(Path("/runs/p"), runs).names.get("x", [])
    assert sum(len(one.makers) for one in found) == len(made)
    assert all(versions.digest_of(maker.record.files) == one.digest for one in found for maker in one.makers)
    assert [one.number for one in found] == sorted({one.number for one in found})
    assert sum("latest" in one.aliases for one in found) == bool(made)
    assert not any("v3" in one.aliases for one in found)
    said = {number for _, _, _, number, _ in made if number is not None and number >= 0}
    assert said <= {one.number for one in found}
    mixed = list(runs)
    chance.shuffle(mixed)
    again = Catalog(Path("/runs/p"), {path: runs[path] for path in mixed}).names.get("x", [])
    assert [one.to_dict() for one in again] == [one.to_dict() for one in found]


def test_archived_runs_have_versions(begin: Begin) -> None:
    """Packed streams are read, too."""
    run = begin()
    log(run, "a")
    run.finish()
    stream = Path(run.path, "streams/rank-0.1.jsonl")
    pack(stream, packed_path(stream))
    stream.unlink()
    assert list(numbered()) == [0]


LOGS = """
import sys
import trackers
run = trackers.init("json", project="digits", name=sys.argv[1], mode="offline", options={"TRACKER_RELAY": False})
sys.stdin.readline()
for number in range(10):
    open(f"{sys.argv[1]}.csv", "w").write(f"{sys.argv[1]} {number // 2}")
    print(run.log_artifact(f"{sys.argv[1]}.csv", name="dataset").version)
"""


@pytest.mark.slow
def test_runs_that_log_at_once_get_different_versions() -> None:
    """Two processes, one name: what each was told is what everybody reads, then and after both have ended."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", LOGS, name], **pipes) for name in "ab"]  # type: ignore[call-overload]
    for one in started:
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [one.communicate()[0].split() for one in started]
    assert len({*told[0], *told[1]}) == 10
    for name, words in zip("ab", told, strict=True):
        of_run = [f"v{one.number}" for one in listed() if one.makers[0].name == name]
        assert sorted({*words}) == sorted(of_run)
        assert words[::2] == words[1::2]


def test_same_content_changes_neither_type_nor_metadata(begin: Begin) -> None:
    """As in W&B: only aliases move. New content may be of another type."""
    run = begin()
    log(run, "a", metadata={"rows": 1})
    assert run.log_artifact("rows.csv", name="dataset", type="table", metadata={"rows": 2}).version == "v0"
    Path("rows.csv").write_text("b")
    run.log_artifact("rows.csv", name="dataset", type="table")
    first, second = listed()
    assert (first.type, first.metadata["rows"], first.aliases) == ("dataset", 1, [])
    assert (second.type, second.aliases) == ("table", ["latest"])
