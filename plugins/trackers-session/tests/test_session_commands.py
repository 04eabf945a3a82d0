"""``trackers benchmark sessions``, ``analyze_logs.py``, and sessions in reports: documented flags and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from session_logs import POOR, SESSION, stamp, write_session
from trackers_session import commands as analyze_logs
from typer.testing import CliRunner

from tests import ROOT, again
from tests.analysis.support import write_run
from tests.analysis.test_report import losses
from tests.cli import test_outputs, test_scripts
from tests.cli.test_bad_inputs import HOWS, ODD, damage, odd, said, with_odd
from tests.cli.test_outputs import Command, script
from tests.plotting.test_presets import PNG
from trackers.analysis import report
from trackers.analysis.curves import open_runs
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError
from trackers.readers.run_data import load

PROGRAM = script("analyze_logs", analyze_logs.main)
SCRIPT = ROOT / "scripts/analyze_logs.py"
test_outputs.INPUTS["logs/one/one_summary.json"] = SESSION
test_outputs.COMMANDS |= {
    f"analyze_logs --{word}": Command(
        PROGRAM, (f"--{word}",), f"logs/session_{name}", "logs/one/one_summary.json", forced=False, option=word
    )
    for word, name in (("report", "report.txt"), ("plot", "plot.png"))
}
WRITING = ["analyze_logs --report", "analyze_logs --plot"]
prepared, here, full = test_outputs.prepared, test_outputs.here, test_outputs.full
test_output_is_replaced = again.with_values(test_outputs.test_output_is_replaced_by_its_own_kind_alone, WRITING)
test_output_is_never_an_input = again.with_values(test_outputs.test_output_is_never_an_input, WRITING, "name")
test_full_disk_leaves_what_was_there = again.with_values(test_outputs.test_full_disk_leaves_what_was_there, WRITING)
test_files_with_missing_fields_are_compared_as_runs = again.with_values(
    test_scripts.test_files_with_missing_fields_are_compared_as_runs, POOR
)

FULL: dict[str, Any] = {
    **SESSION,
    "session": {**SESSION["session"], "mode": "MULTI-GPU", "duration_seconds": 60, "model_name": "m", "exit_code": 0,
                "results": {"a": 1.0}, "names": {"loss": "train_loss"}, "status": "finished", "reason": ""},
    "gpu_snapshots": [{"timestamp": "2024-12-06T14:00:01", "system": {"cpu_percent": 1},
                       "gpus": [{"id": 0, "utilization": 1, "memory_percent": 5, "temperature": 3}]}],
    "communication_logs": [{"timestamp": "2024-12-06T14:00:01", "operation": "g", "process_rank": 0,
                            "data_size_mb": 1, "duration_ms": 1, "count": 1}],
}  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What ``analyze_logs`` prints."""
    assert analyze_logs.main(arguments) == 0
    return capsys.readouterr().out


