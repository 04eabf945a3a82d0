"""The fastai callback with the real library, and fastai's own for W&B."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.schedule import Learner  # with fit_one_cycle, lr_find and fine_tune
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.losses import MSELossFlat
from fastai.metrics import mae
from trackers_frameworks.fastai import TrackersCallback

import trackers
from tests.frameworks.support import config, directories, only, points, recorded, results
from trackers.errors import UsageError

pytestmark = [pytest.mark.usefixtures("local_runs"), pytest.mark.filterwarnings("ignore")]


def learner(*callbacks: Any, **more: Any) -> Any:
    """A line on 16 points in batches of four, without fastai's progress bars."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    points = torch.randn(16, 3)
    rows = list(zip(points, points.sum(1, keepdim=True), strict=True))
    loaders = [DataLoader(rows, bs=4, num_workers=0, shuffle=shuffle) for shuffle in (True, False)]
    data = DataLoaders(*loaders, device=torch.device("cpu"))
    made = Learner(data, torch.nn.Linear(3, 1), loss_func=MSELossFlat(), metrics=mae, path=Path("model"),
                   cbs=list(callbacks), **more)  # fmt: skip
    made.remove_cbs([one for one in made.cbs if type(one).__name__ == "ProgressCallback"])
    made.logger = lambda row: rows_of(made).append(list(row))
    return made


def rows_of(made: Any) -> list[list[Any]]:
    """What fastai printed of a learner's epochs."""
    found: list[list[Any]] = made.__dict__.setdefault("rows", [])
    return found


def test_training_is_recorded() -> None:
    """Each batch at its number, each epoch's metrics as fastai prints them, settings, best values and the weights."""
    tracking = TrackersCallback(project="lines", name="first", log_model=True)
    made = learner(tracking)
    made.fit_one_cycle(2, 0.1)
    tracking.finish()
    stored = only()
    assert [step for step, _ in points("train_loss")] == list(range(1, 9))
    assert [value for _, value in points("train_loss")] == [float(one) for one in made.recorder.losses]
    assert [value for _, value in points("lr_0")] == [float(one) for one in made.recorder.lrs]
    assert [value for _, value in points("epoch")] == [number / 4 for number in range(1, 9)]
    assert points("valid_loss") == [(4, rows_of(made)[0][2]), (8, rows_of(made)[1][2])]
    assert points("mae") == [(4, rows_of(made)[0][3]), (8, rows_of(made)[1][3])]
    assert len(points("raw_loss")) == len(points("mom_0")) == 8
    found = config(stored)
    assert (found["model"], found["batch_size"], found["n_epoch"], found["model/num_parameters"]) == ("Linear", 4, 2, 4)
    assert found["optimizer"]["wd"] == made.opt.hypers[0]["wd"]
    assert results(stored)["valid_loss"] == min(row[2] for row in rows_of(made))
    assert (stored.name, stored.status) == ("first", "finished")
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    kept = torch.load(Path(directories()[0], artifact.files[0].file))
    assert torch.equal(kept["weight"], made.model.weight)


def test_fits_of_a_learner_go_on() -> None:
    """``fine_tune`` is one run, the user's too; what ``lr_find``, ``validate`` and ``get_preds`` do isn't recorded."""
    tracking = TrackersCallback(log_every=2)
    made = learner(tracking)
    made.fine_tune(1, 0.1)
    made.get_preds()
    made.validate()  # to fastai a fit without training
    made.lr_find(num_it=20, show_plot=False, suggest_funcs=None)
    made.fit(1)
    tracking.finish()
    assert [step for step, _ in points("train_loss")] == [2, 4, 6, 8, 10, 12]
    assert [step for step, _ in points("valid_loss")] == [4, 8, 12]
    run = trackers.init("json", project="users")
    made = learner(TrackersCallback())
    made.fit(1)
    made.fit(1)
    learner(TrackersCallback()).fit(1)
    assert not run.finished
    run.finish()
    assert [step for step, _ in points("train_loss")] == list(range(1, 9))
    assert [step for step, _ in points("fit-2/train_loss")] == list(range(1, 5))


def test_each_learner_has_a_run() -> None:
    """Without a run of the user's; both have finished once the second one's has."""
    tracking = TrackersCallback()
    learner(tracking).fit(1)
    learner(tracking).fit(1)
    tracking.finish()
    assert [[step for step, _ in points("train_loss", number)] for number in (0, 1)] == [[1, 2, 3, 4]] * 2
    assert [one.status for one in recorded()] == ["finished", "finished"]


def test_run_is_continued_by_its_id() -> None:
    """A new process's learner goes on after the last step of the run whose id it names."""
    for _ in range(2):
        tracking = TrackersCallback(project="lines", id="again")
        learner(tracking).fit(1)
        tracking.finish()
    assert [step for step, _ in points("train_loss")] == list(range(1, 9))


class Broken(Callback):  # type: ignore[misc]
    """Fails in the second epoch."""

    def before_epoch(self) -> None:
        if self.epoch == 1:
            raise RuntimeError("no data")


def test_failed_training_is_a_failed_run() -> None:
    """In a ``with`` block at once; without one when another learner's fit begins."""
    with pytest.raises(RuntimeError, match="no data"), TrackersCallback() as tracking:
        learner(tracking, Broken()).fit(2)
    tracking = TrackersCallback()
    with pytest.raises(RuntimeError, match="no data"):
        learner(tracking, Broken()).fit(2)
    learner(tracking).fit(1)
    tracking.finish()
    assert [one.status for one in recorded()] == ["failed", "failed", "finished"]


def test_faults_before_and_in_training(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error before the first step; a fault later is one line, and training goes on."""
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        learner(TrackersCallback("jsn")).fit(1)
    tracking = TrackersCallback()
    tracking._every = None  # type: ignore[assignment]
    capsys.readouterr()
    made = learner(tracking)
    made.fit(2)
    tracking.finish()
    assert len(rows_of(made)) == 2
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1
    assert only().status == "finished"


def test_other_processes_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several processes the first alone records."""
    monkeypatch.setattr("trackers_frameworks.fastai.rank_distrib", lambda: 1)
    learner(TrackersCallback()).fit(1)
    assert directories() == []


def test_learner_is_pickled() -> None:
    """A learner with the callback is pickled, as ``export`` does; a copy that trains has a run of its own."""
    tracking = TrackersCallback()
    made = learner(tracking)
    made.fit(1)
    del made.__dict__["logger"]
    again = pickle.loads(pickle.dumps(made))
    assert torch.equal(again.model.weight, made.model.weight)
    again.logger = lambda row: None
    again.fit(1)
    again.trackers.finish()
    tracking.finish()
    assert [len(points("train_loss", number)) for number in (0, 1)] == [4, 4]
