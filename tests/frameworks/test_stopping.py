"""A request to stop, or to save, in each framework's own way; several processes agree when."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status
from trackers.support import run_requests
from trackers.training import stopping
from trackers.training.run import Run

pytestmark = pytest.mark.usefixtures("local_runs")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run that is asked to save and to stop before its training begins."""
    monkeypatch.setattr(stopping, "READ_S", 0.0)
    made = trackers.init("json", project="p", name="one")
    assert isinstance(made, Run)
    asked = run_requests.new_request(1, stop=True, checkpoint=True, who="alice", by="trackers stop", reason="enough")
    run_requests.ask(Path(made.path), asked)
    yield made
    made.finish()


def ended(run: Run, *artifacts: str) -> None:
    """The run has ended as stopped, and has these artifacts."""
    run.finish()
    status = last_status(RunDirectory(run.path))
    assert (status.name, status.reason) == ("stopped", "by alice (trackers stop): enough")
    control = run_requests.read_control(run_requests.control_path(Path(run.path), 1))
    assert len(control.saved) == 1
    names = {artifact.name for artifact in trackers.load(run.path).artifacts()}
    assert names >= set(artifacts)


def test_transformers_stops_and_saves_a_checkpoint(run: Run) -> None:
    """Of eight steps one is trained, and its checkpoint is written though none was planned."""
    from tests.frameworks.test_transformers import trainer
    from trackers.frameworks.transformers import TrackersCallback

    made = trainer(TrackersCallback(), eval_strategy="no")
    made.train()
    assert made.state.global_step == 1
    assert (Path("out") / "checkpoint-1").is_dir()
    ended(run)


def test_lightning_stops_and_saves_a_checkpoint(run: Run) -> None:
    """The logger is enough: it has the trainer asked after each batch."""
    for name in ("lightning.pytorch", "pytorch_lightning"):  # the logger is of those that are loaded when it is
        importlib.import_module(name)
    from tests.frameworks.test_lightning import data, model, trainer
    from trackers.frameworks.lightning import TrackersLogger

    made = trainer(TrackersLogger())
    made.fit(model(), data())
    assert made.global_step == 1
    assert list(Path().rglob("asked-step=1.ckpt"))
    ended(run)


LOOP = """
import sys, time
import torch.distributed as dist
import trackers
from trackers.frameworks.shared import RunHandle
from trackers.training import stopping
stopping.AHEAD_S = 2.0
rank, looks = int(sys.argv[1]), sys.argv[2] == "all"
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=2)
handle = RunHandle("json", project="p", name="one", rank="own", options={"TRACKER_RELAY": "n"}, dir="runs")
if rank == 0:
    handle.run
ended = False
for step in range(400):
    dist.barrier()
    if rank == 0 and step == 5:
        print("READY", flush=True)
        sys.stdin.readline()
    if (rank == 0 or looks) and handle.asked().stop:
        ended = True
        break
    time.sleep(0.02)
print("ENDED", step, ended, flush=True)
handle.finish()
"""


@pytest.mark.parametrize("looks", ["all", "main"])
@pytest.mark.processes
@pytest.mark.slow
def test_processes_of_torch_stop_at_the_same_step_or_none(looks: str, tmp_path: Path) -> None:
    """If a process has no callback, the others go on rather than leave it waiting; then that is said."""
    (tmp_path / "loop.py").write_text(LOOP)
    environment = {**os.environ, "TRACKER_SAMPLE": "n"}
    started = [
        subprocess.Popen([sys.executable, "loop.py", str(rank), looks, str(tmp_path / "store")], cwd=tmp_path,
                         env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True) for rank in (0, 1)
    ]  # fmt: skip
    try:
        assert started[0].stdout is not None
        assert started[0].stdout.readline() == "READY\n"
        (found,) = (tmp_path / "runs").glob("*/*/run.json")
        run_requests.ask(found.parent, run_requests.new_request(1, stop=True, checkpoint=False, who="alice"))
        outputs: list[Any] = [process.communicate("go\n", timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    ends = [line.split() for output, _ in outputs for line in output.splitlines() if line.startswith("ENDED")]
    assert len(ends) == 2
    assert ends[0] == ends[1]
    assert ends[0][2] == str(looks == "all")
    said = "1 of its processes have no callback of trackers" in outputs[0][1]
    assert said == (looks == "main")
