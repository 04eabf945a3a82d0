"""W&B's server fails in every way amid a run, and MLflow's asks for patience: all arrives, and each is said once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.wandb.support import quick, server
from tests.fakes import servers
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.wandb_server import Fault, WandbServer
from tests.faults.test_far_side import ANSWERS, Line, recorded
from tests.helpers import T0
from tests.stores import read_mlflow, read_trackio, read_wandb_server
from trackers.backends.wandb import tracker as backend
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Finish, Metrics, encode
from trackers.relay.delivery import delivery as module

__all__ = ["quick", "server"]

ROWS = 20
"""Records between two failures."""
FAULTS = {**{name: fault for name, fault in ANSWERS.items() if name != "429"}, "hung": Fault("hang")}


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(module, "REFUSED_RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(backend, "ASK_S", 0.0)


def step_until(line: Line, what: Callable[[], object], limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, line.account
        pause = line._delivery.step()
        time.sleep(min(pause or 0.0, 0.1))


@pytest.mark.soak
@pytest.mark.usefixtures("quick", "no_pauses")
def test_wandb_answers_everything_amid_one_run(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """401, 403, 404, 500, 502, nonsense, cut connections, silence, absence, 429: each is said, and all arrives."""
    run = RunDirectory(recorded(tmp_path / "run", trackers=["wandb"]).path)
    rank = run.stream(StreamName("rank", 0, 1))
    lines = rank.read_bytes().splitlines(keepends=True)
    rank.write_bytes(b"".join(lines[:-1]))  # it goes on
    writer = StreamWriter(rank)
    line = Line(run, "wandb")
    step = len(lines) - 3
    step_until(line, lambda: len(server.runs and next(iter(server.runs.values())).history) == step)
    for name, fault in FAULTS.items():
        line.said.clear()
        server.fault = fault
        for _ in range(ROWS):
            writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
            step += 1
        step_until(line, lambda: line.account.error)
        server.fault = None
        step_until(line, lambda: not line.account.error and line.said[-1].endswith("delivering again"))
        complaints = [text for text in line.said if "training goes on" in text]
        assert len(complaints) <= 2, (name, line.said)  # a second one where it asks for an action, or no longer does
        assert complaints, name
    line.said.clear()
    # The client has its own patience for 429, as long as the server asks for it.
    server.fault = Fault("status", match="file_stream", status=429, retry_after_s=1, count=2)
    writer.write(encode(Metrics(step=step, time=T0 + step, values={"loss": step / 7})))
    step += 1
    step_until(line, lambda: server.fault is None and not line.account.error)
    writer.write(encode(Finish(time=T0 + step, status="finished", exit_code=0)))
    writer.release()
    step_until(line, lambda: line.account.closed)
    stored = read_wandb_server(server.runs)(run.read_info(), {})
    points = stored.metrics["loss"]
    assert [(point.step, point.value) for point in points] == [(s, s / 7) for s in range(step)]
    assert [point.time for point in points] == [T0 + s for s in range(step)]
    assert stored.status == "finished"


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "no_pauses")
def test_wandb_whose_name_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that can't be resolved is an outage like another: one line, and the records wait."""
    for name, value in {
        "WANDB_BASE_URL": "http://nowhere.invalid", "WANDB_API_KEY": "k" * 40, "WANDB_MODE": "online",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    line = Line(recorded(tmp_path / "run", trackers=["wandb"]), "wandb")
    step_until(line, lambda: line.account.failures >= 4)
    assert len(line.said) == 1
    assert "training goes on" in line.said[0]
    assert (line.account.delivered, line.account.stopped) == (0, False)


class Timed(FaultProxy):
    """Remembers when each request came."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.times: list[tuple[float, bool]] = []

    def due(self, what: str) -> Fault | None:
        fault = super().due(what)
        self.times.append((time.monotonic(), fault is not None))
        return fault


@pytest.mark.parametrize("tracker", ["mlflow", "trackio"])
def test_retry_after_of_a_server_is_kept(tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """429 with Retry-After: 3: nothing is asked for three seconds, and then everything arrives. Other runs' deliveries
    to MLflow's server hear of it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    start = servers.mlflow_server if tracker == "mlflow" else servers.trackio_server
    running = start(tmp_path)
    running.start()
    try:
        with Timed(running.url) as proxy:
            options = {
                "MLFLOW_TRACKING_URI": proxy.url,
                "TRACKIO_SERVER_URL": f"{proxy.url}/?write_token={servers.WRITE_TOKEN}",
            }
            run = recorded(tmp_path / "run", id="later", project="later", options=options, trackers=[tracker])
            line = Line(run, tracker)
            line.tries(2)
            proxy.fault = Fault("status", status=429, retry_after_s=3, count=1)
            step_until(line, lambda: line.account.closed)
            refused = next(place for place, (_, bad) in enumerate(proxy.times) if bad)
            assert proxy.times[refused + 1][0] - proxy.times[refused][0] >= 3
            monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio-server"))
            info = run.read_info()
            stored = read_mlflow(info, uri=running.url) if tracker == "mlflow" else read_trackio(info)
    finally:
        running.stop()
    assert [point.step for point in stored.metrics["loss"]] == list(range(len(stored.metrics["loss"])))
    assert len(stored.metrics["loss"]) == 40
    assert stored.status in ("finished", "FINISHED")
    assert tracker != "mlflow" or list(tmp_path.glob("trackers/pace-*"))
