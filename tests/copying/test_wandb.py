"""Copies to and from W&B, through its real client and the stand-in for its servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests.backends.wandb.support import server
from tests.copying.test_transfer import ROWS, trainer_state
from tests.fakes.wandb_server import Fault, WandbServer
from tests.helpers import T0
from tests.readers.test_wandb_reader import held
from trackers.copying import CopyReport, copy
from trackers.formats.vendor_system_names import wandb as wandb_names
from trackers.readers.run_data import load
from trackers.readers.wandb.rows import Decoder
from trackers.records import Metrics, encode

__all__ = ["server"]

OFFLINE: dict[str, Any] = {"mode": "offline", "options": {"TRACKER_RELAY": False}}


def logged(name: str = "baseline", steps: int = 50, media: bool = True) -> trackers.Run:
    """A finished run with two cadences, NaN, a text, media and a file."""
    run = trackers.init(
        "json", project="digits", name=name, config={"lr": 0.1, "model": {"depth": 4}}, tags=["first"],
        group="ablation", notes="why", **OFFLINE,
    )  # fmt: skip
    for step in range(steps):
        run.log({"loss": float("nan") if step == 3 else 1 / (step + 1), "mean@1": step}, step=step)
        if step % 7 == 0:
            run.log({"val_loss": float("inf")}, step=step)
    if media:
        run.log({"picture": trackers.Image(np.zeros((4, 4), np.uint8)), "text": "größer"}, step=steps)
        run.log({"weights": trackers.Histogram([1, 2, 2, 3])}, step=steps)
        Path("weights.bin").write_bytes(bytes(range(256)))
        run.log_artifact("weights.bin", name="weights", type="model")
    run.log({"final/best": 0.5})
    run.finish()
    return run


def one(source: str, destination: str) -> CopyReport:
    """The report of a copy of one run."""
    (report,) = copy(source, destination)
    return report


@pytest.mark.slow
def test_copy_to_wandb_and_back(server: WandbServer, tmp_path: Path) -> None:
    """A run arrives in W&B with everything it has, once however often it is copied, and comes back the same."""
    run = logged()
    first = one(run.id, "wandb:team/copies")
    assert first.agrees, str(first)
    second = one(run.id, "wandb:team/copies")
    assert second.agrees, str(second)
    (there,) = server.runs.values()
    assert len([row for row in there.history if "loss" in row]) == 50
    assert (there.display_name, there.group, list(there.tags), there.state) == (
        "baseline",
        "ablation",
        ["first"],
        "finished",
    )
    back = one(first.destination, "back")
    assert back.agrees, str(back)
    ours, theirs = load(run.id), load(back.destination)
    assert (
        theirs.metrics(["loss", "mean@1", "val_loss"])
        .to_pandas()
        .drop(columns="time")
        .equals(ours.metrics(["loss", "mean@1", "val_loss"]).to_pandas().drop(columns="time"))
    )
    assert theirs.config["model"] == {"depth": 4}
    assert (theirs.run.group, theirs.run.notes, theirs.run.tags) == ("ablation", "why", ["first"])
    assert [media.type for media in theirs.media()] == ["image", "histogram"]


def project(server: WandbServer, count: int) -> None:
    """A project in W&B as a team has it: groups, tags, failures, NaN, two runs of one name, samples of the machine."""
    for number in range(count):
        run = held(
            server, 20 + number % 7, events=3, id=f"run{number:05d}", display_name=f"base-{number % (count - 1)}",
            project="many", tags=[f"t{number % 3}"], group=f"g{number % 4}", notes="why" if number % 5 else None,
            exit_code=int(number % 6 == 5), created=T0 + number,
        )  # fmt: skip
        run.config = {"lr": {"value": 0.1 / (number + 1)}, "model": {"value": {"depth": number}}}
        run.rows[3]["loss"] = "NaN"
        for row in run.event_rows:
            row.update({"system.gpu.0.powerWatts": 300.1, "system.cpu": 12.5, "system.disk./.usageGB": 22.1 / 3})
        run.summary_sent = {"loss": run.rows[-1]["loss"], "best": number / 7}


def copy_project(server: WandbServer, uri: str, count: int) -> None:
    """A project goes from W&B to MLflow, though the server is busy in between, and lies there whole."""
    from mlflow import MlflowClient

    project(server, count)
    source, destination = "wandb:someone/many", f"mlflow:{uri}#many"
    for number, report in enumerate(copy(source, destination)):
        assert report.agrees, str(report)
        assert report.name == f"base-{number % (count - 1)}"  # the oldest first
        if number in (1, 2):
            server.fault = Fault("status", status=(429, 502)[number - 1], match="RunFullHistory", count=1)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("many").experiment_id

    def runs() -> list[Any]:
        there = client.search_runs([experiment], max_results=1000, order_by=["start_time ASC"])
        return [run for run in there if "trackers.group_key" not in run.data.tags]

    found = runs()
    assert len(found) == count
    for number, run in enumerate(found):
        assert run.info.start_time == int(T0 + number) * 1000
        assert run.info.status == ("FAILED" if number % 6 == 5 else "FINISHED")
        assert (run.data.params["model/depth"], run.data.tags["group"]) == (str(number), f"g{number % 4}")
        assert run.data.metrics["final/best"] == number / 7
        if number % 20 == 0:
            points = client.get_metric_history(run.info.run_id, "loss")
            assert [p.step for p in points] == list(range(20 + number % 7))
            assert [p.value for p in points if p.step != 3] == [s + 0.5 for s in range(20 + number % 7) if s != 3]
            power = client.get_metric_history(run.info.run_id, "system/gpu_0_power_usage_watts")
            assert [p.value for p in power] == [300.1] * 3
    server.requests.clear()
    assert all(report.agrees for report in copy(source, destination))
    assert {request.split()[-1] for request in server.requests} <= {"Viewer", "viewer", "GetDefaultEntity", "Runs"}
    assert len(runs()) == count


@pytest.mark.slow
def test_project_of_wandb_to_mlflow(server: WandbServer, tmp_path: Path) -> None:
    """A whole project, each run with its own values, once; copied again, W&B is asked for the list alone.

    ``make copy-project`` does it with 200 runs.
    """
    copy_project(server, f"sqlite:///{tmp_path}/ml.db", 12)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_offline_copy_lies_in_wandb_files(elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With W&B offline the copy is a .wandb file with its media, and staged artifacts, which it is compared with; in
    WANDB_DIR beside those of other runs, too."""
    monkeypatch.delenv("WANDB_DIR", raising=False)
    if elsewhere:
        monkeypatch.setenv("WANDB_DIR", str(tmp_path / "files (of W&B)"))
        assert one(logged().id, "wandb:team/others").agrees
    report = one(logged().id, "wandb:team/copies")
    assert report.agrees, str(report)
    assert report.stored.values == 50 * 2 + 8
    assert (report.stored.files, report.stored.media) == ({"weights/weights.bin": 1}, {"image": 1, "histogram": 1})


