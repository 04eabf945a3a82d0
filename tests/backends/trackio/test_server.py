"""The trackio tracker against a real `trackio show` server, whose store is read with plain SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import servers
from tests.helpers import T0, Driver, run_info, stream, training
from trackers.backends.trackio.tracker import TrackioTracker
from trackers.errors import Refused, Unavailable
from trackers.records import Alert, ArtifactFile, ArtifactRecord, Console, Info, Media, MediaFile, Metrics, Summary
from trackers.tracker import RunInfo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    """A running trackio server, with its store in ``tmp_path``/trackio-server."""
    running = servers.trackio_server(tmp_path)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def info(server: servers.Server, tmp_path: Path) -> RunInfo:
    url = f"{server.url}?write_token={servers.WRITE_TOKEN}"
    return run_info(tmp_path / "run", options={"TRACKIO_SERVER_URL": url}, group="ratio")


def query(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(tmp_path / "trackio-server/digits.db")
    try:
        return database.execute(sql).fetchall()
    finally:
        database.close()


@pytest.mark.slow
def test_server_that_has_forgotten_the_run_gets_all_of_it(
    info: RunInfo, server: servers.Server, tmp_path: Path
) -> None:
    """It came back with an empty store: the next delivery begins anew."""
    records = training(50, finish=False)
    driver = Driver(TrackioTracker, info)
    driver.deliver(records[:30])
    server.stop()
    for path in (tmp_path / "trackio-server").glob("digits.db*"):
        path.unlink()
    server.start()
    driver.deliver(records)
    assert query(tmp_path, "SELECT step FROM metrics ORDER BY id") == [(step,) for step in range(50)]


def test_run_arrives_whole_over_http(info: RunInfo, server: servers.Server, tmp_path: Path) -> None:
    """Rows, times, config, results, media, artifacts and alerts, sent twice, are at the server once."""
    info.path("a.png").write_bytes(b"png")
    info.path("m.bin").write_bytes(b"weights")
    records = training(1000, finish=False)
    records += stream(
        [
            Metrics(step=3, time=T0, values={"nan": float("nan"), "time": 1}),
            Metrics(time=T0, values={"gpu": 1}),
            Summary(time=T0, values={"best": 2.5}),
            Alert(time=T0, title="slow"),
            Media(step=7, time=T0, name="i", type="image", items=[MediaFile(format="png", file="a.png")]),
            ArtifactRecord(step=1, time=T0, name="m", files=[ArtifactFile(path="m.bin", file="m.bin")]),
            Info(time=T0, notes="new"),
        ],
        first_seq=len(records) + 1,
    )
    driver = Driver(TrackioTracker, info)
    driver.open()
    driver.write(records, batch=1000, commit=False)
    driver.deliver(records, batch=700)
    rows = query(tmp_path, "SELECT step, metrics, run_id, run_name FROM metrics ORDER BY id")
    assert [step for step, _, _, _ in rows] == [*range(1000), 3, 7]
    values = json.loads(rows[10][1])
    assert values.pop("_timestamp") == T0 + 1
    assert values == {f"metric_{k}": 10 + k / 10 for k in range(10)}
    assert {(run_id, name) for _, _, run_id, name in rows} == {("abcd1234", "baseline")}
    assert json.loads(rows[1000][1])["nan"] == "NaN"
    [(stored,)] = query(tmp_path, "SELECT config FROM configs")
    config = json.loads(stored)
    assert (config["lr"], config["final/best"], config["_Group"]) == (1e-3, 2.5, "ratio")
    assert config["trackers/notes"] == "new"
    assert config["trackers/status"] == "finished"
    for table in ("system_metrics", "alerts", "artifact_versions"):
        assert query(tmp_path, f"SELECT COUNT(*) FROM {table}") == [(1,)]
    picture = json.loads(rows[1001][1])["i"]["file_path"]
    assert (tmp_path / "trackio-server/media" / picture).read_bytes() == b"png"
    blobs = [path for path in (tmp_path / "trackio-server/artifacts").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in blobs] == [b"weights"]
    assert driver.state["url"] == server.url


@pytest.mark.slow
def test_missing_token_is_refused_with_the_way_out(info: RunInfo, server: servers.Server) -> None:
    """A server that wants a token it didn't get says so, and what to give."""
    info.options = {"TRACKIO_SERVER_URL": server.url}
    driver = Driver(TrackioTracker, info)
    driver.open()
    with pytest.raises(Refused, match=r"\?write_token="):
        driver.write(training(3))


@pytest.mark.slow
def test_server_that_goes_away_is_unavailable(
    info: RunInfo, server: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hangs, or is gone, is Unavailable within its time limit, and a page of another kind is refused."""
    monkeypatch.setattr("trackers.backends.trackio.server.TIMEOUT_S", 1.0)
    driver = Driver(TrackioTracker, info)
    driver.open()
    driver.write(training(10)[:5])
    server.pause()
    with pytest.raises(Unavailable, match="timed out"):
        driver.write(training(10))
    server.resume()
    driver.write(training(10))
    server.stop()
    with pytest.raises(Unavailable, match="no answer"):
        driver.close()
    with pytest.raises(Unavailable, match="no answer"):
        Driver(TrackioTracker, info).open()
    assert [step for (step,) in query(tmp_path, "SELECT step FROM metrics ORDER BY id")] == list(range(10))


def test_what_training_printed_is_a_file_at_the_server(info: RunInfo, tmp_path: Path) -> None:
    """Among the project's media, in a folder of the run's name and id."""
    rows = [Metrics(step=1, time=T0, values={"a": 1.0}), Console(time=T0, lines=["one", "two"])]
    Driver(TrackioTracker, info).deliver(stream(rows))
    (path,) = (tmp_path / "trackio-server").rglob("console.log")
    assert path.read_text() == "one\ntwo\n"
    assert path.parent.name == f"{info.name}-{info.id}"
