"""The benchmarks run and say what they measured; how fast anything is, is for them to tell, never for a test."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trackers
from benchmarks import __main__ as everything
from benchmarks import (
    analysis,
    common,
    console_capture,
    copying,
    crowd,
    delivery_rate,
    file_trackers,
    finishing,
    instruments,
    log_call,
    reading,
    sampling,
    side_by_side,
    startup,
    storing,
    sweep,
    training_step,
)
from benchmarks.common import Figure
from tests import ROOT
from tests.fakes.gpu_drivers.standin import Drivers

FEW = ("tensorboard", "json")


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    """Figures by name; each is a finite number."""
    assert all(figure.value >= 0 for figure in figures)
    return {figure.name: figure for figure in figures}


@pytest.mark.slow
def test_log_call_measures_and_audits() -> None:
    """Every kind of input is logged beside the floor, and the stores hold all of it."""
    figures = by_name(log_call.measure(True, FEW, count=100))
    assert figures["log, ten floats: median / floor"].at_most == log_call.RATIO
    assert figures["deliveries alive during it"].verdict == "pass"
    assert figures["values lost, doubled or wrong"].value == 0
    assert {"one NaN of ten: median", "NumPy float32: median", "torch, 0-d on the CPU: median"} <= set(figures)


@pytest.mark.slow
def test_console_capture_measures_prints_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A print with the capture and without it, and what the relay takes."""
    monkeypatch.setattr(console_capture, "BLOCK", 5)
    figures = by_name(console_capture.measure(True))
    assert figures["the same, with it"].value > figures["print of a line, without the capture"].value
    assert figures["lines that the relay takes"].value > 0


@pytest.mark.slow
def test_training_step_measures_and_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps with and without logging take turns, and every logged step arrives."""
    monkeypatch.setattr(training_step, "BLOCK_STEPS", 10)
    figures = by_name(training_step.measure(True, FEW))
    assert figures["step with logging / without: median"].at_most == training_step.LIMIT
    assert figures["values lost, doubled or wrong"].value == 0


@pytest.mark.slow
def test_delivery_rate_measures_and_audits() -> None:
    """Each tracker's lag and cost are told, and every record arrives."""
    figures = by_name(delivery_rate.live(FEW, 0.2))
    assert figures["  json: behind at the end"].at_most == delivery_rate.LAG_S
    assert figures["values lost, doubled or wrong"].value == 0


@pytest.mark.slow
def test_reading_measures_and_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readers read the same run, every value is summed up, and what a growing run costs is told."""
    figures = by_name(reading.measure(True, steps=600))
    assert figures["journal into columns, first read"].value > 0
    assert any(figure.at_least == reading.SECOND for figure in figures.values())


@pytest.mark.slow
@pytest.mark.processes
def test_copying_measures_and_compares() -> None:
    """A copy is timed against the vendor's own call, agrees, and its memory is told."""
    figures = by_name(copying.measure(True, ("tensorboard",), steps=50))
    (share,) = [figure for name, figure in figures.items() if "own bulk call" in name]
    assert (share.at_least, share.value > 0) == (copying.SHARE, True)
    assert figures["tb: memory for 5,000 values"].at_most == copying.MEMORY_MB


@pytest.mark.processes
def test_startup_measures_fresh_processes() -> None:
    """A fresh process says how long its start took, whatever it prints besides."""
    assert startup.start("json") > 0


