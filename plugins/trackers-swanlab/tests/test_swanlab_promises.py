"""What every tracker must stand, with SwanLab's directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from swanlab_store import read_swanlab
from trackers_swanlab.run_files import stored_name

from tests import again
from tests.editing import test_trackers
from trackers.testing import Limits, check_tracker, checks

globals().update(
    again.of_tracker(
        "swanlab",
        {"SWANLAB_LOG_DIR": "swanlab"},
        lambda info, out: read_swanlab(info, directory=out / "swanlab"),
        (lambda run: test_trackers.source(f"swanlab:{run.path / 'swanlab'}"), tuple(test_trackers.ALL)),
        appended=True,
    )
)


@pytest.mark.parametrize("check", checks())
def test_swanlab_keeps_promise(check: str, tmp_path: Path) -> None:
    """The file of records holds each once, as doubles under names that SwanLab takes."""
    limits = Limits(integers="float", big_integers="float", rename=stored_name)
    check_tracker("swanlab", read_swanlab, directory=tmp_path / "runs", limits=limits, checks=[check])
