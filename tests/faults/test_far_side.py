"""Servers that are away, hang, refuse or answer nonsense cost training nothing and the run no record."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import servers
from tests.fakes.fault_proxy import Fault, FaultProxy
from tests.fakes.wandb_server import WandbServer
from tests.faults.driven import Training
from tests.helpers import T0, made_run, wait_for
from tests.stores import read_mlflow, read_trackio, read_wandb_server
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Config, Finish, Metrics, Start, encode
from trackers.relay.delivery import delivery as module
from trackers.relay.delivery import pace
from trackers.relay.delivery.cursor_file import DeliveryState, delivery_report, read_account
from trackers.relay.delivery.delivery import Delivery
from trackers.testing import Stored

ROWS = 40
ALL = ("mlflow", "trackio", "wandb")


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A running MLflow server on SQLite."""
    running = servers.mlflow_server(tmp_path_factory.mktemp("mlflow"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def trackio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[servers.Server, Path]]:
    """A running trackio server, and where its store lies."""
    directory = tmp_path_factory.mktemp("trackio")
    running = servers.trackio_server(directory)
    running.start()
    yield running, directory / "trackio-server"
    running.stop()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "4")


def recorded(directory: Path, **fields: Any) -> RunDirectory:
    """A run of ``ROWS`` steps that has finished and waits in its journal."""
    run = made_run(directory, **fields)
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    writer.write(encode(Start(time=T0)) + encode(Config(time=T0, values={"lr": 0.1})))
    for step in range(ROWS):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
    writer.write(encode(Finish(time=T0 + ROWS, status="finished", exit_code=0)))
    writer.release()
    return run


def is_whole(stored: Stored, values: dict[int, float], times: dict[int, float], within_s: float = 1e-3) -> None:
    """The series holds each step once, in order, with its value and time."""
    points = stored.metrics["loss"]
    assert [point.step for point in points] == sorted(values)
    assert [point.value for point in points] == [values[step] for step in sorted(values)]
    assert all(point.time is None or abs(point.time - times[point.step or 0]) <= within_s for point in points)


