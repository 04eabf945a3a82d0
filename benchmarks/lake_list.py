"""The first `trackers ls`, `best` and page of a lake of 10,000 runs in a store: requests, and seconds at 50 ms each.

A tenth of the runs goes on. They are put in by 100 additions of 100 runs, as a collector does. The store is a
directory that is read as one elsewhere is, through a client that waits before each request.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

import numpy as np
from trackers_lake import location, tables
from trackers_lake.into_lake import Candidate, fill
from trackers_lake.journals import Content
from trackers_lake.tables import Lake
from typer.testing import CliRunner

from benchmarks.common import Figure, main
from trackers.cli.app import app
from trackers.object_storage.store import Listed, Store
from trackers.readers.columns import FLOAT, Block
from trackers.readers.reader import SourceRun
from trackers.records import Config, Record, Summary
from trackers.ui.catalogue import Catalogue

T0, DELAY_S, RUNS, TOGETHER = 1_763_688_000.0, 0.05, 10_000, 100
MOST_REQUESTS, MOST_S = 20, 2.0
NAMES = tuple(f"train/metric_{number}" for number in range(10))


class Waiting(Store):
    """A store whose reads and listings take :data:`DELAY_S`, and are counted."""

    asked: ClassVar[int] = 0
    delay_s: ClassVar[float] = 0.0

    def chunks(self, name: str, most: int) -> Iterator[bytes]:
        wait()
        return super().chunks(name, most)

    def exists(self, name: str) -> bool:
        wait()
        return super().exists(name)

    def objects(self, below: str = "", after: str = "") -> Iterator[Listed]:
        wait()
        return super().objects(below, after)


def wait() -> None:
    """A request."""
    Waiting.asked += 1
    time.sleep(Waiting.delay_s)


def candidate(number: int) -> Candidate:
    """A run of ten metrics, three settings and a result."""
    begin = T0 + number * 60
    run = SourceRun(
        source=f"r{number}", id=f"r{number:05d}", name=f"run {number}", project=f"p{number % 20:02d}",
        created=begin, status="running" if number % 10 == 3 else "finished",
    )  # fmt: skip

    def load() -> Content:
        rows = np.arange(20)
        values = np.random.default_rng(number).random((20, len(NAMES)))
        block = Block(NAMES, (FLOAT,) * len(NAMES), rows, rows, begin + rows.astype(float), values)
        config = Config(time=begin, values={"lr": 1e-4 * number, "layers": number % 7, "data": "digits"})
        others: list[Record] = [config, Summary(time=begin + 20, values={"best_acc": number / RUNS})]
        return Content([block], others, range(len(others)))

    return Candidate(run, "1", load)


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    runs = 1000 if quick else RUNS
    location.Store = Waiting  # type: ignore[misc]
    lake = Lake("lake", make=True)
    for first in range(0, runs, TOGETHER):
        added = fill(lake, [candidate(number) for number in range(first, first + TOGETHER)])
        assert len(added.added) == TOGETHER, added.problems
    location.local_path = lambda where: None  # type: ignore[assignment]
    figures = []
    Waiting.delay_s = DELAY_S
    for command in (["ls", "lake:lake", "-n", "20"], ["best", "lake:lake", "--metric", "final/best_acc"]):
        for again in ("", ", again"):  # the first call also imports what it needs
            Waiting.asked = 0
            began = time.monotonic()
            with contextlib.redirect_stderr(io.StringIO()):
                done = CliRunner().invoke(app, command)
            took = time.monotonic() - began
            assert done.exit_code == 0, done.output or done.exception
            name = f"{command[0]} of {runs:,} runs{again}"
            figures += [
                Figure(f"{name}: requests", Waiting.asked, at_most=MOST_REQUESTS),
                Figure(f"{name}", took, "s", at_most=MOST_S),
            ]
    for again in ("", ", again"):
        Waiting.asked = 0
        began = time.monotonic()
        catalogue = Catalogue(["lake:lake"], Path("runs"))
        catalogue.open()
        catalogue.wait()
        took, asked, rows = time.monotonic() - began, Waiting.asked, catalogue.state().rows.values()
        catalogue.close()
        assert len(rows) == runs
        assert all(row.last and row.config and row.result for row in rows)
        name = f"the page's table of {runs:,} runs{again}"
        figures += [
            Figure(f"{name}: requests", asked, at_most=MOST_REQUESTS), Figure(name, took, "s", at_most=MOST_S),
        ]  # fmt: skip
    files = len(lake.tables["runs"].snapshot().files)
    figures.append(Figure("files of the table of runs", files, at_most=tables.READ_THREADS * 2))
    return figures


if __name__ == "__main__":
    main(measure, "a lake's list")
