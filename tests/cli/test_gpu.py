"""``trackers gpu``, ``scripts/monitor_gpu.py`` and ``make gpu-check``, above the stand-ins for drivers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import ROOT, forked
from tests.fakes.gpu_drivers.standin import Drivers
from tests.hardware.gpu_check import CAPTURES, compare
from trackers.hardware.gpus.base import Reading
from trackers.hardware.monitor import Recording, Thresholds, gpu_warnings, read_recording, recording_summary


def start(*command: str, drivers: Drivers | None = None, **environ: str) -> subprocess.Popen[str]:
    """A process that has the stand-ins' drivers, or none."""
    libraries = drivers.environment("new") if drivers else {}
    return forked.Program(
        [sys.executable, *command],
        preload=forked.PACKAGE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **libraries, **environ},
    )


def run(*command: str, drivers: Drivers | None = None, **environ: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process that ends by itself."""
    process = start(*command, drivers=drivers, **environ)
    out, error = process.communicate(timeout=60)
    return process.returncode, out, error


def gpu(*arguments: str, drivers: Drivers | None = None, **environ: str) -> tuple[int, str, str]:
    """``trackers gpu``."""
    return run("-m", "trackers", "gpu", *arguments, drivers=drivers, **environ)


def monitor(*arguments: str, drivers: Drivers | None = None) -> tuple[int, str, str]:
    """``monitor_gpu.py``."""
    return run(str(ROOT / "scripts/monitor_gpu.py"), *arguments, drivers=drivers)


@pytest.mark.slow
def test_gpu_once_prints_a_table(drivers: Drivers) -> None:
    """A row for each GPU, the host below; what a GPU lacks is a dash."""
    drivers.set(count=2, utilization__1=97, error__power__0=3, reasons__1=4)
    code, out, error = gpu("--once", drivers=drivers)
    assert code == 0, error
    first, second = out.splitlines()[1:3]
    assert first.split()[:2] == ["0", "NVIDIA"]
    assert "–" in first
    assert all(word in second for word in ("97 %", "20.0 of 80.0 GB (25 %)", "300 W of 700", "software power cap"))
    assert "CPU" in out.splitlines()[3]
    assert "no power" in error


def test_gpu_json_is_one_object_in_si_units(drivers: Drivers) -> None:
    """--json --once: bytes, W, Hz and fractions; only what the job sees where that is asked for."""
    drivers.set(count=2)
    code, out, _ = gpu("--once", "--json", "--scope", "job", drivers=drivers, CUDA_VISIBLE_DEVICES="1")
    assert code == 0
    (found,) = json.loads(out)["gpus"]
    assert (found["id"], found["power_w"], found["memory_used_bytes"], found["compute_frac"]) == (
        "1", 300.0, 20_000_000_000, 0.5,
    )  # fmt: skip


def test_gpu_json_goes_on_until_ctrl_c(drivers: Drivers) -> None:
    """Without --once there is a line for each reading; Ctrl-C ends it without a traceback."""
    process = start("-m", "trackers", "gpu", "--json", "--interval", "0.1", drivers=drivers)
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert lines[0]["time"] < lines[2]["time"]
    assert (process.returncode, error) == (0, "")


def test_gpu_keeps_its_table_up_to_date_on_a_terminal(drivers: Drivers) -> None:
    """The table is drawn again where it stands, with what the GPU does now, until Ctrl-C; elsewhere it comes once."""
    import pty

    drivers.set(utilization=11)
    own, other = pty.openpty()
    table = subprocess.Popen(
        [sys.executable, "-m", "trackers", "gpu", "--interval", "0.1"], stdin=other, stdout=other, stderr=other,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **drivers.environment("new")},
    )  # fmt: skip
    os.close(other)
    shown = b""
    while b"11 %" not in shown:
        shown += os.read(own, 4096)
    drivers.set(utilization=88)
    while b"88 %" not in shown:
        shown += os.read(own, 4096)
    table.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # how Linux says that nobody has the terminal open any more
        while block := os.read(own, 4096):
            shown += block
    os.close(own)
    assert table.wait(60) == 0
    assert b"\x1b[1A" in shown  # up again, over the table before
    assert b"Traceback" not in shown
    code, out, _ = gpu(drivers=drivers)
    assert (code, out.count("88 %")) == (0, 1)


def test_gpu_without_gpus_says_so() -> None:
    """A machine without a driver: one line, exit code 1; the host is shown all the same."""
    code, out, error = gpu("--once")
    assert (code, len(error.splitlines())) == (1, 1)
    assert "no GPU found here" in error
    assert "CPU" in out


def test_gpu_says_that_the_job_has_none(drivers: Drivers) -> None:
    """Where the job's variables leave no GPU, nothing is said of the drivers, which show some."""
    code, _, error = gpu("--once", "--scope", "job", drivers=drivers, CUDA_VISIBLE_DEVICES="")
    assert code == 1
    assert error.splitlines() == [
        "trackers: no GPU of the job found here, as CUDA_VISIBLE_DEVICES and its like have it; all: --scope node"
    ]


def test_gpu_refuses_an_unknown_scope() -> None:
    """Wrong usage is one line and exit code 2."""
    code, _, error = gpu("--once", "--scope", "cluster")
    assert code == 2
    assert error.splitlines() == ["trackers: --scope 'cluster' isn't known: node or job"]


def test_monitor_returns_the_commands_exit_code_and_records(drivers: Drivers, tmp_path: Path) -> None:
    """The documented JSON and a summary are written; the command's arguments are words, not a shell's text."""
    drivers.set(count=2, utilization=80)
    code = "import sys, time; time.sleep(0.5); print(sys.argv[1:]); sys.exit(7)"
    (tmp_path / "train.py").write_text(code)
    command = f"{sys.executable} train.py 'a b' $HOME ; touch gone"
    ended, out, error = monitor(
        "--interval", "0.1", "--output", "run.json", "--monitor-training", command, drivers=drivers
    )
    assert ended == 7, error
    assert "['a b', '$HOME', ';', 'touch', 'gone']" in out
    assert not (tmp_path / "gone").exists()
    found = json.loads((tmp_path / "run.json").read_text())
    config, snapshots = found["monitoring_config"], found["snapshots"]
    assert (config["log_interval"], config["total_snapshots"]) == (0.1, len(snapshots))
    assert config["duration_seconds"] > 0.5
    assert "start_time" in config
    assert snapshots[0]["gpus"][1] == {
        "id": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "utilization": 80.0,
        "memory_used_mb": 20000.0,
        "memory_total_mb": 80000.0,
        "memory_percent": 25.0,
        "temperature": 60.0,
        "power_w": 300.0,
    }
    assert set(snapshots[0]["system"]) == {"cpu_percent", "memory_percent"}
    summary = (tmp_path / "run_summary.txt").read_text()
    assert "GPU 0: 80.0% avg util, 80.0% peak, 25.0% avg memory, 60 °C avg, 300 W avg" in summary
    assert summary in out
    assert error == ""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("nosuchprogram --x", 127, "nosuchprogram can't be started"),
        ("", 2, "needs a command"),
        ("python 'x", 2, "can't be split into words"),
    ],
)
def test_monitor_names_a_command_that_cant_run(command: str, code: int, said: str) -> None:
    """One line, and the exit code that shells have for it."""
    ended, _, error = monitor("--monitor-training", command)
    assert ended == code
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 3)])
def test_monitor_is_signal_safe(number: int, code: int, drivers: Drivers, tmp_path: Path) -> None:
    """SIGTERM is passed on to the command; on Ctrl-C the command's own ending is waited for; all is recorded."""
    (tmp_path / "train.py").write_text(
        "import pathlib, sys, time\npathlib.Path('up').touch()\nuntil = time.time() + 60\n"
        "while not pathlib.Path('down').exists() and time.time() < until:\n    time.sleep(0.02)\nsys.exit(3)"
    )
    script = str(ROOT / "scripts/monitor_gpu.py")
    arguments = ["--interval", "0.1", "--output", "run.json", "--monitor-training", f"{sys.executable} train.py"]
    process = start(script, *arguments, drivers=drivers)
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    process.send_signal(number)
    if number == signal.SIGINT:  # sent to the monitor alone: the command goes on
        (tmp_path / "down").touch()
    process.communicate(timeout=60)
    assert process.returncode == code
    assert read_recording(tmp_path / "run.json")["snapshots"]
    assert (tmp_path / "run_summary.txt").exists()


