"""Progress on stderr: plain lines outside of terminals, few of them."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import pytest

from tests.helpers import Time
from trackers.support import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    """A clock that the test moves."""
    found = Time(0.0)
    monkeypatch.setattr(progress, "time", found)
    monkeypatch.setattr(progress, "FIRST_S", 2.0)
    return found


def test_plain_lines_come_after_two_seconds_and_each_ten(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    """Short work says nothing; how much there is in all is said where it is known."""
    with progress.progress("reading one", "records") as tell:
        for seconds in (1.0, 2.5, 5.0, 12.0, 13.0):
            clock.now = seconds
            tell(int(seconds * 1000), 20_000 if seconds > 5 else 0)
    assert capsys.readouterr().err.splitlines() == [
        "trackers: reading one: 2,500 records",
        "trackers: reading one: 13,000 of 20,000 records (65%)",
    ]


def test_closed_stderr_stops_nothing(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work goes on without anybody who reads."""
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    lines = progress.PlainLines()
    clock.now = 100.0
    lines.tell(lambda: "x")


def test_notebook_is_known_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython in a terminal is none."""
    assert not progress.is_notebook()
    module: Any = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", module)
    module.get_ipython = lambda: types.SimpleNamespace()
    assert not progress.is_notebook()
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    assert progress.is_notebook()
