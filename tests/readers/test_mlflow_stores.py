"""The kinds of stores that MLflow's own client writes are read: a server's database, a directory of files."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from trackers.errors import Damaged, NotFound, UsageError
from trackers.readers import registry
from trackers.readers.run_data import load, load_all

SERVED = "mlflow-artifacts:/1"
"""What ``mlflow server`` gives an experiment that names no place of its own."""


def log_runs(uri: str, location: str | None, count: int = 2) -> list[str]:
    """Runs of the experiment ``digits`` by MLflow's client; their ids."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("digits", artifact_location=location)
    names = []
    for number in range(count):
        run = client.create_run(experiment, run_name=f"r{number}", start_time=1_700_000_000_000 + number).info.run_id
        for step in range(3):
            client.log_metric(run, "loss", 1 / (step + 1 + number), 1_700_000_000_000 + 1000 * step, step)
        client.log_param(run, "lr", 0.1)
        client.set_tag(run, "tags", "a")
        client.set_terminated(run)
        names.append(run)
    return names


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of files, in a place that a URI escapes, as an MLflow wrote it that was allowed to."""
    folder = tmp_path / "ml runs#1"
    with monkeypatch.context() as patched:
        patched.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        log_runs(folder.as_uri(), None)
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


def check_runs(source: str) -> None:
    """Whether a source gives both runs of :func:`log_runs`, whole."""
    newer, older = load_all(source)
    assert (newer.run.name, older.run.name) == ("r1", "r0")
    for number, data in enumerate((older, newer)):
        assert data.metrics()["loss"].to_pylist() == [1 / (step + 1 + number) for step in range(3)]
        assert (data.config, data.run.tags, data.status) == ({"lr": "0.1"}, ["a"], "finished")


def test_database_of_a_server_is_read_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Metrics, parameters and tags are in the database; of the artifacts, one line says where they are."""
    database = tmp_path / "mlflow.db"
    log_runs(f"sqlite:///{database}", SERVED)
    with caplog.at_level(logging.WARNING, "trackers.readers"):
        check_runs(f"mlflow:{database}#digits")
        reader, runs = registry.open_source(f"mlflow:{database}#digits")
        for run in runs:
            assert list(reader.read(run, files=tmp_path / "files"))
            served: Any = reader
            assert served.served(run, tmp_path / "files").media == []
    said = [record.getMessage() for record in caplog.records if "mlflow:http://HOST:PORT#EXPERIMENT" in record.message]
    assert len(said) == 2  # one for each reader, not for each run
    assert "the server that wrote the database keeps them" in said[0]


def test_path_without_experiment_lists_those_there(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store's path or address isn't the name of an experiment; what is neither says both."""
    database = tmp_path / "mlflow.db"
    log_runs(f"sqlite:///{database}", SERVED, 1)
    monkeypatch.chdir(tmp_path)
    for where in (str(database), "mlflow.db", f"sqlite:///{database}", str(files), files.name, f"{files.name}#"):
        with pytest.raises(UsageError, match=r"needs an experiment: mlflow:.*#EXPERIMENT; known: 'digits'"):
            registry.open_source(f"mlflow:{where}")
    assert load("mlflow:digits").run.name == "r0"  # in mlflow.db, which is here
    monkeypatch.chdir(files)
    with pytest.raises(NotFound, match=r"no database .*mlflow.db, which '/nothing.db' would be an experiment of: give"):
        registry.open_source("mlflow:/nothing.db")
    with pytest.raises(NotFound, match=r"is no store of MLflow's: no directory in it has a meta.yaml"):
        registry.open_source(f"mlflow:{tmp_path}/ml runs#1/.trash#digits")


def test_directory_of_files_is_read(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By path and by address, though MLflow 3 refuses such stores unless it is told to; the setting stays unset."""
    check_runs(f"mlflow:{files}#digits")
    check_runs(f"mlflow:{files.as_uri()}#digits")
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(files))
    check_runs("mlflow:digits")
    assert load("mlflow:digits/r1").run.name == "r1"
    monkeypatch.chdir(files.parent)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{files.as_uri().rpartition('/')[2]}")
    check_runs("mlflow:digits")


@pytest.mark.parametrize("file", ["metrics/loss", "metrics/new", "meta.yaml"])
@pytest.mark.parametrize("content", ["", "garbage\n", ": [\n", "1 2 3 4 5 6\n"])
def test_damaged_run_of_a_directory_is_named_and_left_out(
    file: str, content: str, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One file that can't be parsed costs the run it belongs to, not the experiment."""
    (older,) = (path.parent for path in files.glob("*/*/tags/mlflow.runName") if path.read_text() == "r0")
    older = older.parent
    (older / file).write_text(content)
    with caplog.at_level(logging.WARNING, "trackers.readers"):
        (data,) = load_all(f"mlflow:{files}#digits")
    assert data.run.name == "r1"
    (said,) = caplog.messages
    assert f"#digits/{older.name} is damaged: " in said
    assert len(said) < 1000


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["link", "pipe", "device", "holes", "long"])
@pytest.mark.parametrize("place", ["params/z", "tags/a/z", "metrics/z", "meta.yaml", "../meta.yaml"])
def test_planted_files_of_a_store_are_not_read(place: str, kind: str, files: Path) -> None:
    """MLflow follows links out of its store, and waits for pipes; the run beside is read."""
    path = next(files.glob("*/*/meta.yaml")).parent / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind in ("link", "device"):
        path.symlink_to("/etc/passwd" if kind == "link" else "/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(100 << 30 if kind == "holes" else 17 << 20)
    if place == "../meta.yaml":
        with pytest.raises(Damaged, match="is damaged: it is "):
            load_all(f"mlflow:{files}#digits")
    elif (place, kind) != ("metrics/z", "long"):  # a metric may be long
        assert len(load_all(f"mlflow:{files}#digits")) == 1
