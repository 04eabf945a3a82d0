"""Which tests of frameworks are collected: those of libraries that the extra ``dev`` has; the fixture they share.

``make test-frameworks``, whose environment has the extra ``frameworks`` too, sets TRACKERS_FRAMEWORKS and collects all.
"""

from __future__ import annotations

import os

import pytest

from tests.frameworks.support import LOCAL

APART = (
    "test_catboost.py", "test_composer.py", "test_documented.py", "test_fastai.py", "test_jax.py", "test_ray.py",
    "test_torchtitan.py", "test_trl.py", "test_ultralytics.py",
)  # fmt: skip
"""Tests of what is too large for ``dev``, or doesn't go with other packages there."""

collect_ignore = [] if "TRACKERS_FRAMEWORKS" in os.environ else list(APART)


@pytest.fixture
def local_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as ``LOCAL`` has them."""
    for name, value in LOCAL.items():
        monkeypatch.setenv(name, value)
