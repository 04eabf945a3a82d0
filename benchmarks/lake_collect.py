"""Live runs into a lake by one collector, and by a writer for each run: requests, bytes and processor time a round.

A thousand runs of 20 projects log 60 steps of ten metrics from round to round. The collector puts what is new of all
into one commit of each table; `trackers lake add` of each run alone, as the tracker "lake" does, is measured for some
of them. Prices are those of S3 in us-east-1: 5 dollars for a million writes and listings, 0.4 for a million reads.

Then what a round reads of runs of ten hours, in a directory and in a store: all of each, and what is new.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

from trackers_lake import into_lake
from trackers_lake import location as locations
from trackers_lake.collect import Claims, _round
from trackers_lake.tables import Lake

from benchmarks.common import Figure, main
from tests.analysis.support import T0, write_run
from trackers.object_storage import mirror
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Listed, Store
from trackers.records import Metrics, encode

RUNS, PROJECTS, STEPS, ROUNDS, ALONE = 1000, 20, 60, 4, 25
ROUNDS_A_DAY = 1440
WRITE_DOLLARS, READ_DOLLARS = 5e-6, 4e-7
LESS_REQUESTS = 100.0
LONG_RUNS, LONG_STEPS = 10, 36_000
LESS_PROCESSOR = 20.0


class Counting(Store):
    """A store on this disk that counts what it is asked."""

    asked: ClassVar[Counter[str]] = Counter()
    lock = threading.Lock()

    def put(self, name: str, content: bytes | Path) -> str:
        Counting.asked["writes"] += 1
        Counting.asked["bytes"] += len(content) if isinstance(content, bytes) else content.stat().st_size
        return super().put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        Counting.asked["writes"] += 1
        Counting.asked["bytes"] += len(content)
        return super().create(name, content)

    def chunks(self, name: str, most: int) -> Iterator[bytes]:
        self._read(1)
        for part in super().chunks(name, most):
            self._read(0, len(part))
            yield part

    def part(self, name: str, begin: int, end: int) -> bytes:
        found = super().part(name, begin, end)
        self._read(1, len(found))
        return found

    def _read(self, requests: int, size: int = 0) -> None:
        with self.lock:
            Counting.asked["reads"] += requests
            Counting.asked["loads"] += requests
            Counting.asked["bytes read"] += size

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
    looks: into_lake.Looks = {}
    for number in range(1, ROUNDS + 1):
        grow(runs, number * STEPS)
        Counting.asked.clear()
        began, cpu = time.monotonic(), time.process_time()
        done = _round([Path("runs")], lake, claims, looks)
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
    return [*figures, *long_runs(*(2, 600) if quick else (LONG_RUNS, LONG_STEPS))]


def long_runs(runs: int, steps: int) -> list[Figure]:
    """What a round costs whose runs have logged for long: each read whole, and what is new alone."""
    append = mirror.append
    mirror.Store = Counting  # type: ignore[misc]
    figures = []
    for place in ("directory", "store"):
        used = {}
        for way in ("whole", "new"):
            name, looks = f"{place}-{way}", {}
            root, stored, lake = Path(name), f"file://{Path.cwd()}/{name}-store", Lake(f"{name}-lake", make=True)
            source = Path(f"{name}-copy") if place == "store" else root
            mirror.append = append if way == "new" else lambda *given: append(*given[:4])
            for first, last in ((0, steps), (steps, steps + STEPS), (steps + STEPS, steps + 2 * STEPS)):
                for run in (root / f"p/r{number}" for number in range(runs)):
                    longer(run, first, last)
                    if place == "store":
                        Sender(Store(stored), run, f"p/{run.name}").send()
                looks = looks if way == "new" else {}
                Counting.asked.clear()
                read, cpu = psutil.Process().io_counters().read_chars, time.process_time()
                if place == "store":
                    mirror.copy(stored, source)
                into_lake.fill(lake, list(into_lake.candidates(str(source), None)), looks=looks)
            read, used[way] = psutil.Process().io_counters().read_chars - read, time.process_time() - cpu
            what = f"a long run in a {place}, {way}"
            figures += [Figure(f"{what}: read here", read / runs / 1e3, "kB"),
                        Figure(f"{what}: processor", used[way] / runs * 1e3, "ms")]  # fmt: skip
            if place == "store":
                figures += [Figure(f"{what}: loaded", Counting.asked["bytes read"] / runs / 1e3, "kB"),
                            Figure(f"{what}: loads", Counting.asked["loads"] / runs)]  # fmt: skip
        figures.append(Figure(f"processor for a long run in a {place}, whole to new", used["whole"] / used["new"], "x",
                              at_least=LESS_PROCESSOR))  # fmt: skip
    return figures


def longer(path: Path, first: int, end: int) -> None:
    """A run of one stream has gone on."""
    if not first:
        write_run(path.name, project=path.parent.name, root=path.parent.parent, created=T0, status="running")
    rows = (Metrics(step=step, time=T0 + step, values={f"m{at}": step * 0.37 + at for at in range(10)})
            for step in range(first, end))  # fmt: skip
    with (path / "streams/rank-0.1.jsonl").open("ab") as file:
        file.write(b"".join(map(encode, rows)))


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
