"""``make cloud-check``: what it says of stores that hold their promises, and of those that don't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.object_storage import cloud_check
from tests.object_storage.cloud_check import Check
from trackers.object_storage.store import Store

QUICK = (Check.objects, Check.conditional, Check.removed)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was printed, without the steps that start processes."""
    monkeypatch.setattr(cloud_check, "STEPS", QUICK)
    return []


def test_store_that_holds_its_promises_is_left_empty(said: list[str], tmp_path: Path) -> None:
    """Everything is below a folder of its own, and gone at the end."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/mine").write_text("kept")
    assert cloud_check.check(f"file://{tmp_path}/store", said.append) == 0
    assert said[-1].strip() == "3 of 3 steps held"
    assert [one.name for one in Store(f"file://{tmp_path}/store").objects()] == ["mine"]


def test_store_without_conditional_writes_is_named(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and goes on with the other steps."""
    monkeypatch.setattr(Store, "create", lambda self, name, content: bool(self.put(name, content)))
    assert cloud_check.check(f"file://{tmp_path}/store", said.append) == 1
    (line,) = [line for line in said if line.startswith("FAILED")]
    assert "20 were told so: this store has no conditional writes" in line
    assert said[-1].strip() == "2 of 3 steps held"


def test_what_is_no_address_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With what to give."""
    monkeypatch.setattr("sys.argv", ["cloud-check", "my-bucket"])
    assert cloud_check.main() == 2
    assert "is no store: give s3://" in capsys.readouterr().err
