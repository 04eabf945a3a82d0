"""``TrackersLogger`` in Lightning's own trainer and Fabric, under both of its names, read back from the stores."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import trackers
from tests.frameworks.support import READ, info_of, journal
from tests.helpers import Lazy
from trackers.errors import UsageError

own = Lazy("trackers.frameworks.lightning")
PL = Lazy("lightning.pytorch")
OTHER_PL = Lazy("pytorch_lightning")


def model(pl: Any = PL, fail_at: int | None = None) -> Any:
    """A linear model that logs its loss, and at the end of an epoch a validation loss that isn't finite."""

    class Line(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self, rate: float = 0.1, depth: int = 1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if self.global_step == fail_at:
                raise ValueError("loss is NaN")
            loss = (self.layer(batch[0]) ** 2).mean()
            self.log("fit_loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", (self.layer(batch[0]) ** 2).mean())
            self.log("val_limit", torch.tensor(float("inf")))

        def test_step(self, batch: Any, index: int) -> None:
            self.log("test_loss", (self.layer(batch[0]) ** 2).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Line()


def data() -> Any:
    return DataLoader(TensorDataset(torch.arange(16.0).reshape(8, 2) / 16), batch_size=2)


def trainer(logger: Any, pl: Any = PL, **options: Any) -> Any:
    given = {
        "max_epochs": 2, "log_every_n_steps": 1, "accelerator": "cpu", "devices": 1, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False, **options,
    }  # fmt: skip
    return pl.Trainer(logger=logger, **given)


@pytest.fixture(scope="module", autouse=True)
def _both() -> None:
    """The logger is of those that are loaded when it is."""
    assert PL.Trainer is not OTHER_PL.Trainer


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setenv("TRACKER_MODE", "offline")


def steps(records: list[dict[str, Any]], name: str) -> list[int]:
    return [record["step"] for record in records if record["kind"] == "metrics" and name in record["values"]]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("pl", "names"),
    [(PL, "json,tensorboard,mlflow,trackio,wandb"), (OTHER_PL, "json")],
    ids=["lightning", "pytorch_lightning"],
)
def test_two_epochs_reach_every_store(pl: Any, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit and test are one run: each store has Lightning's own steps and values, hyperparameters and the end."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
    logger = own.TrackersLogger(names, project="p", name="n", tags=["a"])
    seen: dict[str, list[tuple[int, float]]] = {}

    class Witness(own.TrackersLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            for name, value in metrics.items():
                seen.setdefault(name, []).append((step or 0, float(value)))
            super().log_metrics(metrics, step)

    logger.__class__ = Witness
    one = trainer(logger, pl)
    line = model(pl)
    one.fit(line, data(), data())
    one.test(line, data(), verbose=False)
    run = logger.experiment
    assert logger.version == run.id
    run.finish(timeout=120)
    assert {"fit_loss", "val_loss", "val_limit", "test_loss", "epoch"} == set(seen)
    assert [step for step, _ in seen["fit_loss"]] == list(range(8))
    info = info_of(run)
    for tracker in names.split(","):
        stored = READ[tracker](info)
        for name, points in seen.items():
            if (tracker, name) == ("mlflow", "val_limit"):  # MLflow holds the largest float for infinity
                continue
            found = [(point.step, point.value) for point in stored.metrics[name]]
            if name == "epoch" and tracker in ("json", "wandb"):  # they have a step's equal values once
                points = list(dict(points).items())
            assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in points], (tracker, name)
        assert stored.status in ("finished", "FINISHED"), tracker
        if stored.config is not None:
            assert {"rate": 0.1, "depth": 1}.items() <= stored.config.items(), tracker
            assert stored.config["model/num_parameters"] == 3, tracker
        if tracker != "mlflow":  # its files in folders aren't read here
            texts = stored.texts or {}
            assert any("Linear(in_features=2" in str(text) for text in texts.get("model/graph", [])), tracker


@pytest.mark.usefixtures("_offline")
def test_is_a_logger_of_lightning_under_both_names() -> None:
    """The trainers' and Fabric's type checks, as a command line makes them, accept it."""
    logger = own.TrackersLogger()
    for pl in (PL, OTHER_PL):
        assert isinstance(logger, pl.loggers.Logger)
    fabric = importlib.import_module("lightning.fabric").Fabric(accelerator="cpu", loggers=logger)
    fabric.log("loss", torch.tensor(0.5), step=3)
    fabric.log_dict({"a": 1, "b": 2.0}, step=4)
    assert not Path("lightning_logs").exists()
    metrics = [record for record in journal(logger.experiment) if record["kind"] == "metrics"]
    assert [(record["step"], record["values"]) for record in metrics] == [(3, {"loss": 0.5}), (4, {"a": 1.0, "b": 2.0})]
    logger.experiment.finish()


@pytest.mark.usefixtures("_offline")
def test_bad_option_is_an_error_before_the_first_step() -> None:
    """An unknown tracker stops fit at once, and an unknown log_model the constructor."""
    with pytest.raises(UsageError, match="unknown tracker 'wandbb'"):
        trainer(own.TrackersLogger("wandbb")).fit(model(), data())
    with pytest.raises(ValueError, match="log_model='some': known are"):
        own.TrackersLogger(log_model="some")


@pytest.mark.usefixtures("_offline")
def test_nothing_is_begun_by_the_constructor() -> None:
    """Names are known before the run: project, the id that was given, where checkpoints go."""
    logger = own.TrackersLogger("json", project="p", version="abc", save_dir=Path("out"))
    assert (logger.name, logger.version, logger.save_dir) == ("p", "abc", "out")
    assert not Path("runs").exists()
    logger.finalize("success")
    assert not Path("runs").exists()
    assert own.TrackersLogger().version is None


@pytest.mark.usefixtures("_offline")
def test_failed_training_ends_as_failed_with_its_reason_and_can_go_on() -> None:
    """An exception in a step is the run's end; fit again continues the same run."""
    logger = own.TrackersLogger("json", project="p")
    with pytest.raises(ValueError, match="loss is NaN"):
        trainer(logger).fit(model(fail_at=2), data())
    first = logger.version
    assert first is not None
    found = trackers.load(f"runs/p/{first}")
    assert found.status == "failed"
    (finish,) = [record for record in journal(Path("runs/p", first)) if record["kind"] == "finish"]
    assert finish["reason"] == "ValueError: loss is NaN"
    trainer(logger).fit(model(), data())
    assert logger.version == first
    assert logger.experiment.resumed
    logger.experiment.finish()
    assert trackers.load(f"runs/p/{first}").status == "finished"


@pytest.mark.usefixtures("_offline")
def test_users_run_is_used_and_left_open() -> None:
    """A run that the script began gets everything, and is the script's to end, even where training fails."""
    run = trackers.init("json", project="mine", config={"seed": 1})
    logger = own.TrackersLogger(config={"note": "x"})
    with pytest.raises(ValueError, match="loss is NaN"):
        trainer(logger).fit(model(fail_at=2), data())
    assert logger.experiment is run
    assert (logger.name, logger.version) == ("mine", run.id)
    assert not run.finished
    assert {"seed": 1, "note": "x", "rate": 0.1}.items() <= dict(run.config).items()
    run.finish()
    assert steps(journal(run), "fit_loss") == [0, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("log_model", [False, True, "all"])
def test_checkpoints_are_artifacts(log_model: bool | str) -> None:
    """With "all" each is kept as it is written, with True what is there in the end, with aliases and scores."""
    logger = own.TrackersLogger("json", project="p", log_model=log_model, save_dir="out")
    keep = PL.callbacks.ModelCheckpoint(monitor="val_loss", save_top_k=1, save_last=True)
    trainer(logger, enable_checkpointing=True, callbacks=[keep]).fit(model(), data(), data())
    run = logger.experiment
    assert Path(keep.best_model_path).parent == Path("out", "p", run.id, "checkpoints")
    run.finish()
    found = [record for record in journal(run) if record["kind"] == "artifact"]
    assert {record["name"] for record in found} == ({f"model-{run.id}"} if log_model else set())
    if not log_model:
        return
    assert {record["type"] for record in found} == {"model"}
    best = [record for record in found if "best" in record["aliases"]][-1]
    assert best["metadata"]["original_filename"] == Path(keep.best_model_path).name
    assert best["metadata"]["score"] == pytest.approx(float(keep.best_model_score))
    assert (best["metadata"]["monitor"], best["metadata"]["mode"]) == ("val_loss", "min")
    kept = Path(run.dir, best["files"][0]["file"])
    assert kept.read_bytes() == Path(keep.best_model_path).read_bytes()
    assert found[-1]["aliases"][0] == "latest"
    epochs = {record["metadata"]["original_filename"] for record in found} - {"last.ckpt"}
    assert epochs == ({"epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"} if log_model == "all" else {"epoch=1-step=8.ckpt"})


@pytest.mark.usefixtures("_offline")
def test_checkpoints_of_a_failed_training_are_kept() -> None:
    """What was written before the failure is there."""
    logger = own.TrackersLogger("json", project="p", log_model=True)
    keep = PL.callbacks.ModelCheckpoint(every_n_train_steps=2)
    with pytest.raises(ValueError, match="loss is NaN"):
        trainer(logger, enable_checkpointing=True, callbacks=[keep]).fit(model(fail_at=3), data())
    (record,) = [record for record in journal(Path("runs/p", str(logger.version))) if record["kind"] == "artifact"]
    assert record["aliases"] == ["latest", "best"]


@pytest.mark.usefixtures("_offline")
def test_media_and_tables() -> None:
    """Images, sounds, videos, tables and texts, as the logger for W&B takes them; bad ones don't stop training."""
    logger = own.TrackersLogger("json", project="p")
    logger.log_image("image", [numpy.zeros((4, 4, 3)), torch.ones(3, 4, 4)], step=2, caption=["black", "white"])
    logger.log_audio("audio", [numpy.zeros(8)], step=2, sample_rate=[8000])
    logger.log_video("video", [numpy.zeros((2, 3, 4, 4), dtype="uint8")], step=2, fps=[4])
    logger.log_table("table", columns=["a", "b"], data=[[1, 2]], step=3)
    logger.log_text("text", columns=["said"], data=[["hello"]])
    logger.log_image("missing", ["missing.png"], step=3)
    with pytest.raises(TypeError, match="images must be a list"):
        logger.log_image("image", numpy.zeros((4, 4)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 images, but 2 elements of caption"):
        logger.log_image("image", [numpy.zeros((4, 4))], caption=["a", "b"])
    logger.experiment.finish()
    found = {record["name"]: record for record in journal(logger.experiment) if record["kind"] == "media"}
    assert {name: record["step"] for name, record in found.items()} == {
        "image": 2, "audio": 2, "video": 2, "table": 3, "text": 3,
    }  # fmt: skip
    assert [item["caption"] for item in found["image"]["items"]] == ["black", "white"]


@pytest.mark.usefixtures("_offline")
def test_values_without_a_step_and_hyperparameters() -> None:
    """A value without a step has the last one; results of hyperparameters are final; a prefix is put before names."""
    logger = own.TrackersLogger("json", project="p", prefix="net")
    logger.log_metrics({"loss": 1.0})
    logger.log_metrics({"loss": 2.0}, step=7)
    logger.log_metrics({"other": float("nan")})
    logger.log_hyperparams({"lr": 0.1, "activation": torch.relu}, metrics={"accuracy": 0.5})
    logger.log_hyperparams(__import__("argparse").Namespace(depth=2))
    logger.log_metrics({"bad": object()}, step=8)
    logger.experiment.finish()
    records = journal(logger.experiment)
    assert (steps(records, "net-loss"), steps(records, "net-other")) == ([0, 7], [7])
    config = trackers.load(logger.experiment.dir).config
    assert (config["lr"], config["depth"]) == (0.1, 2)
    assert trackers.load(logger.experiment.dir).summary["accuracy"] == 0.5


@pytest.mark.usefixtures("_offline")
def test_watched_model_has_histograms() -> None:
    """``watch`` records gradients and parameters of the model that is trained, at Lightning's steps."""
    logger = own.TrackersLogger("json", project="p")
    line = model()
    logger.watch(line.layer, log="all", log_freq=2)
    trainer(logger).fit(line, data())
    logger.experiment.finish()
    names = {record["name"] for record in journal(logger.experiment) if record["kind"] == "media"}
    assert {"gradients/weight", "parameters/weight"} <= names


@pytest.mark.usefixtures("_offline")
def test_copies_log_to_the_same_run() -> None:
    """A trainer's logger can be copied and pickled, before its run and while it is open."""
    logger = own.TrackersLogger("json", project="p", log_model=True)
    early = pickle.loads(pickle.dumps(logger))
    one = trainer(logger, enable_checkpointing=True)
    one.fit(model(), data())
    for copied in (early, copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))):
        assert copied.experiment is logger.experiment
        assert copied.name == "p"
    logger.experiment.finish()


@pytest.mark.usefixtures("_offline")
def test_version_continues_a_run_and_goes_back_to_a_checkpoint() -> None:
    """With an id the run goes on; with a step, what it had after the step is replaced."""
    logger = own.TrackersLogger("json", project="p")
    one = trainer(logger, enable_checkpointing=True, max_epochs=2)
    one.fit(model(), data())
    logger.experiment.finish()
    (path,) = Path("p").rglob("*.ckpt")
    checkpoint = torch.load(path, weights_only=False)
    assert checkpoint["global_step"] == 8
    again = own.TrackersLogger("json", project="p", version=logger.version, step=7)
    trainer(again, max_epochs=3).fit(model(), data(), ckpt_path=str(path))
    assert again.version == logger.version
    again.experiment.finish()
    assert len(list(Path("runs/p").iterdir())) == 1
    frame = trackers.load(again.experiment.dir).metrics(["fit_loss"]).to_pandas()
    assert list(frame["step"]) == list(range(12))


SCRIPT = """
import os, sys
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from trackers.frameworks.lightning import TrackersLogger

class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("fit_loss", loss, sync_dist=True)
        self.logger.experiment.log({"rank": self.global_rank}, step=self.global_step)
        return loss
    test_step = training_step
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.arange(16.0).reshape(8, 2) / 16), batch_size=2)
    logger = TrackersLogger("json", project="p", log_model=True)
    trainer = Trainer(logger=logger, strategy=sys.argv[1], devices=2, accelerator="cpu", max_epochs=2,
                      log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Line(), data)
    trainer.test(Line(), data, verbose=False)
    logger.log_metrics({"after": 1.0}, step=9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("ddp_spawn", marks=pytest.mark.soak)])
def test_two_processes_are_one_run_of_rank_zero(strategy: str) -> None:
    """Of two ranks the first alone records; fit, test and what the script logs after them are one run."""
    Path("train.py").write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", strategy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = Path("runs/p").glob("[!.]*")
    data = trackers.load(str(run))
    assert data.status == "finished"
    tested_at = 4 if strategy == "ddp" else 0  # Lightning's step there: what was spawned took its counter along
    assert set(data.metrics(["fit_loss"]).to_pandas()["step"]) == {0, 1, 2, 3, tested_at}
    assert set(data.metrics(["rank"]).to_pandas()["rank"]) == {0.0}
    assert list(data.metrics(["after"]).to_pandas()["step"]) == [9]
    assert [record["aliases"] for record in journal(run) if record["kind"] == "artifact"] == [["latest", "best"]]
