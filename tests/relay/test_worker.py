"""A delivery's turn: when it ends it where others wait, and what has it look at once."""

from __future__ import annotations

import os

import pytest

from trackers.relay import worker
from trackers.relay.worker import Turn


def test_turn_ends_at_once_where_there_is_nothing_to_do_and_else_a_while_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came over the bell before has it look, and ends nothing; its end is the turn's."""
    heard, bell = os.pipe()
    turn = Turn(heard)
    assert not turn.over(True)
    os.write(bell, b"..")
    turn.wait(3600.0)
    assert not turn.over(True)
    os.close(bell)
    assert turn.over(True)
    assert not turn.over(False)
    monkeypatch.setattr(worker, "CLOSING_S", 0.0)
    assert turn.over(False)
    turn.wait(0.0)
    os.close(heard)


def test_turn_without_a_bell_has_no_end() -> None:
    """Nobody else waits for its place."""
    turn = Turn(-1)
    turn.wait(0.0)
    assert not turn.over(True)
