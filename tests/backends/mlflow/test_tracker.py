"""The MLflow tracker against MLflow's own SQLite store, read back with MLflow's client."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import ROOT, forked
from tests.helpers import PRINTED, T0, Driver, printed, run_info, stream, training
from tests.stores import mlflow_tables, read_mlflow
from trackers.backends.mlflow import store as mlflow_store
from trackers.backends.mlflow.precheck import show, tracking_uri
from trackers.backends.mlflow.store import first_moment
from trackers.backends.mlflow.tracker import MlflowTracker
from trackers.errors import ConfigError, Damaged, Fatal, Refused, Rejected
from trackers.formats.mlflow_names import FILE_LENGTH, NAME_LENGTH, map_file, map_name, refusal, unmap
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Info,
    Media,
    MediaFile,
    Metrics,
    Start,
    Summary,
    Text,
)
from trackers.tracker import RunInfo, State, Status

__all__ = ["mlflow_tables"]


@pytest.fixture
def info(tmp_path: Path, mlflow_tables: Path) -> RunInfo:
    """A run whose training works in ``tmp_path``/work, where MLflow's database is."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copyfile(mlflow_tables, work / "mlflow.db")
    return run_info(
        tmp_path / "run", cwd=str(work), program="train.py", argv=["train.py", "--lr", "1"], user="ada", notes="try"
    )


def client(info: RunInfo) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{info.cwd}/mlflow.db")


def stored(info: RunInfo) -> Any:
    """The one run in MLflow that stands for ours."""
    api = client(info)
    runs = api.search_runs([e.experiment_id for e in api.search_experiments()], f"tags.`trackers.run_id` = '{info.id}'")
    assert len(runs) == 1
    return runs[0]


def history(info: RunInfo, name: str) -> list[tuple[int, int, float]]:
    """Step, time in milliseconds and value of each point."""
    points = client(info).get_metric_history(stored(info).info.run_id, name)
    return sorted((p.step, p.timestamp, p.value) for p in points)


def artifacts(info: RunInfo) -> dict[str, Path]:
    """Every artifact of the run, by its path there."""
    root = Path(stored(info).info.artifact_uri.removeprefix("file://"))
    return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}


def deliver(info: RunInfo, *records: Any, status: Status | None = None) -> Driver:
    driver = Driver(MlflowTracker, info)
    driver.deliver(stream(records), status=status)
    return driver


@pytest.mark.slow
def test_run_arrives_whole(info: RunInfo) -> None:
    """1,000 steps of ten values arrive with their steps, times and values, under the run's name, tags and times."""
    driver = Driver(MlflowTracker, info)
    driver.deliver(training(1000), batch=333)
    for k in range(10):
        expected = [(step, round((T0 + step / 10) * 1000), step + k / 10) for step in range(1000)]
        assert history(info, f"metric_{k}") == expected
    run = stored(info)
    assert run.info.run_name == "baseline"
    assert (run.info.status, run.info.start_time) == ("FINISHED", round(T0 * 1000))
    assert run.info.end_time == round((T0 + 1000) * 1000)
    assert run.data.params == {"lr": "0.001", "model/depth": "4"}
    assert "tags" not in run.data.tags, "they are there as a list and one by one"
    assert json.loads(run.data.tags["trackers.tags"]) == ["first"]
    assert run.data.tags["mlflow.note.content"] == "try"
    assert run.data.tags["mlflow.source.name"] == "train.py"
    assert run.data.tags["mlflow.user"] == "ada"
    assert run.data.tags["trackers.command"] == "train.py --lr 1"
    assert client(info).get_experiment(run.info.experiment_id).name == "digits"
    assert json.loads(artifacts(info)["config.json"].read_text()) == {"lr": 1e-3, "model": {"depth": 4}}
    assert Path(run.info.artifact_uri).is_relative_to(Path(info.cwd, "mlruns"))
    assert driver.state["url"] == f"mlflow ui --backend-store-uri sqlite:///{info.cwd}/mlflow.db"


RUN = "0123456789abcdef0123456789abcdef"
SERVER = "http://mlflow.lab:5000"
HERE = "sqlite:////data/mlflow.db"


@pytest.mark.parametrize(
    ("tracking", "store", "named", "allowed"),
    [
        (HERE, f"/data/mlruns/1/{RUN}/artifacts", "", True),
        (HERE, f"file:///data/mlruns/1/{RUN}/artifacts", "", True),
        (HERE, "file:///home/victim/.ssh", "", False),
        (HERE, f"file:///home/victim/.ssh/{RUN}/artifacts/../..", "", False),
        (HERE, "/", "", False),
        (HERE, "s3://bucket/1/x/artifacts", "", True),
        (HERE, "https://elsewhere/artifacts", "", False),
        (SERVER, f"file:///data/mlruns/1/{RUN}/artifacts", "", False),
        (SERVER, f"file:///data/mlruns/1/{RUN}/artifacts", "/data/mlruns", True),
        (SERVER, f"file:///data/mlruns/../../home/victim/{RUN}/artifacts", "/data/mlruns", False),
        (SERVER, f"/data/mlruns2/1/{RUN}/artifacts", "/data/mlruns", False),
        (SERVER, f"mlflow-artifacts:/1/{RUN}/artifacts", "", True),
        (SERVER, f"mlflow-artifacts://mlflow.lab:5000/1/{RUN}/artifacts", "", True),
        (SERVER, f"mlflow-artifacts://evil:5000/1/{RUN}/artifacts", "", False),
        (SERVER, f"MLFLOW-ARTIFACTS://evil/1/{RUN}/artifacts", "", False),
        (SERVER, f"http://mlflow.lab:5000/api/{RUN}", "", True),
        (SERVER, f"http://mlflow.lab:5001/api/{RUN}", "", False),
        (SERVER, f"https://mlflow.lab/api/{RUN}", "", False),
        (SERVER, "sftp://me@evil/artifacts", "", False),
        (SERVER, "sftp://me@store/artifacts", "/x, sftp://me@store", True),
        (SERVER, "ftp://evil/", "", False),
        (SERVER, "hdfs://evil/", "", False),
        (SERVER, "runs:/abc/artifacts", "", False),
        (SERVER, "gs://bucket/x", "", True),
        (SERVER, "abfss://c@account.dfs.core.windows.net/x", "", True),
        (SERVER, "abfss://c@evil.com/x", "", False),
        ("databricks", "/home/victim", "", False),
        ("databricks", "dbfs:/databricks/mlflow", "", True),
    ],
)
def test_artifact_store_that_nobody_named_is_refused(tracking: str, store: str, named: str, allowed: bool) -> None:
    """A server's answer names no directory of this machine and no other host; a database none but a run's own."""
    reason = refusal(tracking, store, RUN, {"MLFLOW_ARTIFACT_ROOT": named})
    assert (reason == "") is allowed
    assert allowed or "MLFLOW_ARTIFACT_ROOT" in reason


