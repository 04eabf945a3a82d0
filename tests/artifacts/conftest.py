"""Runs that log artifacts, without anything that delivers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trackers
from trackers.training.run import Run

Begin = Callable[..., Run]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts a run that only writes its journal; all end with the test, or the next one would log into them."""
    begun: list[Run] = []
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.delenv("WANDB_ARTIFACT_DIR")

    def start(name: str = "one", project: str = "digits") -> Run:
        run = trackers.init("json", project=project, name=name, mode="offline", reinit="create_new")
        assert isinstance(run, Run)
        begun.append(run)
        return run

    yield start
    for run in begun:
        run.finish()


def log(run: Run, content: str, name: str = "dataset", **more: object) -> str | None:
    """Log one file as a dataset; its version's number."""
    Path("rows.csv").write_text(content)
    return str(run.log_artifact("rows.csv", name=name, type="dataset", **more).version)  # type: ignore[arg-type]