@pytest.mark.slow
def test_sampling_measures_the_samplers_process(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler of a run with eight stand-ins for GPUs is found, and its processor time told."""
    monkeypatch.setenv("TRACKER_SAMPLE", "y")
    drivers.set(count=8)
    for name, value in drivers.environment("new").items():
        monkeypatch.setenv(name, value)
    figures = by_name(sampling.cost(0.1))
    (share,) = [figure for name, figure in figures.items() if name.startswith("sampler, 8 GPUs at 1 Hz")]
    assert share.at_most == sampling.SHARE


@pytest.mark.heavy
def test_sending_to_a_store_is_counted_and_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and bytes while a run logs, how long a look takes, and that the store has each record once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storing.storage, "Store", storing.Counting)
    monkeypatch.setattr(storing, "REQUEST_S", 0.0)
    monkeypatch.setattr(storing, "EVERY_S", 0.1)
    figures = by_name(storing.one(100, 0.5))
    assert figures["100 records/s: requests a minute"].value > 0
    assert figures["  sent a minute"].value > figures["  logged a minute"].value > 0
    assert figures["  records lost or doubled in the store"].value == 0


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
def test_runs_of_an_agent_are_counted_and_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs at once and runs in a row: processes, memory, what is missing, and what is left of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(crowd, "LOOK_S", 0.05)
    monkeypatch.setattr(sweep, "TRACKERS", "json")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with finishing.agent("json"):
        taken = crowd.Crowd(2, "json,tensorboard", "of2-").play()
        took = sweep.sweep(2, 0.05)
        processes, leases, lacking = sweep.left()
    usual = sweep.sweep(2, 0.05, sweep.USUAL)
    clients = crowd.clients(2)
    assert taken.processes >= 6, "training, its relays, the agent and a delivery"
    assert taken.memory_mb > taken.training_mb > 0
    assert taken.wrong == 0
    assert (clients.processes >= 2, clients.memory_mb > 100) == (True, True), "training alone loads that much"
    assert len(list(Path("clients2").glob("*/usual-events/events*"))) == 2, "they wrote what they log"
    assert len(took) == len(usual) == 2
    assert min(took + usual) > 0
    assert len(list(Path("usual").glob("n*/events*"))) == 2, "the vendors' clients wrote them"
    assert (processes, leases, lacking) == (0, 0, 0)


def test_script_prints_json(tmp_path: Path) -> None:
    """With --json a machine can read every figure with its bound and verdict."""
    code = (
        "import sys; sys.argv[1:] = ['--json', '--quick'];"
        "from benchmarks.common import Figure, main; main(lambda quick: [Figure('a', 2.0, 'x', at_most=1.0)], 'title')"
    )
    environment = {**os.environ, "PYTHONPATH": str(common.ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    (figure,) = json.loads(done.stdout)
    assert (figure["name"], figure["value"], figure["at_most"], figure["verdict"]) == ("a", 2.0, 1.0, "miss")


def test_results_page_keeps_each_section_and_replaces_one() -> None:
    """A benchmark that runs again replaces its own section; the others, and their order, stay."""
    first = Figure("  a | call", 1.25, "us", at_most=2.0)
    page = everything.with_section("", "sweep", everything.section("Sweeps.", [Figure("left", 0, at_most=0)], 0.0, 0.5))
    page = everything.with_section(page, "log_call", everything.section("Calls.", [first], 86400.0, 0.0))
    again = everything.with_section(page, "log_call", everything.section("Calls.", [Figure("b", 3.0)], 0.0, 0.0))
    assert page.startswith("# Results\n")
    assert [line for line in again.splitlines() if line.startswith("## ")] == ["## log_call", "## sweep"]
    assert r"| a \| call | 1.25 us | <= 2 | pass |" in page
    assert "1970-01-02" in page
    assert "1.25" not in again
    assert "| b | 3 | | |" in again
    assert "| left | 0 | <= 0 | pass |" in again
    assert everything.with_section(again, "sweep", again.rpartition("## sweep\n\n")[2]) == again


def test_side_by_side_measures_each_way_and_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """This package, Accelerate and the vendors' clients each start, log and end; the picture has all figures."""
    monkeypatch.setattr(side_by_side, "one", lambda way: dict.fromkeys(side_by_side.KINDS, len(way) / 10))
    monkeypatch.setattr(side_by_side, "agent", lambda trackers: contextlib.nullcontext())
    figures = side_by_side.measure(True)
    assert [figure.value for figure in figures if figure.unit == "x"] == [0.8] * 4
    path = Path("side.svg")
    side_by_side.draw({way: dict.fromkeys(side_by_side.KINDS, 0.5) for way in side_by_side.WAYS}, path)
    assert path.read_text().count("<path") > 30


@pytest.mark.soak
@pytest.mark.processes
@pytest.mark.parametrize("way", ["trackers", "Accelerate", "the vendors' clients"])
def test_each_way_of_side_by_side_works(way: str) -> None:
    """The programs that it times run through."""
    with common.place_of_its_own():
        taken = side_by_side.one(way)
    assert all(seconds > 0 for seconds in taken.values())
    assert taken.keys() == side_by_side.KINDS.keys()


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a", 1.0), ""),
        (Figure("a", 1.0, at_most=1.0), "pass"),
        (Figure("a", 1.1, at_most=1.0), "miss"),
        (Figure("a", 1.0, at_least=1.0), "pass"),
        (Figure("a", 0.9, at_least=1.0), "miss"),
        (Figure("a", float("nan"), at_most=1.0), "miss"),
    ],
)
def test_verdict_follows_the_bound(figure: Figure, verdict: str) -> None:
    """A figure passes on its bound, misses beyond it, and is only reported where it has none."""
    assert figure.verdict == verdict


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda points: points, 0),
        (lambda points: points[1:], 1),
        (lambda points: [points[0], *points], 1),
        (lambda points: [(0, 9.0), *points[1:]], 1),
        (lambda points: [*points, (7, 1.0)], 1),
    ],
)
def test_audit_sees_one_wrong_value(change: Any, wrong: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One value missing, doubled, changed or invented in a store is counted."""
    logged = {step: dict.fromkeys(common.NAMES, step / 3) for step in range(3)}
    points = [(step, values[common.NAMES[0]]) for step, values in logged.items()]
    stored = dict.fromkeys(common.NAMES, points) | {common.NAMES[2]: change(points)}
    monkeypatch.setattr(common, "_json_values", lambda info: stored)
    run = trackers.init("json", mode="offline", options={"TRACKER_RELAY": False})
    run.finish()
    assert common.audit(SimpleNamespace(dir=run.dir), logged, ["json"]) == wrong


@pytest.mark.soak
@pytest.mark.processes
def test_analysis_benchmark_measures() -> None:
    """Every command answers for every run, twice the same, and each bound of the issue has its figure."""
    figures = analysis.measure(True)
    assert all(figure.value >= 0 for figure in figures)
    bounds = sorted(figure.at_most for figure in figures if figure.at_most is not None)
    assert bounds == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 5.0, 1000.0]  # ls and sql: wall and processor time; sync: a run


@pytest.mark.slow
def test_instruments_benchmark_measures_timers_norms_and_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure that has a bound is there, and every figure is a number."""
    threads = torch.get_num_threads()
    monkeypatch.setenv("TRACKER_RELAY", "n")
    figures = {figure.name: figure for figure in instruments.measure(True)}
    torch.set_num_threads(threads)
    bounds = [figure.at_most for figure in figures.values() if figure.at_most is not None]
    assert bounds == [1.0, 1.0, 0.3, 0.1, 1.3]
    assert all(figure.value == figure.value for figure in figures.values())
    assert figures["norms, 1,000 tensors / torch's get_total_norm"].value > 0


@pytest.mark.slow
@pytest.mark.processes
def test_file_trackers_benchmark_measures_each_tracker_and_the_callback() -> None:
    """Every tracker that is there has its figures with their bounds, and nothing is left undelivered."""
    assert {"json", "csv", "benchmark"} <= set(file_trackers.present())
    figures = file_trackers.measure(True, ("benchmark",), records=1000)
    assert [figure.at_least for figure in figures if figure.at_least is not None] == [file_trackers.RATE]
    assert [figure.at_most for figure in figures if figure.at_most is not None] == [2.0, 1.0, 0, 100.0]
    assert figures[-2].value == 0
    assert all(figure.value >= 0 for figure in figures)