@pytest.mark.parametrize(
    ("tracking", "store", "named", "allowed"),
    [
        ("sqlite:////data/mlflow.db", f"/data/mlruns/1/{RUN}/artifacts", "", True),
        ("sqlite:////data/mlflow.db", f"file:///data/mlruns/1/{RUN}/artifacts", "", True),
        ("sqlite:////data/mlflow.db", f"/data/mlruns/1/{RUN}0/artifacts", "", False),
        ("sqlite:////data/mlflow.db", f"/home/victim/{RUN}/artifacts", "", False),
        ("sqlite:////data/mlflow.db", f"file:///home/victim/{RUN}/artifacts", "/home/victim", True),
        ("sqlite:////data/mlflow.db", f"/data/../home/victim/{RUN}/artifacts", "", False),
        ("sqlite:////data/mlflow.db", f"/database/{RUN}/artifacts", "", False),
        ("sqlite:////data/mlflow.db", f"s3://attacker/{RUN}/artifacts", "", False),
        ("sqlite:////data/mlflow.db", f"s3://mine/{RUN}/artifacts", "s3://mine", True),
        ("sqlite:////data/mlflow.db", f"dbfs:/attacker/{RUN}/artifacts", "", False),
        ("sqlite:////data/mlflow.db", f"abfss://c@a.dfs.core.windows.net/{RUN}/artifacts", "", False),
        ("sqlite:////data/below/../x/mlflow.db", f"gs://attacker/{RUN}/artifacts", "", False),
        ("sqlite+pysqlite:////data/mlflow.db?timeout=1", f"s3://attacker/{RUN}/artifacts", "", False),
        ("sqlite:////data/../elsewhere/mlflow.db", f"s3://mine/{RUN}/artifacts", "", True),
        ("sqlite:////elsewhere/mlflow.db", f"s3://mine/{RUN}/artifacts", "", True),
        ("sqlite:////elsewhere/mlflow.db", f"/elsewhere/mlruns/1/{RUN}/artifacts", "", True),
        ("postgresql://lab/mlflow", f"s3://mine/{RUN}/artifacts", "", True),
        (SERVER, f"s3://mine/{RUN}/artifacts", "", True),
    ],
)
def test_database_of_the_directory_leads_nowhere_else(tracking: str, store: str, named: str, allowed: bool) -> None:
    """One below the directory that training runs in may have come with that: its artifacts stay there, too."""
    reason = refusal(tracking, store, RUN, {"MLFLOW_ARTIFACT_ROOT": named}, here=Path("/data"))
    assert (reason == "") is allowed
    assert allowed or "MLFLOW_ARTIFACT_ROOT" in reason


@pytest.mark.parametrize("way", ["a place elsewhere", "a link", "a bucket"])
def test_planted_database_has_nothing_written_elsewhere(info: RunInfo, tmp_path: Path, way: str) -> None:
    """A project in it whose artifacts lie elsewhere, or behind a link, gets the values and no files."""
    victim = tmp_path / "victim"
    victim.mkdir()
    places = {"a place elsewhere": str(victim), "a link": f"{info.cwd}/link", "a bucket": "s3://attacker/x"}
    Path(info.cwd, "link").symlink_to(victim)
    client(info).create_experiment("digits", artifact_location=places[way])
    driver = Driver(MlflowTracker, info)
    driver.open()
    driver.write(stream([Metrics(step=1, time=T0, values={"loss": 1.0})]))
    with pytest.raises(Rejected, match="as its database is; if that is your store: export MLFLOW_ARTIFACT_ROOT="):
        driver.write(stream([Text(time=T0, values={"note": "x"})], first_seq=100))
    assert history(info, "loss") == [(1, round(T0 * 1000), 1.0)]
    assert list(victim.iterdir()) == []


def test_database_sends_nobody_to_files_of_others(info: RunInfo, tmp_path: Path, caplog: Any) -> None:
    """A database that names another directory for a run has nothing read from there, and nothing written."""
    import sqlite3

    from trackers import load

    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "id_rsa").write_text("precious")
    driver = deliver(info, Metrics(step=1, time=T0, values={"loss": 1.0}))
    folder = Path(stored(info).info.artifact_uri)
    with contextlib.closing(sqlite3.connect(f"{info.cwd}/mlflow.db")) as database, database:
        database.execute("update runs set artifact_uri = ?", (f"file://{victim}",))
    again = Driver(MlflowTracker, info, state=driver.state)
    again.open()
    with pytest.raises(Rejected, match="MLFLOW_ARTIFACT_ROOT"):
        again.write(stream([Text(time=T0, values={"note": "x"})], first_seq=100))
    assert [path.name for path in victim.iterdir()] == ["id_rsa"]
    data = load(f"mlflow:sqlite:///{info.cwd}/mlflow.db#digits")
    assert data.artifacts(tmp_path / "fetched") == []
    assert "isn't a run's folder of artifacts" in caplog.text
    with contextlib.closing(sqlite3.connect(f"{info.cwd}/mlflow.db")) as database, database:
        database.execute("update runs set artifact_uri = ?", (str(folder),))
    folder.parent.mkdir(parents=True)
    folder.symlink_to(victim)
    assert load(f"mlflow:sqlite:///{info.cwd}/mlflow.db#digits").artifacts(tmp_path / "fetched") == []


def test_run_of_a_database_is_called_as_no_directory(info: RunInfo, tmp_path: Path) -> None:
    """A database can call its run as a directory of the reader's, whose ``artifacts`` would be taken for the run's."""
    import sqlite3

    from trackers import load

    victim = tmp_path / "project/artifacts"
    victim.mkdir(parents=True)
    (victim / "model.pt").write_text("precious")
    deliver(info, Metrics(step=1, time=T0, values={"loss": 1.0}))
    with contextlib.closing(sqlite3.connect(f"{info.cwd}/mlflow.db")) as database, database:
        before = database.execute("select run_uuid from runs").fetchone()[0]
        database.execute("update runs set run_uuid = 'project', artifact_uri = ?", (str(victim),))
        for table in ("metrics", "latest_metrics", "params", "tags"):
            database.execute(f"update {table} set run_uuid = 'project' where run_uuid = ?", (before,))
    data = load(f"mlflow:sqlite:///{info.cwd}/mlflow.db#digits")
    assert data.metrics()["loss"].to_pylist() == [1.0]
    assert data.artifacts(tmp_path / "fetched") == []


