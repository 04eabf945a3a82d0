"""How long `import trackers` and `init` take in a fresh process while every core is busy."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, busy, cores, main

LIMIT_S = 0.25
LIKE_ONE = 1.25
"""All five may take so many times what ``json`` alone takes: noise, not the trackers' clients."""

CHILD = """
import sys, time
began = time.perf_counter()
import trackers
run = trackers.init(sys.argv[1], project="bench", config={"lr": 1e-3, "model": {"depth": 4}})
run.log({"loss": 1.0})
took = time.perf_counter() - began
from benchmarks.common import helpers
for helper in helpers():
    helper.kill()  # its work would disturb the next start
print("took:", took)
run.finish(timeout=0)
"""


def start(trackers: str) -> float:
    """Seconds from before the import until after the first log, in a fresh process."""
    return float(_answer(["-c", CHILD, trackers], "took:"))


def usual(calls: int) -> dict[str, float]:
    """Seconds to start all vendors' clients in one process, and microseconds of a call to all of them."""
    found: dict[str, float] = json.loads(_answer([str(ROOT / "benchmarks/usual_way.py"), str(calls)], "usual:"))
    return found


def _answer(arguments: Sequence[str], mark: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(mark):
            return line.removeprefix(mark)
    raise RuntimeError(f"no answer from {arguments[0]}: {done.stderr[-2000:]}")


def measure(quick: bool) -> list[Figure]:
    """The figures: medians of fresh processes, all five trackers and ``json`` alone in turn."""
    five, one = ",".join(TRACKERS), "json"
    start(five)  # compiles the modules
    calls = 3 if quick else 30
    times: dict[str, list[float]] = {five: [], one: []}
    with busy(cores()):
        for _ in range(3 if quick else 25):
            for trackers in (five, one):
                times[trackers].append(start(trackers))
        usual_busy = usual(calls)
    idle = statistics.median(start(five) for _ in range(3 if quick else 11))
    usual_idle = usual(calls)
    median = statistics.median(times[five])
    return [
        Figure("import + init + first log, five trackers, cores busy", median, "s", at_most=LIMIT_S),
        Figure("  slowest", max(times[five]), "s"),
        Figure("  against json alone", median / statistics.median(times[one]), "x", at_most=LIKE_ONE),
        Figure("  cores left alone", idle, "s"),
        Figure("the usual way, cores busy", usual_busy["start_s"], "s"),
        Figure("  cores left alone", usual_idle["start_s"], "s"),
        Figure("  a log to all five: median", usual_idle["log_us"], "us"),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
