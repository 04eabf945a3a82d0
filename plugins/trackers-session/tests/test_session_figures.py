"""A session's speeds are those of the run, by every tool; its lines have clocks of their own."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from trackers_session import sessions

from tests import ROOT
from tests.analysis import test_same_figures as figures
from trackers.analysis.compare import compare_runs

LOGS = ROOT / "plugins/trackers-console-logs/tests/test_log_same_figures.py"
"""Of logs that are copied to sessions."""


def exact(place: Path) -> dict[str, dict[str, float | None]]:
    """What a session's summary says of speed."""
    (path,) = place.rglob("*_summary.json")
    speed = sessions.read(path).facts.speed
    return {"session": {"steps_per_s": speed.steps_per_s, "samples_per_s": speed.samples_per_s}}


def lines(place: Path) -> dict[str, float | None]:
    """What its text says."""
    (path,) = place.rglob("*_summary.txt")
    found = re.findall(r"^ *(Steps|Samples|Tokens)/sec: ([\d.e-]+)$", path.read_text(), re.MULTILINE)
    return {f"{what.lower()}_per_s": float(value) for what, value in found}


def others(place: Path) -> dict[str, dict[str, float | None]]:
    """What the text says, and what the summary says where it is compared."""
    (path,) = place.rglob("*_summary.json")
    (compared,) = compare_runs([f"session:{path}"]).runs
    return {
        "summary.txt": lines(place),
        "session, compared": {name: compared[name] for name in figures.NAMES[:2]},  # such a file has no lengths
    }


def near(tool: str, value: float | None, expected: float | None) -> bool:
    """A session's file has few of the settings, and its text two digits at least."""
    if tool == "summary.txt":
        return expected is not None and value == pytest.approx(expected, rel=0.06)
    return tool.startswith("session") and value is None


figures.TOOLS["session"] = figures.Tool("SESSION_DIR", exact, others, near)
test_speed_is_the_same = figures.test_speed_is_the_same_by_every_tool_and_every_way_to_log
test_speed_counts_no_step_that_a_rewind_superseded = figures.test_speed_counts_no_step_that_a_rewind_superseded
test_generated_trainings_have_one_speed_in_every_tool = figures.test_generated_trainings_have_one_speed_in_every_tool

spec = importlib.util.spec_from_file_location("logs_of_sessions", LOGS)
assert spec
assert spec.loader
logs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(logs)
test_megatrons_console_log_has_one_speed_in_every_tool = logs.test_megatrons_console_log_has_one_speed_in_every_tool
test_generated_logs_have_one_speed_in_every_tool = logs.test_generated_logs_have_one_speed_in_every_tool


def test_lines_written_while_training_have_their_own_clocks(tmp_path: Path) -> None:
    """Speed by the clock, evaluations included; step times as measured, of their interval."""
    records = figures.trained(lambda step: {"perf/iter_time_sec": 30.0 if step == 1 else 0.5}, steps=100)
    figures.written("lines", records, {"SESSION_DIR": str(tmp_path)}, ("session",))
    (main,) = tmp_path.rglob("*_main.log")
    speeds = re.findall(r"^Step +(\d+)/?.*Speed: ([\d.]+) steps/s", main.read_text(), re.MULTILINE)
    assert ("100", "0.8") in speeds  # 50 steps of 0.5 s, and five evaluations of 7 s between
    assert "step_duration: 0.500" in main.read_text()
    (performance,) = tmp_path.rglob("*_performance.log")
    assert "Step 100 | Avg step time: 0.795s" in performance.read_text()  # 99 × 0.5 s and the first step's 30 s


@pytest.mark.parametrize("way", figures.WAYS)
def test_text_says_the_speed(way: str, tmp_path: Path) -> None:
    """2 steps/s, 24 samples/s and 24,576 tokens/s, whatever was logged."""
    figures.written(way.replace(" ", "-"), figures.WAYS[way], {"SESSION_DIR": str(tmp_path)}, ("session",))
    assert lines(tmp_path) == {"steps_per_s": 2.0, "samples_per_s": 24.0, "tokens_per_s": 24576.0}
