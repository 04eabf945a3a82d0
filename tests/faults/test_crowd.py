"""Many at once: runs that start together stay apart, ranks are one run, and nobody keeps a terminal waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.chaos.crowd import play
from tests.faults.attempts import FIVE
from tests.faults.driven import ROOT
from tests.helpers import wait_for
from tests.stores import read_json
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.relay.delivery.cursor_file import read_account


@pytest.mark.slow
@pytest.mark.parametrize(("count", "trackers"), [(8, "json,tensorboard"), (2, FIVE)])
def test_runs_that_start_together_stay_apart(count: int, trackers: str, tmp_path: Path) -> None:
    """In one directory and one project, with one name: each store has each run's own values; nobody complains.

    ``make chaos-crowd`` does it with 64, and with 8 for all five trackers.
    """
    crowd = play(tmp_path, count, trackers.split(","), forked.Program)
    assert not crowd.wrong, "\n".join(crowd.wrong)


@pytest.mark.slow
@pytest.mark.processes
def test_runs_that_start_together_share_an_agent_that_dies(tmp_path: Path) -> None:
    """No agent runs before; the first is killed as soon as it is there. No process and no file of agents is left."""
    crowd = play(tmp_path, 6, ["json", "tensorboard"], cold=True, kills=1)
    assert not crowd.wrong, "\n".join(crowd.wrong)


RANKS = """
import os, sys, trackers
run = trackers.init("json,csv", project="p", name="one")
for step in range(50):
    run.log({"loss": int(os.environ["RANK"]) * 1000.0 + step}, step=step)
run.finish(timeout=60)
"""


@pytest.mark.parametrize("main", [0, 7])
def test_eight_ranks_are_one_run(main: int, tmp_path: Path) -> None:
    """Eight processes that a launcher starts together: one directory, one run, the main rank's values."""
    Path("train.py").write_text(RANKS)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "8", "TRACKER_RANK": "last" if main else "0"}
    ranks = [
        forked.Program([sys.executable, "train.py"], env={**env, "RANK": str(rank)}, stderr=subprocess.PIPE)
        for rank in range(8)
    ]
    for rank in ranks:
        _, said = rank.communicate(timeout=120)
        assert rank.returncode == 0, said
    (run,) = find_runs(tmp_path / "runs")
    assert [name.number for name in run.stream_names() if name.writer == "rank"] == [0]
    points = read_json(run.read_info(), None).metrics["loss"]
    assert [(point.step, point.value) for point in points] == [(step, main * 1000.0 + step) for step in range(50)]


PIPED = """
import sys
sys.path[:0] = ["."]
import trackers
run = trackers.init("mlflow,json", project="p", id="r")
run.log({"loss": 1.0})
run.finish(timeout=0.2)
print("end")
"""


@pytest.mark.slow
def test_pipe_and_shell_wait_for_training_only() -> None:
    """``python train.py 2>&1 | cat`` is over with training, though a dead server keeps its relay at work."""
    Path("train.py").write_text(PIPED)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} train.py 2>&1 | cat"], capture_output=True, text=True, env=env, timeout=60
    )
    run = RunDirectory("runs/p/r")
    assert done.stdout.splitlines()[-1] == "end"
    assert "the relay goes on" in done.stdout
    holder = wait_for(lambda: _relay(run))
    try:
        assert not read_account(run, "mlflow").closed
    finally:
        os.kill(holder, 9)


def _relay(run: RunDirectory) -> int:
    from trackers.journal.lease import read_holder

    holder = read_holder(run.path / "relay.lease")
    return holder.pid if holder is not None else 0


SHADOWED = (
    "json",
    "csv",
    "wandb",
    "mlflow",
    "trackio",
    "tensorboard",
    "msgspec",
    "psutil",
    "logging",
    "google",
    "yaml",
)


@pytest.mark.slow
def test_modules_of_the_same_names_beside_the_script_change_nothing(tmp_path: Path) -> None:
    """A ``json.py`` and a ``wandb.py`` (and more) where training runs: the deliveries load the real ones."""
    place = tmp_path / "work"
    place.mkdir()
    for name in SHADOWED:
        (place / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    script = tmp_path / "scripts/train.py"
    script.parent.mkdir()
    script.write_text(
        "import trackers\nrun = trackers.init('json,tensorboard,csv', project='p', id='r')\n"
        "run.log({'loss': 1.0})\nrun.finish(timeout=60)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=place, capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    run = RunDirectory(place / "runs/p/r")
    assert [read_account(run, name).closed for name in ("json", "tensorboard", "csv")] == ["finished"] * 3
    assert "wrong module" not in run.relay_log.read_text()
