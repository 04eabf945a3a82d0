"""How much a training step of 1 ms slows down when each step is logged to five trackers."""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import TRACKERS, Figure, audit, cores, helpers, main, rows

LIMIT = 1.05
STEP_S = 0.001
BLOCK_STEPS = 250
FINISH_S = 600.0


def step(turns: int) -> float:
    """The work of one training step: pure Python, a result that depends on all of it."""
    total = 0.0
    for turn in range(turns):
        total += (turn % 7) * 0.5
    return total


def turns_for(seconds: float) -> int:
    """How many turns of ``step`` take so long here."""
    turns = 1000
    best = min(_took(turns) for _ in range(200))
    return int(turns * seconds / best)


def _took(turns: int) -> float:
    began = time.perf_counter()
    step(turns)
    return time.perf_counter() - began


def block(turns: int, log: Callable[[Mapping[str, float], int], None] | None, first: int, values: Any) -> list[float]:
    """Seconds of each step, with the call that logs it where there is one."""
    spent = []
    clock = time.perf_counter
    for number in range(BLOCK_STEPS):
        began = clock()
        step(turns)
        if log is not None:
            log(values[first + number], first + number)
        spent.append(clock() - began)
    return spent


@contextlib.contextmanager
def without_helpers() -> Iterator[None]:
    """As if there were no trackers: every helper process stands still."""
    beside = helpers()
    _signal(beside, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(reversed(beside), signal.SIGCONT)


def _signal(processes: Any, number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def measure(quick: bool, trackers: Sequence[str] = TRACKERS) -> list[Figure]:
    """The figures: blocks of steps, logged with all helpers at work, then not logged with all of them stopped."""
    import trackers as package

    pairs = 4 if quick else 60
    values = rows(1 + (pairs + 1) * BLOCK_STEPS)
    run = package.init(list(trackers), project="bench", name="training_step")
    logged: dict[int, Mapping[str, float]] = {}

    def log(row: Mapping[str, float], number: int) -> None:
        run.log(row, number)

    run.log(values[0], 0)
    if not run.flush(120.0):
        raise RuntimeError("the deliveries didn't begin within 120 s: see relay.log")
    turns = turns_for(STEP_S)
    block(turns, log, 1, values)  # deliveries get to work
    with_all, alone, ratios, processor = [], [], [], []
    for number in range(pairs):
        first = 1 + BLOCK_STEPS + number * BLOCK_STEPS
        times: dict[bool, list[float]] = {}
        used: dict[bool, float] = {}
        for logging in (True, False) if number % 2 else (False, True):
            if logging:
                began = time.thread_time()
                times[True] = block(turns, log, first, values)
                used[True] = time.thread_time() - began
            else:
                with without_helpers():
                    began = time.thread_time()
                    times[False] = block(turns, None, 0, values)
                    used[False] = time.thread_time() - began
        with_all += times[True]
        alone += times[False]
        ratios.append(sum(times[True]) / sum(times[False]))
        processor.append(used[True] / used[False])
    waiting = {name: entry["waiting_bytes"] for name, entry in run.status().items()}
    run.finish(timeout=FINISH_S)
    logged.update(enumerate(values))
    return [
        Figure("step with logging / without: median", statistics.median(with_all) / statistics.median(alone), "x",
               at_most=LIMIT),
        Figure("  all steps of a block: median", statistics.median(ratios), "x", at_most=LIMIT),
        Figure("  training's own processor time: median", statistics.median(processor), "x", at_most=LIMIT),
        Figure("  all steps of all blocks", sum(with_all) / sum(alone), "x"),
        Figure("step without logging: median", statistics.median(alone) * 1e3, "ms"),
        Figure("cores", cores()),
        Figure("waiting at the end, the slowest", max(waiting.values()) / 1e6, "MB"),
        Figure("values lost, doubled or wrong", audit(run, logged, trackers), f"of {len(logged) * 10 * len(trackers)}",
               at_most=0),
    ]  # fmt: skip


if __name__ == "__main__":
    main(measure, __doc__ or "")
