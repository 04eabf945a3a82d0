"""A cache that can't be written: what is read is whole all the same, or one line says what is missing."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import trackers
from tests.analysis.support import write_run
from tests.backends.wandb.support import server
from tests.fakes.wandb_server import WandbServer
from tests.readers.test_wandb_reader import held, points, read
from trackers.errors import NotFound
from trackers.readers.cache import Cache

__all__ = ["server"]
STEPS = 3000
FULL = [errno.ENOSPC, errno.EDQUOT, errno.EROFS]


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real filesystem of 64 KiB for caches."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a filesystem")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def noise(count: int = STEPS) -> list[float]:
    """Values that don't pack."""
    return [float(value) for value in numpy.random.default_rng(0).random(count)]


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


def test_run_is_read_whole_where_its_cache_has_no_space(small_disk: Path) -> None:
    """Neither values nor the space that is left are lost: no half part stays."""
    values = noise()
    write_run("one", [(step, step / 10, {"a": value, "b": -value}) for step, value in enumerate(values)])
    for _ in range(3):
        data = trackers.load("runs/digits/one")
        assert data.metrics()["a"].to_pylist() == values
        assert not [name for name in files(small_disk) if name.startswith("part-")]


@pytest.mark.parametrize("code", FULL)
def test_quota_keeps_no_run_from_being_read(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise where the system refuses in another way; what was kept before is still there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_run("one", [(1, 0.1, {"a": 0.5})])
    cache = Cache("somebody's")
    cache.replace({"version": "1"}, 0, [], [])
    kept = files(tmp_path / "cache")

    def refuse(self: Path, *_: Any) -> int:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    cache.append({"version": "2"}, 1, [], [])
    assert cache.state() == {"version": "1"}
    assert files(tmp_path / "cache") == kept
    assert trackers.load("runs/digits/one").metrics()["a"].to_pylist() == [0.5]


@pytest.mark.slow
def test_fetching_without_space_is_one_line(server: WandbServer, small_disk: Path) -> None:
    """Rows of W&B are kept while they come: without space, a line names the place; nothing half stays, and with space
    the next reading has all of them."""
    run = held(server, 0)
    run.rows += [{"_step": step, "_timestamp": 1.0 * step, "a": value} for step, value in enumerate(noise(9000))]
    with pytest.raises(NotFound, match=r"can't be kept in .*: No space left on device; XDG_CACHE_HOME names") as raised:
        read("someone/digits/v2h4vzbc")
    assert "\n" not in str(raised.value)
    (index,) = small_disk.rglob("index.json")
    assert [name for name in files(index.parent) if name != "index.json" and name not in index.read_text()] == []
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert len(points(read("someone/digits/v2h4vzbc"), "a")) == 9000


@pytest.mark.parametrize("code", FULL)
def test_fetching_beyond_a_quota_is_one_line(
    code: int, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the system's, in one line with the place."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    held(server, 100)

    def refuse(self: Path, *_: Any) -> int:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(NotFound, match=f"can't be kept in .*: {os.strerror(code)}; XDG_CACHE_HOME names another place"):
        read("someone/digits/v2h4vzbc")
    assert not [name for name in files(tmp_path / "cache" / "trackers") if name.endswith(".parquet")]
