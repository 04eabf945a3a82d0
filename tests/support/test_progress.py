"""Progress on stderr: plain lines outside of terminals, few of them."""

from __future__ import annotations

import io
import re
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
    monkeypatch.setattr(progress, "monotonic", found.monotonic)
    monkeypatch.setattr(progress, "_shown", 0)  # a thread or a loop that another test left in the middle counts, too
    monkeypatch.delenv("TRACKERS_PROGRESS_S")
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


def test_items_are_counted_one_alone_is_not(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    """What is done inside of it is a part of it, and not shown."""
    for item in progress.counted(["a", "b", "c"], "reading", "runs"):
        clock.now += 3.0
        with progress.progress("part", "records") as tell:
            tell(1, 2)
        assert list(progress.counted([item], "alone", "runs")) == [item]
    clock.now += 30.0
    assert list(progress.counted([1], "alone", "runs")) == [1]
    assert capsys.readouterr().err.splitlines() == ["trackers: reading: 1 of 3 runs (33%)"]


def test_nothing_is_shown_where_the_terminal_is_used_otherwise(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    """And again afterwards."""
    progress.hide()
    with progress.progress("hidden", "runs") as tell:
        clock.now = 50.0
        tell(1, 2)
    progress.show_again()
    with progress.progress("shown", "runs") as tell:
        clock.now = 100.0
        tell(1, 2)
    assert capsys.readouterr().err == "trackers: shown: 1 of 2 runs (50%)\n"


def test_bar_leaves_standard_output_to_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a bar is drawn; what is printed meanwhile goes where it was sent."""
    drawn, piped = io.StringIO(), io.StringIO()
    drawn.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setattr(sys, "stdout", piped)
    with progress.progress("copying", "records") as tell:
        tell.title = "run 1 of 2"
        tell(3, 4)
        print("a report")
    assert piped.getvalue() == "a report\n"
    assert "run 1 of 2" in drawn.getvalue()
    assert "3/4" in drawn.getvalue()


@pytest.mark.parametrize("columns", ["40", "200"])
def test_lines_above_a_bar_are_not_broken(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is one line however wide the terminal is, so that a command in it can be copied; the bar has room."""
    drawn = io.StringIO()
    drawn.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    message = "trackers: " + " ".join(f"word{number}" for number in range(60))
    with progress.progress("reading the runs of a project", "runs") as tell:
        tell(1, 4)
        print(message, file=sys.stderr)
        tell(2, 4)
    shown = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", drawn.getvalue()).replace("\r", "\n").splitlines()
    assert message in shown
    assert max(len(line) for line in shown if line != message) <= int(columns)


def test_short_work_draws_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, too."""
    drawn = io.StringIO()
    drawn.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", drawn)
    with progress.progress("copying", "records") as tell:
        tell(1, 2)
    assert drawn.getvalue() == ""


def test_time_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """For scripts; what is no number counts as none."""
    for value, seconds in (("7.5", 7.5), ("soon", 2.0), ("", 2.0)):
        monkeypatch.setenv("TRACKERS_PROGRESS_S", value)
        assert progress.first_s() == seconds
