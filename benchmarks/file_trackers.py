"""Whether the trackers that write files keep up with 5,000 records/s, and what a callback's step costs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main, percentile, rows

RATE = 5000
"""Records/s of ten values that each must take, alone."""
WANTED = ("json", "csv", "benchmark", "session", "progress")
LAG_S = 2.0
"""How far a delivery may be behind when the last record comes: what it gathers on purpose, and one save."""
BACKLOG = 50_000
"""Records that wait when a delivery begins."""
PACE = 50
"""Records between two pauses while they are logged at the rate: 10 ms."""
FINISH_S = 300.0
CALLBACK_US = 100.0
"""Microseconds of a step that measures itself, on the processor."""


def present() -> list[str]:
    """Those of the wanted trackers that there are."""
    from trackers.backends import registry

    known = registry.tracker_names()
    return [name for name in WANTED if name in known]


def step(number: int, row: dict[str, float]) -> dict[str, float]:
    """What a training logs at a step: ten values, among them those that file trackers look for."""
    named = dict(zip(("train_loss", "learning_rate", "perf/iter_time_sec", "perf/tokens_per_sec"),
                     (abs(value) for value in row.values()), strict=False))  # fmt: skip
    return {**named, **dict(list(row.items())[len(named) :])}


def backlog(name: str, records: int) -> float:
    """Records/s of a delivery in this process, with everything in the journal already."""
    import trackers as package
    from trackers.journal.run_directory import RunDirectory
    from trackers.relay.delivery.delivery import Delivery

    options = {"TRACKER_RELAY": False}
    run = package.init(name, project="bench", name=f"{name}_backlog", mode="offline", options=options)
    for number, row in enumerate(rows(1000) * (records // 1000)):
        run.log(step(number, row), number)
    run.finish()
    said: list[str] = []
    delivery = Delivery(RunDirectory(Path(run.dir)), name, say=said.append, alone=False)
    began = time.perf_counter()
    while delivery.step() is not None:
        pass
    took = time.perf_counter() - began
    if said:
        raise RuntimeError(said[0])
    return records / took


def processor_s() -> float:
    """Processor seconds of this run's deliveries so far."""
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "delivery" in process.cmdline():
                spent += sum(process.cpu_times()[:2])
    return spent


def live(name: str, seconds: float) -> Iterator[Figure]:
    """One tracker in its delivery, while records come at RATE."""
    import trackers as package

    run = package.init(name, project="bench", name=f"{name}_live")
    values = rows(1000)
    run.log(step(0, values[0]), 0)
    if not run.flush(120.0):
        raise RuntimeError(f"the delivery of {name} didn't begin within 120 s: see relay.log")
    before, count = processor_s(), int(seconds * RATE)
    began = time.monotonic()
    for number in range(1, count + 1):
        run.log(step(number, values[number % 1000]), number)
        if number % PACE == 0:
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
    took = time.monotonic() - began
    behind = max(0, count - run.status()[name]["delivered"])
    run.flush(FINISH_S)
    spent = processor_s() - before
    run.finish(timeout=FINISH_S)
    waiting = run.status()[name]["waiting_bytes"]
    yield Figure(f"{name}: records logged a second", count / took, "/s")
    yield Figure("  behind at the last record", behind / RATE, "s", at_most=LAG_S)
    yield Figure("  cores that its delivery needs", spent / took, "", at_most=1.0)
    yield Figure("  left in the journal at the end", waiting, "bytes", at_most=0)


def callback(steps: int) -> float:
    """Microseconds of ``on_train_batch_end`` without a run, at the median."""
    import trackers as package

    measured = package.BenchmarkCallback()
    measured.on_train_start()
    taken = []
    for _ in range(steps):
        began = time.perf_counter_ns()
        measured.on_train_batch_end(loss=1.5, learning_rate=0.1)
        taken.append((time.perf_counter_ns() - began) / 1000)
    measured.on_train_end()
    return percentile(taken, 0.5)


def measure(quick: bool, trackers: Sequence[str] | None = None, records: int | None = None) -> list[Figure]:
    """The figures, tracker by tracker; then the callback's."""
    figures: list[Figure] = []
    count = records or (5000 if quick else BACKLOG)
    for name in trackers or present():
        figures.append(Figure(f"{name}: records/s of a backlog", backlog(name, count), "/s", at_least=RATE))
        figures += live(name, (records or 0) / RATE or (1.0 if quick else 20.0))
    figures.append(Figure("BenchmarkCallback: a step", callback(min(count, 10_000)), "µs", at_most=CALLBACK_US))
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
