"""Which tests of frameworks are collected: those of libraries that the extra ``dev`` has; the fixture they share.

``make test-frameworks``, whose environment has the extra ``test-frameworks`` too, sets TRACKERS_FRAMEWORKS and collects
those of that; ``make test-loggers`` sets TRACKERS_LOGGERS and runs those of the extra ``loggers``.
"""

from __future__ import annotations

import os

import pytest

from tests.frameworks.support import LOCAL

APART = ("test_documented.py", "test_notebook.py", "test_trl.py")
"""Tests of what is too large for ``dev``, or doesn't go with other packages there."""
ALONE = ("test_wandb_loggers.py",)
"""Tests of what doesn't go with the packages of ``frameworks`` either."""

collect_ignore = [
    *(() if "TRACKERS_FRAMEWORKS" in os.environ else APART),
    *(() if "TRACKERS_LOGGERS" in os.environ else ALONE),
]


@pytest.fixture
def local_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as ``LOCAL`` has them."""
    for name, value in LOCAL.items():
        monkeypatch.setenv(name, value)
