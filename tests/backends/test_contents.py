"""Each kind of what a run logs lies where docs/choosing-trackers.md says, in each tracker's store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends import contents


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content, delivered to all trackers of the table after its end, is in their stores."""
    info = contents.delivered(tmp_path, monkeypatch, list(contents.STORES))
    columns = {name: {kind: cells[name] for kind, cells in contents.TABLE.items()} for name in contents.STORES}
    lacking = {name: contents.lacking(columns[name], store(info)) for name, store in contents.STORES.items()}
    assert not any(lacking.values()), lacking
    assert not any(map(contents.untested, columns.values()))


def test_page_has_the_table() -> None:
    """``python -m tests.backends.contents`` prints it; each kind has a word for each tracker."""
    assert contents.table() in contents.PAGE.read_text()
    for kind, cells in contents.TABLE.items():
        assert cells.keys() == contents.STORES.keys(), kind
