"""ClearML's own client imports the archive that the tracker wrote, and uploads all of it to a stand-in for a server."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from clearml_server import ClearmlServer
from trackers_clearml import events
from trackers_clearml.tracker import ClearmlTracker

from tests.helpers import T0, Driver, run_info, stream
from trackers.records import ArtifactFile, ArtifactRecord, Config, Metrics, Record, Start, Summary, Text
from trackers.testing.checks import LONG_CONFIG, metric_names, one_of_each
from trackers.tracker import Status


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> ClearmlServer:
    """What the server has after ``clearml-task --import-offline-session`` of a run with everything in it."""
    directory = tmp_path_factory.mktemp("clearml")
    info = run_info(directory / "run", notes="why", group="ablation", git={"branch": "main", "commit": "c0ffee"})
    bucket = ArtifactFile(path="x", uri="s3://bucket/x")
    records: list[Record] = [
        *one_of_each(directory / "run"),
        Config(time=T0, values={**LONG_CONFIG, "lr": 0.002}),
        *(Metrics(step=step, time=T0 + step, values={"a": step, "b": float("nan")}) for step in range(5)),
        Text(step=4, time=T0, values={"note": "gone"}),
        Metrics(time=T0 + 60, values={"system.cpu": 7.0, "system.gpu.0.util": 9.0}),
        Start(time=T0, attempt=2, from_step=2),
        Metrics(step=3, time=T0 + 3, values={"a": True, **dict.fromkeys(metric_names(), 0.5)}),
        *(Metrics(step=step, time=T0 + step, values={"c": step}) for step in range(4, 1500)),
        *one_of_each(directory / "run")[2:6],
        ArtifactRecord(time=T0, name="far", files=[bucket]),
        Summary(time=T0, values={"best": 0.5, "word": "x"}),
    ]
    Driver(ClearmlTracker, info).deliver(stream(records), status=Status("failed", 3, T0 + 9, "out of memory"))
    (archive,) = (directory / "run/clearml").glob("*.zip")
    with ClearmlServer() as server:
        hosts = {f"CLEARML_{name}_HOST": server.url for name in ("API", "WEB", "FILES")}
        keys = {f"CLEARML_API_{name}_KEY": "k" for name in ("ACCESS", "SECRET")}
        own = {"CLEARML_CONFIG_FILE": str(directory / "none"), "CLEARML_CACHE_DIR": str(directory / "cache")}
        done = subprocess.run(
            [sys.executable, "-m", "clearml.cli.task", "--import-offline-session", str(archive)],
            env={**os.environ, **hosts, **keys, **own},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert "Failed" not in done.stdout + done.stderr
    return server


def of_type(server: ClearmlServer, kind: str) -> list[dict[str, Any]]:
    return [event for event in server.events if event["type"] == kind]


def test_client_makes_one_task(server: ClearmlServer) -> None:
    """The task has name, tags, notes, parameters, the whole configuration and the status of the run."""
    (task,) = server.tasks.values()
    assert (task["name"], task["tags"], task["comment"]) == ("baseline", ["first", "third"], "why")
    assert {event["task"] for event in server.events} == {task["id"]}
    general = {name: entry["value"] for name, entry in task["hyperparams"]["General"].items()}
    assert general["lr"] == "0.002"
    assert general["model/block/attention/heads"] == "8"
    assert json.loads(task["configuration"]["config"]["value"])["k" * 300] == "a long name"
    assert "packages" in json.loads(task["configuration"]["environment"]["value"])
    properties = {name: entry["value"] for name, entry in task["hyperparams"]["properties"].items()}
    assert properties == {
        "trackers/status": "failed", "trackers/run": "abcd1234", "group": "ablation", "final/word": "x",
    }  # fmt: skip
    assert (task["script"]["branch"], task["script"]["version_num"]) == ("main", "c0ffee")


def test_client_sends_each_event_once(server: ClearmlServer) -> None:
    """Values at their step and time, results without one, samples of the machine over the seconds, and lines."""
    scalars = of_type(server, events.SCALAR)
    a = [(event["iter"], event["value"], event["timestamp"]) for event in scalars if event["variant"] == "a"]
    assert a == [(step, step, round((T0 + step) * 1000)) for step in range(3)] + [(3, 1, round((T0 + 3) * 1000))]
    assert len([event for event in scalars if event["metric"] == "c"]) == 1496
    names = {(event["metric"], event["variant"]) for event in scalars}
    assert {events.title(name) for name in metric_names()} < names
    summary = [(event["variant"], event["iter"], event["value"]) for event in scalars if event["metric"] == "Summary"]
    assert summary == [("best_loss", -(2**31), 0.5), ("best", -(2**31), 0.5)]
    machine = [(event["metric"], event["iter"], event["value"]) for event in scalars if event["metric"][0] == ":"]
    assert machine == [(":monitor:machine", 60, 7.0), (":monitor:gpu", 60, 9.0)]
    lines = [event["msg"] for event in of_type(server, events.LOG)]
    assert lines == ["WARN: slow: half the usual rate", *(f"b = NaN at step {step}" for step in range(3)),
                     "failed (exit code 3): out of memory"]  # fmt: skip
    plots = {event["metric"]: json.loads(event["plot_str"])["data"][0] for event in of_type(server, events.PLOT)}
    assert plots["samples"]["cells"]["values"] == [["a", "c"], ["b", "d"]]
    assert plots["weights"]["y"] == [1.0, 2.0, 1.0]


def test_client_uploads_files(server: ClearmlServer) -> None:
    """Texts, images and artifacts are below the new task's id, as the events and the task say; a reference stays."""
    (task,) = server.tasks.values()
    samples = {(event["metric"], event["variant"], event["iter"]): event for event in of_type(server, events.SAMPLE)}
    assert set(samples) == {("note", "note", 9), ("images", "images", 9), ("images", "images 1", 9)}
    note = samples["note", "note", 9]["key"]
    assert f".{task['id']}/" in note
    assert server.files[note] == "größer\nas two lines".encode()
    assert server.files[samples["images", "images 1", 9]["key"]].startswith(b"\x89PNG")
    checkpoint, far = task["execution"]["artifacts"]
    assert far["uri"] == "s3://bucket/x"
    path = checkpoint["uri"].split("/", 3)[3]
    assert f".{task['id']}/artifacts/checkpoint/weights.bin" in path
    assert server.files[path] == bytes(range(256))
    assert checkpoint["hash"] == hashlib.sha256(bytes(range(256))).hexdigest()
    assert len(server.files) == 4
