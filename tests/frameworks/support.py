"""What tests of the frameworks share: the runs that a training left, read back from their JSON logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stores import read_json
from trackers.journal.run_directory import RunDirectory
from trackers.testing import Stored

LOCAL = {"TRACKER": "json", "TRACKER_INLINE": "y", "TRACKER_DIR": "runs"}
"""Runs lie below ``runs``, are recorded as JSON logs, and start no process."""


@pytest.fixture
def local_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as ``LOCAL`` has them."""
    for name, value in LOCAL.items():
        monkeypatch.setenv(name, value)


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
