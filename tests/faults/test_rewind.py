"""Back to a checkpoint: each tracker, read by its own client, shows the new attempt above the step, where it can."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.wandb.support import online_at
from tests.fakes.wandb_server import Fault, WandbServer
from tests.faults.attempts import FIVE, Training, begin, delivered, points, read
from tests.helpers import T0, Driver, run_info, stream
from tests.stores import event_directory, read_wandb_file
from trackers import errors
from trackers.analysis.run_list import glance, overview
from trackers.backends.wandb.tracker import WandbTracker
from trackers.journal.run_directory import RunDirectory
from trackers.records import Metrics, Record, Start
from trackers.tracker import RunInfo

OLD, STEP, NEW = 100, 59, 80
"""Logged before; the checkpoint's step; how far the new attempt came: less far than the old one."""
ALL = f"{FIVE},csv"
EXPECTED = [(s, float(s)) for s in range(STEP + 1)] + [(s, s + 0.5) for s in range(STEP + 1, NEW)]
SUPERSEDED = [(s, float(s)) for s in range(STEP + 1, OLD)]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def rewound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunInfo, dict[str, Any], str]]:
    """100 steps with all trackers; then a process that goes on from step 59, and ends at 79."""
    home = tmp_path_factory.mktemp("rewound")
    with online_at(home) as server:
        Training(0, OLD, trackers=ALL, id="again").finish()
        said = Training(STEP + 1, NEW, 0.5, trackers=ALL, id="again", resume="must", step=STEP).finish()
        run = RunDirectory(home / "runs/digits/again")
        delivered(run, *ALL.split(","))
        yield run.read_info(), dict(server.runs), said


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["wandb", "trackio", "tensorboard", "json", "csv"])
def test_tracker_shows_the_new_attempt_alone(
    tracker: str, rewound: tuple[RunInfo, dict[str, Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the step the old attempt, above it the new one, and nothing of what was superseded."""
    info, runs, _ = rewound
    monkeypatch.setenv("TRACKIO_DIR", str(Path(info.cwd, "trackio")))
    stored = read(tracker, info, runs)
    assert points(stored) == EXPECTED
    assert str(stored.status) == "finished"


def test_results_are_those_of_what_counts(rewound: tuple[RunInfo, dict[str, Any], str]) -> None:
    """The highest value was superseded: the maximum in our readers and in W&B's own summary is the new attempt's."""
    info, runs, _ = rewound
    assert overview(RunDirectory(info.directory)).results == {"final/loss": NEW - 0.5}
    assert runs["again"].summary["loss"] == {"max": NEW - 0.5}
    assert runs["again"].summary["final/loss"] == NEW - 0.5


def test_mlflow_keeps_both_and_says_which_count(rewound: tuple[RunInfo, dict[str, Any], str]) -> None:
    """MLflow forgets nothing: by the run's tag, a reader leaves out exactly what was superseded. The user is told."""
    from mlflow import MlflowClient

    info, runs, said = rewound
    assert "MLflow can't forget points" in said
    stored = read("mlflow", info, runs)
    assert sorted(points(stored)) == sorted(EXPECTED + SUPERSEDED)
    client = MlflowClient(tracking_uri=f"sqlite:///{info.cwd}/mlflow.db")
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    rewind = json.loads(run.data.tags["trackers.rewind.2"])
    history = client.get_metric_history(run.info.run_id, "loss")
    kept = [m for m in history if m.step <= rewind["from_step"] or m.timestamp >= rewind["timestamp"]]
    assert sorted((metric.step, metric.value) for metric in kept) == EXPECTED


@pytest.mark.slow
def test_tensorboards_rust_loader_shows_the_new_attempt_alone(
    rewound: tuple[RunInfo, dict[str, Any], str], tmp_path: Path
) -> None:
    """The data server that TensorBoard starts by default forgets what was superseded, as its Python loader does."""
    info, _, _ = rewound
    assert _rust_scalars(event_directory(info), "loss", tmp_path / "port") == EXPECTED


def test_our_own_readers_show_the_new_attempt_alone(rewound: tuple[RunInfo, dict[str, Any], str]) -> None:
    """``trackers ls`` and ``show`` give the new attempt's last step and value."""
    info, _, _ = rewound
    run = RunDirectory(info.directory)
    for view in (overview(run), glance(run)):
        assert view.step == NEW - 1
        assert view.last["loss"] == NEW - 0.5
    assert info.attempts[1]["from_step"] == STEP


def _rust_scalars(directory: Path, tag: str, port_file: Path) -> list[tuple[int, float]]:
    import grpc
    import tensorboard_data_server
    from tensorboard.data.proto import data_provider_pb2 as protocol
    from tensorboard.data.proto import data_provider_pb2_grpc

    arguments = ["--logdir", str(directory), "--host", "127.0.0.1", "--port", "0", "--port-file", str(port_file)]
    arguments += ["--die-after-stdin", "--reload", "once", "-v", "--samples-per-plugin", "scalars=all"]
    server = subprocess.Popen(
        [tensorboard_data_server.server_binary(), *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if b"Finished load cycle" in line:
                break
        with grpc.insecure_channel(f"127.0.0.1:{port_file.read_text().strip()}") as channel:
            request = protocol.ReadScalarsRequest(
                plugin_filter=protocol.PluginFilter(plugin_name="scalars"),
                downsample=protocol.Downsample(num_points=1000),
            )
            stub = data_provider_pb2_grpc.TensorBoardDataProviderStub(channel)
            (run,) = stub.ReadScalars(request).runs
            (data,) = [entry.data for entry in run.tags if entry.tag_name == tag]
            return list(zip(data.step, data.value, strict=True))
    finally:
        server.communicate()


def test_wandb_server_that_cannot_rewind_keeps_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, the new rows follow the old ones: both at their training step, nothing lost, and the user is told."""
    with WandbServer() as server:
        for name, value in {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "a" * 40}.items():
            monkeypatch.setenv(name, value)
        server.fault = Fault("status", match="RewindRun", status=400)
        Training(0, OLD, trackers="wandb", id="again").finish()
        said = Training(STEP + 1, NEW, 0.5, trackers="wandb", id="again", resume="must", step=STEP).finish()
        delivered(RunDirectory("runs/digits/again"), "wandb")
        assert "this server doesn't rewind" in said
        assert "not delivered" not in said
        stored = read("wandb", RunDirectory("runs/digits/again").read_info(), server.runs)
        assert points(stored) == [(s, float(s)) for s in range(OLD)] + EXPECTED[STEP + 1 :]
        assert stored.status == "finished"
        (run,) = server.runs.values()
        assert [row["_step"] for row in run.history] == list(range(OLD + NEW - STEP - 1))


def test_wandb_offline_keeps_both(tmp_path: Path) -> None:
    """A file that ``wandb sync`` will send can't be rewound: both attempts are in it, at their training steps."""
    driver = Driver(WandbTracker, run_info(tmp_path / "run", id="again"))
    old: list[Record] = [Metrics(step=s, time=T0 + s, values={"loss": float(s)}) for s in range(10)]
    new: list[Record] = [Metrics(step=s, time=T0 + 20 + s, values={"loss": s + 0.5}) for s in range(6, 8)]
    driver.deliver(stream([Start(time=T0), *old, Start(time=T0 + 20, attempt=2, from_step=5), *new]))
    stored = read_wandb_file(driver.info)
    assert points(stored) == [*((s, float(s)) for s in range(10)), (6, 6.5), (7, 7.5)]


def test_steps_go_on_from_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step is one above, last values and minima are those that count, and a later resume follows on."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    first = begin(id="again")
    for step in range(10):
        first.log({"loss": 10.0 - step}, step=step)
    first.finish()
    second = begin(id="again", resume="must", step=4)
    assert second.summary["loss"] == 6.0
    second.define_metric("loss", summary="min")
    second.finish()
    assert overview(RunDirectory(second.dir)).results == {"final/loss": 6.0}
    third = begin(id="again", resume="must")
    third.log({"loss": 5.5})
    assert third.step == 5
    third.finish()
    view = overview(RunDirectory(third.dir))
    assert (view.step, view.last["loss"]) == (5, 5.5)


@pytest.mark.parametrize("step", [-1, True, 1.5, "9"])
def test_step_that_is_none_is_refused(step: Any) -> None:
    """A step is a whole number of finished steps."""
    with pytest.raises(errors.UsageError, match="finished optimizer steps"):
        begin(id="again", resume="allow", step=step)


def test_step_needs_a_run_to_go_back_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without resume a step is an error; with "allow" and no run yet, a new run begins behind that step."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    with pytest.raises(errors.UsageError, match="resume='must'"):
        begin(step=900)
    run = begin(id="again", resume="allow", step=900)
    run.log({"loss": 1.0})
    assert (run.step, run.resumed) == (901, False)
    run.finish()
