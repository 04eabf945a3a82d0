"""What the tests of Megatron's log share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trackers
from trackers.training.run import Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run that only writes its journal, without its own timers."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_LOG_TIMERS": False})
    assert isinstance(run, Run)
    yield run
    run.finish()
