"""Media on servers: shown when they are looked at, each file fetched once, and one line where one can't be had."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import trackers
from tests.backends.wandb.support import picture, server
from tests.fakes import servers
from tests.fakes.wandb_server import Fault, WandbServer
from tests.helpers import T0, Driver, run_info, stream
from tests.ui.support import Site, site, until
from trackers.backends.mlflow.tracker import MlflowTracker
from trackers.backends.wandb.tracker import WandbTracker
from trackers.cli.app import app
from trackers.errors import Unavailable
from trackers.readers.wandb import api
from trackers.records import Media, MediaFile, Metrics, Record, Start
from trackers.tracker import RunInfo
from trackers.ui import catalogue, served
from trackers.ui.served import FetchedFiles

__all__ = ["server"]
# The client's thread complains where a test's service was stopped before what it had opened was collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def logged(info: RunInfo) -> list[Record]:
    """Two pictures, the first with a caption, a sound at two steps and a table."""
    np.save(info.path("other.npy"), np.zeros((6, 8, 3), np.uint8))
    np.save(info.path("sound.npy"), np.zeros(100))
    sound = MediaFile(format="npy", file="sound.npy", sample_rate=100)
    table = MediaFile(format="json", data={"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]})
    return stream([
        Start(time=T0),
        Metrics(step=1, time=T0, values={"loss": 0.5}),
        Media(step=1, time=T0, name="img", type="image", items=[picture(Path(info.directory))]),
        Media(step=2, time=T0 + 1, name="img", type="image", items=[MediaFile(format="npy", file="other.npy")]),
        Media(step=9, time=T0 + 1, name="sound", type="audio", items=[sound]),
        Media(step=10, time=T0 + 2, name="sound", type="audio", items=[sound]),
        Media(step=2, time=T0 + 1, name="tab", type="table", items=[table]),
    ])  # fmt: skip


def image(found: Site, key: str, place: int) -> tuple[int, int]:
    """Width and height of one of the pictures."""
    asked = urlencode({"run": key, "name": "img", "type": "image", "place": place, "item": 0})
    status, headers, content = found.get(f"media?{asked}")
    assert (status, headers["content-type"]) == (200, "image/png"), content
    return Image.open(io.BytesIO(content)).size


def items(found: Site, key: str, name: str, kind: str, place: int = -1) -> list[dict[str, Any]]:
    """The items of one record."""
    shown: list[dict[str, Any]] = found.ask("items", run=key, name=name, type=kind, place=place)["items"]
    return shown


def assert_shown(found: Site, key: str) -> None:
    """Everything of :func:`logged` is on the page."""
    there = {(one["name"], one["type"]): one["count"] for one in found.ask("run", run=key)["media"]}
    assert there == {("img", "image"): 2, ("sound", "audio"): 2, ("tab", "table"): 1}
    assert found.ask("media", run=key, name="img", type="image")["steps"] == [1, 2]
    assert found.ask("media", run=key, name="sound", type="audio")["steps"] == [9, 10]
    assert [image(found, key, place) for place in (0, 1)] == [(4, 4), (8, 6)]
    assert [items(found, key, "img", "image", place)[0]["caption"] for place in (0, 1)] == ["four by four", ""]
    assert items(found, key, "img", "image")[0]["shown"]
    assert items(found, key, "sound", "audio")[0]["shown"]
    table = found.ask("rows", run=key, name="tab")
    assert [one["name"] for one in table["columns"]] == ["a", "b"]
    assert table["rows"] == [[1.0, "x"], [2.5, None]]


def test_media_on_an_mlflow_server_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures with captions, sounds, tables; when the server is gone, what was fetched is there, the rest a line."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    running = servers.mlflow_server(tmp_path)
    info = run_info(tmp_path / "run", options={"MLFLOW_TRACKING_URI": running.url})
    running.start()
    try:
        Driver(MlflowTracker, info).deliver(logged(info))
        with site(f"mlflow:{running.url}#{info.project}", runs=1) as found:
            key = until(lambda: found.rows()[0]["key"] if found.rows()[0]["last"] else "")
            assert_shown(found, key)
            source = f"mlflow:{running.url}#{info.project}/{info.id}"
            listed = json.loads(CliRunner().invoke(app, ["files", source, "--json"]).stdout)
            assert [(one["name"], one["step"]) for one in listed if one["kind"] == "audio"] == [
                ("sound", 9),
                ("sound", 10),
            ]
            running.stop()
            assert image(found, key, 0) == (4, 4)
            asked = urlencode({"run": key, "name": "sound", "type": "audio", "place": 1, "item": 0})
            status, _, content = found.get(f"media?{asked}")
            assert status == 400
            assert "can't be read" in json.loads(content)["error"]
    finally:
        running.stop()


def shots(info: RunInfo) -> list[Record]:
    """A table with a picture and a sound in its cells, logged at four steps; the third is the second again."""
    np.save(info.path("sound.npy"), np.zeros(100))
    sound = {"_type": "audio", "format": "npy", "file": "sound.npy", "sample_rate": 100}
    tables = []
    for step, width in ((1, 5), (2, 6), (3, 6), (4, 7)):
        np.save(info.path(f"{width}.npy"), np.zeros((3, width, 3), np.uint8))
        cell = {"_type": "image", "format": "npy", "file": f"{width}.npy", "caption": f"w{width}"}
        data = {"columns": ["id", "shot", "sound"], "rows": [[step // 3, cell, sound], [width, None, None]]}
        item = MediaFile(format="json", data=data)
        tables.append(Media(step=step, time=T0 + step, name="val/shots", type="table", items=[item]))
    return stream([Start(time=T0), Metrics(step=1, time=T0, values={"loss": 0.5}), *tables])


def widths(found: Site, key: str) -> list[int]:
    """Of the pictures in the first rows of the tables."""
    shown = []
    for place in range(4):
        rows = found.ask("rows", run=key, name="val/shots", place=place)["rows"]
        assert rows[0][1]["shown"], rows
        asked = urlencode({"run": key, "name": "val/shots", "place": place, "row": 0, "column": 1})
        status, headers, content = found.get(f"cell?{asked}")
        assert (status, headers["content-type"]) == (200, "image/png"), content
        shown.append(Image.open(io.BytesIO(content)).size[0])
    return shown


def loaded(source: str, files: Path) -> list[tuple[int, str]]:
    """Width and name's ending of the pictures that ``trackers.load`` gives with the tables, all of them files there."""
    found = []
    for table in trackers.load(source).tables(files=files):
        cell = table.frame().to_pylist()[0]["shot"]
        assert cell["type"] == "image"
        found.append((Image.open(files / cell["file"]).size[0], cell["file"].rpartition(".")[2]))
    return found


