"""A long reading shows how far it has got, whatever the source."""

from __future__ import annotations

from pathlib import Path

import pytest

import trackers
from tests.helpers import Terminal


@pytest.mark.parametrize("rows", [25_000, 5_000])
def test_long_reading_is_counted_on_a_terminal(
    rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records are counted as they come, a name with markup and escapes is only text; a short reading shows nothing."""
    lines = "".join(f"{step},{step / 7}\n" for step in range(rows))
    Path("[red]a\x1b[31m.csv").write_text("step,loss\n" + lines)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert trackers.load("csv:[[]red]a\x1b[[]31m.csv").metrics().num_rows == rows
    text = terminal.getvalue()
    assert ("reading [red]a" in text) == ("20000/?" in text) == (rows > 10_000)
    assert "\x1b[31m" not in text
    monkeypatch.undo()
    assert capsys.readouterr().err == ""
