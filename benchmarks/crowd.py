"""Processes and memory of many runs at once, training's own counted, with a host agent, beside the vendors' clients."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, audit, helpers, main, rows
from benchmarks.finishing import agent, no_agent
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account

LIMIT_S = 900.0
LOOK_S = 0.5
"""Between looks at the processes."""
COLD = {12: (56, 1240.0), 64: (150, 4000.0)}
"""Fewer processes, and less memory in MB, than so many runs may have at once that begin where no agent runs."""
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

USUAL = f"""
import os, sys
os.makedirs(sys.argv[1])
os.chdir(sys.argv[1])
os.environ["TRACKIO_DIR"] = os.getcwd() + "/trackio"
os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///" + os.getcwd() + "/mlflow.db"
from benchmarks.common import rows
from benchmarks.usual_way import Clients
clients = Clients()
for step, values in enumerate(rows({STEPS}, int(sys.argv[2]))):
    clients.log(values, step)
print("all", flush=True)
sys.stdin.readline()
clients.end()
"""
"""The same with the vendors' own clients. Each has databases of its own: beside others they lock each other out."""


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

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look all the time."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_S):
                self.look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _processes() -> Iterator[psutil.Process]:
    """Training, what works for it, and the agent."""
    own = psutil.Process()
    found = {process.pid: process for process in own.children(recursive=True)}
    found.update({process.pid: process for process in helpers()})
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


def _start(arguments: Sequence[Sequence[str]]) -> list[subprocess.Popen[str]]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_AGENT": "y"}
    return [
        subprocess.Popen([sys.executable, "-c", *words], env=env, text=True, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for words in arguments
    ]  # fmt: skip


def _answer(processes: Sequence[subprocess.Popen[str]], word: str) -> None:
    """Wait until each says a word, whatever clients print before it."""
    for process in processes:
        assert process.stdout is not None
        for line in process.stdout:
            if line == f"{word}\n":
                break
        else:
            raise RuntimeError(f"training ended without {word!r}")


def _tell(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Have each go on."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def clients(count: int) -> Taken:
    """Runs that start at the same moment with the vendors' own clients, and end when all have logged what they log."""
    taken = Taken()
    began = time.monotonic()
    processes = _start([(USUAL, f"clients{count}/{number}", str(number)) for number in range(count)])
    _answer(processes, "all")
    taken.live_s = time.monotonic() - began
    taken.look()
    began = time.monotonic()
    _tell(processes)
    for process in processes:
        process.wait(LIMIT_S)
    taken.ended_s = time.monotonic() - began
    return taken


class Crowd:
    """Runs that start at the same moment, log half of their values, wait, log the rest, wait, and end."""

    def __init__(self, count: int, trackers: str, prefix: str) -> None:
        self.trackers = trackers
        self.runs = [RunDirectory(Path("runs/crowd") / f"{prefix}{number}") for number in range(count)]
        self.taken = Taken()
        self._processes: list[subprocess.Popen[str]] = []

    def play(self) -> Taken:
        """See it through, from before the first of them begins."""
        with self.taken.watched():
            self._play()
        for number, run in enumerate(self.runs):
            logged = dict(enumerate(rows(STEPS, number)))
            self.taken.wrong += audit(_Where(run), logged, self.trackers.split(","))
        return self.taken

    def _play(self) -> None:
        began = time.monotonic()
        words = [(CHILD, self.trackers, run.path.name, str(number)) for number, run in enumerate(self.runs)]
        self._processes = _start(words)
        _answer(self._processes, "half")
        self._until(self._has_all)
        self.taken.live_s = time.monotonic() - began
        _tell(self._processes)
        _answer(self._processes, "all")
        self.taken.training_mb = pss_mb([psutil.Process(process.pid) for process in self._processes])
        began = time.monotonic()
        _tell(self._processes)
        self._until(self._have_ended)
        self.taken.ended_s = time.monotonic() - began

    def _until(self, what: Any) -> None:
        until = time.monotonic() + LIMIT_S
        while not what():
            if time.monotonic() > until:
                raise TimeoutError(f"not within {LIMIT_S:g} s")
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
    """So many runs at once, five trackers each: where no agent runs, and with the agent that an earlier run has left;
    the least of these numbers of runs with the vendors' own clients, too."""
    five = ",".join(TRACKERS)
    figures = []
    for count, (processes, memory_mb) in ({4: COLD[12]} if quick else COLD).items():
        with no_agent(f"cold{count}"):
            taken = Crowd(count, five, f"cold{count}-").play()
        figures += [
            Figure(f"processes of {count} runs that begin without an agent", taken.processes, at_most=processes - 1),
            Figure("  their memory (PSS)", taken.memory_mb, "MB", at_most=memory_mb),
            Figure("  from the start until all trackers had what was logged", taken.live_s, "s"),
            Figure("  from the end until they had all", taken.ended_s, "s"),
            Figure("  values missing, doubled or wrong", taken.wrong, at_most=0),
        ]
    counts = (4,) if quick else (8, 12, RUNS)
    usual = clients(counts[0])
    with agent(five):
        for count in counts:
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
            if count == counts[0]:
                figures += [
                    Figure(f"processes of {count} runs with the vendors' own clients", usual.processes),
                    Figure("  trackers against these", taken.processes / usual.processes, "x"),
                    Figure("  their memory (PSS)", usual.memory_mb, "MB"),
                    Figure("  trackers against it", taken.memory_mb / usual.memory_mb, "x"),
                    Figure("  from the start until all had logged what they log", usual.live_s, "s"),
                    Figure("  from then until all had ended", usual.ended_s, "s"),
                ]
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
