"""1,000 live runs on 125 nodes into a lake: a writer for each run, one for each node, one collector for all.

Each run logs 60 steps of ten metrics from round to round, and is put in once a round. The writers are the real ones,
one after the other in random order, on a store in a directory that counts requests and bytes. Then the nodes' writers
once more, ten at once and each request with 30 ms, for what it costs that another one is quicker. A writer for each
run is a new process each time, whose start is added to its processor time.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

from trackers_lake import into_lake
from trackers_lake import location as locations
from trackers_lake.delta import DeltaTable
from trackers_lake.tables import Lake

from benchmarks.common import ROOT, Figure, main
from benchmarks.lake_collect import READ_DOLLARS, ROUNDS_A_DAY, STEPS, WRITE_DOLLARS, Counting, longer
from trackers.journal.run_directory import RunDirectory

RUNS, NODES, PROJECTS, ROUNDS = 1000, 125, 20, 3
AT_ONCE, REQUEST_S, SOME = 10, 0.03, 20


class Writer:
    """One that puts runs in. kept: it lives from round to round, and knows what it has seen."""

    def __init__(self, runs: list[Path], where: str, *, kept: bool = True) -> None:
        self._runs, self._where, self._kept = [RunDirectory(run) for run in runs], where, kept
        self._lake: Lake | None = None
        self._looks: into_lake.Looks = {}

    def round(self, lake: Lake | None = None) -> None:
        """Put in what is new, into a lake that is open already, or one that is opened for it."""
        self._lake = self._lake or lake
        if self._lake is None:
            self._lake, self._looks = Lake(self._where, make=True), {}
        entries = [entry for run in self._runs if (entry := into_lake.candidate(run)) is not None]
        done = into_lake.fill(self._lake, entries, looks=self._looks)
        assert len(done.added) == len(entries), done
        self._lake = self._lake if self._kept else None


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    runs, nodes = (40, 5) if quick else (RUNS, NODES)
    locations.Store = Counting  # type: ignore[misc]
    figures: list[Figure] = []
    paths = [Path(f"runs/p{number % PROJECTS:02d}/r{number:04d}") for number in range(runs)]
    figures += played("a writer for each run", [[path] for path in paths], paths, kept=False)
    figures += played("a writer for each node", [paths[at::nodes] for at in range(nodes)], paths)
    figures += played("a collector", [paths], paths)
    return [*figures, *at_once([paths[at::nodes] for at in range(nodes)])]


def played(name: str, parts: list[list[Path]], paths: list[Path], *, kept: bool = True) -> list[Figure]:
    """Let runs grow, and writers put them in; the figures of the last round.

    Args:
        kept: writers live from round to round. Else some are measured, for all, when the first round is in the lake.
    """
    chance = random.Random(1)
    where = name.replace(" ", "-")
    writers = [Writer(part, where, kept=kept) for part in parts]
    shared = None if kept else Lake(where, make=True)
    start_s = 0.0 if kept else process_start_s()
    share = 1.0
    for number in range(ROUNDS if kept else 2):
        for path in paths:
            longer(path, number * STEPS, (number + 1) * STEPS)
        chosen = chance.sample(writers, len(writers) if kept or not number else min(SOME, len(writers)))
        share = len(chosen) / len(writers)
        Counting.asked.clear()
        cpu = time.process_time()
        for writer in chosen:
            writer.round(shared if not number else None)
    used = (time.process_time() - cpu) / share + start_s * len(writers)
    writes, reads, size = (Counting.asked[what] / share for what in ("writes", "reads", "bytes"))
    dollars = (writes * WRITE_DOLLARS + reads * READ_DOLLARS) * ROUNDS_A_DAY
    return [
        Figure(f"{name}: writes, listings a round", writes), Figure(f"{name}: reads a round", reads),
        Figure(f"{name}: written a round", size / 1e6, "MB"),
        Figure(f"{name}: processor a run and round", used / len(paths) * 1e3, "ms"),
        Figure(f"{name}: requests a day", (writes + reads) * ROUNDS_A_DAY / 1e6, "million"),
        Figure(f"{name}: dollars a day", dollars),
    ]  # fmt: skip


class Slow(Counting):
    """Each request takes as long as one to a store elsewhere."""

    def _call(self, call: Any) -> Any:
        time.sleep(REQUEST_S)
        return super()._call(call)


def at_once(nodes: list[list[Path]]) -> list[Figure]:
    """The nodes' writers in processes that work at the same time."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for part in (nodes[at::AT_ONCE] for at in range(AT_ONCE)):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(part, theirs)))
        processes[-1].start()
        pipes.append(ours)
    asked: Counter[str] = Counter()
    for number in range(ROUNDS, ROUNDS + 3):
        for path in (path for part in nodes for path in part):
            longer(path, number * STEPS, (number + 1) * STEPS)
        began = time.monotonic()
        for pipe in pipes:
            pipe.send(True)
        answers = [pipe.recv() for pipe in pipes]
        took, asked = time.monotonic() - began, sum((Counter(answer) for answer in answers), Counter())
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(False)
        process.join()
    requests = asked["writes"] + asked["reads"]
    dollars = (asked["writes"] * WRITE_DOLLARS + asked["reads"] * READ_DOLLARS) * ROUNDS_A_DAY
    name = f"a writer for each node, {AT_ONCE} at once"
    return [
        Figure(f"{name}: a round of all", took, "s"), Figure(f"{name}: commits that another overtook", asked["lost"]),
        Figure(f"{name}: of commits", asked["commits"]),
        Figure(f"{name}: requests a day", requests * ROUNDS_A_DAY / 1e6, "million"),
        Figure(f"{name}: dollars a day", dollars),
    ]  # fmt: skip


def serve(nodes: list[list[Path]], pipe: Any) -> None:
    """What one of these processes does."""
    locations.Store = Slow  # type: ignore[misc]
    commit = DeltaTable.commit

    def counted(*given: Any, **named: Any) -> bool:
        made = commit(*given, **named)
        Counting.asked["commits" if made else "lost"] += 1
        return made

    DeltaTable.commit = counted  # type: ignore[method-assign]
    writers = [Writer(part, "at-once") for part in nodes]
    while pipe.recv():
        Counting.asked.clear()
        for writer in writers:
            writer.round()
        pipe.send(dict(Counting.asked))


def process_start_s() -> float:
    """Processor seconds of a process that imports what puts a run in."""
    code = "import trackers_lake.commands, trackers_lake.into_lake, pyarrow.parquet"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/plugins/trackers-lake"}
    used = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        after = os.times()
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(used)


if __name__ == "__main__":
    main(measure, "1,000 live runs on 125 nodes into a lake")
