"""What servers that are away, hang or refuse cost training: init, the longest log call, the median step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, Figure, main
from tests.fakes.wandb_server import Fault, WandbServer

INIT_S = 0.5
LONGEST_MS = 100.0
STEP = 1.02
"""Median step time, as a multiple of the steps without trackers."""
SLOW_S = 2.0
"""How long a slow server takes for each answer."""
FAULTS = ("down", "hung", "slow", "no such host", "401", "403", "404", "429", "500", "502", "garbage")
ROUNDS = 20
"""Blocks of steps without trackers and with, taking turns: the machine's other work meets both."""

CHILD = """
import json, os, statistics, sys, time
import trackers
from benchmarks.common import helpers
steps, rounds, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
began = time.perf_counter()
run = trackers.init(names, project="bench", mode="online")
init_s = time.perf_counter() - began
work, longest, bare, logged = bytearray(1 << 20), 0.0, [], []
def step_s(step, log):
    global longest
    start = time.perf_counter()
    for _ in range(20):
        sum(work[:100_000])
    if log:
        before = time.perf_counter()
        run.log({"loss": step / 7, "accuracy": 0.5}, step=step)
        longest = max(longest, time.perf_counter() - before)
    return time.perf_counter() - start
for number in range(rounds):
    # The run without trackers: nothing is logged, and the helpers stand still.
    beside = helpers()
    for helper in beside:
        helper.suspend()
    bare += [step_s(step, False) for step in range(steps)]
    for helper in beside:
        helper.resume()
    logged += [step_s(number * steps + step, True) for step in range(steps)]
print("took:", json.dumps([init_s, longest, statistics.median(logged) / statistics.median(bare)]))
sys.stdout.flush()
for helper in helpers():
    helper.kill()
os._exit(0)  # an ordinary end would start a relay, which disturbs what is measured next
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
    if fault == "slow":
        server.fault = Fault("delay", seconds=SLOW_S)
    else:
        server.fault = Fault("garbage") if fault == "garbage" else Fault("status", status=int(fault))
    return server.url


def _child(names: str, steps: int, rounds: int, address: str) -> list[float]:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": address,
        "TRACKIO_SERVER_URL": f"{address}/",
        "WANDB_MODE": "online",
        "WANDB_BASE_URL": address,
        "WANDB_API_KEY": "k" * 40,
    }
    command = [sys.executable, "-c", CHILD, str(steps), str(rounds), names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    for line in done.stdout.splitlines():
        if line.startswith("took:"):
            found: list[float] = json.loads(line.removeprefix("took:"))
            return found
    raise RuntimeError(f"no answer: {done.stderr[-2000:]}")


def measure(quick: bool) -> Sequence[Figure]:
    """Figures for each fault, the steps beside steps without trackers in between."""
    steps, rounds = (50, 4) if quick else (100, ROUNDS)
    faults = ("down", "hung", "401") if quick else FAULTS
    figures = []
    _child("json", 1, 1, "http://127.0.0.1:9")  # compiles the modules
    for fault in faults:
        with ExitStack() as stack:
            address = _addresses(fault, stack)
            init_s, longest, ratio = _child("mlflow,trackio,wandb", steps, rounds, address)
        figures += [
            Figure(f"init, {fault}", init_s, "s", at_most=INIT_S),
            Figure(f"longest log, {fault}", 1e3 * longest, "ms", at_most=LONGEST_MS),
            Figure(f"median step, {fault}", ratio, "of bare", at_most=STEP),
        ]
    return figures


if __name__ == "__main__":
    main(measure, "Servers that fail: what training notices")
