"""Processes and memory of many runs at once, training's own counted, with a host agent; every value is audited."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, audit, main, rows
from benchmarks.finishing import agent
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account

LIMIT_S = 900.0
LOOK_S = 2.0
"""Between looks at the processes."""
STEPS = 100
RUNS = 64
PROCESSES, MEMORY_MB = 150, 4000.0
"""What 64 runs may have at once, training's own processes and their memory counted."""

CHILD = f"""
import sys
import trackers
from benchmarks.common import rows
run = trackers.init(sys.argv[1], project="crowd", id=sys.argv[2])
logged = rows({STEPS}, int(sys.argv[3]))
for step, values in enumerate(logged):
    run.log(values, step=step)
    if step == {STEPS} // 2:
        print("half", flush=True)
        sys.stdin.readline()
print("all", flush=True)
sys.stdin.readline()
run.finish(timeout={LIMIT_S})
"""


@dataclasses.dataclass
class Taken:
    """processes, memory_mb: the most that were seen at once. live_s: until all had half of their values in all
    trackers. ended_s: from the runs' end until all was delivered. wrong: values missing, doubled or wrong.
    """

    processes: int = 0
    memory_mb: float = 0.0
    training_mb: float = 0.0
    live_s: float = 0.0
    ended_s: float = 0.0
    wrong: int = 0

    def look(self) -> None:
        """See what there is now."""
        found = list(_processes())
        memory_mb = pss_mb(found)
        self.processes = max(self.processes, len(found))
        self.memory_mb = max(self.memory_mb, memory_mb)


def _processes() -> Iterator[psutil.Process]:
    """Training, what works for it, and the agent."""
    own = psutil.Process()
    found = {process.pid: process for process in own.children(recursive=True)}
    place = str(Path.cwd())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[1:2] == ["-c"] and any(word.startswith(place) for word in words[4:5]):
                found.update({one.pid: one for one in (process, *process.children(recursive=True))})
    for process in found.values():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process


def pss_mb(processes: Sequence[psutil.Process]) -> float:
    """Memory in MB; what several share is divided between them."""
    total_kb = 0
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024


class Crowd:
    """Runs that start at the same moment, log half of their values, wait, log the rest, wait, and end."""

    def __init__(self, count: int, trackers: str, prefix: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_AGENT": "y"}
        self.trackers = trackers
        self.runs = [RunDirectory(Path("runs/crowd") / f"{prefix}{number}") for number in range(count)]
        self.taken = Taken()
        self._processes = [
            subprocess.Popen([sys.executable, "-c", CHILD, trackers, run.path.name, str(number)], env=env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for number, run in enumerate(self.runs)
        ]  # fmt: skip

    def play(self) -> Taken:
        """See it through."""
        began = time.monotonic()
        self._answer("half")
        self._until(self._has_all)
        self.taken.live_s = time.monotonic() - began
        self._tell()
        self._answer("all")
        self.taken.training_mb = pss_mb([psutil.Process(process.pid) for process in self._processes])
        began = time.monotonic()
        self._tell()
        self._until(self._have_ended)
        self.taken.ended_s = time.monotonic() - began
        for number, run in enumerate(self.runs):
            logged = dict(enumerate(rows(STEPS, number)))
            self.taken.wrong += audit(_Where(run), logged, self.trackers.split(","))
        return self.taken

    def _answer(self, word: str) -> None:
        for process in self._processes:
            assert process.stdout is not None
            if (said := process.stdout.readline()) != f"{word}\n":
                raise RuntimeError(f"training said {said!r}")

    def _tell(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def _until(self, what: Any) -> None:
        until = time.monotonic() + LIMIT_S
        while not what():
            if time.monotonic() > until:
                raise TimeoutError(f"not within {LIMIT_S:g} s")
            self.taken.look()
            time.sleep(LOOK_S)
        self.taken.look()

    def _has_all(self) -> bool:
        return all(_has_logged(run, self.trackers) for run in self.runs)

    def _have_ended(self) -> bool:
        return all(process.poll() is not None for process in self._processes)


class _Where:
    """A run, as :func:`audit` takes it."""

    def __init__(self, run: RunDirectory) -> None:
        self.dir = run.path


def _has_logged(run: RunDirectory, trackers: str) -> bool:
    size = run.sizes().get("rank-0.1", 0)
    return size > 0 and all(read_account(run, name).offsets.get("rank-0.1", 0) >= size for name in trackers.split(","))


def measure(quick: bool) -> Sequence[Figure]:
    """So many runs at once, five trackers each, and the agent that an earlier run has left."""
    five = ",".join(TRACKERS)
    figures = []
    with agent(five):
        for count in (4,) if quick else (8, 12, RUNS):
            taken = Crowd(count, five, f"of{count}-").play()
            full = count == RUNS
            figures += [
                Figure(f"processes of {count} runs", taken.processes, at_most=PROCESSES - 1 if full else None),
                Figure("  their memory (PSS)", taken.memory_mb, "MB", at_most=MEMORY_MB if full else None),
                Figure("  training's own of it", taken.training_mb, "MB"),
                Figure("  from the start until all trackers had what was logged", taken.live_s, "s"),
                Figure("  from the end until they had all", taken.ended_s, "s"),
                Figure("  values missing, doubled or wrong", taken.wrong, at_most=0),
            ]
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