@pytest.mark.parametrize("kind", ["", "-journal", "-wal", "-shm"])
def test_files_beside_a_planted_database_lead_nowhere(info: RunInfo, tmp_path: Path, kind: str) -> None:
    """SQLite deletes the file that a journal names as that of several databases, and writes to a log that is a link: a
    database that came with the directory has neither done, as a run is delivered or read."""
    from trackers import load

    deliver(info, Metrics(step=1, time=T0, values={"loss": 1.0}))
    precious = tmp_path / "precious"
    precious.write_text("precious")
    beside = Path(f"{info.cwd}/mlflow.db{kind}")
    if kind == "-journal":
        name, magic = os.fsencode(precious), bytes.fromhex("d9d505f920a163d7")
        pages = Path(f"{info.cwd}/mlflow.db").stat().st_size // 4096
        head = (magic + struct.pack(">5I", 0, 1, pages, 512, 4096)).ljust(512, b"\0")
        end = struct.pack(">I", (1 << 18) + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
        beside.write_bytes(head + end)
    else:
        with contextlib.closing(sqlite3.connect(f"{info.cwd}/mlflow.db")) as database:
            database.execute("pragma journal_mode=wal")
        if not kind:  # SQLite looks for logs beside what it leads to
            precious.write_bytes(b"")
            beside.unlink()
        beside.symlink_to(precious)
    driver = Driver(MlflowTracker, msgspec.structs.replace(info, id="another"))
    with pytest.raises(Fatal, match="remove it"):
        driver.deliver(stream([Metrics(step=1, time=T0, values={"loss": 1.0})]))
    with pytest.raises(Damaged, match="remove it"):
        load(f"mlflow:sqlite:///{info.cwd}/mlflow.db#digits")
    assert precious.read_text() == ("precious" if kind else "")


def test_state_that_names_another_run_is_not_followed(info: RunInfo) -> None:
    """A delivery's state is a file in the run: it can't have another run of the store written to."""
    other = client(info).create_run("0", tags={"trackers.run_id": "other"}).info.run_id
    driver = Driver(MlflowTracker, info, state={"native_id": other})
    driver.deliver(stream([Metrics(step=1, time=T0, values={"loss": 1.0})]))
    assert client(info).get_run(other).data.metrics == {}
    assert history(info, "loss") == [(1, round(T0 * 1000), 1.0)]


def test_redelivery_changes_nothing(info: RunInfo) -> None:
    """A kill between write and commit, and a lost cursor, double neither points nor files nor runs."""
    records = [
        *training(50, finish=False),
        *stream([Text(step=1, time=T0, values={"out": "hello"}), Summary(time=T0, values={"a": 1})], first_seq=53),
    ]
    driver = Driver(MlflowTracker, info)
    driver.open()
    driver.write(records[:20])
    driver.write(records, batch=25, commit=False)
    driver.deliver(records)
    files = sorted(artifacts(info))
    again = Driver(MlflowTracker, info)
    again.deliver(records)
    assert [step for step, _, _ in history(info, "metric_1")] == list(range(50))
    assert len(history(info, "final/a")) == 1
    assert sorted(artifacts(info)) == files
    assert artifacts(info)["text/out.jsonl"].read_text().count("\n") == 1


def test_created_run_is_found_after_a_kill(info: RunInfo) -> None:
    """A run that was created but whose id was never stored is found again by its tag."""
    MlflowTracker().open(info, State())
    driver = Driver(MlflowTracker, info)
    driver.open()
    assert stored(info).info.run_id == driver.state["native_id"]


@pytest.mark.slow
def test_forgotten_run_gets_its_whole_history_again(info: RunInfo, mlflow_tables: Path) -> None:
    """When the store no longer knows the run, delivery begins again at the first record."""
    records = training(10)
    driver = Driver(MlflowTracker, info)
    driver.deliver(records)
    driver.state["native_id"] = "0" * 32
    client(info).set_tag(stored(info).info.run_id, "trackers.run_id", "another")
    driver.deliver(records)
    assert len(history(info, "metric_0")) == 10
    assert stored(info).data.params == {"lr": "0.001", "model/depth": "4"}


def test_deleted_run_is_refused_with_the_way_back(info: RunInfo) -> None:
    """A run that a user deleted is neither made anew nor are its records rejected one by one."""
    driver = Driver(MlflowTracker, info)
    driver.open()
    client(info).delete_run(driver.state["native_id"])
    with pytest.raises(Refused, match="restore"):
        driver.write(training(3))
    with pytest.raises(Refused, match="mlflow runs restore --run-id"):
        Driver(MlflowTracker, info, state=driver.state).open()


@pytest.mark.slow
def test_resume_goes_on_in_the_same_run(info: RunInfo) -> None:
    """A closed run is RUNNING again when it is resumed, and ends once more."""
    records = training(20)
    driver = Driver(MlflowTracker, info)
    driver.deliver(records[:10], status=Status("preempted", time=T0 + 5))
    assert stored(info).info.status == "KILLED"
    driver.open()
    assert stored(info).info.status == "RUNNING"
    driver.write(records)
    driver.close(Status("running", time=T0 + 6))
    assert stored(info).info.status == "RUNNING"
    driver.open()
    driver.close()
    assert stored(info).info.status == "FINISHED"
    assert len(history(info, "metric_0")) == 20


@pytest.mark.slow
@pytest.mark.parametrize("step", [9, 3])
def test_run_that_ended_twice_keeps_a_result_of_each_ending(step: int, info: RunInfo) -> None:
    """MLflow shows the result of the attempt that ended last, though that one went back, and though all is sent again;
    no result is a series of its own."""
    first = [Metrics(step=7, time=T0, values={"loss": 1.0}), Summary(time=T0 + 1, values={"best": 3.0})]
    back = [Start(time=T0 + 5, attempt=2, from_step=step - 1)] if step < 7 else []
    second = [Metrics(step=step, time=T0 + 8, values={"loss": 1.0}), Summary(time=T0 + 9, values={"best": 2.0})]
    records = stream([*first, *back, *second])
    driver = Driver(MlflowTracker, info)
    for count in (2, len(records)):
        driver.deliver(records[:count], status=Status("crashed", time=T0 + 20))
    Driver(MlflowTracker, info).deliver(records, status=Status("crashed", time=T0 + 20))
    found = read_mlflow(info, uri=tracking_uri(info), endings=2)
    assert found.summary == {"final/best": 2.0}
    assert "final/best" not in found.metrics
    assert "final/best" in read_mlflow(info, uri=tracking_uri(info)).metrics


@pytest.mark.parametrize(
    ("status", "native"),
    [("finished", "FINISHED"), ("failed", "FAILED"), ("crashed", "KILLED"), ("preempted", "KILLED")],
)
def test_close_tells_the_status(info: RunInfo, status: Any, native: str) -> None:
    """Each end becomes a status of MLflow; our own word, the exit code and the true time stay with it."""
    deliver(info, status=Status(status, exit_code=3, time=T0 + 7, reason="because"))
    run = stored(info)
    assert (run.info.status, run.info.end_time) == (native, round((T0 + 7) * 1000))
    assert run.data.tags["trackers.status"] == status
    assert run.data.tags["trackers.exit_code"] == "3"
    assert run.data.tags["trackers.reason"] == "because"


def test_results_are_logged_once(info: RunInfo) -> None:
    """A result is one point with its last value, also after a crash, at step 0, which MLflow's charts show as a bar;
    text results are tags."""
    driver = Driver(MlflowTracker, info)
    driver.open()
    records = stream(
        [
            Metrics(step=7, time=T0, values={"loss": 1.0}),
            Summary(time=T0 + 1, values={"best": 3.0, "final/model": "small", "at": float("nan")}),
            Summary(time=T0 + 2, values={"final/best": 2.5}),
        ]
    )
    driver.write(records)
    driver.open()
    driver.close(Status("crashed", time=T0 + 9))
    assert history(info, "final/best") == [(0, round((T0 + 2) * 1000), 2.5)]
    assert math.isnan(stored(info).data.metrics["final/at"])
    assert stored(info).data.tags["final/model"] == "small"
    assert json.loads(artifacts(info)["summary.json"].read_text())["final/best"] == 2.5


def test_result_that_is_a_number_and_then_a_text_is_no_number(info: RunInfo) -> None:
    """And a text that becomes a number is no tag: of an attempt's end before, or before an edit, they stayed."""
    records = stream([
        Metrics(step=7, time=T0, values={"loss": 1.0}),
        Summary(time=T0 + 1, values={"a": 3.0, "b": "small", "c": 1.0, "d": "old"}),
        Start(time=T0 + 5, attempt=2),
        Summary(time=T0 + 6, values={"a": "big", "b": 4.0}, removed=["c", "d"]),
    ])  # fmt: skip
    driver = Driver(MlflowTracker, info)
    for count in (2, len(records), len(records)):
        driver.deliver(records[:count], status=Status("finished", time=T0 + 20))
    data = stored(info).data
    assert {name: tag for name, tag in data.tags.items() if name.startswith("final/")} == {"final/a": "big"}
    assert data.metrics["final/b"] == 4.0
    assert math.isnan(data.metrics["final/a"])
    assert math.isnan(data.metrics["final/c"])


def test_steps_and_values_keep_as_mlflow_can(info: RunInfo) -> None:
    """Steps repeat and go back, NaN stays, infinities are the largest doubles, integers are doubles."""
    deliver(
        info,
        Metrics(step=5, time=T0, values={"x": 1.0, "nan": float("nan"), "up": math.inf, "down": -math.inf}),
        Metrics(step=5, time=T0, values={"x": 2.0}),
        Metrics(step=2, time=T0 + 1, values={"x": True, "big": 2**70, "huge": 10**400}),
        Metrics(time=T0 + 2, values={"x": 4}),
    )
    ms = round(T0 * 1000)
    assert history(info, "x") == [(0, ms + 2000, 4.0), (2, ms + 1000, 1.0), (5, ms, 1.0), (5, ms, 2.0)]
    metrics = stored(info).data.metrics
    assert math.isnan(metrics["nan"])
    assert (metrics["up"], metrics["down"]) == (sys.float_info.max, -sys.float_info.max)
    assert (metrics["big"], metrics["huge"]) == (float(2**70), sys.float_info.max)


def test_refused_names_arrive_under_readable_ones(info: RunInfo) -> None:
    """No name that MLflow refuses costs its batch, and the original of each is kept with the run."""
    names = ["mean@1", "timing(s)/gen", "AR[100]", "a//b", "/a", "..", "a\n", "", "l" * 300, "plain/name"]
    deliver(info, Metrics(step=1, time=T0, values={name: number for number, name in enumerate(names)}))
    originals = json.loads(artifacts(info)["metric_names.json"].read_text())
    found = {unmap(name, originals): value for name, value in stored(info).data.metrics.items()}
    assert found == {name: number for number, name in enumerate(names)}
    assert stored(info).data.metrics["plain/name"] == 9


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=20), st.text("_xHAF28/.()", max_size=12)), max_size=10))
@example(["_x28_", "(", "_x28("])
def test_names_map_back_and_never_meet(names: list[str]) -> None:
    """Every name has one mapped name that MLflow takes, and is found again from that alone."""
    from mlflow.utils.validation import _validate_metric_name

    for name in names:
        mapped = map_name(name)
        _validate_metric_name(mapped)
        assert len(mapped) <= NAME_LENGTH
        assert unmap(mapped) == name
        assert "/" not in map_file(name)
        assert len(map_file(name)) <= FILE_LENGTH
    assert len({map_name(name) for name in names}) == len(set(names))