def test_monitor_that_is_killed_leaves_a_whole_recording(drivers: Drivers, tmp_path: Path) -> None:
    """The file is complete JSON after each snapshot: SIGKILL costs none of those before it."""
    process = start(str(ROOT / "scripts/monitor_gpu.py"), "--interval", "0.05", "--output", "run.json", drivers=drivers)
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.kill()
    process.communicate()
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["monitoring_config"]["total_snapshots"] == len(found["snapshots"]) >= 5


@pytest.mark.slow
def test_monitor_whose_file_cant_grow_returns_the_commands_code(drivers: Drivers, tmp_path: Path) -> None:
    """A full disk costs snapshots: one line says so, the file is whole, and the command isn't disturbed."""
    output = tmp_path / "run.json"
    monitor_it = f"{sys.executable} {ROOT}/scripts/monitor_gpu.py --interval 0.05 --output {output} --monitor-training"
    limited = f"ulimit -f 2; exec {monitor_it} 'bash -c \"sleep 2; exit 7\"'"  # files of 2,048 bytes
    done = subprocess.run(
        ["bash", "-c", limited], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **drivers.environment("new")},
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert done.stderr.count("can't be written") == 1
    assert "Traceback" not in done.stderr
    found = json.loads(output.read_bytes())
    assert found["monitoring_config"]["total_snapshots"] == len(found["snapshots"])
    assert 0 < len(found["snapshots"]) < len([line for line in done.stdout.splitlines() if "CPU: " in line]) - 1


