"""How long the live page waits for an answer, of 10,000 runs with 10,000,000 points."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.analysis import age
from benchmarks.common import Figure, main, percentile
from tests.ui import support
from tests.ui.support import Site, command
from trackers import records
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Finish, Metrics, Record, Start, Summary
from trackers.tracker import RunInfo

T0 = 1_763_688_000.0
ANSWER_MS = 100.0
TIMES = 30
VARIANTS = 20
ZOOMED = (0.4, 0.6)


def write(root: Path, runs: int, points: int, few: int, long: int) -> None:
    """Runs as training leaves them: ``few`` with ``long`` points, the others with ``points``."""
    import numpy as np

    source = np.random.default_rng(0)

    def body(size: int) -> bytes:
        loss = 3 / (1 + np.arange(size) / size * 9) + source.normal(0, 0.05, size)
        return b"".join(records.encode(Metrics(step=step, time=T0 + step / 10, values={"train_loss": value}))
                        for step, value in enumerate(loss.tolist()))  # fmt: skip

    short = [body(points) for _ in range(VARIANTS)]
    for number in range(runs):
        directory = RunDirectory(root / "many" / f"run{number:05d}")
        directory.make()
        config = {"lr": 10.0 ** -(number % 5), "seed": number, "model": {"depth": number % 7, "width": 64}}
        name = f"run {number}"
        info = RunInfo(id=directory.path.name, name=name, project="many", created=T0 + number, trackers=["json"],
                       config=config, tags=["even"] if number % 2 == 0 else [])  # fmt: skip
        directory.write_info(info)
        head: list[Record] = [Start(time=T0, rank=0, pid=1), Config(time=T0, values=config)]
        tail: list[Record] = [Summary(time=T0 + 1, values={"final/accuracy": number / runs}),
                              Finish(time=T0 + 2, status="finished", exit_code=0)]  # fmt: skip
        content = body(long) if number >= runs - few else short[number % VARIANTS]
        parts = (*map(records.encode, head), content, *map(records.encode, tail))
        (directory.streams / "rank-0.1.jsonl").write_bytes(b"".join(parts))


def timed(action: Callable[[], Any]) -> list[float]:
    """Milliseconds of each of some calls, after one that isn't counted."""
    action()
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        action()
        took.append((time.perf_counter() - began) * 1000)
    return took


def all_there(found: Site, runs: int) -> None:
    """Wait until every run is in the table."""
    while found.ask("runs")["all"] < runs:
        time.sleep(0.5)


def interactions(found: Site, long: int) -> dict[str, Callable[[], Any]]:
    """What a click asks for, by what it does."""
    rows = found.ask("runs", query=json.dumps({"most": 10}))["rows"]
    keys = ",".join(row["key"] for row in rows)
    drawn = {"runs": keys, "name": "train_loss", "bins": 300}
    low, high = (int(part * long) for part in ZOOMED)
    weights = iter(0.9 + 0.0001 * number for number in range(10_000))
    ends = iter(range(high, long))

    def table(**query: Any) -> Callable[[], Any]:
        return lambda: found.ask("runs", query=json.dumps(query))

    return {
        "table: the newest runs": table(),
        "table: sort by a setting": table(sort="config.lr"),
        "table: sort by a result": table(sort="result.accuracy", descending=False),
        "table: search, lr>0.05 even": table(where="lr>0.05 even"),
        "table: group by a setting": table(by="config.model.depth"),
        "all columns": lambda: found.ask("columns"),
        "is anything new?": lambda: found.ask("pulse", runs=keys),
        "chart: 10 long runs, whole": lambda: found.ask("curves", **drawn),
        "chart: zoom to a fifth, another each time": lambda: found.ask("curves", **drawn, low=low, high=next(ends)),
        "chart: another smoothing each time": lambda: found.ask("curves", **drawn, weight=next(weights)),
        "chart: mean and spread": lambda: found.ask("curves", **drawn, by="project"),
        "compare 10 runs": lambda: found.ask("compare", runs=keys),
        "scatter plot of all runs": lambda: found.ask("scatter", columns="config.lr\nresult.accuracy"),
        "one run's page": lambda: found.ask("run", run=rows[0]["key"]),
    }


def measure(quick: bool) -> list[Figure]:
    """The figures; a hundredth of the runs and points for a try."""
    runs, points, few, long = (100, 500, 10, 5000) if quick else (10_000, 500, 10, 500_000)
    support.PATIENCE_S = 300.0
    root = Path("runs")
    write(root, runs, points, few, long)
    age(root)
    figures = []
    for kind in ("for the first time", "again"):
        began = time.perf_counter()
        with command("--port", "0", "--dir", str(root)) as (_, found):
            figures.append(Figure(f"until the page is served, {kind}", time.perf_counter() - began, "s"))
            all_there(found, runs)
            figures.append(Figure(f"  until all {runs:,} runs are in the table", time.perf_counter() - began, "s"))
            if kind == "for the first time":
                continue
            keys = ",".join(row["key"] for row in found.ask("runs", query=json.dumps({"most": 10}))["rows"])
            began = time.perf_counter()
            found.ask("curves", runs=keys, name="train_loss", bins=300)
            figures.append(
                Figure(f"  10 runs x {long:,} points read and drawn first", time.perf_counter() - began, "s")
            )
            for name, action in interactions(found, long).items():
                took = timed(action)
                figures.append(Figure(name, statistics.median(took), "ms", at_most=ANSWER_MS))
                figures.append(Figure("  one in twenty is slower than", percentile(took, 0.95), "ms"))
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