@pytest.mark.slow
def test_long_and_changed_params_are_kept(info: RunInfo, caplog: pytest.LogCaptureFixture) -> None:
    """A long value is shortened and named in one warning, a changed one becomes a tag; config.json has both whole."""
    long = "x" * 20_000
    with caplog.at_level(logging.WARNING, "trackers.mlflow"):
        deliver(
            info,
            Config(
                time=T0, values={"long": long, "lr": 1, "list": [1, 2], "none": None, "nul": "a\0b", "k@": "", "e": {}}
            ),
            Config(time=T0, values={"lr": 2, **{f"p{k}": "é" * 5000 for k in range(150)}}),
        )
    assert [record.getMessage() for record in caplog.records if "shortened: long" in record.getMessage()]
    run = stored(info)
    assert len(run.data.params["long"]) == 6000
    assert run.data.params["lr"] == "1"
    assert run.data.tags["config_changed.lr"] == "2"
    assert run.data.params["list"] == "[1, 2]"
    assert run.data.params["k_x40_"] == ""
    assert run.data.params["p149"] == "é" * 5000
    config = json.loads(artifacts(info)["config.json"].read_text())
    assert (config["long"], config["lr"], config["nul"]) == (long, 2, "a\0b")


def test_setting_that_becomes_a_mapping_is_said_to_be_gone(info: RunInfo) -> None:
    """And one of a mapping that becomes a value, or loses it: MLflow lets nobody remove a param."""
    deliver(
        info,
        Config(time=T0, values={"layers": [1, 2], "optimizer": {"name": "sgd", "lr": 1}, "model": {"a": 1}}),
        Config(time=T0, values={"layers": {"first": 1}, "optimizer": "adam", "model": {"b": 1}}, whole=True),
    )
    changed = {name: text for name, text in stored(info).data.tags.items() if name.startswith("config_changed.")}
    gone = ("layers", "optimizer/name", "optimizer/lr", "model/a")
    assert changed == {f"config_changed.{name}": "(removed)" for name in gone}


def test_step_beyond_64_bits_is_rejected_alone(info: RunInfo) -> None:
    """What no database column holds is refused before it is sent."""
    with pytest.raises(Rejected, match="64 bits"):
        deliver(info, Metrics(step=2**63, time=T0, values={"x": 1}))


def test_text_and_alerts_are_files(info: RunInfo) -> None:
    """Texts are lines of one file per name, which begins anew before it grows large; alerts are such a text."""
    texts = [Text(step=step, time=T0 + step, values={"gen/out": f"{step} " * 3000}) for step in range(12)]
    deliver(info, *texts, Alert(time=T0, title="slow", text="very", level="WARN"))
    found = artifacts(info)
    parts = ["text/gen~out.jsonl", "text/gen~out.2.jsonl"]
    lines = [json.loads(line) for part in parts for line in found[part].read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(12))
    assert lines[11]["text"] == "11 " * 3000
    assert json.loads(found["text/alerts.jsonl"].read_text())["text"] == "[WARN] slow: very"


def test_pictures_in_mappings_of_a_cell_are_files(info: RunInfo) -> None:
    """And in lists: the table names the files, from which the reader makes the pictures again."""
    import numpy

    numpy.save(info.path("a.npy"), numpy.zeros((4, 4, 3)))
    cell = {"_type": "image", "format": "npy", "file": "a.npy"}
    table = {"columns": ["x"], "rows": [[{"before": cell, "n": [cell, 3]}], [[cell]]]}
    deliver(info, Media(step=3, time=T0, name="t", type="table", items=[MediaFile(format="json", data=table)]))
    found = artifacts(info)
    ((first,), ((second,),)) = json.loads(found["tables/t.json"].read_text())["data"]
    assert (first["n"][1], first["before"]["type"]) == (3, "image")
    named = [one["filepath"] for one in (first["before"], first["n"][0], second)]
    assert len({*named} & found.keys()) == 3