def test_monitor_that_nobody_reads_returns_the_commands_code(drivers: Drivers, tmp_path: Path) -> None:
    """``monitor_gpu.py … | head -1``: the recording goes on, and the command's code is returned."""
    command = [str(ROOT / "scripts/monitor_gpu.py"), "--interval", "0.05", "--output", str(tmp_path / "run.json")]
    watching = start(*command, "--monitor-training", "bash -c 'sleep 1; exit 7'", drivers=drivers)
    assert watching.stdout is not None
    assert watching.stderr is not None
    watching.stdout.readline()
    watching.stdout.close()
    error = watching.stderr.read()
    assert watching.wait(timeout=60) == 7, error
    assert "Error" not in error
    assert len(json.loads((tmp_path / "run.json").read_bytes())["snapshots"]) > 2


def test_monitor_without_command_ends_on_request(drivers: Drivers, tmp_path: Path) -> None:
    """It runs until it is told to stop, and that is no failure."""
    process = start(str(ROOT / "scripts/monitor_gpu.py"), "--interval", "0.1", drivers=drivers)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
    assert len(list(tmp_path.glob("gpu_monitor_*.json"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("call", ["init", "power"])
def test_monitor_isnt_held_up_by_a_driver_that_hangs(call: str, drivers: Drivers, tmp_path: Path) -> None:
    """The command is started, its end seen and its exit code returned though no snapshot comes, from the start on."""
    drivers.set(**{f"hang__{call}": 1})
    code, _, error = monitor(
        "--output", "run.json", "--monitor-training", f"{sys.executable} -c 'raise SystemExit(4)'", drivers=drivers
    )
    assert code == 4
    assert "hasn't answered" in error
    assert read_recording(tmp_path / "run.json")["snapshots"] == []


def test_snapshot_prints_one_line(drivers: Drivers, tmp_path: Path) -> None:
    """--snapshot takes one and ends; nothing is written unless asked for."""
    code, out, _ = monitor("--snapshot", drivers=drivers)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert "GPU 0: 50%, 25% memory, 60 °C, 300 W" in out
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_monitor_takes_the_jobs_gpus_where_asked(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    """All GPUs by themselves; with --scope job those that CUDA_VISIBLE_DEVICES leaves."""
    drivers.set(count=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    for words, shown in (((), ("GPU 0:", "GPU 1:")), (("--scope", "job"), ("GPU 1:",))):
        code, out, error = monitor("--snapshot", *words, drivers=drivers)
        assert code == 0, error
        assert [label for label in ("GPU 0:", "GPU 1:") if label in out] == list(shown)


def test_warnings_come_once_per_crossing(drivers: Drivers) -> None:
    """Low utilisation, full memory and heat are warned of, by thresholds that options move."""
    drivers.set(utilization=45, used=73_000_000_000, temperature=85)
    code, _, error = monitor("--snapshot", drivers=drivers)
    assert code == 0
    assert sorted(error.splitlines()) == [
        "WARNING | GPU 0 memory high: 91.2%",
        "WARNING | GPU 0 temperature high: 85 °C",
        "WARNING | GPU 0 utilization low: 45.0%",
    ]
    moved = ["--min-utilization", "40", "--max-memory", "95", "--max-temperature", "90"]
    assert monitor("--snapshot", *moved, drivers=drivers)[2] == ""


def test_thresholds_are_strict_and_absent_is_no_warning() -> None:
    """Exactly at a threshold is fine, and so is a value that a GPU doesn't tell."""
    at = {"id": 0, "utilization": 50.0, "memory_percent": 90.0, "temperature": 80.0}
    assert gpu_warnings([at], Thresholds()) == {}
    assert gpu_warnings([dict.fromkeys(at, None)], Thresholds()) == {}


def test_threshold_that_is_no_number_is_refused() -> None:
    """NaN would switch a warning off in silence: wrong usage, exit code 2."""
    done = subprocess.run(
        [sys.executable, "scripts/monitor_gpu.py", "--snapshot", "--max-memory", "nan"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert "nan is not a number" in done.stderr


def test_compare_shows_recordings_side_by_side(drivers: Drivers, tmp_path: Path) -> None:
    """Each recording in words; without files, the commands that make two."""
    for name, count in (("one.json", 1), ("two.json", 2)):
        drivers.set(count=count)
        assert monitor("--snapshot", "--output", name, drivers=drivers)[0] == 0
    code, out, _ = monitor("--compare", "one.json", "two.json")
    assert code == 0
    assert out.index("one.json: 1 snapshots") < out.index("two.json: 1 snapshots")
    assert out.count("GPU 1:") == 1
    assert "--monitor-training" in monitor("--compare")[1]
    code, _, error = monitor("--compare", "missing.json")
    assert code == 1
    assert "missing.json can't be read" in error


def test_averages_leave_out_what_wasnt_told(tmp_path: Path) -> None:
    """A GPU without temperature has no average of 0; one that came later is averaged over its own snapshots."""
    first = {"id": 0, "name": "x", "utilization": 10.0, "memory_percent": None, "temperature": None}
    path = tmp_path / "r.json"
    writer = Recording(path, 1.0)
    for gpus in ([first], [{**first, "utilization": 30.0}, {**first, "id": 1, "temperature": 50.0}]):
        writer.add({"timestamp": "t", "gpus": gpus, "system": {"cpu_percent": None, "memory_percent": None}})
    writer.close()
    text = recording_summary(read_recording(path), "r")
    assert "GPU 0: 20.0% avg util, 30.0% peak\n" in text
    assert "GPU 1: 10.0% avg util, 10.0% peak, 50 °C avg" in text


SMI = """#!/bin/sh
echo "GPU-00001ab0-c8d9-e0f1-a2b3-c4d5e6f7a8b9, 52, 24, {used}, 76293, 61, 305.12, 700.00, 1755, 2619, 570.86"
"""
TORCH = """
__version__ = "2.13.0+cu130"
class version:
    cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_name = staticmethod(lambda index: "NVIDIA H100 80GB HBM3")
    device_count = staticmethod(lambda: 1)
    class nccl:
        version = staticmethod(lambda: (2, 27, 7))
"""
GPU_TEST = """
import os
import pytest
def test_good(record_property):
    record_property("log of a GPU scalar, µs", 7.5)
    assert "TRACKER" not in os.environ
    assert os.path.samefile(os.environ["HOME"], ".")
"""
FAILING = """
def test_bad():
    assert 1 == 2
def test_left_out():
    pytest.skip("needs two GPUs")
"""


def gpu_check(
    drivers: Drivers, folder: Path, used: int, tests: str = GPU_TEST, torch: str = TORCH
) -> tuple[int, str, Any]:
    """``scripts/gpu_check.sh`` above a driver, an nvidia-smi and a torch on paper: exit code, output, capture."""
    for path, text in (("bin/nvidia-smi", SMI.format(used=used)), ("lib/torch.py", torch), ("test_gpu.py", tests)):
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_text(text)
    Path(folder, "bin/nvidia-smi").chmod(0o755)
    capture = folder / "new/capture.json"
    done = subprocess.run(
        [ROOT / "scripts/gpu_check.sh", "--seconds", "0.3", "--capture", capture, "--tests", folder / "test_gpu.py"],
        env={**os.environ, **drivers.environment("new"), "PYTHON": sys.executable, "BASE_PYTHON": "false",
             "PYTHONPATH": str(folder / "lib"), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
             "TRACKER": "wandb"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert not done.stderr
    return done.returncode, done.stdout, json.loads(capture.read_text()) if capture.exists() else None


@pytest.mark.slow
def test_gpu_check_compares_tests_and_keeps_a_capture(drivers: Drivers, tmp_path: Path) -> None:
    """A GPU that nvidia-smi tells the same of, and tests that pass: the values, versions and figures are kept."""
    code, out, captured = gpu_check(drivers, tmp_path, 19073)
    assert code == 0, out
    assert "ok   GPU 0 memory.used: 19073.5, nvidia-smi says 19073\n" in out
    assert "ok   test_good: passed\n" in out
    assert f" checks hold; kept as {tmp_path}/new/capture.json\n" in out
    assert captured["readings"][0]["power_w"] == 300.0
    assert captured["figures"] == {"log of a GPU scalar, µs": "7.5"}
    about = captured["about"]
    assert (about["gpu"], about["nccl"], about["driver"]) == ("NVIDIA H100 80GB HBM3", "2.27.7", "570.86")
    assert "00001ab0" not in json.dumps(captured)


@pytest.mark.slow
def test_gpu_check_fails_by_value_and_by_test(drivers: Drivers, tmp_path: Path) -> None:
    """A value that nvidia-smi tells otherwise, and a test that failed or didn't run, are named and fail the check."""
    code, out, captured = gpu_check(drivers, tmp_path, 30000, GPU_TEST + FAILING)
    assert code == 1, out
    assert "OFF  GPU 0 memory.used: 19073.5, nvidia-smi says 30000\n" in out
    assert "OFF  test_bad: failed: assert 1 == 2\n" in out
    assert "OFF  test_left_out: skipped: needs two GPUs\n" in out
    assert [one["agrees"] for one in captured["checks"]].count(False) == 3


@pytest.mark.parametrize(("torch", "code", "line"), [
    ("class cuda:\n is_available = staticmethod(lambda: False)", 0, "gpu-check: no CUDA device: nothing was checked\n"),
    ("raise ImportError", 2, "gpu-check: no Python with torch: make BASE_PYTHON=/path/to/python gpu-check names one\n"),
])  # fmt: skip
def test_gpu_check_without_gpu_says_that_nothing_was_checked(tmp_path: Path, torch: str, code: int, line: str) -> None:
    """No GPU is no failure, and no silent success either; nothing is installed before that is known."""
    Path(tmp_path, "torch.py").write_text(torch)
    environ = {**os.environ, "PYTHON": sys.executable, "BASE_PYTHON": "false", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([ROOT / "scripts/gpu_check.sh"], env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (code, line)


@pytest.mark.slow
def test_gpu_check_asks_torch_too(drivers: Drivers, tmp_path: Path) -> None:
    """Without a driver's library the check itself says the same line; a torch without CUDA is no GPU."""
    Path(tmp_path, "torch.py").write_text(TORCH.replace("True", "False"))
    environ = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    assert run("-m", "tests.hardware.gpu_check", **environ)[:2] == (
        0, "gpu-check: no CUDA device: nothing was checked\n",
    )  # fmt: skip
    code, out, _ = run("-m", "tests.hardware.gpu_check", "--seconds", "0.1", "--capture", str(tmp_path / "c.json"),
                       drivers=drivers, **environ)  # fmt: skip
    assert code == 1
    assert "OFF  torch sees a GPU\n" in out
    assert "passed" not in out


def test_kept_captures_hold() -> None:
    """What was captured on real GPUs is read as it was then: values agree with nvidia-smi's by today's bounds."""
    for path in sorted(CAPTURES.glob("*.json")):
        captured = json.loads(path.read_text())
        readings = msgspec.convert(captured["readings"], list[Reading])
        found = list(compare(readings, captured["nvidia_smi"]))
        assert found, path
        assert [text for text, agrees in found if not agrees] == [], path
