"""Live runs into a lake by one collector, and by a writer for each run: requests, bytes and processor time a round.

A thousand runs of 20 projects log 60 steps of ten metrics from round to round. The collector puts what is new of all
into one commit of each table; `trackers lake add` of each run alone, as the tracker "lake" does, is measured for some
of them. Prices are those of S3 in us-east-1: 5 dollars for a million writes and listings, 0.4 for a million reads.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

from trackers_lake import into_lake
from trackers_lake import location as locations
from trackers_lake.collect import Claims, _round
from trackers_lake.tables import Lake

from benchmarks.common import Figure, main
from tests.analysis.support import T0, write_run
from trackers.object_storage.store import Listed, Store

RUNS, PROJECTS, STEPS, ROUNDS, ALONE = 1000, 20, 60, 4, 25
ROUNDS_A_DAY = 1440
WRITE_DOLLARS, READ_DOLLARS = 5e-6, 4e-7
LESS_REQUESTS = 100.0


class Counting(Store):
    """A store on this disk that counts what it is asked."""

    asked: ClassVar[Counter[str]] = Counter()

    def put(self, name: str, content: bytes | Path) -> str:
        Counting.asked["writes"] += 1
        Counting.asked["bytes"] += len(content) if isinstance(content, bytes) else content.stat().st_size
        return super().put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        Counting.asked["writes"] += 1
        Counting.asked["bytes"] += len(content)
        return super().create(name, content)

    def chunks(self, name: str, most: int) -> Iterator[bytes]:
        Counting.asked["reads"] += 1
        return super().chunks(name, most)

    def exists(self, name: str) -> bool:
        Counting.asked["reads"] += 1
        return super().exists(name)

    def objects(self, below: str = "", after: str = "") -> Iterator[Listed]:
        Counting.asked["writes"] += 1
        return super().objects(below, after)

    def delete(self, names: Any) -> None:
        names = list(names)
        Counting.asked["writes"] += len(names)
        super().delete(names)


def grow(runs: int, steps: int) -> None:
    """All runs as they are after so many steps."""
    values = [f"m{at}" for at in range(10)]
    for number in range(runs):
        rows = [(step, step, dict.fromkeys(values, step * 0.37 + number)) for step in range(steps)]
        write_run(f"r{number:04d}", rows, project=f"p{number % PROJECTS:02d}", created=T0, status="running")


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    runs, alone = (40, 4) if quick else (RUNS, ALONE)
    locations.Store = Counting  # type: ignore[misc]
    figures: list[Figure] = []
    lake = Lake("lake", make=True)
    claims = Claims(lake.store, 180.0)
    for number in range(1, ROUNDS + 1):
        grow(runs, number * STEPS)
        Counting.asked.clear()
        began, cpu = time.monotonic(), time.process_time()
        done = _round([Path("runs")], lake, claims, began)
        took, used = time.monotonic() - began, time.process_time() - cpu
        assert len(done.added.added) == runs
    figures += counted(f"{runs} runs, one collector", runs, took, used)
    each = Counting.asked.copy()
    for steps in (STEPS * ROUNDS, STEPS * (ROUNDS + 1)):
        grow(alone, steps)
        Counting.asked.clear()
        began, cpu = time.monotonic(), time.process_time()
        for number in range(alone):
            into_lake.add([f"runs/p{number % PROJECTS:02d}/r{number:04d}"], "alone", Path("runs"))
        took, used = time.monotonic() - began, time.process_time() - cpu
    figures += counted("a writer for each run", alone, took, used)
    ours, theirs = (one["writes"] + one["reads"] for one in (each, Counting.asked))
    figures.append(Figure("requests, a writer for each run to one collector", theirs / alone / (ours / runs), "x",
                          at_least=LESS_REQUESTS))  # fmt: skip
    return figures


def counted(name: str, runs: int, took: float, used: float) -> list[Figure]:
    """The figures of a round, and of a day of such rounds of 1,000 runs."""
    asked, share = Counting.asked, RUNS / runs * ROUNDS_A_DAY
    dollars = (asked["writes"] * WRITE_DOLLARS + asked["reads"] * READ_DOLLARS) * share
    return [
        Figure(f"{name}: a round", took, "s"), Figure(f"{name}: processor, a run", used / runs * 1e3, "ms"),
        Figure(f"{name}: writes, listings", asked["writes"]), Figure(f"{name}: reads", asked["reads"]),
        Figure(f"{name}: written", asked["bytes"] / 1e6, "MB"),
        Figure(f"{name}: a day of 1,000 runs", (asked["writes"] + asked["reads"]) * share / 1e6, "million requests"),
        Figure(f"{name}: dollars a day of 1,000 runs", dollars),
    ]  # fmt: skip


if __name__ == "__main__":
    main(measure, "live runs into a lake")
