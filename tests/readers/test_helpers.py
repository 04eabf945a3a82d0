"""What readers have in common: the answer for a run that was deleted between the list of runs and the reading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import ROOT
from trackers.errors import NotFound, UsageError
from trackers.readers.reader import SourceRun
from trackers.readers.registry import BUILT_IN, GROUP
from trackers.support import plugins


@pytest.mark.parametrize("scheme", ["csv", "hf", "json"])
def test_run_that_was_deleted_is_named(scheme: str, tmp_path: Path) -> None:
    """One line names the reader and what isn't there any more."""
    path = tmp_path / "gone"
    run = SourceRun(
        source=f"{scheme}:{path}", id="gone", directory=str(path), native={"path": str(path), "root": str(tmp_path)}
    )
    reader = plugins.load(scheme, BUILT_IN.get(scheme) or plugins.targets(GROUP)[scheme])()
    with pytest.raises(NotFound, match=rf"^{scheme}: {re.escape(str(tmp_path))}/\S*gone has gone$"):
        list(reader.read(run))


def test_answer_is_written_once() -> None:
    """Readers share the words of that line."""
    modules = (ROOT / "trackers/readers").rglob("*.py")
    assert [path.name for path in modules if re.search(r'f".* has gone"', path.read_text())] == ["helpers.py"]


def test_a_run_is_loaded_by_its_path() -> None:
    """``Path`` objects are sources, too; what is neither text nor path is one line."""
    run = trackers.init("json", project="p", id="r", mode="offline", options={"TRACKER_RELAY": False})
    run.finish()
    assert trackers.load(Path(run.path)).status == "finished"
    wrong: Any = 5
    with pytest.raises(UsageError, match="5 is no source: give a text"):
        trackers.load(wrong)
