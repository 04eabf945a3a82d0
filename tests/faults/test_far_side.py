"""Servers that are away, hang, refuse or answer nonsense cost training nothing and the run no record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.fault_proxy import Fault, FaultProxy
from tests.stores import read_mlflow, read_trackio
from tests.support import T0, run_info
from trackers.journal import StreamWriter
from trackers.records import Config, Finish, Metrics, Start, encode
from trackers.relay import delivery as module
from trackers.relay.account import Account, read_account
from trackers.relay.delivery import Delivery
from trackers.relay.report import report
from trackers.rundir import RunDirectory, StreamName
from trackers.testing import Stored

ROWS = 40
WAIT_S = 100.0


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
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")


def recorded(directory: Path, **fields: Any) -> RunDirectory:
    """A run of ``ROWS`` steps that has finished and waits in its journal."""
    run = RunDirectory(directory)
    run.make()
    run.write_info(run_info(directory, **fields))
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
    def account(self) -> Account:
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


@pytest.mark.parametrize("begun", [False, True], ids=["before", "amid"])
@pytest.mark.parametrize("answer", ANSWERS)
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
        entry = report(run, [tracker])[tracker]
        assert entry["error"]
        assert entry["state"] in ("waiting", "delivering")
        assert len(line.said) == 1, line.said
        assert line.said[0].startswith(f"{tracker}: ")
        assert "training goes on" in line.said[0]
        assert "tried again by itself" in line.said[0]
        proxy.fault = None
        line.finish()
        assert line.said[1:] == [f"{tracker}: delivering again"]
        entry = report(run, [tracker])[tracker]
        assert (entry["state"], entry["rejected"], entry["error"]) == ("delivered", 0, "")
    info = run.read_info()
    monkeypatch.setenv("TRACKIO_DIR", str(trackio[1]))
    stored = read_mlflow(info, uri=mlflow.url) if tracker == "mlflow" else read_trackio(info)
    values = {step: step / 7 for step in range(ROWS)}
    times = {step: T0 + step for step in range(ROWS)}
    if tracker == "trackio":  # its server drops a row's time: the row itself carries it
        assert [point.value for point in stored.metrics.pop("_timestamp")] == list(times.values())
        stored.metrics["loss"] = [point._replace(time=None) for point in stored.metrics["loss"]]
    is_whole(stored, values, times)
    assert stored.status in ("finished", "FINISHED")
