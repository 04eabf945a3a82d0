"""Who trains a sweep: one process at a time, on any machine that sees the directory."""

from __future__ import annotations

import itertools
import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest
from trackers_sweeps import ledger as module
from trackers_sweeps.ledger import Ledger, PointOutcome

from trackers.errors import UsageError
from trackers.journal import lease
from trackers.journal.lease import Holder, read_holder
from trackers.support import confined


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence counts sooner."""
    for place in (lease, module):
        monkeypatch.setattr(place, "STALE_S", 0.5)
        monkeypatch.setattr(place, "HALF_WRITTEN_S", 0.3)


def elsewhere(ledger: Ledger, count: int = 0) -> None:
    """A holder on another machine."""
    ledger.folder.mkdir(parents=True, exist_ok=True)
    holder = Holder(token="other", host="elsewhere", boot_id="b", pid=7, pid_start=1.0, count=count)
    temporary = ledger.folder / "written"
    temporary.write_bytes(msgspec.json.encode(holder))
    temporary.replace(ledger.folder / "lease")


@pytest.mark.parametrize(("share", "mode"), [("owner", 0o700), ("group", 0o750), ("umask", 0o755)])
def test_folder_is_for_whom_runs_are_shared_with(share: str, mode: int) -> None:
    """It has what the programs print, as they print it, and their commands; a link in its place is not followed."""
    before = os.umask(0o022)
    try:
        ledger = Ledger(Path("runs"), "s")
        ledger.begin(share=share)
        ledger.note_command(["train", "--api-key", "x"])
        ledger.note("a", PointOutcome())
        confined.touch(ledger.log("a"), root=ledger.folder)
        assert stat.S_IMODE(ledger.folder.stat().st_mode) == mode
        assert {stat.S_IMODE(path.stat().st_mode) for path in ledger.folder.iterdir()} == {mode & 0o666}
    finally:
        os.umask(before)
    Path("elsewhere").mkdir()
    Path("runs/.sweeps/t").symlink_to(Path("elsewhere").absolute())
    with pytest.raises(OSError, match="link"):
        Ledger(Path("runs"), "t").begin(share=share)


@pytest.mark.heavy
def test_silent_holder_elsewhere_is_followed() -> None:
    """Whoever gives no sign of life on another machine is gone; nothing is left of either."""
    ledger = Ledger(Path("runs"), "s")
    elsewhere(ledger)
    ledger.begin()
    holder = read_holder(ledger.folder / "lease")
    assert holder is not None
    assert holder.is_local()
    assert ledger.keep()
    ledger.end()
    assert not list(ledger.folder.iterdir())


@pytest.mark.heavy
def test_living_holder_elsewhere_is_named() -> None:
    """Its signs of life are seen, and nothing is taken from it."""
    ledger, ended = Ledger(Path("runs"), "s"), threading.Event()
    elsewhere(ledger)

    def live() -> None:
        for count in itertools.count(1):
            elsewhere(ledger, count)
            if ended.wait(0.05):
                return

    living = threading.Thread(target=live)
    living.start()
    try:
        with pytest.raises(UsageError, match="sweep 's' is being trained by process 7 on elsewhere: wait for it, end"):
            ledger.begin()
    finally:
        ended.set()
        living.join()


@pytest.mark.heavy
def test_lease_that_was_half_written_is_nobodys() -> None:
    """Its writer was killed in the middle."""
    ledger = Ledger(Path("runs"), "s")
    ledger.folder.mkdir(parents=True)
    (ledger.folder / "lease").write_text('{"tok')
    ledger.begin()
    assert ledger.keep()
    ledger.end()


@pytest.mark.heavy
def test_folder_that_cant_be_written_is_said() -> None:
    """Instead of waiting for a process that isn't there."""
    ledger = Ledger(Path("runs"), "s")
    (ledger.folder / "lease").mkdir(parents=True)
    with pytest.raises(OSError, match="lease"):
        ledger.begin()


def test_outcomes_are_kept_and_damaged_ones_are_none() -> None:
    """A process of another machine, or one that is gone, doesn't live."""
    ledger = Ledger(Path("runs"), "s")
    ledger.begin()
    ledger.note("a", PointOutcome(ended="failed", devices=["1"]))
    assert ledger.outcome("a") == PointOutcome(ended="failed", devices=["1"])
    (ledger.folder / "a.state").write_text("{")
    assert ledger.outcome("a") == ledger.outcome("never") == PointOutcome()
    assert not PointOutcome(pid=1, start=1.0, host="elsewhere").lives()
    assert ledger.was_started("a")
    assert not ledger.was_started("never")
    ledger.end()
