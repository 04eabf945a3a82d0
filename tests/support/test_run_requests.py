"""Requests to a run, as files: torn lines, twice the same, what training says of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from trackers.support import run_requests
from trackers.support.run_requests import ControlState, ask, new_request, read, read_control, write_control


def test_request_is_left_once_whatever_the_file_ends_with(tmp_path: Path) -> None:
    """A torn line before it doesn't swallow a request, and the same one isn't left twice."""
    first = new_request(1, stop=True, checkpoint=False, reason="r", by="trackers stop")
    ask(tmp_path, first)
    with open(tmp_path / run_requests.FILE, "ab") as file:
        file.write(b'{"id":"torn"')
    second = new_request(2, stop=False, checkpoint=True)
    ask(tmp_path, second)
    ask(tmp_path, first)
    assert read(tmp_path) == [first, second]
    assert read(tmp_path, 2) == [second]


def test_reason_is_one_line_without_secrets(tmp_path: Path) -> None:
    """What a user types as a reason goes to every tracker: its line breaks and keys don't."""
    asked = new_request(1, stop=True, checkpoint=False, reason="a\nb\x1b[2J api_key=sk-ant-api03-" + "x" * 90, who="w")
    assert "\n" not in asked.reason
    assert "\x1b" not in asked.reason
    assert "x" * 90 not in asked.reason


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"stop":3}', b"[" * 100_000])
def test_damaged_control_file_says_nothing(content: bytes, tmp_path: Path) -> None:
    """What can't be read is no answer."""
    path = tmp_path / "control.1.json"
    path.write_bytes(content)
    assert read_control(path) == ControlState()
    write_control(path, ControlState(stop=True, agreed=(3, 4)))
    assert read_control(path) == ControlState(stop=True, agreed=(3, 4))


def test_link_in_the_place_of_the_file_isnt_followed(tmp_path: Path) -> None:
    """A run's directory is data: a request isn't appended to somebody's file."""
    (tmp_path / "other").write_text("mine")
    (tmp_path / run_requests.FILE).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="requests"):
        ask(tmp_path, new_request(1, stop=True, checkpoint=False))
    assert (tmp_path / "other").read_text() == "mine"


def test_request_of_a_stranger_is_one_plain_line() -> None:
    """Who can write to the run's directory moves no terminal, fills no screen, and names no time without a date."""
    planted = run_requests.Request(
        id="a", time=1.0, stop=True, reason="\x1b]0;x\x07a\nb" + "c" * 9999, who="\x9bd", by="e\r"
    )
    (asked,) = run_requests.parse(msgspec.json.encode(planted))
    assert str(asked).isprintable()
    assert len(str(asked)) < 1000
    assert asked.stop
    for odd in ({"time": 1e300}, {"time": -1.0}, {"id": "a" * 5000}):
        assert run_requests.parse(msgspec.json.encode({"id": "b", "time": 1.0, "stop": True, **odd})) == []
