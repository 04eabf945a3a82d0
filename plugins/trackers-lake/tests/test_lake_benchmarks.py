"""The benchmarks of a lake put in what they say: how fast, is for them to tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lake_support import held
from trackers_lake.into_lake import Candidate
from trackers_lake.tables import Lake

from benchmarks import fleet, lake, lake_list
from tests import ROOT


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


@pytest.mark.slow
def test_lists_are_measured_of_runs_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ls`, `best` and the page's table ask for the table of runs alone."""
    monkeypatch.setattr(lake_list, "TOGETHER", 500)
    monkeypatch.setattr(lake_list, "DELAY_S", 0.0)
    monkeypatch.setattr(lake_list.location, "Store", lake_list.Waiting)  # which is what measure leaves behind
    monkeypatch.setattr(lake_list.location, "local_path", lake_list.location.local_path)
    figures = {figure.name: figure for figure in lake_list.measure(True)}
    assert len(figures) == 13
    assert {figure.verdict for name, figure in figures.items() if name.endswith("requests")} == {"pass"}


@pytest.mark.slow
@pytest.mark.processes
def test_lists_of_a_store_are_measured() -> None:
    """By its catalogue `ls`, `best`, `compare` and the page's table take few requests."""
    command = [sys.executable, str(ROOT / "benchmarks/store_list.py"), "--json", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout.splitlines()[-1])}
    verdicts = [figure["verdict"] for name, figure in figures.items() if name.endswith("requests")]
    assert [verdict for verdict in verdicts if verdict] == ["pass"] * 4
    assert figures["ls of 50 runs without a catalogue: requests"]["value"] > 100


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("design", fleet.DESIGNS)
def test_small_fleet_loses_and_doubles_nothing(design: str) -> None:
    """Four runs on two nodes, which are killed: the bucket counts what each part asks, and the lake has every value."""
    plan = "--runs 4 --nodes 2 --drivers 1 --seconds 12 --spread 2 --every 5 --store-every 2 --kill 3 --delay 0.005"
    command = [sys.executable, str(ROOT / "benchmarks/fleet.py"), "--json", "--design", design, *plan.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout.splitlines()[-1])}
    assert figures[f"{design}: values logged"]["value"] > 0
    assert "miss" not in {figure["verdict"] for figure in figures.values()}
    assert figures[f"{design}: nodes: PUT a day"]["value"] > 0
    assert figures[f"{design}: memory of all, node"]["value"] > 0
