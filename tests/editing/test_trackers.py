"""What each tracker holds of an edit, as ``docs/editing.md`` and ``unedited`` say it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import trackers
from tests.editing.test_edits import document, made
from trackers.backends import registry
from trackers.editing.edits import trackers_of, unheld
from trackers.journal.run_directory import RunDirectory

Found = dict[str, object]
ALL: Found = {"name": "second", "tags": ["best"], "notes": "later", "group": "g2", "results": 0.5}


def source(text: str) -> Found:
    """What a reader finds in a tracker's own files."""
    data = trackers.load(text)
    run = data.run
    found = {"name": run.name, "tags": run.tags, "notes": run.notes, "group": run.group}
    return {**found, "results": data.summary.get("acc")}


def log(run: RunDirectory) -> Found:
    """The JSON log's."""
    found = document(run)
    names = {"name": "run_name", "tags": "tags", "notes": "notes", "group": "group"}
    summary = found["summary"]
    assert isinstance(summary, dict)
    return {**{name: found[key] for name, key in names.items()}, "results": summary.get("acc")}


def archived(run: RunDirectory, tracker: str) -> Found:
    """What an archive has anywhere in it."""
    (path,) = (run.path / tracker).glob("*.zip")
    with zipfile.ZipFile(path) as archive:
        text = b"".join(archive.read(name) for name in archive.namelist()).decode("utf-8", "replace")
    return {name: value for name, value in ALL.items() if str(value if name != "tags" else "best") in text}


def table(run: RunDirectory) -> Found:
    """The CSV tables'."""
    assert "second" not in (run.path / "metrics.csv").read_text()
    return {"results": 0.5 if "0.5" in (run.path / "summary.csv").read_text() else None}


HOLDS: dict[str, tuple[Callable[[RunDirectory], Found], tuple[str, ...]]] = {
    "json": (log, tuple(ALL)),
    "csv": (table, ("results",)),
    "tensorboard": (lambda run: source(f"tb:{run.path / 'tensorboard'}"), tuple(ALL)),
    "mlflow": (lambda run: source("mlflow:p"), tuple(ALL)),
    "trackio": (lambda run: source("trackio:p"), tuple(ALL)),
}  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("tracker", HOLDS)
def test_tracker_holds_what_the_table_says(tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it doesn't hold, or only as a text, is named by the command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = made(tracker)
    with trackers.open("one") as opened:
        opened.edit(name="second", tags="best", notes="later", group="g2")
        opened.summary["final/acc"] = 0.5
        assert opened.sync()
    read, names = HOLDS[tracker]
    found = read(run)
    assert {name: found[name] for name in names} == {name: ALL[name] for name in names}
    unedited = dict(getattr(registry.precheck(tracker), "unedited", {}))
    lacking = [name for name in ALL if name not in names]
    assert [name for name in lacking if name not in unedited] == []
    assert bool(unheld(run, ALL)) == bool(unedited)


def test_trackers_of_a_run_are_those_it_was_ever_delivered_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit goes to one that a sync added, too."""
    monkeypatch.chdir(tmp_path)
    run = made()
    (run.delivery / "csv.json").write_text("{}")
    assert trackers_of(run) == ["json", "csv"]
