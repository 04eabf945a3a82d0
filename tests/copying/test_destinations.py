"""What a plug-in says of a copy is all that a copy to its tracker needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.copying.test_transfer import logged, one
from tests.plugin_site import install
from trackers.copying import destinations
from trackers.errors import UsageError

SHEETS = '''
import os
from trackers.backends.csv.tracker import CsvTracker
from trackers.copying.destinations import CopyTarget
from trackers.copying.verify import Capabilities
from trackers.readers.csv import CsvReader

class SheetsTracker(CsvTracker):
    """Tables below a directory."""
    name = "sheets"

class SheetsReader(CsvReader):
    scheme = "sheets"

class Copies(CopyTarget):
    scheme, symbol, form = "sheets", "CSV_DIR", "FOLDER"
    keeps = Capabilities(files=False, config=False, tags=False, media=frozenset())

class Other(Copies):
    scheme = "other"
'''


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = {"sheets": "its_sheets:Copies", "wrong": "its_sheets:Other", "bad": "its_bad:Copies", "json": "its_bad:X"}
    points = {
        "trackers": {"sheets": "its_sheets:SheetsTracker"},
        "readers": {"sheets": "its_sheets:SheetsReader"},
        "copies": copies,
    }
    install(tmp_path / "site", "trackers-sheets", points, its_sheets=SHEETS, its_bad="raise ValueError('bad luck')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_copy_to_a_plug_in_agrees() -> None:
    """A run arrives with all that the destination says that it keeps, is read back, and a second copy adds nothing."""
    run = logged()
    first = one(run.id, "sheets:out")
    assert first.agrees, str(first)
    assert first.destination.startswith("sheets:")
    assert (first.stored, first.expected.values) == (one(run.id, "sheets:out").stored, 60 * 3 + 9 * 2)


def test_fault_of_one_is_a_line_and_stops_nothing() -> None:
    """A destination that can't be loaded, or is another's, is named where it is chosen; what is built in stays."""
    with pytest.raises(UsageError, match=r"^the destination 'bad' of trackers-sheets can't be loaded .*: bad luck$"):
        destinations.target("bad")
    with pytest.raises(UsageError, match=r"^the destination 'wrong' of trackers-sheets: its class is for .*'other'"):
        destinations.target("wrong")
    assert destinations.target("json") is destinations.BUILT_IN["json"]
    with pytest.raises(UsageError, match=r"did you mean 'sheets'\? .*csv:DIR, sheets:FOLDER, or a directory"):
        destinations.parse("sheet:out")
