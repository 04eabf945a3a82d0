"""Descriptors 1 and 2 given away: what goes into pipes past Python is kept, and nobody waits for whoever shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.test_console_capture import lines_of_run

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]

BEGIN = """
import ctypes, os, signal, subprocess, sys
import trackers
run = trackers.init("json", project="p")
print("begun")
subprocess.run(["echo", "from a child"])
library = ctypes.CDLL(None)
library.puts(b"from C")
library.fflush(None)
"""
WANTED = ["begun", "from a child", "from C"]
HELPER = """
import psutil
def helper():
    running = psutil.process_iter(["cmdline"])
    return next(one for one in running if {"tee", str(run.dir)} <= {*(one.info["cmdline"] or ())})
"""


def run_script(tmp_path: Path, body: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script with pipes, in an interpreter of its own."""
    script = tmp_path / "train.py"
    script.write_text(BEGIN + body)
    environment = {
        **os.environ, "TRACKER_CONSOLE_CAPTURE": "descriptors", "TRACKER_DIR": str(tmp_path / "runs"), **variables,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=150, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "last"),
    [
        ("run.finish()\nprint('after')", 0, []),
        ("raise ValueError('boom')", 1, ["ValueError: boom"]),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, []),
    ],
)
def test_what_children_and_c_write_is_shown_and_kept(tmp_path: Path, body: str, code: int, last: list[str]) -> None:
    """However training ends, and nothing of it changes what it would print."""
    done = run_script(tmp_path, body)
    assert done.returncode == code
    shown = [*WANTED, *(["after"] if "after" in body else [])]
    assert done.stdout.splitlines() == shown
    found = lines_of_run(tmp_path)
    assert [line for line in found if line in WANTED] == WANTED
    assert found[-1:] == (last or [found[-1]])
    assert "after" not in found
    assert not list((tmp_path / "runs").rglob("console/*"))


def test_training_goes_on_where_the_process_that_shows_it_dies(tmp_path: Path) -> None:
    """It shows the rest itself and has its descriptors back; nothing is lost where people look."""
    body = HELPER + (
        "one = helper()\none.suspend()\nprint('unseen')\none.kill()\none.wait()\n"
        "run._console.poll()\nprint('back')\nimport stat\n"
        "print(stat.S_ISFIFO(os.fstat(1).st_mode))\nrun.finish()\n"
    )
    done = run_script(tmp_path, body)
    assert (done.returncode, done.stdout.splitlines()) == (0, [*WANTED, "unseen", "back", "True"]), done.stderr


@pytest.mark.slow
def test_training_waits_for_nobody_where_that_process_hangs(tmp_path: Path) -> None:
    """More than any pipe holds is printed meanwhile, and then shown."""
    body = HELPER + (
        "one = helper()\none.suspend()\nfor _ in range(1000):\n    print('x' * 999)\none.resume()\nrun.finish()\n"
    )
    done = run_script(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[len(WANTED) :] == ["x" * 999] * 1000


def test_reader_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    """What nobody reads any more is kept."""
    script = tmp_path / "train.py"
    script.write_text(BEGIN + "for number in range(2000):\n    print(number, 'y' * 99)\n")
    variables = {"TRACKER_CONSOLE_CAPTURE": "descriptors", "TRACKER_DIR": str(tmp_path / "runs")}
    command = f"{sys.executable} {script} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert done.stdout.splitlines() == ["begun", "0"]
    assert lines_of_run(tmp_path)[-1].startswith("1999 ")
