"""What training printed as a text file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trackers.backends.shared import console_log
from trackers.backends.shared.console_log import ConsoleLog
from trackers.records import Console


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved."""
    now = [1000.0]
    monkeypatch.setattr(console_log.time, "monotonic", lambda: now[0])
    return now


def opened(tmp_path: Path, state: dict[str, Any]) -> ConsoleLog:
    return ConsoleLog(tmp_path / "mlflow/console.log", tmp_path, state)


def test_lines_that_were_not_committed_are_cut_off(tmp_path: Path) -> None:
    """After a kill between the file and the state, the records come again."""
    state: dict[str, Any] = {}
    log = opened(tmp_path, state)
    log.add(Console(time=1.0, lines=["one"], seq=1))
    committed = dict(state)
    log.add(Console(time=2.0, lines=["two"], seq=2))
    again = opened(tmp_path, committed)
    again.add(Console(time=2.0, lines=["two"], seq=2))
    again.add(Console(time=2.0, lines=["two"], seq=2))
    again.add(Console(time=3.0, lines=["three", "3"], rank=1, left_out=5000, seq=3))
    assert again.path.read_text() == "one\ntwo\n[rank 1] … 5,000 bytes left out …\n[rank 1] three\n[rank 1] 3\n"


def test_bar_is_there_when_it_has_ended(tmp_path: Path) -> None:
    """Its states on the way aren't lines."""
    log = opened(tmp_path, {})
    log.add(Console(time=1.0, lines=["10%"], partial=True, seq=1))
    log.add(Console(time=2.0, lines=["100%"], seq=2))
    assert log.path.read_text() == "100%\n"


def test_file_is_sent_ever_more_seldom_and_at_the_end(tmp_path: Path, clock: list[float]) -> None:
    """First after half a minute, then after twice as long each time; unchanged, it isn't sent again."""
    sent: list[float] = []
    log = opened(tmp_path, {})
    for second in range(1000):
        clock[0] = 1000.0 + second
        log.add(Console(time=1.0, lines=["x"], seq=second + 1))
        log.send(lambda path: sent.append(clock[0] - 1000.0))
    assert sent == [30.0, 91.0, 212.0, 453.0, 934.0]
    log.send(lambda path: sent.append(-1.0), last=True)
    log.send(lambda path: sent.append(-2.0), last=True)
    assert sent[5:] == [-1.0]


def test_file_that_could_not_be_sent_is_due_again(tmp_path: Path, clock: list[float]) -> None:
    """Later, not with the next record."""
    log = opened(tmp_path, {})
    log.add(Console(time=1.0, lines=["x"], seq=1))
    clock[0] += 30.0

    def away(path: Path) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        log.send(away)
    sent: list[Path] = []
    log.send(sent.append)
    assert not sent
    clock[0] += 60.0
    log.send(sent.append)
    assert sent == [log.path]


def test_file_that_somebody_removed_goes_on(tmp_path: Path) -> None:
    """With what comes now."""
    state: dict[str, Any] = {}
    log = opened(tmp_path, state)
    log.add(Console(time=1.0, lines=["one"], seq=1))
    log.close()
    log.path.unlink()
    again = opened(tmp_path, state)
    again.add(Console(time=2.0, lines=["two"], seq=2))
    assert again.path.read_text() == "two\n"
