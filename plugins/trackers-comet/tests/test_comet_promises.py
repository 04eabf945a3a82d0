"""What every tracker must stand, with Comet's archives."""

from __future__ import annotations

from pathlib import Path

import pytest
from comet_store import read_comet

from tests import again
from tests.editing import test_trackers
from trackers.frameworks.megatron import LoggerConfig, start
from trackers.journal.run_directory import RunDirectory
from trackers.testing import Limits, check_tracker, checks

globals().update(
    again.of_tracker(
        "comet",
        {"COMET_OFFLINE_DIRECTORY": "comet"},
        lambda info, out: read_comet(info, directory=out / "comet"),
        (lambda run: test_trackers.archived(run, "comet"), tuple(test_trackers.ALL)),
    )
)


@pytest.mark.parametrize("check", checks())
def test_comet_keeps_promise(check: str, tmp_path: Path) -> None:
    """The archive holds each record once, to the millisecond; lists of the configuration are text."""
    limits = Limits(time_resolution_s=0.0005)
    check_tracker("comet", read_comet, directory=tmp_path / "runs", limits=limits, checks=[check])


def test_comet_gets_an_archive_of_its_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """``comet_project`` adds the tracker; its name and tags are the run's."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    config = LoggerConfig(comet_project="p", comet_experiment_name="one", comet_tags=["a", "b"])
    log = start(config, train_iters=1, global_batch_size=1)
    run = log.run
    run.finish()
    info = RunDirectory(run.path).read_info()
    assert (list(info.trackers), info.project, info.name, list(info.tags)) == (["comet"], "p", "one", ["a", "b"])