class Line:
    """A delivery in this process, whose pauses are none, step by step."""

    def __init__(self, run: RunDirectory, tracker: str) -> None:
        self.run, self.tracker = run, tracker
        self.said: list[str] = []
        self._delivery = Delivery(run, tracker, say=self._say, alone=False)
        self._delivery._limit = 10

    def _say(self, text: str) -> None:
        if text not in self.said:  # as the relay's messages do
            self.said.append(text)

    @property
    def account(self) -> DeliveryState:
        return read_account(self.run, self.tracker)

    def tries(self, count: int) -> None:
        """Do ``count`` steps that must not end the delivery."""
        for _ in range(count):
            assert self._delivery.step() is not None

    def finish(self) -> None:
        """Go on until all is delivered."""
        for _ in range(200):
            if self._delivery.step() is None:
                return
        raise AssertionError(f"the delivery doesn't come to an end: {self.account}")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(module, "REFUSED_RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(pace, "PAUSE_S", 0.0)
    monkeypatch.setattr(pace, "GAP_S", (0.0, 0.0))
    monkeypatch.setattr(pace, "BEGIN_GAP_S", (0.0, 0.0))
    monkeypatch.setattr(pace, "BEGIN_REFUSED_S", 0.0)


ANSWERS = {
    "401": Fault("status", status=401),
    "403": Fault("status", status=403),
    "404": Fault("status", status=404),
    "429": Fault("status", status=429),
    "500": Fault("status", status=500),
    "502": Fault("status", status=502),
    "garbage": Fault("garbage"),
    "drop": Fault("drop"),
    "away": Fault("refuse"),
}
LIKE_OTHERS = {"403", "502"}
"""Answers that are taken as one of the others is."""


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True], ids=["before", "amid"])
@pytest.mark.parametrize(
    "answer", [pytest.param(name, marks=[pytest.mark.soak] if name in LIKE_OTHERS else []) for name in ANSWERS]
)
@pytest.mark.parametrize("tracker", ["mlflow", "trackio"])
def test_answer_costs_one_line_and_nothing_else(
    tracker: str,
    answer: str,
    begun: bool,
    no_pauses: None,
    mlflow: servers.Server,
    trackio: tuple[servers.Server, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a server answers, at first or amid a run: one line says so, one when it is back, and all arrives."""
    project = f"{tracker}-{answer}-{begun}"
    with FaultProxy(mlflow.url if tracker == "mlflow" else trackio[0].url) as proxy:
        options = {
            "MLFLOW_TRACKING_URI": proxy.url,
            "TRACKIO_SERVER_URL": f"{proxy.url}/?write_token={servers.WRITE_TOKEN}",
        }
        run = recorded(tmp_path / "run", id=project, project=project, options=options, trackers=[tracker])
        line = Line(run, tracker)
        if begun:
            line.tries(2)
            assert 0 < line.account.delivered < ROWS
        proxy.fault = ANSWERS[answer]
        line.tries(8)
        entry = delivery_report(run, [tracker])[tracker]
        assert entry["error"]
        assert entry["state"] in ("waiting", "delivering")
        assert len(line.said) == 1, line.said
        assert line.said[0].startswith(f"{tracker}: ")
        assert "training goes on" in line.said[0]
        assert "tried again by itself" in line.said[0]
        proxy.fault = None
        line.finish()
        assert line.said[1:] == [f"{tracker}: delivering again"]
        entry = delivery_report(run, [tracker])[tracker]
        assert (entry["state"], entry["rejected"], entry["error"]) == ("delivered", 0, "")
        info = run.read_info()
        monkeypatch.setenv("TRACKIO_DIR", str(trackio[1]))
        # MLflow 2 reads artifacts by the address that this process used first: the proxy's.
        stored = read_mlflow(info, uri=mlflow.url) if tracker == "mlflow" else read_trackio(info)
    values = {step: step / 7 for step in range(ROWS)}
    times = {step: T0 + step for step in range(ROWS)}
    if tracker == "trackio":  # its server drops a row's time: the row itself carries it
        assert [point.value for point in stored.metrics.pop("_timestamp")] == list(times.values())
        stored.metrics["loss"] = [point._replace(time=None) for point in stored.metrics["loss"]]
    is_whole(stored, values, times)
    assert stored.status in ("finished", "FINISHED")


def logged(run: RunDirectory) -> tuple[dict[int, float], dict[int, float]]:
    """Values and times by step, as the journal has them."""
    found = StreamReader(run.stream(StreamName("rank", 0, 1))).read(100_000)
    metrics = [record for record in found if isinstance(record, Metrics)]
    values = {record.step or 0: float(record.values["loss"]) for record in metrics}
    assert len(values) == len(metrics)
    return values, {record.step or 0: record.time for record in metrics}


def is_everywhere(run: RunDirectory, mlflow: str, trackio: Path, wandb: WandbServer, patch: pytest.MonkeyPatch) -> None:
    """MLflow, trackio and W&B hold every logged step once, in order, with its value, and the run as finished."""
    info = run.read_info()
    values, times = logged(run)
    patch.setenv("TRACKIO_DIR", str(trackio))
    stored = read_trackio(info)
    assert [point.value for point in stored.metrics["_timestamp"]] == list(times.values())
    stored.metrics["loss"] = [point._replace(time=None) for point in stored.metrics["loss"]]
    for found in (stored, read_mlflow(info, uri=mlflow), read_wandb_server(wandb.runs)(info, {})):
        is_whole(found, values, times)
        assert found.status in ("finished", "FINISHED")


def delivered(run: RunDirectory, names: tuple[str, ...] = ALL) -> bool:
    """Whether the trackers have everything that is logged now."""
    return all(not entry["waiting_bytes"] and not entry["error"] for entry in delivery_report(run, names).values())


@pytest.mark.soak
def test_outages_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down before the start, killed amid the run, hung, slow, all three at once: everything arrives by itself."""
    mlflow, server = servers.mlflow_server(tmp_path), servers.trackio_server(tmp_path)
    store = tmp_path / "trackio-server"
    with contextlib.ExitStack() as stack:
        stack.callback(mlflow.stop)
        stack.callback(server.stop)
        _live_through_outages(mlflow, server, store, tmp_path, monkeypatch)


def _live_through_outages(
    mlflow: servers.Server, server: servers.Server, store: Path, directory: Path, patch: pytest.MonkeyPatch
) -> None:
    with FaultProxy(mlflow.url) as mlflow_door, FaultProxy(server.url) as trackio_door, WandbServer() as wandb:
        doors = (mlflow_door, trackio_door, wandb)
        environment = {
            "MLFLOW_TRACKING_URI": mlflow_door.url,
            "TRACKIO_SERVER_URL": f"{trackio_door.url}/?write_token={servers.WRITE_TOKEN}",
            "WANDB_MODE": "online",
            "WANDB_BASE_URL": wandb.url,
            "WANDB_API_KEY": "k" * 40,
        }
        for door in doors:
            door.fault = Fault("refuse")
        with Training(directory, **environment) as training:
            training.do(f'run = trackers.init("{",".join(ALL)}", project="outages", id="outages")')
            run = RunDirectory(directory / "runs/outages/outages")
            training.do("rows(50)")
            wait_for(lambda: all(entry["error"] for entry in delivery_report(run, ALL).values()))
            server.start()
            mlflow.start()
            for door in doors:
                door.fault = None
            wait_for(lambda: delivered(run))
            mlflow.stop()
            server.stop()
            wandb.fault = Fault("refuse")
            training.do("rows(50)")
            wait_for(
                lambda: delivery_report(run, ALL)["mlflow"]["error"] and delivery_report(run, ALL)["trackio"]["error"]
            )
            wandb.fault = None
            server.start()
            mlflow.start()
            wait_for(lambda: delivered(run))
            mlflow.pause()
            server.pause()
            wandb.fault = Fault("hang")
            training.do("rows(50)")
            wait_for(lambda: read_account(run, "mlflow").failures)
            mlflow.resume()
            server.resume()
            for door in doors:
                door.fault = Fault("delay", seconds=2, count=3)
            training.do("rows(50)")
            wait_for(lambda: delivered(run))
            for door in doors:
                door.fault = None
            training.do("rows(50); run.finish(timeout=120)")
            training.end()
            assert training.said("Traceback") == 0
            for tracker in ALL:
                lines = [line for line in training.lines() if line.startswith(f"trackers: {tracker}: ")]
                lines = [line for line in lines if " " in line.removeprefix(f"trackers: {tracker}: ")]  # its page
                # Each outage is said, though its words were used before, and so is its end.
                assert all("training goes on" in line for line in lines[::2]), "\n".join(lines)
                assert all(line.endswith("delivering again") for line in lines[1::2]), lines
                assert len(lines) in ((2, 4, 6) if tracker == "wandb" else (4, 6)), lines
            assert {entry["state"] for entry in delivery_report(run, ALL).values()} == {"delivered"}
        is_everywhere(run, mlflow.url, store, wandb, patch)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.soak
def test_login_that_is_mended_amid_the_run_is_read_afresh(
    mlflow: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong key at the start; the right one is written to the files that clients read: all arrives by itself."""
    home = tmp_path / "home"
    (home / ".mlflow").mkdir(parents=True)
    login = "[mlflow]\nmlflow_tracking_username = ada\nmlflow_tracking_password = {}\n"
    (home / ".mlflow/credentials").write_text(login.format("wrong"))
    netrc = home / ".netrc"
    with WandbServer() as wandb, FaultProxy(mlflow.url, basic("ada", "right")) as mlflow_door:
        with FaultProxy(wandb.url, basic("api", "r" * 40)) as wandb_door:
            key = f"machine {wandb_door.url.removeprefix('http://')}\n  login user\n  password {{}}\n"
            netrc.write_text(key.format("w" * 40))
            netrc.chmod(0o600)
            environment = {
                "HOME": str(home),
                "MLFLOW_TRACKING_URI": mlflow_door.url,
                "WANDB_MODE": "online",
                "WANDB_BASE_URL": wandb_door.url,
            }
            names = ("mlflow", "wandb")
            with Training(tmp_path, **environment) as training:
                training.do('run = trackers.init("mlflow,wandb", project="logins", id="logins")')
                run = RunDirectory(tmp_path / "runs/logins/logins")
                training.do("rows(50)")
                wait_for(lambda: all(entry["error"] for entry in delivery_report(run, names).values()))
                (home / ".mlflow/credentials").write_text(login.format("right"))
                netrc.write_text(key.format("r" * 40))
                wait_for(lambda: delivered(run, names))
                training.do("rows(50); run.finish(timeout=60)")
                training.end()
                for tracker in names:
                    lines = [line for line in training.lines() if line.startswith(f"trackers: {tracker}: ")]
                    lines = [
                        line for line in lines if " " in line.removeprefix(f"trackers: {tracker}: ")
                    ]  # not its page
                    assert len(lines) == 2, lines
                    assert "refused" in lines[0]
                    assert lines[1].endswith("delivering again")
        values, times = logged(run)
        info = run.read_info()
        is_whole(read_mlflow(info, uri=mlflow.url), values, times)
        is_whole(read_wandb_server(wandb.runs)(info, {}), values, times)


@pytest.mark.parametrize("tracker", ["mlflow", "trackio"])
def test_name_that_no_server_knows_is_said(tracker: str, no_pauses: None, tmp_path: Path) -> None:
    """A host name that can't be resolved: one line that names it, and the records wait."""
    address = "http://nowhere.invalid:5000"
    options = {"MLFLOW_TRACKING_URI": address, "TRACKIO_SERVER_URL": f"{address}/"}
    run = recorded(tmp_path / "run", options=options, trackers=[tracker])
    line = Line(run, tracker)
    line.tries(5)
    assert len(line.said) == 1
    assert "nowhere.invalid:5000" in line.said[0]
    entry = delivery_report(run, [tracker])[tracker]
    assert (entry["state"], entry["delivered"], entry["rejected"]) == ("waiting", 0, 0)


@pytest.mark.slow
def test_server_on_a_database_fails_in_every_way(tmp_path: Path, no_pauses: None) -> None:
    """MLflow on PostgreSQL dies, refuses, does what it is asked and doesn't say so, hangs, is slow: each step once."""
    if servers.postgresql_programs() is None:
        pytest.skip("needs PostgreSQL: no server programs in /usr/lib/postgresql or on PATH")
    with servers.postgresql() as store:
        server = servers.mlflow_server(tmp_path, store)
        try:
            server.start()
            with FaultProxy(server.url) as proxy:
                options = {"MLFLOW_TRACKING_URI": proxy.url}
                run = recorded(tmp_path / "run", id="pg", project="pg", options=options, trackers=["mlflow"])
                line = Line(run, "mlflow")
                line.tries(2)
                server.stop()
                line.tries(5)
                assert line.account.error
                server.start()
                for name, fault in {**ANSWERS, "hung": Fault("hang")}.items():
                    proxy.fault = fault
                    line.tries(1 if name == "hung" else 4)
                    assert line.account.error, name
                proxy.fault = Fault("delay", seconds=2, count=1)
                line.finish()
                stored = read_mlflow(run.read_info(), uri=server.url)
        finally:
            server.stop()
    is_whole(stored, {step: step / 7 for step in range(ROWS)}, {step: T0 + step for step in range(ROWS)})
    assert stored.status == "FINISHED"
