"""What the capture of the console costs a print, and how fast the relay takes lines."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main, percentile

BLOCK = 200
"""Prints that are timed together, with the capture and without it in turn."""
LINES_PER_S = 10
LINE = "step 12345 | loss 2.3456 | lr 3.0e-04 | 123.4 ms | 45.6 TFLOP/s | grad norm 0.987"


def timed(blocks: int, *ways: Callable[[], object]) -> list[float]:
    """Microseconds of one call of each way, at the median of its blocks."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(blocks):
        for place, way in enumerate(ways):
            began = time.perf_counter_ns()
            for _ in range(BLOCK):
                way()
            taken[place].append((time.perf_counter_ns() - began) / 1000 / BLOCK)
    return [percentile(sorted(one), 0.5) for one in taken]


def prints(blocks: int) -> tuple[float, float, float]:
    """Microseconds of a print into a file: with the capture, without it, and of one write of the same line."""
    from trackers.training.console_capture import ConsoleCapture

    before = sys.stdout
    with tempfile.TemporaryDirectory() as place, open(Path(place, "out"), "w", encoding="utf-8") as plain:
        heard = open(Path(place, "heard"), "w", encoding="utf-8")  # noqa: SIM115
        sys.stdout = heard
        capture = ConsoleCapture(Path(place, "console"), 0, 1, 64_000_000)
        capture.begin()
        sys.stdout = before
        fd = os.open(Path(place, "least"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            with_it, without, least = timed(
                blocks,
                lambda: print(LINE, file=heard),
                lambda: print(LINE, file=plain),
                lambda: os.write(fd, f"{LINE}\n".encode()),
            )
        finally:
            os.close(fd)
            capture.end()
            heard.close()
    return with_it, without, least


def collected(lines: int) -> float:
    """Lines a second that the relay folds, masks and appends to the journal."""
    from trackers.journal.console_spool import ConsoleSpool
    from trackers.journal.run_directory import RunDirectory
    from trackers.relay.console_collector import ConsoleCollector
    from trackers.tracker import RunInfo

    with tempfile.TemporaryDirectory() as place:
        run = RunDirectory(Path(place, "run"))
        run.make()
        spool = ConsoleSpool(run.console, 0, 1, "stdout", 1 << 30)
        for _ in range(lines):
            spool.add(f"{LINE}\n")
        spool.close()
        info = RunInfo(id="run", name="run", project="bench", options={"TRACKER_CONSOLE_MAX_MB": 1000})
        began = time.perf_counter()
        ConsoleCollector(run, info, 1).end()
        return lines / (time.perf_counter() - began)


def measure(quick: bool) -> Sequence[Figure]:
    """The figures: medians of blocks in turn."""
    with_it, without, least = prints(20 if quick else 500)
    added = with_it - without
    return [
        Figure("print of a line, without the capture", without, "µs"),
        Figure("the same, with it", with_it, "µs"),
        Figure("one os.write of the line", least, "µs"),
        Figure("  what the capture adds, of that", added / least, "x", at_most=6.0),
        Figure(f"  of a training that prints {LINES_PER_S} lines/s", added * LINES_PER_S / 1e4, "%", at_most=0.1),
        Figure("lines that the relay takes", collected(20_000 if quick else 200_000), "/s", at_least=10_000),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
