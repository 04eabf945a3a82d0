"""Runs of these tests record what exactly ran, as by default."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def keeps_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_CODE", "y")
