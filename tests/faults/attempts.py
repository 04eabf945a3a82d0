"""Training processes, one after the other, on the same run; and what each tracker has of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import trackers
from tests import forked, stores
from tests.helpers import wait_for
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.relay.delivery.delivery import read_account
from trackers.testing import Stored
from trackers.tracker import RunInfo
from trackers.training.run import Run

FIVE = "wandb,trackio,tensorboard,mlflow,json"

TRAIN = """
import sys, time, trackers
first, last, add, how = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
more = dict(word.split("=") for word in sys.argv[5:])
if "step" in more:
    more["step"] = int(more["step"])
run = trackers.init(project="digits", name="baseline", config={"lr": add}, **more)
run.define_metric("loss", summary="max")
for step in range(first, last):
    run.log({"loss": step + add}, step=step)
print("logged", flush=True)
while how == "wait":
    time.sleep(1)
run.finish(timeout=400)
"""


class Training:
    """One process that logs ``loss = step + add`` for the steps from ``first`` to ``last - 1``.

    Args:
        wait: it then waits to be killed, rather than finish.
        more: arguments of ``init``, as text.
    """

    def __init__(self, first: int, last: int, add: float = 0.0, *, wait: bool = False, **more: Any) -> None:
        Path("train.py").write_text(TRAIN)
        words = [f"{name}={value}" for name, value in more.items()]
        self.process = forked.Program(
            [sys.executable, "train.py", str(first), str(last), str(add), "wait" if wait else "end", *words],
            preload=forked.HELPERS,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "logged\n" or self.process.wait() != 0, line

    def kill(self) -> None:
        """SIGKILL, and nothing is waited for but the process itself."""
        self.process.kill()
        self.process.communicate()

    def finish(self) -> str:
        """Wait for its end; what it said on stderr."""
        _, said = self.process.communicate(timeout=400)
        assert self.process.returncode == 0, said
        return said


def begin(**more: Any) -> Run:
    """A run in this process that nothing is delivered of."""
    run = trackers.init(**{"trackers": "json", "mode": "offline", "project": "digits", **more})
    assert isinstance(run, Run)
    return run


def delivered(run: RunDirectory, *names: str) -> None:
    """Wait until these trackers were told how the run ended, and the relay is gone."""
    wait_for(lambda: all(read_account(run, name).closed for name in names), why=delivery_report(run, list(names)))
    wait_for(lambda: not (run.path / "relay.lease").exists(), why="the relay is still there")


def read(tracker: str, info: RunInfo, runs: dict[str, Any]) -> Stored:
    """What a tracker's store holds of the one run; ``runs``: of the stand-in for W&B's server."""
    if tracker == "wandb":
        assert list(runs) == [info.id], "one native run"
        return stores.read_wandb_server(runs)(info, {})
    if tracker == "mlflow":
        return stores.read_mlflow(info, {}, uri=f"sqlite:///{info.cwd}/mlflow.db")
    if tracker == "trackio":
        os.environ["TRACKIO_DIR"] = str(Path(info.cwd, "trackio"))
    return {
        "trackio": stores.read_trackio,
        "tensorboard": stores.read_tensorboard,
        "json": stores.read_json,
        "csv": stores.read_csv,
    }[tracker](info, {})


def points(stored: Stored) -> list[tuple[int | None, float]]:
    """Step and value of ``loss``, in the order they are kept."""
    return [(point.step, point.value) for point in stored.metrics["loss"]]
