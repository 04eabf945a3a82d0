"""What every tracker must stand, with ClearML's sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from clearml_store import read_clearml

from tests import again
from tests.backends import test_contract, test_lost_stores
from tests.backends.test_lost_stores import _places  # noqa: F401
from tests.editing import test_trackers
from trackers.testing import Limits, check_tracker, checks

test_lost_stores.OPTIONS["clearml"] = {"CLEARML_OFFLINE_DIR": "clearml"}
test_lost_stores.HELD["clearml"] = lambda info, out: read_clearml(info, directory=out / "clearml")
test_trackers.HOLDS["clearml"] = (lambda run: test_trackers.archived(run, "clearml"), tuple(test_trackers.ALL))
for test in (*test_lost_stores.OF_FILES, test_trackers.test_tracker_holds_what_the_table_says,
             test_contract.test_built_in_trackers_add_no_member):  # fmt: skip
    globals()[test.__name__] = again.with_values(test, ["clearml"])


@pytest.mark.parametrize("check", checks())
def test_clearml_keeps_promise(check: str, tmp_path: Path) -> None:
    """The archive holds each record once, to the millisecond; NaN and infinities are lines of the console."""
    limits = Limits(time_resolution_s=0.0005)
    check_tracker("clearml", read_clearml, directory=tmp_path / "runs", limits=limits, checks=[check])
