"""Processes and memory of many runs at once, besides training: with a host agent and without."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, main
from benchmarks.finishing import CHILD as SHORT
from benchmarks.finishing import agent
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account

LIMIT_S = 300.0
SHARED = 0.6
"""With an agent, so much of the memory may be taken that is taken without."""

CHILD = """
import sys
import trackers
run = trackers.init(sys.argv[1], project="crowd", id=sys.argv[2])
for step in range(100):
    run.log({"loss": step / 7}, step=step)
print("logged", flush=True)
sys.stdin.readline()
run.finish(timeout=300)
"""


def helpers() -> list[psutil.Process]:
    """Processes of the runs here besides training, and the agent."""
    place = str(Path.cwd())
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[1:2] == ["-c"] and any(word.startswith(place) for word in words[4:5]):
                found.update({one.pid: one for one in (process, *process.children(recursive=True))})
    return list(found.values())


def pss_mb(processes: Sequence[psutil.Process]) -> float:
    """Memory in MB; what several share is divided between them."""
    total_kb = 0
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024


def crowd(count: int, trackers: str, prefix: str, *, forked: bool) -> tuple[int, float, float]:
    """Processes and memory (MB) of so many runs that have delivered what they logged, and seconds until they had."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_AGENT": "y" if forked else "n"}
    names = [f"{prefix}{number}" for number in range(count)]
    began = time.monotonic()
    training = [
        subprocess.Popen([sys.executable, "-c", CHILD, trackers, name], env=env, text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for name in names
    ]  # fmt: skip
    runs = [RunDirectory(Path("runs/crowd") / name) for name in names]
    for process in training:
        assert process.stdout is not None
        process.stdout.readline()
    while not all(_has_logged(run, trackers) for run in runs):
        if time.monotonic() - began > LIMIT_S:
            raise TimeoutError(f"not delivered within {LIMIT_S:g} s")
        time.sleep(0.2)
    seconds = time.monotonic() - began
    found = helpers()
    taken = len(found), pss_mb(found), seconds
    for process in training:
        process.communicate("end\n", timeout=LIMIT_S)
    return taken


def _has_logged(run: RunDirectory, trackers: str) -> bool:
    size = run.sizes().get("rank-0.1", 0)
    return size > 0 and all(read_account(run, name).offsets.get("rank-0.1", 0) >= size for name in trackers.split(","))


def measure(quick: bool) -> Sequence[Figure]:
    """So many runs at once, five trackers each."""
    count, five = 2 if quick else 8, ",".join(TRACKERS)
    subprocess.run([sys.executable, "-c", SHORT, five], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
                   capture_output=True)  # fmt: skip
    processes, memory, seconds = crowd(count, five, "alone", forked=False)
    with agent(five):
        shared_processes, shared, shared_s = crowd(count, five, "shared", forked=True)
    return [
        Figure(f"helper processes of {count} runs, five trackers, with an agent", shared_processes),
        Figure("  without", processes),
        Figure("their memory (PSS), with an agent", shared, "MB"),
        Figure("  without", memory, "MB"),
        Figure("  with, against without", shared / memory, "x", at_most=SHARED),
        Figure("from the first start until all is delivered, with an agent", shared_s, "s"),
        Figure("  without", seconds, "s"),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