def test_results_of_a_trainer_are_found_in_wandb_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is a curve's last value, or has the name of W&B's own step, isn't taken for lost."""
    monkeypatch.delenv("WANDB_DIR", raising=False)
    source = trainer_state(ROWS)
    report = one(source, "wandb:team/copies")
    assert report.agrees, str(report)
    whole = Decoder.results
    monkeypatch.setattr(Decoder, "results", lambda self, summary: whole(self, {**summary, "epoch": 0.5}))
    assert one(source, "wandb:team/copies").differences == ["result 'epoch': 1.0, 0.5 there"]
    monkeypatch.setattr(Decoder, "results", lambda self, summary: whole(self, {}))
    lost = one(source, "wandb:team/copies").differences
    assert lost == ["result 'epoch' isn't there", "result 'global_step' isn't there"]


def test_samples_of_wandbs_own_agent_are_copied_to_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were read by its names, in its units: what a process took of memory came there 5 % smaller, and the copy was
    said to differ."""
    monkeypatch.delenv("WANDB_DIR", raising=False)
    agent = {"disk./.usagePercent": 40.8, "disk./.usageGB": 41.4, "proc.memory.rssMB": 65.156, "cpu": 3.0}
    (samples,) = Decoder(ours=False).event({"_timestamp": 1e9, **{f"system.{name}": n for name, n in agent.items()}})
    assert isinstance(samples, Metrics)
    assert samples.values.keys() == {f"system.{name.replace('/.', '').replace('..', '.')}" for name in agent}
    assert wandb_names(samples.values) == pytest.approx(agent, rel=1e-15)
    run = logged(media=False)
    with next(Path(run.dir, "streams").glob("rank-0*.jsonl")).open("ab") as file:
        file.write(encode(samples))
    assert one(run.id, "wandb:team/copies").agrees


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Path:
    """What W&B's own client leaves of an offline run with artifacts, one of them not copied when it was logged."""
    import wandb

    monkeypatch.delenv("WANDB_DIR", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = wandb.init(
        project="p", name="mine", settings=wandb.Settings(silent=True, console="off", x_disable_stats=True)
    )
    run.log({"loss": 1.0, "table": wandb.Table(columns=["a"], data=[[1]])})
    Path("weights.bin").write_bytes(bytes(range(256)))
    Path("parts").mkdir()
    Path("parts/a b.txt").write_text("a")
    model = wandb.Artifact("model", "model", metadata={"k": 1}, description="it")
    model.add_file("weights.bin")
    model.add_dir("parts", "in/parts")
    model.add_reference("http://127.0.0.1:9/x.bin", checksum=False)
    run.log_artifact(model, aliases=["best"])
    data = wandb.Artifact("data", "dataset")
    data.add_file("weights.bin", policy="immutable")
    run.log_artifact(data)
    run.log_artifact(data)
    run.finish()
    wandb.teardown()
    return Path(run.dir).parent


def test_offline_artifacts_come_along(offline: Path, tmp_path: Path) -> None:
    """Files of W&B's staging directory, or of where they were, go into a journal with aliases, metadata, references."""
    (report,) = copy(str(offline), "out")
    assert report.agrees, str(report)
    data = load(report.destination)
    model, dataset = data.artifacts()
    assert (model.name, model.type, model.aliases, model.description) == ("model", "model", ["best"], "it")
    assert (model.metadata, dataset.name) == ({"k": 1}, "data")
    assert {file.path: file.uri for file in model.files} == {
        "in/parts/a b.txt": "", "weights.bin": "", "x.bin": "http://127.0.0.1:9/x.bin",
    }  # fmt: skip
    for file in (*model.files[:2], *dataset.files):
        wanted = b"a" if "parts" in file.path else bytes(range(256))
        assert Path(data.run.directory, file.file).read_bytes() == wanted
    assert [media.type for media in data.media()] == ["table"]
    found = load(str(offline)).artifacts(tmp_path / "got")
    assert [artifact.name for artifact in found] == ["model", "data"]


@pytest.mark.slow
def test_offline_artifacts_that_are_elsewhere_are_named(offline: Path) -> None:
    """What has gone from this machine, or isn't what was logged, is named in the report, and nothing else is taken."""
    Path("weights.bin").write_bytes(b"secret")
    (report,) = copy(str(offline), "out")
    assert report.agrees, str(report)
    assert report.stored.files == {"model/in/parts/a b.txt": 1, "model/weights.bin": 1, "model/x.bin": 1}
    (line,) = [line for line in str(report).splitlines() if "artifacts: 1 file" in line]
    assert "(data/weights.bin)" in line
    assert "wandb sync" in line
    inside = [path for path in Path(report.destination).rglob("*") if path.is_file()]
    assert all(path.read_bytes() != b"secret" for path in inside)
