"""W&B's names speak of the current run: each test begins without one."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _no_run_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second ``init`` gives the run that is open, which a test of another file may have left."""
    start = sys.modules.get("trackers.training.init")
    if start is not None:
        monkeypatch.setattr(start, "_current", {})
