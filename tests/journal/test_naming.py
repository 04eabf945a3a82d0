"""One way to name runs: id, name, project, latest, pattern, directory; and what is near a name that isn't there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.analysis.support import write_run
from trackers.errors import NotFound, UsageError
from trackers.journal.naming import find_run, none_in, none_of_project, runs_named

ROOT = Path("runs")


@pytest.fixture(autouse=True)
def runs() -> None:
    """Runs of two projects; two have one name; the order of their files' times is that in which they are made."""
    made = {"aaaa": "lr0.1", "bbbb": "lr0.01", "cccc": "same", "dddd": "same"}
    for number, (run_id, name) in enumerate(made.items()):
        place = write_run(run_id, name=name, project="my p" if run_id == "dddd" else "digits")
        os.utime(place / "run.json", (1e9 + number, 1e9 + number))


def named(reference: str) -> list[str]:
    """The ids of the runs that a reference names."""
    return [run.path.name for run in runs_named(reference, ROOT)]


@pytest.mark.parametrize(
    ("reference", "ids"),
    [
        ("aaaa", ["aaaa"]),
        ("digits/aaaa", ["aaaa"]),
        ("lr0.1", ["aaaa"]),
        ("digits/lr0.1", ["aaaa"]),
        ("digits/same", ["cccc"]),
        ("latest", ["dddd"]),
        ("", ["dddd"]),
        ("digits/latest", ["cccc"]),
        ("digits", ["aaaa", "bbbb", "cccc"]),
        ("my p", ["dddd"]),
        ("my p/latest", ["dddd"]),
        ("lr*", ["aaaa", "bbbb"]),
        ("digits/*", ["aaaa", "bbbb", "cccc"]),
        ("*/same", ["cccc", "dddd"]),
        ("[ab]*", ["aaaa", "bbbb"]),
        ("runs/digits", ["aaaa", "bbbb", "cccc"]),
        ("runs/digits/aaaa", ["aaaa"]),
        ("runs/*/a*", ["aaaa"]),
    ],
)
def test_reference_names_runs(reference: str, ids: list[str]) -> None:
    """Each form names the runs that it says."""
    assert named(reference) == ids


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("lr0.2", "no run 'lr0.2' in runs: did you mean 'lr0.1', 'lr0.01'?"),
        ("aaab", "did you mean 'aaaa'?"),
        ("digit", "did you mean 'digits'?"),
        ("latst", "did you mean 'latest'?"),
        ("zzzzzz", "no run 'zzzzzz' in runs; `trackers ls` lists them"),
        ("zz*", "no run 'zz*'"),
        ("nothing/latest", "no run 'nothing/latest'"),
        ("mlflow:sqlite:///x.db", "stored elsewhere is only read, by `trackers compare`"),
    ],
)
def test_unknown_name_says_what_is_near(reference: str, said: str) -> None:
    """One line with the nearest names, ids and projects."""
    with pytest.raises(NotFound) as error:
        runs_named(reference, ROOT)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_shared_name_is_refused() -> None:
    """A name that two runs have names neither; their ids are listed."""
    with pytest.raises(UsageError, match="2 runs are called 'same'") as error:
        runs_named("same", ROOT)
    assert "digits/cccc" in str(error.value)


@pytest.mark.parametrize("reference", ["s3://bucket/runs", "file:///runs/digits"])
def test_store_is_no_run(reference: str) -> None:
    """It is said how a store is named; that there are no runs in another place would mislead."""
    with pytest.raises(UsageError, match=f"is a store: give --dir {reference}"):
        runs_named(reference, Path("nowhere"))
    with pytest.raises(UsageError, match=f"is a store: give --dir {reference}, and a run$"):
        runs_named(f"{reference}#digits/r1", Path("nowhere"))


def test_one_run_is_one() -> None:
    """Where one run is needed, what names several says which there are."""
    assert find_run("lr0.1", ROOT).path.name == "aaaa"
    with pytest.raises(UsageError, match=r"'digits' names 3 runs: name one \(digits/aaaa, .*\), or latest"):
        find_run("digits", ROOT)


def test_empty_root_says_so() -> None:
    """Where there is no run at all, that is said."""
    for reference in ("latest", "one"):
        with pytest.raises(NotFound, match="no runs in nowhere"):
            runs_named(reference, Path("nowhere"))


def test_wrong_directory_names_where_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory near by, or one whose name is like the wrong one; without any nothing is suggested."""
    (tmp_path / "empty/one").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty/one")
    assert none_in(tmp_path / "empty/none") == f"no runs in {tmp_path / 'empty/none'}, which does not exist"
    write_run("one", [(0, 0, {"loss": 1.0})], root=tmp_path / "exp/runs", project="p")
    monkeypatch.chdir(tmp_path / "exp")
    assert none_in(tmp_path / "nope").endswith("nope, which does not exist; 1 run is in runs: --dir runs")
    monkeypatch.chdir(tmp_path / "exp/runs")
    assert none_in(Path("runs")) == "no runs in runs, which does not exist; 1 run is in .: --dir ."
    near = none_in(tmp_path / "exp/rusn")
    assert near.endswith(f"; 1 run is in {tmp_path / 'exp/runs'}: --dir {tmp_path / 'exp/runs'}")


def test_wrong_project_names_the_right_one() -> None:
    """The nearest, or all where none is near."""
    assert str(none_of_project("digits", ["gpt2", "digits-mlp"], ROOT)).endswith(": did you mean 'digits-mlp'?")
    assert str(none_of_project("x", ["gpt2", "digits-mlp"], ROOT)).endswith(". Projects: digits-mlp, gpt2")