def test_comparison_has_all_that_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line of the documented output, with its numbers: 0.83 and 1.54 steps/s make 1.85 times."""
    write_session("training_20241206_140000", 1, 1000 / 1200.5, 1.2345)
    write_session("training_20241206_143022", 2, 1000 / 650.2, 1.2340)
    out = printed(capsys, "--compare")
    assert out.startswith(f"SINGLE GPU vs MULTI-GPU COMPARISON\n{'=' * 60}\n\n📱 SINGLE GPU SESSIONS (1):\n")
    for line in (
        "  Session: training_20241206_140000", "  Duration: 1200.5s (20.0min)", "  GPUs: 1", "  Steps: 1000",
        "  Final Loss: 1.2345", "  Steps/sec: 0.83", "  GPU 0: 86.7% avg util, 90.0% peak, 75.0% avg memory",
        "🔗 MULTI-GPU SESSIONS (1):", "  Duration: 650.2s (10.8min)", "  GPUs: 2", "  Final Loss: 1.2340",
        "  Steps/sec: 1.54", "  GPU 1: 86.7% avg util, 90.0% peak, 75.0% avg memory", "⚡ PERFORMANCE COMPARISON:",
        "Single GPU Average:", "Multi-GPU Average:", "  GPU utilization: 86.7%",
        "🚀 Multi-GPU Speedup: 1.85x (steps/s: no session says its samples/s, equal batches are taken for granted)",
        "📊 GPU Efficiency: 92.3%",
    ):  # fmt: skip
        assert line in out.splitlines(), line


def test_speedup_is_from_samples(capsys: pytest.CaptureFixture[str]) -> None:
    """Where sessions say samples/s, the speed-up counts the batch: the same steps/s with twice the batch is twice."""
    write_session("single", 1, 1.0, 1.0, metrics={"samples_per_second": 4.0})
    write_session("multi", 2, 1.0, 1.0, metrics={"samples_per_second": 8.0})
    out = printed(capsys, "--compare").splitlines()
    assert "🚀 Multi-GPU Speedup: 2.00x" in out
    assert "📊 GPU Efficiency: 100.0%" in out
    assert "  Samples/sec: 8.00" in out


def test_speedup_of_each_number_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    """Sessions on two and on four GPUs have their own speed-up and efficiency, not one of their mixture."""
    for name, gpus, rate in (("one", 1, 1.0), ("two", 2, 1.5), ("four", 4, 2.0)):
        write_session(name, gpus, rate, 1.0)
    out = printed(capsys, "--compare")
    assert "🚀 Multi-GPU Speedup (2 GPUs): 1.50x" in out
    assert "📊 GPU Efficiency (4 GPUs): 50.0%" in out


@pytest.mark.parametrize("measured", [True, False])
def test_speedup_is_of_gpus_that_trained(measured: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A session on processors alone is in no average of GPUs, one that died before its first step in none at all, and
    one that doesn't say its GPUs is apart: 2.00 times, whichever lie beside."""
    for name, gpus in (("one", 1), ("two", 2)):
        write_session(name, gpus, float(gpus), 1.0, metrics={"samples_per_second": 8.0 * gpus} if measured else {})
    odd: dict[str, dict[str, Any]] = {
        "processor": {"gpu_count": 0, "mode": "SINGLE-CPU"}, "unknown": {"gpu_count": None, "mode": ""},
        "by mode": {"gpu_count": None, "mode": "SINGLE-CPU"}, "by count": {"gpu_count": 0, "mode": ""},
        "died": {},
    }  # fmt: skip
    for name, session in odd.items():
        path = write_session(name, 1, 1.0, 1.0, metrics={"samples_per_second": 1.0} if measured else {})
        content = json.loads(path.read_text())
        content["session"].update(session)
        content["gpu_snapshots"] = [] if session else content["gpu_snapshots"]
        content["training_metrics"] = content["training_metrics"] if session else []
        path.write_text(json.dumps(content))
    out = printed(capsys, "--compare")
    said = "" if measured else " (steps/s: no session says its samples/s, equal batches are taken for granted)"
    assert f"🚀 Multi-GPU Speedup: 2.00x{said}\n📊 GPU Efficiency: 100.0%\n" in out
    assert "Single GPU Average (without died: no steps):\n" in out
    assert "📱 SINGLE GPU SESSIONS (2):\n" in out
    others = out.split("📎 OTHER SESSIONS (4):\n")[1]
    for name in ("by mode", "by count"):
        assert f"Session: {name}\n  Duration: 1000.0s (16.7min)\n  GPUs: 0\n" in others
    assert "Session: processor\n  Duration: 1000.0s (16.7min)\n  GPUs: 0\n" in others
    assert "Session: unknown\n  Duration: 1000.0s (16.7min)\n  GPUs: –\n" in others


def test_slow_session_is_not_still(capsys: pytest.CaptureFixture[str]) -> None:
    """A step in three minutes is 0.0056 steps/s, not 0.00."""
    write_session("slow", 1, 1 / 180, 1.0)
    assert "  Steps/sec: 0.0056\n" in printed(capsys, "--session-id", "slow")


def test_communication_has_all_that_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """Operations with their counts and sizes; no bandwidth is made up; an event without a size has none."""
    write_session("training_20241206_143022", 2, 1.0, 1.0)
    assert printed(capsys, "--communication") == (
        "📡 Session: training_20241206_143022\n  GPUs: 2\n  Communication Operations:\n"
        "    gradient_sync: 4 occurrences\n      Avg data size: 67.50MB\n      Total data: 270.00MB\n"
        "      Avg duration: 12.00ms\n    training_start: 1 occurrences\n"
    )


