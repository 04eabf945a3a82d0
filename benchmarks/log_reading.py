"""How fast a Primus log is read, against Python merely going through its lines."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main

LINE = (
    "[20251121 {clock}][rank-31/32][INFO ] [--------trainer.py:2488] :  iteration {step:8d}/{total:8d} |"
    " consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f}/{mean:.1f} |"
    " hip mem usage/free/total/usage_ratio: {used:.2f}GB/{free:.2f}GB/255.98GB/{percent:.2f}% |"
    " throughput per GPU (TFLOP/s/GPU): {tflops:.1f}/217.3 | tokens per GPU (tokens/s/GPU): {tokens:.1f}/12525.5 |"
    " learning rate: {rate:.6E} | global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: 1.0 |"
    " grad norm: {norm:.3f} | number of skipped iterations: {zero:3d} | number of nan iterations: {zero:3d} |\n"
)
NOISE = "[20251121 {clock}][rank-0/32][INFO ] [-------dataset.py:77] : shard {step} of the corpus is open\n"
LEAST_MB_S = 50.0


def write(path: Path, size: int) -> tuple[int, int]:
    """A log of at least ``size`` bytes: each iteration once, each tenth forwarded by another rank, some noise.

    Returns:
        its size in bytes and its number of iterations.
    """
    source = random.Random(0)
    steps = size // len(_line(source, 1, 1)) * 10 // 11
    with open(path, "w") as file:
        for step in range(1, steps + 1):
            line = _line(source, step, steps)
            file.write(line)
            if step % 10 == 0:
                file.write(line.replace("rank-31", "rank-30"))
            if step % 7 == 0:
                file.write(NOISE.format(clock="12:00:00", step=step))
    return path.stat().st_size, steps


def _line(source: random.Random, step: int, total: int) -> str:
    used = 200.0 + source.random() * 50
    return LINE.format(
        clock=f"{step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d}",
        step=step, total=total, samples=256 * step, ms=2700 + source.random(), mean=2712.7, used=used,
        free=255.98 - used, percent=used / 2.5598, tflops=210 + source.random(), tokens=12000 + 500 * source.random(),
        rate=1e-4 * source.random(), batch=256, loss=2 + source.random(), norm=source.random(), zero=0,
    )  # fmt: skip


def _through(path: Path) -> tuple[float, int]:
    began = time.perf_counter()
    with open(path, "rb") as file:
        count = sum(1 for _ in file)
    return time.perf_counter() - began, count


def _read(path: Path) -> tuple[float, float, int]:
    """Seconds, seconds of the processor, rows."""
    from trackers_console_logs.reader import LogReader

    from trackers.records import Metrics

    reader = LogReader()
    (run,) = reader.runs(str(path))
    began, used, rows = time.perf_counter(), time.process_time(), 0
    for record in reader.read(run):
        if type(record) is Metrics:
            rows += "train_loss" in record.values
    return time.perf_counter() - began, time.process_time() - used, rows


def measure(quick: bool) -> list[Figure]:
    """The figures; a log of 1 GB (5 MB for a try)."""
    import psutil

    path = Path("primus.log")
    size, steps = write(path, 5_000_000 if quick else 1_000_000_000)
    floor, _ = _through(path)
    before = psutil.Process().memory_info().rss
    took, used, rows = _read(path)
    grown = psutil.Process().memory_info().rss - before
    if rows != steps:
        raise RuntimeError(f"{rows} rows of {steps} iterations")
    return [
        Figure("size", size / 1e6, "MB"),
        Figure("read into records", size / 1e6 / took, "MB/s", at_least=LEAST_MB_S),
        Figure("  by processor time", size / 1e6 / used, "MB/s"),
        Figure("  memory on top", grown / 1e6, "MB", at_most=50.0),
        Figure("Python going through its lines", size / 1e6 / floor, "MB/s"),
        Figure("  reading takes so many times that", took / floor, "x", at_most=60.0),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
