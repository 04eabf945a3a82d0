"""Every built-in tracker passes the conformance kit, its store read back without our writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import stores
from trackers.testing import Limits, check_tracker, checks

every_check = pytest.mark.parametrize("check", checks())


def trackio_name(name: str) -> str:
    """Trackio's reserved keys get "__" in front, and so do names that begin so."""
    reserved = {"project", "run", "timestamp", "step", "time", "metrics"}
    return f"__{name}" if name in reserved or name.startswith("__") else name


@every_check
def test_trackio_keeps_promise(check: str, tmp_path: Path) -> None:
    """The local trackio store holds every record once, with original times; integers above 64 bits are skipped."""
    limits = Limits(big_integers="skipped", rename=trackio_name)
    check_tracker("trackio", stores.read_trackio, directory=tmp_path / "runs", limits=limits, checks=[check])
