"""``scripts/run_primus_with_benchmark.sh``: output is kept, the result extracted, the command's exit code returned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import LOGS, ROOT

SCRIPT = ROOT / "scripts/run_primus_with_benchmark.sh"
LOG = LOGS / "primus-excerpt.log"


def environment() -> dict[str, str]:
    """This environment, with this Python for the wrapper."""
    return {**os.environ, "PYTHON": sys.executable}


def wrap(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """The wrapper, run to its end."""
    return subprocess.run([str(SCRIPT), *arguments], capture_output=True, cwd=cwd, env=environment(), timeout=60)


def one(directory: Path, pattern: str) -> Path:
    """The only file of this name there."""
    (found,) = directory.glob(pattern)
    return found


def test_output_is_kept_and_the_result_extracted(tmp_path: Path) -> None:
    """Standard output and error go on and into the log, in a directory with spaces; the code is the command's own."""
    place = tmp_path / "two words"
    place.mkdir()
    (place / "pre train.sh").write_text(f"cat {LOG}; echo trouble >&2; exit 3\n")
    done = wrap("bash", "pre train.sh", cwd=place)
    assert done.returncode == 3
    log = one(place / "benchmark_results", "primus_training_*.log")
    assert log.read_bytes() == LOG.read_bytes() + b"trouble\n"
    assert done.stdout.startswith(log.read_bytes())
    document = json.loads(one(place / "benchmark_results", "benchmark_rocm_*.json").read_text())
    assert document["source"]["file"] == f"benchmark_results/{log.name}"
    assert document["training_config"]["num_gpus"] == 8


@pytest.mark.slow
def test_options_come_before_the_command(tmp_path: Path) -> None:
    """Sizes that the log lacks are given to the extraction; what follows the command is the command's."""
    line = "iteration {}/10 | elapsed time per iteration (ms): 500.0 | learning rate: 1.0E-05 |"
    command = "; ".join(f"echo '{line.format(step)}'" for step in (1, 2, 3))
    sizes = ("--output-dir", "out here", "--global-batch-size", "8", "--sequence-length", "128", "--num-gpus", "2")
    done = wrap(*sizes, "bash", "-c", command, "--num-gpus", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(one(tmp_path / "out here", "benchmark_*.json").read_text())
    assert document["performance_metrics"]["tokens_per_second_per_gpu"] == 8 * 128 / 0.5 / 2


@pytest.mark.slow
def test_killed_command_gives_the_shells_code_and_one_line(tmp_path: Path) -> None:
    """A command that a signal killed, without metrics: 128 and its number, and one line that nothing was found."""
    done = wrap("bash", "-c", "echo begun; kill -KILL $$", cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGKILL
    saved, missing = done.stderr.decode().splitlines()
    assert "log saved to benchmark_results/primus_training_" in saved
    assert "no result: benchmark_results/primus_training_" in missing
    assert one(tmp_path / "benchmark_results", "*.log").read_text() == "begun\n"


INTERRUPTED = """
import signal, sys, time
def stop(number, frame):
    print("asked", signal.Signals(number).name, flush=True)
    sys.exit(40 + number)
signal.signal(signal.SIGINT, stop) if len(sys.argv) > 1 else None
signal.signal(signal.SIGTERM, stop)
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(5)
"""


@pytest.mark.parametrize(
    ("sent", "whole_group", "said", "code"),
    [(signal.SIGINT, True, "interrupted", 5), (signal.SIGTERM, False, "asked SIGTERM", 55)],
)
def test_signals_reach_the_command(
    sent: signal.Signals, whole_group: bool, said: str, code: int, tmp_path: Path
) -> None:
    """Ctrl-C, as a terminal sends it, and a scheduler's SIGTERM to the wrapper alone are the command's to answer."""
    (tmp_path / "train.py").write_text(INTERRUPTED)
    with subprocess.Popen(
        [str(SCRIPT), sys.executable, "train.py"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environment(), start_new_session=True,
    ) as wrapper:  # fmt: skip
        assert wrapper.stdout is not None
        assert wrapper.stdout.readline() == b"ready\n"
        (os.killpg if whole_group else os.kill)(wrapper.pid, sent)
        rest = wrapper.stdout.read().decode()
    assert wrapper.returncode == code
    assert rest.startswith(said)
    assert one(tmp_path / "benchmark_results", "*.log").read_text() == f"ready\n{said}\n"


def test_reader_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    """`… | head -1` doesn't cut the log, and the command's code stays."""
    command = f"{SCRIPT} bash -c 'seq 20000; exit 6' | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=tmp_path, env=environment())
    assert (done.returncode, done.stdout) == (6, b"1\n")
    assert len(one(tmp_path / "benchmark_results", "*.log").read_text().splitlines()) == 20000


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["no-such-command"], 127, "no-such-command: No such file or directory"),
        (["./directory"], 126, "./directory: Permission denied"),
        ([], 2, "name the command to run"),
        (["--output-dir", "file/below", "true"], 2, "file/below can't be written"),
    ],
)
def test_command_that_cannot_run_is_one_line(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    """A command that isn't there, none at all, no place for the log: one line, the shell's code, and no empty log."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    done = wrap(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert said in done.stderr.decode()
    assert not list(tmp_path.glob("**/*.log"))


@pytest.mark.slow
def test_command_ends_as_the_one_that_it_runs(tmp_path: Path) -> None:
    """``trackers benchmark run``, as it is installed."""
    command = [sys.executable, "-m", "trackers", "benchmark", "run", "bash", "-c", "echo trained; exit 7"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": import_path()}, capture_output=True)
    assert done.returncode == 7
    assert done.stdout.startswith(b"trained")
    assert one(tmp_path / "benchmark_results", "primus_training_*.log").read_text() == "trained\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["extract", "run"])
def test_programs_show_their_help(name: str, tmp_path: Path) -> None:
    """Their own, in which each is called as one calls it."""
    command = [sys.executable, "-m", "trackers", "benchmark", name, "--help"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": import_path()}, capture_output=True, text=True)
    assert done.stdout.startswith(f"usage: trackers benchmark {name} ")
    assert "Example: " in done.stdout
    assert ".py --" not in done.stdout


def import_path() -> str:
    """What this process imports from."""
    return os.pathsep.join([str(ROOT), *filter(None, sys.path)])
