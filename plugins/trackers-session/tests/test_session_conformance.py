"""The session tracker passes the conformance kit: its summary holds every record once, however it is delivered."""

from __future__ import annotations

from pathlib import Path

import pytest
from session_files import read_session

from trackers.testing import check_tracker, checks


@pytest.mark.parametrize("check", checks())
def test_session_keeps_promise(check: str, tmp_path: Path) -> None:
    """The summary is valid JSON with every value, step, time and result of the run, under the names they had."""
    options = {"SESSION_DIR": ""}
    check_tracker("session", read_session, directory=tmp_path / "runs", options=options, checks=[check])
