"""What one call of run.log costs, with five trackers delivering, against the least that keeping a record can cost."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import NAMES, TRACKERS, Figure, audit, main, percentile, rows

RATIO = 1.5
"""A call's median may cost so many times the floor's."""
BURST = 50
PAUSE_S = 0.025
"""Between bursts: about 2,000 records/s, so that the deliveries work all the time and MLflow can still catch up."""
FINISH_S = 600.0


def floor(fd: int) -> Callable[[Mapping[str, Any], int], None]:
    """The least: the time, the record as a line, one write to an append-only file."""
    import msgspec

    from trackers.records import Metrics

    encode = msgspec.json.Encoder(decimal_format="number").encode

    def keep(values: Mapping[str, Any], step: int) -> None:
        os.write(fd, encode(Metrics(step=step, time=time.time(), values=values)) + b"\n")  # type: ignore[arg-type]

    return keep


def interleaved(
    run: Any, keep: Callable[[Mapping[str, Any], int], None], first: int, values: Sequence[Mapping[str, Any]],
    plain: Sequence[Mapping[str, Any]], work: Callable[[], object] = int,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Microseconds of each ``run.log`` and of each floor write, one beside the other, in bursts; work: before each."""
    clock = time.perf_counter_ns
    ours, least = [], []
    for place, (row, plain_row) in enumerate(zip(values, plain, strict=True)):
        step = first + place
        for turn in (0, 1):
            work()
            began = clock()
            if turn == (place + place // BURST) % 2:  # each is the cold one after every second pause
                run.log(row, step)
                ours.append((clock() - began) / 1000)
            else:
                keep(plain_row, step)
                least.append((clock() - began) / 1000)
        if place % BURST == BURST - 1:
            time.sleep(PAUSE_S)
    return ours, least


def read_first(keep: Callable[[Mapping[str, Any], int], None]) -> Callable[[Mapping[str, Any], int], None]:
    """The least for scalars of other packages: ``item()`` of each, then the floor."""

    def keep_items(values: Mapping[str, Any], step: int) -> None:
        keep({name: value.item() for name, value in values.items()}, step)

    return keep_items


def other_work() -> Callable[[], object]:
    """A millisecond of reading memory here and there, which takes the processor's caches from what ``log`` uses."""
    numbers = list(range(300_000))
    place = 0

    def read() -> int:
        nonlocal place
        until, found = time.perf_counter() + 0.001, 0
        while time.perf_counter() < until:
            place = (place + 104_729) % 290_000
            found += sum(numbers[place : place + 5_000])
        return found

    return read


def inputs(count: int) -> dict[str, tuple[list[dict[str, Any]], list[dict[str, float]]]]:
    """By kind of input: what is logged, and the same as plain floats."""
    kinds: dict[str, tuple[list[dict[str, Any]], list[dict[str, float]]]] = {}
    plain = rows(count, seed=1)
    nan = [{**row, NAMES[3]: float("nan")} for row in plain]
    kinds["one NaN of ten"] = (nan, nan)
    ours, least = ([{"".join([*name]): value for name, value in row.items()} for row in plain] for _ in "ab")
    kinds["names built anew"] = (ours, least)
    try:
        import numpy as np

        kinds["NumPy float64"] = ([{n: np.float64(v) for n, v in row.items()} for row in plain], plain)
        singles = [{n: np.float32(v) for n, v in row.items()} for row in plain]
        kinds["NumPy float32"] = (singles, [{n: float(v) for n, v in row.items()} for row in singles])
    except ImportError:
        pass
    try:
        import torch

        tensors = [{n: torch.tensor(v, dtype=torch.float64) for n, v in row.items()} for row in plain]
        kinds["torch, 0-d on the CPU"] = (tensors, plain)
    except ImportError:
        pass
    return kinds


def measure(quick: bool, trackers: Sequence[str] = TRACKERS, count: int | None = None) -> list[Figure]:
    """The figures. count: records of ten floats; other inputs get a tenth of them each."""
    import trackers as package

    count = count or (2000 if quick else 20000)
    plain = rows(count)
    other = inputs(max(count // 10, BURST))
    run = package.init(list(trackers), project="bench", name="log_call")
    logged: dict[int, dict[str, float]] = {}
    fd = os.open("floor.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    keep = floor(fd)
    for step in range(2 * BURST):
        logged[step] = plain[step % count]
        run.log(logged[step], step)
        keep(logged[step], step)
    if not run.flush(120.0):
        raise RuntimeError("the deliveries didn't begin within 120 s: see relay.log")
    figures = []
    gc.collect()
    first = len(logged)
    ours, least = interleaved(run, keep, first, plain, plain)
    logged.update(enumerate(plain, first))
    least_median = statistics.median(least)
    figures += [
        Figure("log, ten floats: median / floor", statistics.median(ours) / least_median, "x", at_most=RATIO),
        Figure("  median", statistics.median(ours), "us"),
        Figure("  p99", percentile(ours, 0.99), "us"),
        Figure("  p99.9", percentile(ours, 0.999), "us"),
        Figure("floor: median", least_median, "us"),
        Figure("  p99", percentile(least, 0.99), "us"),
        Figure("  p99.9", percentile(least, 0.999), "us"),
    ]
    for kind, (values, kept) in other.items():
        first = len(logged)
        if hasattr(values[0][next(iter(values[0]))], "item"):
            ours, least = interleaved(run, read_first(keep), first, values, values)
            what, at_most = "  / floor and item() of each", RATIO
        else:
            ours, least = interleaved(run, keep, first, values, kept)
            what, at_most = "  / floor", RATIO if kind == "names built anew" else None
        logged.update(enumerate(kept, first))
        figures += [
            Figure(f"{kind}: median", statistics.median(ours), "us"),
            Figure(what, statistics.median(ours) / statistics.median(least), "x", at_most=at_most),
            Figure("  p99", percentile(ours, 0.99), "us"),
        ]
    first = len(logged)
    between = plain[: max(count // 20, BURST)]
    ours, least = interleaved(run, keep, first, between, between, other_work())
    logged.update(enumerate(between, first))
    figures += [
        Figure("between a millisecond of other work: median", statistics.median(ours), "us"),
        Figure("  / floor", statistics.median(ours) / statistics.median(least), "x", at_most=RATIO),
    ]
    os.close(fd)
    alive = sum(entry["state"] == "delivering" for entry in run.status().values())
    figures.append(Figure("deliveries alive during it", alive, "", at_least=len(trackers)))
    began = time.monotonic()
    run.finish(timeout=FINISH_S)
    figures.append(Figure("all delivered after", time.monotonic() - began, "s"))
    wrong = audit(run, logged, trackers)
    figures.append(Figure("values lost, doubled or wrong", wrong, f"of {len(logged) * 10 * len(trackers)}", at_most=0))
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
