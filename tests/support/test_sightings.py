"""What this machine has seen, and for how long by its own clock, whatever other clocks say."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trackers.support import runtime_directory, sightings
from trackers.support.sightings import Moment, look


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_directory, "directory", lambda: tmp_path / "runtime")


def at(seconds: float, clock: str = "boot") -> Moment:
    return Moment(clock, seconds)


def test_silence_counts_from_the_first_look() -> None:
    """A sign that is new begins anew; one that changed between two close looks has moved."""
    assert look("run", "a", at(100)) == (0.0, False)
    assert look("run", "a", at(130)) == (30.0, False)
    assert look("run", "b", at(131)) == (0.0, True)
    assert look("run", "b", at(171)) == (40.0, True)
    assert look("other", "b", at(171)) == (0.0, False)
    assert look("run", "c", at(1000)) == (0.0, False)  # it moved at some time in a quarter of an hour


def test_other_clock_is_not_compared() -> None:
    """After a restart of the machine, or in a container whose clock began elsewhere, nothing has been seen yet."""
    look("run", "a", at(10**6))
    assert look("run", "a", at(5)) == (0.0, False)
    assert look("run", "a", at(9, "after a restart")) == (0.0, False)
    assert look("run", "a", at(7)) == (2.0, False)


@pytest.mark.parametrize("content", [b"", b"{", b'{"sign": 3}', b"\xff\xfe"])
def test_damaged_memory_is_none(content: bytes) -> None:
    """A file that a full disk or a kill left behind counts as never seen."""
    look("run", "a", at(100))
    (sightings.directory() / sightings.file_name("run", at(0))).write_bytes(content)
    assert look("run", "a", at(500)) == (0.0, False)
    assert look("run", "a", at(501)) == (1.0, False)


def test_machine_without_a_directory_remembers_in_the_process(tmp_path: Path) -> None:
    """Another user has the name: nothing of his is read, and a process that lasts still sees what stands still."""
    (tmp_path / "runtime").mkdir(mode=0o777)
    (tmp_path / "runtime").chmod(0o777)
    assert look("run", "a", at(100)) == (0.0, False)
    assert look("run", "a", at(190)) == (90.0, False)
    assert not list((tmp_path / "runtime").iterdir())


def test_old_memory_is_deleted_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A week after the last look, by the clock of the files; a machine whose own is years ahead keeps the rest."""
    for name in ("old", "young"):
        look(name, "a", at(100))
    old, young = (sightings.directory() / sightings.file_name(name, at(0)) for name in ("old", "young"))
    for path, age_s in ((old, 8 * 86400), (sightings.directory() / ".tidied", 7200)):
        os.utime(path, (time.time() - age_s,) * 2)
    monkeypatch.setattr(time, "time", lambda: 5e9)
    look("new", "a", at(100))
    assert (old.exists(), young.exists()) == (False, True)
