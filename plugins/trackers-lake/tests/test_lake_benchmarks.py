"""The benchmarks of a lake put in what they say: how fast, is for them to tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_support import held
from trackers_lake.into_lake import Candidate
from trackers_lake.tables import Lake

from benchmarks import lake, lake_list


def test_lake_of_the_benchmark_has_all_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of numbers at full precision, one that grows, one that is edited, and several writers at once."""
    monkeypatch.chdir(tmp_path)
    lake.fill(Lake("lake", make=True), lake.made(range(7), 20))
    assert list(held("lake").values()) == [200] * 7
    assert [figure.value > 0 for figure in lake.edited(Path("lake"), 20)] == [True, True]
    assert lake.growing(3, 10)[0].value > 1
    assert held("growing") == {("digits", "r1"): 300}
    assert lake.at_once(2, 2)[0].value > 0


def test_runs_of_the_list_are_put_in(tmp_path: Path) -> None:
    """Ten metrics each."""
    lake.fill(Lake(tmp_path / "lake", make=True), map(lake_list.candidate, range(3)))
    assert list(held(tmp_path / "lake").values()) == [200] * 3


def test_run_that_is_left_out_is_no_figure(tmp_path: Path) -> None:
    """A benchmark that puts nothing in says why, and measures nothing."""
    (one,) = lake.made(range(1), 2)
    broken = Candidate(one.run, "1", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(RuntimeError, match="1 runs were left out: made:0 is damaged: division by zero"):
        lake.fill(Lake(tmp_path / "lake", make=True), [broken])