def test_cells_of_tables_on_an_mlflow_server_are_shown(tmp_path: Path) -> None:
    """Pictures; sounds aren't kept there. ``load`` has them with a place for files, and without one their names."""
    running = servers.mlflow_server(tmp_path)
    info = run_info(tmp_path / "run", options={"MLFLOW_TRACKING_URI": running.url})
    running.start()
    try:
        Driver(MlflowTracker, info).deliver(shots(info))
        source = f"mlflow:{running.url}#{info.project}/{info.id}"
        with site(source, runs=1) as found:
            key = until(lambda: found.rows()[0]["key"] if found.rows()[0]["last"] else "")
            assert widths(found, key) == [5, 6, 6, 7]
        assert loaded(source, tmp_path / "files") == [(5, "png"), (6, "png"), (6, "png"), (7, "png")]
        named = trackers.load(source).tables()[0].frame().to_pylist()[0]["shot"]
        assert named["file"].startswith("table_images/")
    finally:
        running.stop()


def test_cells_of_tables_on_wandbs_server_are_shown(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures and sounds, from the artifacts of W&B's own, of which two equal tables have one."""
    monkeypatch.setattr(api, "LOOK_PATIENCE_S", 0.1)
    info = run_info(tmp_path / "run")
    Driver(WandbTracker, info).deliver(shots(info))
    source = f"wandb:someone/{info.project}/{info.id}"
    with site(source, runs=1) as found:
        key = until(lambda: found.rows()[0]["key"] if found.rows()[0]["last"] else "")
        assert widths(found, key) == [5, 6, 6, 7]
        asked = urlencode({"run": key, "name": "val/shots", "place": 0, "row": 0, "column": 2})
        status, headers, content = found.get(f"cell?{asked}")
        assert (status, headers["content-type"], content[:4]) == (200, "audio/wav", b"RIFF")
        before = len(server.requests)
        found.get(f"cell?{asked}")
        assert len(server.requests) == before
    assert loaded(source, tmp_path / "files") == [(5, "png"), (6, "png"), (6, "png"), (7, "png")]


def test_media_on_wandbs_server_are_shown(server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is asked for once, and only when somebody looks at it; one that can't be had is one line."""
    monkeypatch.setattr(api, "LOOK_PATIENCE_S", 0.1)
    info = run_info(tmp_path / "run")
    Driver(WandbTracker, info).deliver(logged(info))
    with site(f"wandb:someone/{info.project}", runs=1) as found:
        key = until(lambda: found.rows()[0]["key"] if found.rows()[0]["last"] else "")
        found.ask("run", run=key)
        assert not [request for request in server.requests if "GET /uploads" in request and "media" in request]
        server.fault = Fault("status", match="/uploads/", status=404)
        asked = urlencode({"run": key, "name": "img", "type": "image", "place": 0, "item": 0})
        status, _, content = found.get(f"media?{asked}")
        assert status in (400, 404), content
        assert json.loads(content)["error"].startswith("wandb: ")
        status, _, content = found.get(f"api/rows?{urlencode({'run': key, 'name': 'tab'})}")
        assert status in (400, 404), content
        assert "wandb: " in json.loads(content)["error"]
        server.fault = None
        assert_shown(found, key)
        before = [request for request in server.requests if "GET /uploads" in request and "media" in request]
        assert len(before) >= 3
        assert_shown(found, key)
        assert before == [request for request in server.requests if "GET /uploads" in request and "media" in request]


def test_media_that_are_too_large_are_not_fetched(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server says of a file's size is enough."""
    monkeypatch.setattr(served, "FILE_BYTES", 10)
    info = run_info(tmp_path / "run")
    Driver(WandbTracker, info).deliver(logged(info))
    with site(f"wandb:someone/{info.project}", runs=1) as found:
        key = until(lambda: found.rows()[0]["key"] if found.rows()[0]["last"] else "")
        asked = urlencode({"run": key, "name": "img", "type": "image", "place": 0, "item": 0})
        status, _, content = found.get(f"media?{asked}")
        assert status == 404
        assert json.loads(content)["error"].endswith("more than 10")


def test_files_that_were_fetched_have_bounded_room(tmp_path: Path) -> None:
    """The one that nobody has looked at for longest goes; the last one stays, however large it is."""
    room = FetchedFiles(most_bytes=25)
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths[:2]:
        path.write_bytes(b"x" * 10)
        room.note_use(path, 10)
    room.note_use(paths[0], 10)
    paths[2].write_bytes(b"x" * 10)
    room.note_use(paths[2], 10)
    assert [path.exists() for path in paths[:3]] == [True, False, True]
    paths[3].write_bytes(b"x" * 100)
    room.note_use(paths[3], 100)
    assert [path.exists() for path in paths] == [False, False, False, True]


def test_server_that_hangs_keeps_no_second_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks while another question has no answer is told so after a while."""
    monkeypatch.setattr(served, "WAIT_S", 0.01)
    lock = threading.Lock()
    slow = pytest.raises(Unavailable, match="the server is slow")
    with served.in_turn(lock, "mlflow:x"), slow, served.in_turn(lock, "mlflow:x"):
        raise AssertionError
    with served.in_turn(lock, "mlflow:x"):
        pass


@pytest.mark.slow
def test_run_that_mlflow_still_writes_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is logged after the page was opened is shown, though MLflow has no word for how far a running run is."""
    from mlflow import MlflowClient

    monkeypatch.setattr(catalogue, "TICK_S", 0.1)
    monkeypatch.setattr(catalogue, "SERVER_S", 0.1)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    run = client.create_run(client.create_experiment("digits")).info.run_id
    client.log_metric(run, "loss", 1.0, step=0)
    with site(f"mlflow:{tmp_path}/mlflow.db#digits", runs=1) as found:
        until(lambda: found.rows()[0]["last"].get("loss") == 1.0)
        client.log_metric(run, "loss", 0.25, step=1)
        until(lambda: found.rows()[0]["last"].get("loss") == 0.25)
        key = found.rows()[0]["key"]
        assert found.ask("curves", runs=key, name="loss")["lines"][0]["y"] == [1.0, 0.25]
