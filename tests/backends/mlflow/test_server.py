"""The MLflow tracker over HTTP: real servers on SQLite and PostgreSQL, and what happens when they go away."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import servers
from tests.helpers import T0, Driver, run_info, stream, training
from trackers.backends.mlflow.tracker import MlflowTracker
from trackers.errors import NotFound, Unavailable
from trackers.readers.mlflow import reader
from trackers.readers.mlflow.reader import MlflowReader
from trackers.readers.run_data import load
from trackers.records import ArtifactFile, ArtifactRecord, Config, Metrics, Record, Summary, Text
from trackers.testing import Limits, check_reader
from trackers.tracker import RunInfo


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A running MLflow server."""
    directory = tmp_path_factory.mktemp("server")
    with contextlib.ExitStack() as stack:
        store = None
        if request.param == "postgresql":
            if servers.postgresql_programs() is None:
                pytest.skip("needs PostgreSQL: no server programs in /usr/lib/postgresql or on PATH")
            store = stack.enter_context(servers.postgresql())
        running = servers.mlflow_server(directory, store, by_command=store is None)
        stack.callback(running.stop)
        running.start()
        yield running


@pytest.fixture
def info(server: servers.Server, tmp_path: Path, request: pytest.FixtureRequest) -> RunInfo:
    name = request.node.originalname
    return run_info(
        tmp_path / "run",
        id=name,
        project=name,
        options={"MLFLOW_TRACKING_URI": server.url, "MLFLOW_NESTED": True},
        group="g",
    )


def client(info: RunInfo) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=info.options["MLFLOW_TRACKING_URI"])


def points(info: RunInfo, driver: Driver, name: str) -> list[tuple[int, int, float]]:
    history = client(info).get_metric_history(driver.state["native_id"], name)
    return sorted((p.step, p.timestamp, p.value) for p in history)


