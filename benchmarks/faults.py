"""What servers that are away, hang or refuse cost training: init, the longest log call, the median step."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main
from tests.wandb_server import Fault, WandbServer

INIT_S = 0.5
LONGEST_MS = 100.0
STEP = 1.02
"""Median step time, as a multiple of the run without trackers."""
ROUNDS = 5
"""Pairs of runs, one without trackers and one with, right after each other: the machine's other work changes."""

CHILD = """
import json, os, sys, time
import trackers
steps, names = int(sys.argv[1]), sys.argv[2]
began = time.perf_counter()
run = trackers.init(names, project="bench", mode="online" if names != "none" else "disabled")
init_s = time.perf_counter() - began
work, longest, times = bytearray(1 << 20), 0.0, []
for step in range(steps):
    start = time.perf_counter()
    for _ in range(20):
        sum(work[:100_000])
    before = time.perf_counter()
    run.log({"loss": step / 7, "accuracy": 0.5}, step=step)
    now = time.perf_counter()
    longest = max(longest, now - before)
    times.append(now - start)
times.sort()
print("took:", json.dumps([init_s, longest, times[len(times) // 2]]))
import psutil
for helper in psutil.Process().children(recursive=True):
    helper.kill()
run.finish(timeout=0)
"""


@contextmanager
def _hung() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(512)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def _addresses(fault: str, stack: ExitStack) -> str:
    if fault == "down":
        return "http://127.0.0.1:9"
    if fault == "no such host":
        return "http://nowhere.invalid:5000"
    if fault == "hung":
        return stack.enter_context(_hung())
    server = stack.enter_context(WandbServer())
    server.fault = Fault("garbage") if fault == "garbage" else Fault("status", status=int(fault))
    return server.url


def _child(names: str, steps: int, address: str) -> list[float]:
    env = {
        **os.environ,
        "MLFLOW_TRACKING_URI": address,
        "TRACKIO_SERVER_URL": f"{address}/",
        "WANDB_MODE": "online",
        "WANDB_BASE_URL": address,
        "WANDB_API_KEY": "k" * 40,
    }
    command = [sys.executable, "-c", CHILD, str(steps), names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    for line in done.stdout.splitlines():
        if line.startswith("took:"):
            found: list[float] = json.loads(line.removeprefix("took:"))
            return found
    raise RuntimeError(f"no answer: {done.stderr[-2000:]}")


def measure(quick: bool) -> Sequence[Figure]:
    """Figures for each fault, each run beside a loop without trackers that ran just before."""
    steps, rounds = (200, 1) if quick else (500, ROUNDS)
    faults = ("down", "hung", "401") if quick else ("down", "hung", "no such host", "401", "404", "500", "garbage")
    figures = []
    _child("json", 1, "http://127.0.0.1:9")  # compiles the modules
    for fault in faults:
        with ExitStack() as stack:
            address = _addresses(fault, stack)
            found = []
            for _ in range(rounds):
                _, _, bare = _child("none", steps, address)
                init_s, longest, median = _child("mlflow,trackio,wandb", steps, address)
                found.append((init_s, longest, median / bare))
        inits, longests, ratios = zip(*found, strict=True)
        figures += [
            Figure(f"init, {fault}", max(inits), "s", at_most=INIT_S),
            Figure(f"longest log, {fault}", 1e3 * max(longests), "ms", at_most=LONGEST_MS),
            Figure(f"median step, {fault}", statistics.median(ratios), "of bare", at_most=STEP),
        ]
    return figures


if __name__ == "__main__":
    main(measure, "Servers that fail: what training notices")
