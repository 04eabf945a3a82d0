"""What tests of the frameworks share: the runs that a training left, read back from their stores."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.stores import read_json, read_mlflow, read_tensorboard, read_trackio, read_wandb_file
from trackers.journal.run_directory import RunDirectory
from trackers.testing import Stored
from trackers.tracker import RunInfo

LOCAL = {"TRACKER": "json", "TRACKER_INLINE": "y", "TRACKER_DIR": "runs"}
"""Runs lie below ``runs``, are recorded as JSON logs, and start no process."""

READ = {
    "json": read_json,
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "trackio": read_trackio,
    "wandb": read_wandb_file,
}
"""Independent readers, by the tracker that wrote."""


def directories() -> list[Path]:
    """The runs' directories, the first begun first."""
    found = Path("runs").glob("*/*/run.json")
    return [path.parent for path in sorted(found, key=lambda path: float(json.loads(path.read_text())["created"]))]


def recorded() -> list[Stored]:
    """The runs, the first begun first; their results without ``final/``."""
    return [read_json(RunDirectory(folder).read_info()) for folder in directories()]


def only() -> Stored:
    """The one run there is."""
    (stored,) = recorded()
    return stored


def series(stored: Stored, name: str) -> list[tuple[int | None, float]]:
    """Steps and values of a metric."""
    return [(point.step, point.value) for point in stored.metrics[name]]


def results(stored: Stored) -> dict[str, Any]:
    """The results by name, without ``final/``."""
    assert stored.summary is not None
    return stored.summary


def config(stored: Stored) -> dict[str, Any]:
    """The configuration."""
    assert stored.config is not None
    return stored.config


def info_of(run: Any) -> RunInfo:
    """A run's identity, as ``run.json`` has it."""
    return RunDirectory(Path(run.dir)).read_info()


def journal(run: Any) -> list[dict[str, Any]]:
    """The records of a run, or of the run in a directory, attempt after attempt."""
    directory = Path(run if isinstance(run, (str, os.PathLike)) else run.dir)
    streams = sorted(directory.glob("streams/rank-0.*.jsonl"), key=lambda path: int(path.suffixes[-2][1:]))
    return [json.loads(line) for path in streams for line in path.read_text().splitlines()]


def points(name: str, number: int = -1) -> list[tuple[int | None, float]]:
    """Steps and values of a metric as the journal has them: a JSON log has a name of its own for the training loss.

    Args:
        number: of the run, in the order in which they began.
    """
    lines = [line for line in journal(directories()[number]) if line["kind"] == "metrics" and name in line["values"]]
    return [(line.get("step"), line["values"][name]) for line in lines]
