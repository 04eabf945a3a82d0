"""What every tracker must stand, with ClearML's sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from clearml_store import read_clearml

from tests import again
from tests.editing import test_trackers
from trackers.testing import Limits, check_tracker, checks

globals().update(
    again.of_tracker(
        "clearml",
        {"CLEARML_OFFLINE_DIR": "clearml"},
        lambda info, out: read_clearml(info, directory=out / "clearml"),
        (lambda run: test_trackers.archived(run, "clearml"), tuple(test_trackers.ALL)),
    )
)


@pytest.mark.parametrize("check", checks())
def test_clearml_keeps_promise(check: str, tmp_path: Path) -> None:
    """The archive holds each record once, to the millisecond; NaN and infinities are lines of the console."""
    limits = Limits(time_resolution_s=0.0005)
    check_tracker("clearml", read_clearml, directory=tmp_path / "runs", limits=limits, checks=[check])