def test_media_are_where_mlflow_shows_them(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures, tables with pictures, histograms, sounds and videos are files, one each however often they come."""
    import numpy
    from PIL import Image

    pixels = numpy.linspace(0, 1, 48).reshape(4, 4, 3)
    numpy.save(info.path("a.npy"), pixels)
    numpy.save(info.path("v.npy"), numpy.zeros((2, 8, 8, 3), "uint8"))
    numpy.save(info.path("s.npy"), numpy.zeros(100))
    cell = {"_type": "image", "format": "npy", "file": "a.npy"}
    table = {"columns": ["text", "image"], "rows": [["one", cell], ["two"]]}
    records = [
        Media(step=3, time=T0, name="samples/(x)", type="image", items=[MediaFile(format="npy", file="a.npy")]),
        Media(step=3, time=T0, name="t", type="table", items=[MediaFile(format="json", data=table)]),
        Media(
            step=3,
            time=T0,
            name="h",
            type="histogram",
            items=[MediaFile(format="json", data={"counts": [1, 2], "edges": [0, 1, 2]})],
        ),
        Media(step=3, time=T0, name="v", type="video", items=[MediaFile(format="npy", file="v.npy", fps=2)]),
        Media(step=3, time=T0, name="s", type="audio", items=[MediaFile(format="npy", file="s.npy", sample_rate=100)]),
    ]
    deliver(info, *records)
    deliver(info, *records)
    found = artifacts(info)
    kinds = sorted((path.split("/")[0], Path(path).suffix) for path in found)
    assert kinds == [
        ("audio", ".wav"),
        ("histograms", ".json"),
        ("histograms", ".png"),
        ("images", ".png"),
        ("images", ".webp"),
        ("table_images", ".png"),
        ("table_images", ".webp"),
        ("tables", ".json"),
        ("tables", ".json"),
        ("video", ".gif"),
    ]
    picture = next(path for path in found if path.startswith("images") and path.endswith(".png"))
    assert picture.startswith(f"images/samples~_x28_x_x29_+step+3+timestamp+{round(T0 * 1000)}+")
    assert Image.open(found[picture]).getpixel((3, 3)) == (244, 250, 255)
    assert stored(info).data.tags["mlflow.loggedImages"] == "True"
    (path,) = [entry["path"] for entry in json.loads(stored(info).data.tags["mlflow.loggedArtifacts"])]
    assert path == "tables/t.json"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{info.cwd}/mlflow.db")  # it asks its default store
    loaded = client(info).load_table(stored(info).info.experiment_id, path)
    assert loaded["text"].tolist() == ["one", "two"]


def test_tables_of_one_name_are_compared_over_runs(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation view's file of two runs is one table, by MLflow's own loader: the newest rows of each run."""
    answers: dict[str, str] = {}
    paths: set[str] = set()
    for number in range(2):
        own = run_info(Path(info.directory).parent / f"other{number}", cwd=info.cwd, id=f"id{number}")
        tables = [{"columns": ["id", "answer"], "rows": [[0, f"run {number}, step {step}"]]} for step in (1, 2)]
        items = [MediaFile(format="json", data=table) for table in tables]
        deliver(
            own, *(Media(step=1 + n, time=T0 + n, name="val/a", type="table", items=[i]) for n, i in enumerate(items))
        )
        answers[stored(own).info.run_id] = f"run {number}, step 2"
        paths |= {entry["path"] for entry in json.loads(stored(own).data.tags["mlflow.loggedArtifacts"])}
    assert paths == {"tables/val~a.json"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{info.cwd}/mlflow.db")
    experiment = client(info).get_run(next(iter(answers))).info.experiment_id
    rows = client(info).load_table(experiment, paths.pop(), extra_columns=["run_id"])
    assert dict(zip(rows["run_id"], rows["answer"], strict=True)) == answers


def test_missing_media_file_is_rejected(info: RunInfo) -> None:
    """A picture whose file is gone rejects its record, and says which file."""
    gone = Media(step=1, time=T0, name="x", type="image", items=[MediaFile(format="npy", file="media/gone.npy")])
    with pytest.raises(Rejected, match=r"media/gone\.npy is gone"):
        deliver(info, gone)


def test_artifacts_keep_every_version(info: RunInfo) -> None:
    """Two versions of one artifact lie beside each other with all their files and what is known of them."""
    info.path("one.bin").write_bytes(b"one")
    info.path("two.bin").write_bytes(b"two")
    files = [ArtifactFile(path="sub/model.pt", file="one.bin"), ArtifactFile(path="ref", uri="s3://b/k")]
    deliver(
        info,
        ArtifactRecord(step=1, time=T0, name="model", type="model", files=files, aliases=["best"], version=3),
        ArtifactRecord(
            step=2, time=T0, name="model", type="model", files=[ArtifactFile(path="model.pt", file="two.bin")]
        ),
    )
    found = {path: file.read_bytes() for path, file in artifacts(info).items() if path.endswith("model.pt")}
    assert sorted(found.values()) == [b"one", b"two"]
    about = [json.loads(f.read_text()) for p, f in artifacts(info).items() if p.endswith("artifact.json")]
    first = next(entry for entry in about if entry["step"] == 1)
    assert (first["aliases"], first["version"]) == (["best"], 3)
    assert first["files"][1]["uri"] == "s3://b/k"


def test_versions_that_a_run_used_are_params(info: RunInfo) -> None:
    """What ``use_artifact`` recorded stands among them."""
    deliver(info, Config(time=T0, values={"used_artifacts": {"dataset": "digits/dataset:v3"}}))
    assert stored(info).data.params["used_artifacts/dataset"] == "digits/dataset:v3"


def model(version: int | None = 0, **more: Any) -> ArtifactRecord:
    """A record of a model with one file, ``one.bin``."""
    files = [ArtifactFile(path="model.pt", file="one.bin")]
    return ArtifactRecord(time=T0, name="net/small", type="model", files=files, version=version, **more)


@pytest.mark.slow
def test_models_are_registered_where_the_option_says_so(info: RunInfo) -> None:
    """One version for each of ours, with aliases that move, also if a record comes again; without the option none."""
    info.path("one.bin").write_bytes(b"weights")
    deliver(info, model())
    assert client(info).search_registered_models() == []
    info.options["MLFLOW_REGISTER_MODELS"] = True
    records = (
        model(0, aliases=["best", "latest", "v7", "a b"]),
        model(1, aliases=["best"]),
        model(0, aliases=["prod"]),
        model(2, versioned=False),
        ArtifactRecord(time=T0, name="data", type="dataset", version=0),
    )
    for _ in range(2):
        deliver(info, *records)
    (registered,) = client(info).search_registered_models()
    assert registered.name == "net-small"
    assert {name: int(version) for name, version in registered.aliases.items()} == {"best": 2, "prod": 1}
    versions = client(info).search_model_versions("name = 'net-small'")
    assert sorted((int(one.version), one.tags["trackers.artifact"]) for one in versions) == [
        (1, "digits/net/small:v0"), (2, "digits/net/small:v1"),
    ]  # fmt: skip
    folder = versions[0].source.removeprefix(f"runs:/{stored(info).info.run_id}/")
    assert artifacts(info)[f"{folder}/model.pt"].read_bytes() == b"weights"


def need_logged_models() -> None:
    from mlflow import MlflowClient

    if not hasattr(MlflowClient, "create_logged_model"):
        pytest.skip("needs MLflow's logged models: this release has none")


def test_registered_version_and_logged_model_name_each_other(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``mlflow.register_model``: a logged model lists its versions, of the same files; a
    delivery that stops between the two goes on."""
    from mlflow import MlflowClient

    need_logged_models()
    info.path("one.bin").write_bytes(b"weights")
    info.options["MLFLOW_REGISTER_MODELS"] = True
    set_tags = MlflowClient.set_logged_model_tags
    monkeypatch.setattr(MlflowClient, "set_logged_model_tags", lambda *_: (_ for _ in ()).throw(OSError("away")))
    with pytest.raises(Exception, match="away"):
        deliver(info, model(0))
    monkeypatch.setattr(MlflowClient, "set_logged_model_tags", set_tags)
    for _ in range(2):
        deliver(info, model(0), model(1))
    models = client(info).search_logged_models([stored(info).info.experiment_id])
    versions = {one.source: one for one in client(info).search_model_versions("name = 'net-small'")}
    assert len(versions) == len(models) == 2
    for one in models:
        version = versions[one.tags["trackers.files"]]
        assert json.loads(one.tags["mlflow.modelVersions"]) == [{"name": "net-small", "version": str(version.version)}]


def test_linked_model_is_a_version_of_the_linked_name(info: RunInfo) -> None:
    """A model that is linked to a registry's collection is a version of the registered model of that name, once."""
    info.path("one.bin").write_bytes(b"weights")
    info.options["MLFLOW_REGISTER_MODELS"] = True
    link = ArtifactRecord(time=T0, name="zoo", type="model", files=model().files, version=0, aliases=["prod"],
                          link="wandb-registry-model/zoo", source="net/small")  # fmt: skip
    for _ in range(2):
        deliver(info, model(), link)
    assert sorted(one.name for one in client(info).search_registered_models()) == ["net-small", "zoo"]
    (version,) = client(info).search_model_versions("name = 'zoo'")
    assert int(client(info).get_model_version_by_alias("zoo", "prod").version) == int(version.version)


def test_registry_that_refuses_costs_a_line(
    info: RunInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store without a registry gets the files and everything else."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

    def refuse(*_: Any, **__: Any) -> None:
        raise MlflowException("no registry here", error_code=ENDPOINT_NOT_FOUND)

    monkeypatch.setattr(MlflowClient, "search_registered_models", refuse)
    info.path("one.bin").write_bytes(b"weights")
    info.options["MLFLOW_REGISTER_MODELS"] = True
    deliver(info, model(), Metrics(time=T0, step=1, values={"loss": 0.5}))
    assert [value for _, _, value in history(info, "loss")] == [0.5]
    assert [path for path in artifacts(info) if path.endswith("model.pt")]
    assert "MLflow shows no registered version of 'net/small' of this run (" in caplog.text


def test_environment_and_changed_attributes_arrive(info: RunInfo) -> None:
    """What the run ran on is a file; a new name, note, group and tags replace the old ones."""
    deliver(
        info,
        Environment(time=T0, values={"gpu": "none"}),
        Info(time=T0, name="renamed", tags=["a", "b"], notes="new", group="g2"),
    )
    run = stored(info)
    assert run.info.run_name == "renamed"
    tags = run.data.tags
    assert (tags["trackers.tags"], tags["mlflow.note.content"], tags["group"]) == ('["a", "b"]', "new", "g2")
    assert json.loads(artifacts(info)["environment.json"].read_text()) == {"gpu": "none"}


@pytest.mark.slow
def test_kill_while_the_database_is_made_costs_nothing(tmp_path: Path) -> None:
    """SIGKILL in the midst of MLflow's migrations: the next delivery makes the database, and nothing is left over."""
    work = tmp_path / "work dir%"
    work.mkdir()
    info = run_info(tmp_path / "run", cwd=str(work))
    code = (
        "import os, sys, threading, time, msgspec; from pathlib import Path\n"
        "from trackers.backends.mlflow import store as mlflow_store; from trackers.tracker import RunInfo\n"
        "info = msgspec.json.decode(sys.argv[1], type=RunInfo)\n"
        "def kill():\n"
        "    while not any(p.stat().st_size > 50_000 for p in Path(info.cwd).glob('*mlflow.db*new')):\n"
        "        time.sleep(0.001)\n"
        "    os.kill(os.getpid(), 9)\n"
        "threading.Thread(target=kill, daemon=True).start()\n"
        "mlflow_store.connect(info)\n"
    )
    text = msgspec.json.encode(info).decode()
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert not (work / "mlflow.db").exists()
    driver = Driver(MlflowTracker, info)
    driver.deliver(training(20))
    stored = read_mlflow(info, driver.state, uri=tracking_uri(info))
    assert [point.step for point in stored.metrics["metric_1"]] == list(range(20))
    assert {path.name for path in work.iterdir()} <= {"mlflow.db", "mlruns"}


def test_runs_that_start_together_share_a_new_database(tmp_path: Path) -> None:
    """Four processes meet in a directory without a database: one experiment, one parent of the group, four runs."""
    code = (
        "import sys; from pathlib import Path; from tests.helpers import *\n"
        "from trackers.backends.mlflow.tracker import MlflowTracker\n"
        "here = Path(sys.argv[1])\n"
        "info = run_info(here / sys.argv[2], id=sys.argv[2], cwd=str(here), group='it\\'s \"one\"',\n"
        "                options={'MLFLOW_NESTED': True})\n"
        "Driver(MlflowTracker, info).deliver(training(3))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    preload = (*forked.PACKAGE, *forked.VENDORS["mlflow"])
    with open("errors.txt", "wb") as errors:
        runs = [
            forked.Program([*command, f"run{k}"], preload=preload, cwd=ROOT, stdout=errors, stderr=errors)
            for k in range(4)
        ]
        assert [run.wait(120) for run in runs] == [0] * 4, Path("errors.txt").read_text()
    api = client(run_info(tmp_path / "x", cwd=str(tmp_path)))
    experiments = api.search_experiments()
    assert sorted(e.name for e in experiments) == ["Default", "digits"]
    found = api.search_runs([e.experiment_id for e in experiments], run_view_type=3)
    parents = {run.info.run_id: run for run in found if "trackers.group" in run.data.tags}
    children = [run for run in found if "trackers.run_id" in run.data.tags]
    assert [run.info.run_name for run in parents.values()] == ['it\'s "one"']
    assert all("mean and best" in run.data.tags["mlflow.note.content"] for run in parents.values())
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == set(parents)
    assert sorted(run.data.tags["trackers.run_id"] for run in children) == ["run0", "run1", "run2", "run3"]
    assert {run.info.status for run in found} == {"FINISHED"}


def test_group_can_be_a_tag_alone(info: RunInfo) -> None:
    """Unless MLFLOW_NESTED says so no parent is made: every run in the list is one that somebody began."""
    info.group = "ratio"
    deliver(info)
    assert stored(info).data.tags["group"] == "ratio"
    assert "mlflow.parentRunId" not in stored(info).data.tags
    everything = client(info).search_runs([stored(info).info.experiment_id], run_view_type=3)
    assert [run.info.run_name for run in everything] == [info.name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"team": "nlp", "stage": "a,b=c", "trackers.run_id": "mine"}', {"team": "nlp", "stage": "a,b=c"}),
        ("team=nlp, stage = a=b,, lone", {"team": "nlp", "stage": "a=b", "lone": ""}),
        ("{no json", {"{no json": ""}),
    ],
)
def test_tags_for_mlflow_are_tags_of_its_own(text: str, expected: dict[str, str], info: RunInfo) -> None:
    """``MLFLOW_TAGS``, as people type it and as ``LoggerConfig(mlflow_tags=…)`` gives it: one tag for each pair, commas
    in values and all; what names the run stays ours."""
    info.options = {"MLFLOW_TAGS": text}
    deliver(info)
    found = stored(info).data.tags
    assert {name: found[name] for name in expected} == expected
    assert found["trackers.run_id"] == info.id
    assert "team" not in found["trackers.tags"]


def test_options_choose_store_and_experiment(info: RunInfo) -> None:
    """A relative SQLite file lies where training runs; the experiment has the name that the option gives."""
    info.options = {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "MLFLOW_EXPERIMENT": "other"}
    deliver(info, Metrics(step=1, time=T0, values={"x": 1}))
    assert client(info).get_experiment(stored(info).info.experiment_id).name == "other"


def test_abandoned_lock_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock whose holder was killed doesn't stop later runs."""
    monkeypatch.setattr("trackers.backends.mlflow.store.LOCK_STALE_S", -1.0)
    lock = tmp_path / "x.db.trackers-lock"
    lock.touch()
    monkeypatch.setattr("trackers.backends.mlflow.store.LOCK_WAIT_S", 60.0)
    with first_moment(f"sqlite:///{tmp_path}/x.db"):
        assert lock.exists()
    assert not lock.exists()


def test_lock_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    """On the machine of its holder nobody waits a minute for a lock whose holder is seen to be dead."""
    lock = tmp_path / "x.db.trackers-lock"
    code = (
        "import os, signal, sys; from trackers.backends.mlflow.store import first_moment\n"
        "with first_moment(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)"
    )
    uri = f"sqlite:///{tmp_path}/x.db"
    subprocess.run([sys.executable, "-c", code, uri], check=False)
    assert lock.exists()
    before = lock.read_text()
    with first_moment(uri):
        assert lock.read_text() != before
    assert not lock.exists()


def test_lock_that_another_waiter_got_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that see a dead holder's lock, the slower one doesn't take away what the quicker one has made since."""
    lock = tmp_path / "x.db.trackers-lock"
    lock.write_text(f"{socket.gethostname()} 1 0.0 dead")
    judge = mlflow_store._is_gone

    def slow(holder: str) -> bool:
        gone = judge(holder)
        lock.write_text("another's")
        return gone

    monkeypatch.setattr(mlflow_store, "_is_gone", slow)
    mlflow_store._drop_stale(lock)
    assert lock.read_text() == "another's"
    assert [path.name for path in tmp_path.glob("x.db*")] == [lock.name]


def test_lock_is_given_back_only_by_its_holder(tmp_path: Path) -> None:
    """A holder that was taken for dead leaves the lock of whoever followed it; its own it takes away."""
    lock = tmp_path / "x.db.trackers-lock"
    with first_moment(f"sqlite:///{tmp_path}/x.db"):
        lock.write_text("another's")
    assert lock.read_text() == "another's"
    lock.unlink()
    with first_moment(f"sqlite:///{tmp_path}/x.db"):
        assert lock.exists()
    assert not lock.exists()


def test_lock_whose_heir_died_too_is_got(tmp_path: Path) -> None:
    """Who died while it took a dead holder's lock away keeps nobody out for longer than a stale lock does."""
    lock = tmp_path / "x.db.trackers-lock"
    holder = f"{socket.gethostname()} 1 0.0 dead"
    lock.write_text(holder)
    claim = tmp_path / f"{lock.name}.{hashlib.sha256(holder.encode()).hexdigest()[:12]}"
    claim.touch()
    mlflow_store._drop_stale(lock)
    assert lock.exists()  # it may live
    os.utime(claim, (1, 1))
    with first_moment(f"sqlite:///{tmp_path}/x.db"):
        assert lock.read_text() != holder
    assert not list(tmp_path.glob("x.db.trackers-lock*"))


@pytest.mark.parametrize(
    "uri", ["./mlruns", "file:///tmp/mlruns", "/tmp/mlruns", "ftp://x", "http://", "sqlite://x.db"]
)
def test_unusable_address_is_refused_at_init(uri: str) -> None:
    """What MLflow wouldn't take is an error with the way out before the first step."""
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI"):
        MlflowTracker.check({"MLFLOW_TRACKING_URI": uri})


@pytest.mark.parametrize("uri", ["", "sqlite:///a.db", "http://h:5000", "postgresql://u:p@h/d", "databricks"])
def test_usable_address_passes(uri: str) -> None:
    """Addresses that MLflow takes pass, and no vendor is needed to see it."""
    MlflowTracker.check({"MLFLOW_TRACKING_URI": uri})


def test_addresses_are_shown_without_passwords() -> None:
    """Neither a page's address nor a command shows what one logs in with."""
    assert show("https://me:secret@host/ml/", "1", "r") == "https://host/ml/#/experiments/1/runs/r"
    assert "secret" not in show("postgresql://me:secret@host/db", "1", "r")


def test_default_store_is_where_training_ran(tmp_path: Path) -> None:
    """Without an address it is mlflow.db in training's directory, odd characters in its name included."""
    odd = tmp_path / "a b%20#"
    odd.mkdir()
    uri = tracking_uri(run_info(tmp_path / "run", cwd=str(odd)))
    from sqlalchemy import make_url

    assert make_url(uri).database == str(odd / "mlflow.db")


def test_value_that_an_old_server_does_not_know_again_is_no_failure(
    info: RunInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers before 3.16 refuse a request with a NaN they have; the rest of it arrives, nothing is rejected."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    real, has = MlflowClient.log_batch, set()

    def log_batch(self: Any, run_id: str, metrics: Any = (), **more: Any) -> Any:
        again = [m.key for m in metrics if math.isnan(m.value) and (m.key, m.step) in has]
        if again:
            raise MlflowException("(sqlite3.IntegrityError) UNIQUE constraint failed: metrics.key, metrics.timestamp")
        has.update((m.key, m.step) for m in metrics if math.isnan(m.value))
        return real(self, run_id, metrics=metrics, **more)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    driver = Driver(MlflowTracker, info)
    records = stream([Metrics(step=s, time=T0 + s, values={"a": float(s), "n": math.nan}) for s in range(40)])
    driver.open()
    driver.write(records[:20], batch=20, commit=False)
    driver.deliver(records, batch=7)
    stored = read_mlflow(info, driver.state, uri=tracking_uri(info))
    assert [point.step for point in stored.metrics["a"]] == list(range(40))
    assert [point.step for point in stored.metrics["n"]] == list(range(40))


def test_changed_artifact_address_is_read_anew() -> None:
    """A run's cache counts only as long as the server names the same place for its artifacts."""
    from types import SimpleNamespace

    from trackers.readers.mlflow.reader import _version

    def said(place: str) -> str:
        known = {"status": "FINISHED", "end_time": 1, "run_name": "r", "artifact_uri": place}
        data = SimpleNamespace(_metric_objs=[], params={}, tags={})
        return _version("http://127.0.0.1:9", SimpleNamespace(info=SimpleNamespace(**known), data=data))

    assert said("mlflow-artifacts:/1/a") == said("mlflow-artifacts:/1/a") != said("file:///home/victim")


@pytest.mark.slow
def test_what_training_printed_is_a_file_once(info: RunInfo) -> None:
    """``console.log`` is there at the end, each line once, though a delivery was killed between."""
    records = printed()
    killed = Driver(MlflowTracker, info)
    killed.open()
    killed.write(records[:4])
    killed.write(records[:6], commit=False)
    again = Driver(MlflowTracker, info, killed.state, killed.cursor)
    again.deliver(records)
    assert artifacts(info)["console.log"].read_text() == PRINTED


def test_model_is_a_logged_model_with_its_metrics(info: RunInfo) -> None:
    """An artifact of type "model" is one of MLflow's models, once, with the metrics that the run had then; also after a
    kill, when the store has later ones already."""
    need_logged_models()
    info.path("one.bin").write_bytes(b"one")
    records = stream([
        Metrics(step=1, time=T0, values={"train_loss": 0.5}),
        Metrics(step=2, time=T0 + 1, values={"train_loss": 0.25, "val_loss": math.nan}),
        Metrics(time=T0 + 1.5, values={"system.cpu": 50.0}),
        ArtifactRecord(step=2, time=T0 + 2, name="net/small", type="model", aliases=["best"], metadata={"depth": 4},
                       files=[ArtifactFile(path="model.pt", file="one.bin")]),
        Metrics(step=3, time=T0 + 3, values={"train_loss": 0.125}),
    ])  # fmt: skip
    driver = Driver(MlflowTracker, info)
    driver.open()
    driver.write(records, commit=False)
    driver.open()
    driver.deliver(records, batch=1)
    (model,) = client(info).search_logged_models([stored(info).info.experiment_id])
    assert (model.name, str(model.status), model.source_run_id) == ("net-small", "READY", stored(info).info.run_id)
    assert model.params == {"depth": "4"}
    assert model.tags["aliases"] == "best"
    assert model.tags["mlflow.source.name"] == stored(info).data.tags["mlflow.source.name"]
    assert model.tags["trackers.files"].startswith(f"runs:/{model.source_run_id}/artifacts/net")
    assert [(metric.key, metric.step, metric.value) for metric in model.metrics] == [("train_loss", 2, 0.25)]
    assert [(output.model_id, output.step) for output in stored(info).outputs.model_outputs] == [(model.model_id, 2)]
    assert history(info, "train_loss") == [
        (1, round(T0 * 1000), 0.5), (2, round((T0 + 1) * 1000), 0.25), (3, round((T0 + 3) * 1000), 0.125),
    ]  # fmt: skip


@pytest.mark.parametrize("which", ["client", "server"])
def test_store_without_models_and_inputs_gets_the_files(
    which: str, info: RunInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MLflow 2's client has no logged models, its server answers 404: one line for each, and all else arrives."""
    from mlflow import MlflowClient, entities
    from mlflow.exceptions import MlflowException

    if which == "client":
        monkeypatch.delattr(entities, "LoggedModelOutput", raising=False)

    def no_endpoint(*_: Any, **__: Any) -> Any:
        raise MlflowException("API request to endpoint /api/2.0/mlflow/logged-models/search failed with error code 404")

    for name in ("search_logged_models", "log_inputs"):
        if which == "client" and hasattr(MlflowClient, name):
            monkeypatch.delattr(MlflowClient, name)
        elif which == "server":
            monkeypatch.setattr(MlflowClient, name, no_endpoint, raising=False)
    info.path("one.bin").write_bytes(b"one")
    files = [ArtifactFile(path="one.bin", file="one.bin")]
    kinds = ("model", "dataset", "model", "dataset")
    deliver(
        info,
        *(
            ArtifactRecord(step=k, time=T0 + k, name=f"{kind}{k}", type=kind, files=files)
            for k, kind in enumerate(kinds)
        ),
        Metrics(step=9, time=T0 + 9, values={"train_loss": 0.5}),
    )
    said = [record.getMessage() for record in caplog.records if "MLflow shows no" in record.getMessage()]
    assert sorted(line.split(" (")[0] for line in said) == [
        "MLflow shows no dataset inputs of this run", "MLflow shows no logged models of this run",
    ]  # fmt: skip
    assert all("this release of MLflow has none" in line for line in said) is (which == "client")
    assert [step for step, _, _ in history(info, "train_loss")] == [9]
    assert sum(path.endswith("one.bin") for path in artifacts(info)) == len(kinds)


def test_datasets_are_inputs(info: RunInfo) -> None:
    """An artifact of type "dataset", and what ``use_artifact`` named, are among the run's datasets, once; their sources
    are of kinds that MLflow's own functions load."""
    from mlflow.data import get_source

    info.path("rows.csv").write_text("x\n1\n")
    records = [
        Config(time=T0, values={"used_artifacts": {"words": "texts/words:v3", "mine": f"{info.project}/own:v2"}}),
        ArtifactRecord(time=T0, name="own", type="dataset", version=2, files=[ArtifactFile(path="x", uri="s3://b/o")]),
        ArtifactRecord(time=T0, name="leaves", type="dataset", metadata={"rows": 1},
                       files=[ArtifactFile(path="rows.csv", file="rows.csv", size=4, digest="sha256:1")]),
        ArtifactRecord(time=T0, name="far", type="dataset", files=[ArtifactFile(path="x", uri="s3://b/x", size=9)]),
        ArtifactRecord(time=T0, name="page", type="dataset", files=[ArtifactFile(path="x", uri="https://b.example/x")]),
    ]  # fmt: skip
    deliver(info, *records)
    deliver(info, *records)
    inputs = {entry.dataset.name: entry for entry in stored(info).inputs.dataset_inputs}
    assert len(stored(info).inputs.dataset_inputs) == 5  # what was logged and used is one
    del inputs["own"]
    sources = {name: get_source(entry.dataset) for name, entry in inputs.items()}
    assert {name: source._get_source_type() for name, source in sources.items()} == {
        "words": "code", "far": "s3", "leaves": "local", "page": "http",
    }  # fmt: skip
    assert (sources["far"].uri, sources["page"].url) == ("s3://b/x", "https://b.example/x")
    assert sources["leaves"].uri.startswith(f"runs:/{stored(info).info.run_id}/artifacts/leaves/")
    assert json.loads(inputs["words"].dataset.profile) == {"version": "texts/words:v3"}
    assert json.loads(inputs["leaves"].dataset.profile) == {"files": 1, "bytes": 4, "rows": 1}
    contexts = {name: entry.tags[0].value for name, entry in inputs.items()}
    assert contexts == {"words": "used", "leaves": "training", "far": "training", "page": "training"}


def test_runs_are_found_by_each_of_their_tags(info: RunInfo) -> None:
    """Each tag is one of MLflow's; one that was taken away is gone, one that means something else has a prefix."""
    info.tags = ["baseline", "group", "v1"]
    deliver(info, Info(time=T0, tags=["baseline", "group", "no quotes: 'a'"]))
    experiment = stored(info).info.experiment_id

    def found(text: str) -> int:
        return len(client(info).search_runs([experiment], text))

    assert found("tags.baseline = 'true'") == 1
    assert found("tags.`tag.group` = 'true'") == 1
    assert found("tags.v1 = 'true'") == 0
    deliver(info, Info(time=T0, tags=["v1"]))
    assert found("tags.v1 = 'true'") == 1
    assert found("tags.baseline = 'true'") == 0


def test_group_run_tells_what_its_runs_came_to(tmp_path: Path, mlflow_tables: Path, info: RunInfo) -> None:
    """The parent of a sweep has mean and best of each result, the settings in which runs differ, and the best run."""
    for number, accuracy in enumerate((0.5, 0.75, 0.25)):
        one = run_info(tmp_path / f"run{number}", id=f"run{number}", name=f"lr-{number}", group="sweep", cwd=info.cwd,
                       options={**info.options, "MLFLOW_NESTED": True})  # fmt: skip
        deliver(one, Config(time=T0, values={"lr": number, "depth": 4}),
                Summary(time=T0, values={"accuracy": accuracy, "size": 10.0 + number}))  # fmt: skip
    experiment = stored(one).info.experiment_id
    parent = client(info).get_run(stored(one).data.tags["mlflow.parentRunId"])
    assert parent.data.metrics == {
        "runs": 3, "final/accuracy.mean": 0.5, "final/accuracy.best": 0.75,
        "final/size.mean": 11.0, "final/size.min": 10.0, "final/size.max": 12.0,
    }  # fmt: skip
    assert parent.data.tags["best.accuracy"] == "lr-1"
    assert sorted(json.loads(parent.data.tags["sweep.lr"])) == ["0", "1", "2"]
    assert "sweep.depth" not in parent.data.tags
    assert len(client(info).search_runs([experiment])) == 4


def test_results_that_nobody_asked_for_are_no_metrics(info: RunInfo) -> None:
    """Energy and tokens stand in the summary's file, and not where results are compared."""
    deliver(info, Summary(time=T0, values={"accuracy": 0.5, "energy/total_kwh": 1.0, "gen_ai.usage.input_tokens": 3}))
    assert stored(info).data.metrics == {"final/accuracy": 0.5}
    summary = json.loads(artifacts(info)["summary.json"].read_text())
    assert summary["final/energy/total_kwh"] == 1.0


def test_page_shows_boxes_histograms_and_captions(info: RunInfo) -> None:
    """Boxes are in the picture, its caption beneath the small one, and a histogram is a picture too; what was logged is
    read back."""
    import numpy
    from PIL import Image

    numpy.save(info.path("a.npy"), numpy.full((40, 60, 3), 255, "uint8"))
    box = {"position": {"minX": 10, "maxX": 30, "minY": 5, "maxY": 25}, "domain": "pixel", "class_id": 2}
    meta = {"boxes": {"found": {"box_data": [box], "class_labels": {"2": ""}}}}
    item = MediaFile(format="npy", file="a.npy", caption="a leaf", meta=meta)
    bins = MediaFile(format="json", data={"counts": [1, 2], "edges": [0.0, 1.0, 2.0]})
    deliver(info, Media(step=1, time=T0, name="x", type="image", items=[item]),
            Media(step=1, time=T0, name="h", type="histogram", items=[bins]))  # fmt: skip
    found = artifacts(info)
    whole = next(Image.open(file) for path, file in found.items() if path.startswith("images") and path.endswith("png"))
    small = next(Image.open(file) for path, file in found.items() if path.endswith("webp"))
    assert whole.getpixel((10, 15)) != (255, 255, 255)
    assert whole.getpixel((20, 15)) == (255, 255, 255)
    assert small.height > whole.height
    assert numpy.asarray(small)[whole.height :].min() < 128
    (drawn,) = (file for path, file in found.items() if path.startswith("histograms") and path.endswith("png"))
    assert numpy.unique(numpy.asarray(Image.open(drawn).convert("RGB"))).size > 2
