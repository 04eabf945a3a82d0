"""The catalogue and the page look more often than for people."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trackers.ui.catalogue.TICK_S", 0.05)
    monkeypatch.setattr("trackers.ui.catalogue.SCAN_S", 0.05)
