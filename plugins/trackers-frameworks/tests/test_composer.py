"""The Composer logger with the real library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trackers
from tests.frameworks.support import config, directories, journal, only, recorded, results, series
from tests.frameworks.vision import torchvision_without_gpu
from trackers.errors import UsageError

torchvision_without_gpu()
from composer import Callback, Trainer  # noqa: E402
from composer.loggers import InMemoryLogger  # noqa: E402
from composer.models import ComposerClassifier  # noqa: E402
from trackers_frameworks.composer import TrackersLogger  # noqa: E402

pytestmark = [pytest.mark.usefixtures("local_runs"), pytest.mark.filterwarnings("ignore")]


def trainer(*loggers: Any, batches: int = 8, **more: Any) -> Any:
    """A classifier of two layers on eight points in batches of two, evaluated after each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    points = torch.randn(8, 4)
    data = torch.utils.data.TensorDataset(points, (points.sum(1) > 0).long())
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model = ComposerClassifier(module, num_classes=2)
    return Trainer(
        model=model,
        train_dataloader=torch.utils.data.DataLoader(data, batch_size=2),
        eval_dataloader=torch.utils.data.DataLoader(data, batch_size=4),
        optimizers=torch.optim.SGD(module.parameters(), lr=0.1),
        max_duration=f"{batches}ba",
        device="cpu",
        progress_bar=False,
        loggers=list(loggers),
        **more,
    )


def test_training_is_recorded() -> None:
    """What Composer logs at its batches, as its own logger in memory has it; hyperparameters, results, status."""
    memory = InMemoryLogger()
    training = trainer(memory, TrackersLogger(project="lines"), run_name="first")
    training.fit()
    training.close()
    stored = only()
    for name in ("loss/train/total", "metrics/eval/MulticlassAccuracy"):
        theirs = [(int(stamp.batch), float(value)) for stamp, value in memory.data[name]]
        assert len(theirs) >= 2
        assert [value for _, value in series(stored, name)] == [value for _, value in theirs], name
    assert [step for step, _ in series(stored, "loss/train/total")] == list(range(1, 9))
    assert [step for step, _ in series(stored, "metrics/eval/MulticlassAccuracy")] == [4, 8]
    found = config(stored)
    assert memory.hyperparameters.items() <= found.items()
    assert found["model/num_parameters"] == 30
    assert results(stored)["batch"] == 8
    assert results(stored)["loss/train/total"] == min(value for _, value in series(stored, "loss/train/total"))
    assert (stored.name, stored.status) == ("first", "finished")


def test_checkpoint_continues_its_run() -> None:
    """A trainer that loads a checkpoint goes on in the checkpoint's run, and replaces what that has after it."""
    first = trainer(TrackersLogger(project="lines", log_model=True), save_folder="saved", save_interval="6ba")
    first.fit()
    first.close()
    saved = sorted(Path("saved").glob("*ba6*.pt"))
    second = trainer(TrackersLogger(project="lines"), load_path=str(saved[0]), batches=12)
    second.fit()
    second.close()
    assert [step for step, _ in series(only(), "loss/train/total")] == list(range(1, 13))
    assert [step for step, _ in series(only(), "metrics/eval/MulticlassAccuracy")] == [4, 8, 12]
    kept = trackers.load(str(directories()[0])).artifacts()
    assert [(Path(one.name).suffix, one.aliases) for one in kept] == [(".pt", ["latest", "ep1-ba6"])]


def test_evaluation_goes_into_the_users_run() -> None:
    """An evaluation is recorded; the run that the script began is left open."""
    run = trackers.init("json", project="users")
    training = trainer(TrackersLogger())
    training.fit()
    training.eval()
    training.close()
    assert not run.finished
    run.finish()
    assert directories()[0].parent.name == "users"
    assert series(only(), "metrics/eval/MulticlassAccuracy")[-1][0] == 8


class Broken(Callback):  # type: ignore[misc]
    """Fails at the third batch."""

    def batch_start(self, state: Any, logger: Any) -> None:
        if state.timestamp.batch == 2:
            raise RuntimeError("no data")


def test_failed_training_is_a_failed_run() -> None:
    """Also where the script catches the exception, once the trainer is closed."""
    training = trainer(TrackersLogger(), callbacks=[Broken()])
    with pytest.raises(RuntimeError, match="no data"):
        training.fit()
    training.close()
    assert only().status == "failed"
    training = trainer(TrackersLogger(), callbacks=[Broken()])
    try:
        training.fit()
    except RuntimeError:
        training.close()
    assert recorded()[-1].status == "failed"


def test_media_and_tables() -> None:
    """Images in Composer's layouts, with masks; tables; traces; what can't be recorded is one line."""
    logger = TrackersLogger()
    training = trainer(logger)
    training.fit()
    theirs = training.logger
    theirs.log_images(torch.rand(2, 3, 4, 5), name="batch")
    theirs.log_images(np.random.rand(4, 5, 3), name="last", channels_last=True)
    theirs.log_images([np.zeros((3, 4, 5))], name="masked", masks={"truth": [np.ones((4, 5), dtype=int)]},
                      mask_class_labels={1: "cat"})  # fmt: skip
    theirs.log_table(["a", "b"], [[1, 2.0]], name="table", step=9)
    theirs.log_traces({"algorithm": "mixed"})
    training.close()
    media = {one.name: (one.type, len(one.items)) for one in trackers.load(str(directories()[0])).media()}
    assert media == {"batch": ("image", 2), "last": ("image", 1), "masked": ("image", 1), "table": ("table", 1)}
    found = {line["name"]: line["items"] for line in journal(directories()[0]) if line["kind"] == "media"}
    assert (found["batch"][0]["width"], found["batch"][0]["height"]) == (5, 4)
    assert only().texts["algorithm"][0][1] == "mixed"


def test_faults_before_and_in_training(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error before the first step; a fault later is one line, and training goes on."""
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        trainer(TrackersLogger("jsn")).fit()
    logger = TrackersLogger()
    training = trainer(logger)
    logger._defined = None  # type: ignore[assignment]
    capsys.readouterr()
    training.fit()
    training.close()
    assert int(training.state.timestamp.batch) == 8
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trackers: TrackersLogger")]
    assert len(lines) == 1
    assert only().status == "finished"


def test_other_ranks_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rank alone does."""
    monkeypatch.setattr("trackers_frameworks.composer.dist.get_global_rank", lambda: 1)
    logger = TrackersLogger()
    monkeypatch.undo()
    for name, value in {"TRACKER": "json", "TRACKER_INLINE": "y", "TRACKER_DIR": "runs"}.items():
        monkeypatch.setenv(name, value)
    training = trainer(logger)
    training.fit()
    training.close()
    assert directories() == []