def test_one_session_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    """--session-id shows that session alone; --report writes comparison and communication to a file it names."""
    write_session("single", 1, 1.0, 1.0)
    write_session("multi", 2, 1.5, 1.0)
    out = printed(capsys, "--session-id", "multi")
    assert "Session: multi" in out
    assert "single" not in out
    assert printed(capsys, "--report") == "Report saved to logs/session_report.txt\n"
    report = Path("logs/session_report.txt").read_text()
    assert "SINGLE GPU vs MULTI-GPU COMPARISON" in report
    assert "COMMUNICATION" in report


@pytest.mark.parametrize("content", POOR)
def test_session_with_missing_fields_is_analyzed(content: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is absent, null, zero or of another type shows as – and crashes nothing, beside a whole session too."""
    Path("logs").mkdir()
    Path("logs/poor_summary.json").write_text(json.dumps(content))
    for flags in ([], ["--compare"], ["--communication"], ["--report"], ["--session-id", "poor"]):
        assert "\x1b" not in printed(capsys, *flags)
    write_session("single", 1, 1.0, 1.0)
    write_session("multi", 2, 1.0, 1.0)
    assert "Speedup" in printed(capsys, "--compare", "--communication")


def test_truncated_and_foreign_files_are_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A summary that was cut, and one of another kind, are named; the others are analyzed."""
    path = write_session("single", 1, 1.0, 1.0)
    Path("logs/cut_summary.json").write_text(path.read_text()[:500])
    Path("logs/other_summary.json").write_text('{"summary": 3}')
    assert analyze_logs.main(["--compare"]) == 0
    found = capsys.readouterr()
    assert "No multi-GPU session to compare with." in found.out
    assert "cut_summary.json isn't whole JSON" in found.err
    assert "other_summary.json is no session's summary" in found.err


def test_session_is_a_source_too() -> None:
    """A session reads as a run: metrics by step, snapshots without one, ranks apart, settings, ending."""
    path = write_session("multi", 2, 1.0, 1.5)
    content = json.loads(path.read_text())
    content["training_metrics"].append({"step": 7, "loss": 9.0, "process_rank": 1, "timestamp": stamp(7)})
    path.write_text(json.dumps(content))
    data = load(str(path))
    assert (data.run.id, data.status, data.config["gpu_count"]) == ("multi", "finished", 2)
    assert data.metrics(["train_loss"])["train_loss"].to_pylist()[-1] == 1.5
    assert data.metrics(["rank_1/train_loss"])["step"].to_pylist() == [7]
    assert (
        data.system("system.gpu.1.memoryAllocatedBytes")["system.gpu.1.memoryAllocatedBytes"].to_pylist()
        == [1.8e10] * 3
    )


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["--log-dir", "nowhere"], NotFound, "no directory nowhere: --log-dir names where sessions lie"),
        (["--log-dir", "empty"], NotFound, "no session below empty"),
        (["--session-id", "other"], NotFound, "no session 'other' below logs; there is single"),
    ],
)
def test_analyze_logs_bad_input_is_one_line(arguments: list[str], error: type[Exception], said: str) -> None:
    """No directory, nothing in it, no such session: one line that says what there is."""
    write_session("single", 1, 1.0, 1.0)
    Path("empty").mkdir()
    with pytest.raises(error) as raised:
        analyze_logs.main(arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_report_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that refuses the report is one line."""
    write_session("single", 1, 1.0, 1.0)
    Path("logs/session_report.txt").mkdir()
    with pytest.raises(UsageError, match=r"session_report\.txt can't be written"):
        analyze_logs.main(["--report"])


@pytest.mark.slow
def test_session_with_odd_content_is_analyzed(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever stands at whatever place of a session, the others are analyzed, and mostly this one."""
    Path("logs").mkdir()
    Path("logs/other_summary.json").write_text(json.dumps({**FULL, "session": {**FULL["session"], "id": "other"}}))
    for number, place in enumerate(odd(FULL)):
        for value in ODD[number % 5 :: 5]:
            Path("logs/one_summary.json").write_text(json.dumps(with_odd(FULL, place, value)))
            assert analyze_logs.main(["--compare", "--communication"]) == 0, (place, value)
            assert "Session: other" in capsys.readouterr().out


def test_sessions_are_compared_as_analyze_logs_does() -> None:
    """Sessions are compared as ``analyze_logs`` does, beside the tables; other runs have no such part."""
    paths = [str(write_session(name, gpus, rate, 1.0)) for name, gpus, rate in (("one", 1, 1.0), ("two", 2, 1.5))]
    text = report.markdown(open_runs(paths), when="now")
    assert "🚀 Multi-GPU Speedup: 1.50x" in text
    assert "gradient_sync: 4 occurrences" in text
    write_run("a", losses(5))
    assert "## Sessions" not in report.markdown(open_runs(["a"]), when="now")


@pytest.mark.parametrize("content", POOR)
def test_poor_sessions_are_reported(content: Any) -> None:
    """Sessions whose fields are missing are reported beside a whole one."""
    write_session("single", 1, 1.0, 1.0)
    Path("logs/poor_summary.json").write_text(json.dumps(content))
    text = report.markdown(open_runs(["session:logs"]), when="now")
    assert "## Sessions" in text
    assert "–" in text


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, *POOR])
def test_analyze_logs_draws(content: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """--plot draws what sessions hold, also those whose fields are missing, and says where."""
    write_session("single", 1, 1.0, 1.0)
    if content is not None:
        Path("logs/poor_summary.json").write_text(json.dumps(content))
    assert analyze_logs.main(["--plot"]) == 0
    assert capsys.readouterr().out == "Plot saved to logs/session_plot.png\n"
    assert Path("logs/session_plot.png").read_bytes().startswith(PNG)


def test_every_output_is_tried_here() -> None:
    """Whatever option names a file to write, it stands in the table above."""
    found = {action.dest for action in analyze_logs._parser()._actions if action.dest in ("output", "report", "plot")}
    assert found == {test_outputs.COMMANDS[name].option for name in WRITING}


@pytest.mark.heavy
@pytest.mark.parametrize("how", HOWS)
def test_damaged_file_among_others_is_left_out(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be read is named, and the others are shown."""
    damage(Path("logs/x/bad_summary.json"), how, json.dumps(SESSION).encode())
    Path("logs/one_summary.json").write_text(json.dumps(SESSION))
    for more in ([], ["--compare"], ["--communication"], ["--report"], ["--session-id", "one"]):
        assert said(PROGRAM, more, capsys) == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to become somebody else")
def test_unreadable_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the operating system refuses is named with its reason."""
    Path("logs", "inner").mkdir(parents=True)
    Path("logs").chmod(0)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        said(PROGRAM, [], capsys)
    finally:
        os.seteuid(0)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_standard_output_is_one_line() -> None:
    """What can't be printed is said once, without a traceback, and the exit code tells."""
    write_session("single", 1, 1.0, 1.0)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, SCRIPT], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.slow
def test_signs_that_a_terminal_has_no_letters_for_are_escaped() -> None:
    """A terminal that knows ASCII alone shows what it can."""
    write_session("single", 1, 1.0, 1.0)
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, SCRIPT, "--compare"], capture_output=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    assert b"\\" in done.stdout


@pytest.mark.slow
def test_script_runs_from_anywhere() -> None:
    """From a checkout, in any directory: --help with an example, exit codes 0, 1 and 2, never a traceback."""
    write_session("single", 1, 1.0, 1.0)
    done = test_scripts.script("analyze_logs.py", "--help")
    assert "Example: analyze_logs.py --compare" in done.stdout
    assert test_scripts.script("analyze_logs.py").returncode == 0
    missing = test_scripts.script("analyze_logs.py", "--log-dir", "nowhere")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert test_scripts.script("analyze_logs.py", "--nothing").returncode == 2


def test_command_is_in_the_group_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """``trackers benchmark sessions`` is listed, takes the script's arguments, and has its own help."""
    write_session("single", 1, 1.0, 1.0)
    assert "Analyze session logs" in CliRunner().invoke(app, ["benchmark", "--help"]).output
    assert "Session: single" in CliRunner().invoke(app, ["benchmark", "sessions", "--compare"]).output
    monkeypatch.setattr("sys.argv", ["trackers"])
    shown = CliRunner().invoke(app, ["benchmark", "sessions", "--help"]).output
    assert "Example: trackers benchmark sessions --compare" in shown
