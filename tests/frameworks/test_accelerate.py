"""``TrackersTracker`` in Accelerate's own ``Accelerator``, and what is built on it, read back from the stores."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import numpy
import pytest
import torch
import wandb
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState

import trackers
from tests.frameworks.support import config, directories, journal, only, recorded, series
from trackers.errors import UsageError
from trackers.frameworks.accelerate import TrackersTracker

pytestmark = pytest.mark.usefixtures("local_runs", "fresh_state")


@pytest.fixture
def fresh_state() -> Iterator[None]:
    """Accelerate keeps what it knows of the processes in class attributes."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def train(accelerator: Any) -> list[tuple[int, float]]:
    """Two epochs of a linear model; the losses that were logged."""
    model = torch.nn.Linear(2, 1)
    data = torch.utils.data.DataLoader(torch.arange(16.0).reshape(8, 2) / 16, batch_size=2)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    losses = []
    for epoch in range(2):
        for batch in data:
            loss = model(batch).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append((len(losses), loss.item()))
            accelerator.log({"train_loss": loss.detach(), "epoch": epoch}, step=losses[-1][0])
    return losses


def test_two_epochs_with_configuration_and_end() -> None:
    """Each loss is there at its step, the configuration is nested as given, ``end_training`` ends the run."""
    accelerator = Accelerator(log_with=TrackersTracker("json", project="p", name="n"), cpu=True)
    accelerator.init_trackers("ignored", config={"lr": 0.1, "model": {"depth": 1}, "betas": [0.9, 0.99]})
    losses = train(accelerator)
    assert accelerator.get_tracker("trackers", unwrap=True) is accelerator.trackers[0].tracker
    accelerator.end_training()
    stored = only()
    assert dict(series(stored, "loss")) == pytest.approx(dict(losses))
    assert [step for step, _ in series(stored, "epoch")] == list(range(8))
    assert config(stored) == {"lr": 0.1, "model": {"depth": 1}, "betas": [0.9, 0.99]}
    assert (stored.name, stored.status) == ("n", "finished")
    assert Path("runs/p").is_dir()


def test_named_in_log_with() -> None:
    """By its name Accelerate makes the tracker itself, of the project that ``init_trackers`` is given."""
    if not hasattr(accelerate.tracking, "register_tracker_class"):  # before 1.15 it knows no names but its own
        with pytest.raises(ValueError, match="trackers"):
            Accelerator(log_with=["trackers"], cpu=True)
        return
    accelerator = Accelerator(log_with=["trackers"], cpu=True)
    accelerator.init_trackers("digits", init_kwargs={"trackers": {"name": "n", "trackers": "json", "tags": ["a"]}})
    accelerator.log({"loss": 1.0}, step=3, log_kwargs={"trackers": {"commit": True, "unknown": 1}})
    accelerator.end_training()
    stored = only()
    assert (stored.name, stored.tags, series(stored, "loss")) == ("n", ["a"], [(3, 1.0)])
    assert Path("runs/digits").is_dir()


def test_images_and_tables() -> None:
    """Lists and stacks of images, and tables, at their step; a bad one is said and nothing stops."""
    tracker = TrackersTracker("json", project="p")
    accelerator = Accelerator(log_with=tracker, cpu=True)
    accelerator.init_trackers("p")
    tracker.log_images({"list": [numpy.zeros((4, 4, 3))], "stack": numpy.zeros((3, 4, 4, 3), dtype="uint8")}, step=2)
    tracker.log_images({"bad": ["missing.png"]}, step=2)
    tracker.log_table("table", columns=["a"], data=[[1], [2]], step=4)
    accelerator.end_training()
    media = {record["name"]: record for record in journal(directories()[0]) if record["kind"] == "media"}
    assert {name: (record["step"], len(record["items"])) for name, record in media.items()} == {
        "list": (2, 1), "stack": (2, 3), "table": (4, 1),
    }  # fmt: skip


def test_scripts_that_ask_for_wandb_log_their_images() -> None:
    """As the scripts of Diffusers do: they look for the tracker's name and give it W&B's own images."""
    accelerator = Accelerator(log_with=TrackersTracker("json", project="p", acts_as="wandb"), cpu=True)
    accelerator.init_trackers("p")
    for tracker in accelerator.trackers:
        if tracker.name == "wandb":
            image = wandb.Image(numpy.zeros((4, 4, 3), dtype="uint8"), caption="0: a cat")
            tracker.log({"validation": [image]}, step=1)
    accelerator.end_training()
    (record,) = [record for record in journal(directories()[0]) if record["kind"] == "media"]
    assert (record["name"], record["items"][0]["caption"]) == ("validation", "0: a cat")


def test_users_run_is_left_open_and_wrong_options_are_errors() -> None:
    """``end_training`` doesn't end a run that the script began; an unknown tracker is an error of ``init_trackers``."""
    with pytest.raises(UsageError, match="unknown tracker 'jsonn'"):
        Accelerator(log_with=TrackersTracker("jsonn"), cpu=True).init_trackers("p", config={"lr": 0.1})
    run = trackers.init("json", project="mine")
    accelerator = Accelerator(log_with=TrackersTracker(), cpu=True)
    accelerator.init_trackers("p")
    accelerator.log({"loss": 1.0}, step=0)
    accelerator.end_training()
    assert accelerator.trackers[0].tracker is run
    assert not run.finished
    run.finish()
    assert len(recorded()) == 1


SCRIPT = """
from accelerate import Accelerator
from trackers.frameworks.accelerate import TrackersTracker

accelerator = Accelerator(log_with=TrackersTracker("json", project="p"), cpu=True)
accelerator.init_trackers("p", config={"processes": accelerator.num_processes})
for step in range(3):
    accelerator.log({"rank": accelerator.process_index}, step=step)
accelerator.end_training()
"""


@pytest.mark.soak
def test_two_processes_are_one_run_of_the_main_one() -> None:
    """Of two processes the main one alone records."""
    Path("train.py").write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, "train.py"], env={**os.environ, **place, "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    assert [process.wait(timeout=150) for process in started] == [0, 0]
    stored = only()
    assert config(stored) == {"processes": 2}
    assert series(stored, "rank") == [(0, 0), (1, 0), (2, 0)]