@pytest.mark.slow
def test_run_arrives_whole_over_http(info: RunInfo, server: servers.Server) -> None:
    """400 steps of ten values, more than a request takes, sent twice, are there once, with config, group and files."""
    info.path("model.bin").write_bytes(b"weights")
    records = training(400, finish=False)
    records += stream(
        [
            Metrics(step=1, time=T0, values={"nan": float("nan"), "up": math.inf, "mean@1": 1}),
            Text(step=1, time=T0, values={"out": "ä"}),
            ArtifactRecord(step=1, time=T0, name="model", files=[ArtifactFile(path="model.bin", file="model.bin")]),
        ],
        first_seq=len(records) + 1,
    )
    driver = Driver(MlflowTracker, info)
    driver.open()
    driver.write(records, batch=200, commit=False)
    driver.deliver(records, batch=280)
    expected = [(step, round((T0 + step / 10) * 1000), step + 9 / 10) for step in range(400)]
    assert points(info, driver, "metric_9") == expected
    run = client(info).get_run(driver.state["native_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params == {"lr": "0.001", "model/depth": "4"}
    assert math.isnan(run.data.metrics["nan"])
    assert run.data.metrics["mean_x40_1"] == 1
    parent = client(info).get_run(run.data.tags["mlflow.parentRunId"])
    assert parent.info.run_name == "g"
    assert driver.state["url"] == f"{server.url}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    folders = client(info).list_artifacts(run.info.run_id, "artifacts/model")
    files = client(info).list_artifacts(run.info.run_id, folders[0].path)
    assert [f"{folders[0].path}/artifact.json", f"{folders[0].path}/model.bin"] == sorted(f.path for f in files)


@pytest.mark.slow
def test_registered_version_is_named_once_by_its_logged_model(info: RunInfo) -> None:
    """A server takes the version and its name at the model; a record that comes again changes nothing."""
    if not hasattr(client(info), "create_logged_model"):
        pytest.skip("needs MLflow's logged models: this release has none")
    info.path("model.bin").write_bytes(b"weights")
    info.options["MLFLOW_REGISTER_MODELS"] = True
    files = [ArtifactFile(path="model.bin", file="model.bin")]
    for _ in range(2):
        driver = Driver(MlflowTracker, info)
        driver.deliver(stream([ArtifactRecord(time=T0, name=info.id, type="model", files=files, version=0)]))
    experiment = client(info).get_run(driver.state["native_id"]).info.experiment_id
    (model,) = client(info).search_logged_models([experiment])
    (named,) = json.loads(model.tags["mlflow.modelVersions"])
    assert named == {"name": info.id, "version": "1"}


@pytest.mark.slow
def test_requests_stay_below_every_limit(info: RunInfo) -> None:
    """Long names, long params and many tags go in requests that the server takes."""
    long = {f"{k:04}" + "é" * 240: float(k) for k in range(3000)}
    config = {f"p{k}": "é" * 6000 for k in range(120)}
    driver = Driver(MlflowTracker, info)
    driver.deliver(
        stream(
            [
                Config(time=T0, values={**config, "nul": "a\0b", "empty": ""}),
                Config(time=T0, values=dict.fromkeys(config, "changed")),
                Metrics(step=1, time=T0, values=long),
            ]
        )
    )
    data = client(info).get_run(driver.state["native_id"]).data
    assert len(data.metrics) == 3000
    assert data.params["p119"] == "é" * 6000
    assert data.params["nul"] == "a\N{SYMBOL FOR NULL}b"
    assert data.tags["config_changed.p7"] == "changed"


@pytest.mark.slow
def test_server_that_goes_away_costs_seconds_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is stopped, or hangs, is Unavailable; the same object goes on when it is back, config included."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    server = servers.mlflow_server(tmp_path)
    info = run_info(tmp_path / "run", options={"MLFLOW_TRACKING_URI": server.url})
    records = training(30)
    driver = Driver(MlflowTracker, info)
    try:
        server.start()
        driver.open()
        server.stop()
        with pytest.raises(Unavailable, match=r"no answer from http://127\.0\.0\.1:\d+: connection (refused|lost)"):
            driver.write(records)
        with pytest.raises(Unavailable, match=r"connection (refused|lost)"):
            Driver(MlflowTracker, info).open()
        with pytest.raises(Unavailable):
            driver.close()
        server.start()
        driver.write(records[:10])
        server.pause()
        with pytest.raises(Unavailable, match="timed out"):
            driver.write(records)
        server.resume()
        driver.write(records)
        driver.close()
        assert [step for step, _, _ in points(info, driver, "metric_0")] == list(range(30))
        assert client(info).get_run(driver.state["native_id"]).data.params == {"lr": "0.001", "model/depth": "4"}
    finally:
        server.stop()


@pytest.mark.slow
def test_run_is_read_back_over_http(
    info: RunInfo, server: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories come page by page, files are fetched when asked for, and what isn't there is said in one line."""
    monkeypatch.setattr(reader, "PAGE", 30)
    monkeypatch.setattr(reader, "PAGE_SMALLEST", 30)
    info.path("model.bin").write_bytes(b"weights")
    records: list[Record] = [Config(time=T0, values={"lr": 0.001, "model": {"depth": 4}})]
    for step in range(100):
        values = {"mean@1": float("nan") if step == 3 else step / 3, "loss": 1.0}
        records.append(Metrics(step=step, time=T0 + step / 10, values=values))
    records.append(Text(step=9, time=T0, values={"out": "ä"}))
    records.append(
        ArtifactRecord(step=9, time=T0, name="model", files=[ArtifactFile(path="model.bin", file="model.bin")])
    )
    records.append(Summary(time=T0, values={"best": 0.5}))
    Driver(MlflowTracker, info).deliver(stream(records))
    limits = Limits(integers="float", time_resolution_s=0.0005)
    where = f"{server.url}#{info.project}/{info.id}"
    nothing = f"{server.url}#nothing"
    options: dict[str, Any] = {"limits": limits, "missing": nothing, "attributes": ("name", "group", "tags")}
    run = check_reader(MlflowReader, where, info, records, **options)
    assert not [record for record in MlflowReader().read(run) if isinstance(record, ArtifactRecord)]
    (tmp_path / "files").mkdir()
    check_reader(MlflowReader, where, info, records, files=tmp_path / "files", **options)
    (artifact,) = [r for r in MlflowReader().read(run, files=tmp_path / "files") if isinstance(r, ArtifactRecord)]
    assert (tmp_path / "files" / artifact.files[0].file).read_bytes() == b"weights"
    with pytest.raises(NotFound, match="no experiment 'nothing'"):
        MlflowReader().runs(nothing)


@pytest.mark.slow
def test_ended_run_is_fetched_once(server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded again, a run that has ended costs no history; what is added to it is read, and a running one always is."""
    from mlflow import MlflowClient

    fetched: list[str] = []
    history = reader._history

    def counted(client: Any, run_id: str, key: str, name: str, page: int) -> Any:
        fetched.append(key)
        return history(client, run_id, key, name, page)

    monkeypatch.setattr(reader, "_history", counted)
    own = MlflowClient(tracking_uri=server.url)
    run_id = own.create_run(own.create_experiment("once"), run_name="vendor").info.run_id
    source = f"mlflow:{server.url}#once/vendor"

    def losses() -> list[float]:
        fetched.clear()
        return list(load(source).metrics()["loss"].to_pylist())

    own.log_metric(run_id, "loss", 2.0, 1_700_000_000_000, 0)
    assert (losses(), losses(), fetched) == ([2.0], [2.0], ["loss"])
    own.set_terminated(run_id)
    assert (losses(), fetched) == ([2.0], ["loss"])
    assert (losses(), fetched) == ([2.0], [])
    own.log_metric(run_id, "loss", 1.0, 1_700_000_001_000, 1)
    assert (losses(), fetched) == ([2.0, 1.0], ["loss"])
    assert (losses(), fetched) == ([2.0, 1.0], [])
    own.set_tag(run_id, "mlflow.note.content", "good")
    assert load(source).run.notes == "good"


@pytest.mark.slow
@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_run_is_read_from_a_server_without_logged_models(
    info: RunInfo, server: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client from 3.0 on asks for models wherever it lists files; a server before 3.0 answers 404."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    def no_endpoint(*_: Any, **__: Any) -> Any:
        raise MlflowException("API request to endpoint /api/2.0/mlflow/logged-models/search failed with error code 404")

    monkeypatch.setattr(MlflowClient, "search_logged_models", no_endpoint, raising=False)
    info.path("model.bin").write_bytes(b"weights")
    files = [ArtifactFile(path="model.bin", file="model.bin")]
    Driver(MlflowTracker, info).deliver(stream([ArtifactRecord(step=9, time=T0, name="model", files=files)]))
    (run,) = (run for run in MlflowReader().runs(f"{server.url}#{info.project}") if run.id == info.id)
    (artifact,) = [r for r in MlflowReader().read(run, files=tmp_path) if isinstance(r, ArtifactRecord)]
    assert (tmp_path / artifact.files[0].file).read_bytes() == b"weights"


@pytest.mark.slow
@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_file_is_fetched_from_the_run_s_own_store(
    info: RunInfo, server: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the files is asked for, file by file: not the run, its address and its models again for each."""
    from requests import Session

    names = [f"part{number}.bin" for number in range(20)]
    for name in names:
        info.path(name).write_bytes(name.encode())
    files = [ArtifactFile(path=name, file=name) for name in names]
    Driver(MlflowTracker, info).deliver(stream([ArtifactRecord(step=9, time=T0, name="model", files=files)]))
    (run,) = (run for run in MlflowReader().runs(f"{server.url}#{info.project}") if run.id == info.id)
    asked: list[str] = []
    send = Session.send

    def counted(session: Session, request: Any, **how: Any) -> Any:
        asked.append(request.url)
        return send(session, request, **how)

    monkeypatch.setattr(Session, "send", counted)
    (artifact,) = [r for r in MlflowReader().read(run, files=tmp_path) if isinstance(r, ArtifactRecord)]
    assert [(tmp_path / file.file).read_bytes() for file in artifact.files] == [name.encode() for name in names]
    elsewhere = [url for url in asked if "/mlflow-artifacts/" not in url]
    assert len(elsewhere) < 8, elsewhere
    assert len(asked) < 2 * len(names), asked


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_run_with_a_model_of_its_own_is_read(info: RunInfo, server: servers.Server, tmp_path: Path) -> None:
    """MLflow 3 keeps models beside a run's files, under a name that a folder of the run may have: the run's is read."""
    from mlflow import MlflowClient

    own = MlflowClient(tracking_uri=server.url)
    if not hasattr(own, "create_logged_model"):
        return  # MLflow 2 has none
    info.path("model.bin").write_bytes(b"weights")
    files = [ArtifactFile(path="model.bin", file="model.bin")]
    driver = Driver(MlflowTracker, info)
    driver.deliver(stream([ArtifactRecord(step=9, time=T0, name="model", files=files)]))
    run_id = driver.state["native_id"]
    model = own.create_logged_model(own.get_run(run_id).info.experiment_id, name="plain", source_run_id=run_id)
    (tmp_path / "of_model").write_bytes(b"of the model")
    own.log_model_artifact(model.model_id, str(tmp_path / "of_model"))
    info.path("of_run").write_bytes(b"of the run")
    own.log_artifact(run_id, str(info.path("of_run")), "plain")
    (run,) = (run for run in MlflowReader().runs(f"{server.url}#{info.project}") if run.id == info.id)
    artifacts = {r.name: r for r in MlflowReader().read(run, files=tmp_path) if isinstance(r, ArtifactRecord)}
    found = {file.path: (tmp_path / file.file).read_bytes() for file in artifacts["plain"].files}
    assert found == {"of_run": b"of the run"}
