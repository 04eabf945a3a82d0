"""A lake that somebody else planted leads no command out of it, by links, and keeps none waiting, by pipes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_lake_commands import run_cli
from trackers_lake.tables import Lake

from tests.analysis.support import write_run
from trackers.errors import TrackersError

pytest.importorskip("pyarrow", reason="the extra analysis")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake of one run, and beside it files of somebody else's."""
    monkeypatch.chdir(tmp_path)
    write_run("one", [(step, step, {"loss": 1.0}) for step in range(5)])
    assert run_cli("lake", "add", "runs", "lake").exit_code == 0
    (tmp_path / "theirs/deep").mkdir(parents=True)
    for name in ("model.parquet", "notes.txt", "deep/part-1.parquet", "00000000000000000000.json"):
        (tmp_path / "theirs" / name).write_text("kept")
        os.utime(tmp_path / "theirs" / name, (1, 1))
    return tmp_path / "lake"


def listing(folder: Path) -> dict[str, Any]:
    """What lies below a folder."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("place", ["metrics/sub", "metrics/_delta_log/sub", "system", "other", "metrics/_delta_log"])
def test_folder_that_is_a_link_leads_nowhere(place: str, lake: Path, tmp_path: Path) -> None:
    """Nothing is deleted or written behind it: not by a vacuum, which lists whole tables, nor by any writer."""
    if (lake / place).exists():
        shutil.move(lake / place, tmp_path / "away")
        shutil.copytree(tmp_path / "away", tmp_path / "theirs", dirs_exist_ok=True)
    (lake / place).symlink_to(tmp_path / "theirs")
    before = listing(tmp_path / "theirs")
    write_run("two", [(0, 0, {"loss": 1.0, "gpu/0/power_w": 9.0})])
    for words in ("add runs lake", "compact lake", "rm lake one --yes", "vacuum lake --older-than 0"):
        run_cli("lake", *words.split())
        assert listing(tmp_path / "theirs") == before, words


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["lake.json", "metrics/_delta_log/_last_checkpoint", "vacuumed.json"])
def test_file_that_is_none_is_not_read(name: str, kind: str, lake: Path, tmp_path: Path) -> None:
    """A pipe would hold a command up for ever."""
    path = lake / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(TrackersError, match=r"isn't a regular file|is a link"):
        use(lake, name)


def use(lake: Path, name: str) -> None:
    """Read a lake, and that file of it."""
    made = Lake(lake)
    made.snapshot("metrics")
    made.store.get(name, 100)
