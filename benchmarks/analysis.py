"""How long ``compare`` takes over 1,000 runs, ``ls`` and ``sql`` over 10,000, ``sync`` over delivered ones."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import NAMES, ROOT, Figure, main
from trackers import records
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Finish, Metrics, Record, Start, Summary
from trackers.tracker import RunInfo

T0 = 1_763_688_000.0
COLD_S, WARM_S, LIST_S, SQL_S = 5.0, 1.0, 0.5, 1.0
SYNC_MS = 1.0
"""Of a processor, for each run that its three trackers have whole."""
SQL = "select avg(value), count(*) from metrics where name = 'train/metric_0'"
MEMORY_MB = 1000.0
VARIANTS = 20
"""So many different series are written, so that writing them takes no longer than what is measured."""


def write(root: Path, runs: int, steps: int) -> None:
    """Runs of so many steps of ten values, each as training leaves it on disk."""
    source = random.Random(0)
    bodies = [_metrics(source, steps) for _ in range(VARIANTS)]
    for number in range(runs):
        directory = RunDirectory(root / "digits" / f"run{number:05d}")
        directory.make()
        config = {"lr": 10 ** -source.uniform(1, 5), "seed": number % 5, "global_batch_size": 32, "model": {"depth": 4}}
        info = RunInfo(id=directory.path.name, name=f"run {number}", project="digits", config=config,
                       created=T0 + number, trackers=["json"])  # fmt: skip
        directory.write_info(info)
        head: list[Record] = [Start(time=T0, rank=0, pid=1), Config(time=T0, values=config)]
        tail: list[Record] = [Summary(time=T0 + steps, values={"final/best": source.random()}),
                              Finish(time=T0 + steps, status="finished", exit_code=0)]  # fmt: skip
        parts = (*map(records.encode, head), bodies[number % VARIANTS], *map(records.encode, tail))
        (directory.streams / "rank-0.1.jsonl").write_bytes(b"".join(parts))


def _metrics(source: random.Random, steps: int) -> bytes:
    return b"".join(
        records.encode(Metrics(step=step, time=T0 + step / 10, values=row))
        for step, row in enumerate(_rows(source, steps))
    )


def _rows(source: random.Random, steps: int) -> list[dict[str, float]]:
    return [{name: source.random() for name in NAMES} for _ in range(steps)]


def delivered(root: Path, runs: int) -> None:
    """Copies of one run that three trackers have whole."""
    import trackers

    run = trackers.init("json,csv,tensorboard", project="delivered", id="run0", dir=root)
    for step, values in enumerate(_rows(random.Random(0), 100)):
        run.log(values, step=step)
    run.finish(timeout=120)
    for number in range(1, runs):
        shutil.copytree(run.dir, root / "delivered" / f"run{number}")


def age(root: Path) -> None:
    """Let all files be older than the moments in which a change could be missed: such runs are read each time."""
    before = time.time() - 3600
    for place, folders, files in os.walk(root):
        for name in (*files, *folders):
            os.utime(os.path.join(place, name), (before, before))


class Timed(NamedTuple):
    """What a command took: wall-clock and processor seconds, MB (the highest of the program and its helpers together),
    and what it printed."""

    wall_s: float
    processor_s: float
    peak_mb: float
    output: str


def timed(*arguments: str) -> Timed:
    """Run a command of ours."""
    import psutil

    used, began = _processor_s(), time.perf_counter()
    program = subprocess.Popen([sys.executable, "-m", "trackers", *arguments], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    peak, ended = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            try:
                tree = [psutil.Process(program.pid), *psutil.Process(program.pid).children(recursive=True)]
                peak = max(peak, sum(process.memory_info().rss for process in tree) / 1e6)
            except psutil.Error:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = program.communicate()[0]
    took = time.perf_counter() - began
    ended.set()
    watcher.join()
    if program.returncode != 0:
        raise RuntimeError(f"trackers {' '.join(arguments)} ended with {program.returncode}")
    return Timed(took, _processor_s() - used, peak, output)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(quick: bool) -> list[Figure]:
    """The figures; a hundredth of the runs for a try."""
    runs, listed, steps = (10, 100, 100) if quick else (1000, 10_000, 1000)
    many, more = Path("many"), Path("more")
    write(many, runs, steps)
    age(many)
    compare = ("compare", str(many), "--format", "csv")
    cold, warm = timed(*compare), timed(*compare)
    if cold.output != warm.output or len(cold.output.splitlines()) != runs + 1:
        raise RuntimeError("compare said something else the second time, or left runs out")
    shutil.rmtree(many)
    write(more, listed, 18)
    age(more)
    listing = ("ls", "--dir", str(more))
    first, second = timed(*listing), timed(*listing)
    if {len(found.output.splitlines()) for found in (first, second)} != {listed + 1}:
        raise RuntimeError("ls left runs out")
    query = ("sql", SQL, str(more))
    asked, again = timed(*query), timed(*query)
    if asked.output != again.output:
        raise RuntimeError("sql said something else the second time")
    delivered(Path("whole"), listed // 3)
    one, all_of_them = timed("sync", "whole/delivered/run0"), timed("sync", "whole")
    if len(all_of_them.output.splitlines()) != 3 * (listed // 3):
        raise RuntimeError("sync left trackers of runs out")
    each_ms = 1e3 * (all_of_them.processor_s - one.processor_s) / (listed // 3 - 1)
    return [
        Figure(
            f"sync {listed // 3:,} delivered runs, three trackers: processor time a run", each_ms, "ms", at_most=SYNC_MS
        ),
        Figure(f"compare {runs:,} runs x {steps:,} steps x 10 values, cold", cold.wall_s, "s", at_most=COLD_S),
        Figure("  processor time, helper included", cold.processor_s, "s"),
        Figure("  memory, helper included", cold.peak_mb, "MB", at_most=MEMORY_MB),
        Figure("compare, warm", warm.wall_s, "s", at_most=WARM_S),
        Figure("  processor time", warm.processor_s, "s"),
        Figure(f"ls {listed:,} runs, cold", first.wall_s, "s"),
        Figure("  processor time", first.processor_s, "s"),
        Figure("ls, warm", second.wall_s, "s", at_most=LIST_S),
        Figure("  processor time", second.processor_s, "s", at_most=LIST_S),
        Figure(f"sql, a mean over {listed:,} runs and {180 * listed:,} values, cold", asked.wall_s, "s"),
        Figure("  processor time", asked.processor_s, "s"),
        Figure("sql, warm", again.wall_s, "s", at_most=SQL_S),
        Figure("  processor time", again.processor_s, "s", at_most=SQL_S),
        Figure("  against cold", again.wall_s / asked.wall_s, "x"),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
