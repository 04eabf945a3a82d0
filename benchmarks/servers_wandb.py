"""200 runs of five machines on a W&B server that takes few requests a second, and is away a while.

Each run writes ten records a second. Each machine is one host agent with its deliveries. The server is a stand-in below
W&B's own client, with the limits of W&B's servers, made small: for the file stream of a project, for that of each run,
for beginnings of runs.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

import trackers
from benchmarks.common import ROOT, Figure, cores, main
from tests.chaos.fleet import Processes
from tests.fakes.servers import free_port
from tests.fakes.wandb_server import Fault, Limits, WandbServer
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account

STREAM, EACH, BEGIN = 10.0, 2.0, 4.0
"""Requests that the server takes in a second: of the file stream, of one run's, beginnings. W&B's own take 500, 2
and 80."""
HOSTS = 5
AWAY_S = 8.0
LAST_S = 900.0
READY_S = 120.0
RATE = 10.0

FIRST = """
import trackers
run = trackers.init("wandb", project="first")
run.log({"loss": 0.0}, step=0)
run.finish()
"""


def of_host(place: Path, url: str) -> dict[str, str]:
    """What is set for all that runs on a machine."""
    return {
        "XDG_RUNTIME_DIR": str(place), "WANDB_MODE": "online", "WANDB_BASE_URL": url, "WANDB_API_KEY": "k" * 40,
        "TRACKER_DIR": str(place / "runs"), "TRACKER_FINISH": "background", "PYTHONPATH": str(ROOT),
    }  # fmt: skip


def train(number: int, env: dict[str, str], go: Path, seconds: float) -> None:
    """One run, as a script logs it."""
    os.environ.update(env)
    while not go.exists():
        time.sleep(0.1)
    run = trackers.init("wandb", project="fleet", id=f"run{number:03d}", name=f"run {number}")
    until = time.monotonic() + seconds
    step = 0
    while time.monotonic() < until:
        run.log({"loss": random.random()}, step=step)
        step += 1
        time.sleep(1 / RATE)
    run.finish()


@contextlib.contextmanager
def agents(places: Sequence[Path], url: str) -> Iterator[None]:
    """The agents that one run on each machine leaves behind."""
    try:
        for place in places:
            env = {**os.environ, **of_host(place, url)}
            subprocess.run([sys.executable, "-c", FIRST], env=env, check=True, capture_output=True)
        wait(lambda: all(list(place.glob("trackers/*.sock")) for place in places), READY_S)
        yield
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[3:5] in [["agent", str(place / "trackers")] for place in places]:
                    for one in process.children(recursive=True):
                        one.send_signal(signal.SIGKILL)
                    process.terminate()
                    process.wait(READY_S)


def wait(what: Callable[[], bool], limit_s: float) -> bool:
    """Wait until something is so; False where it isn't in time."""
    until = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def ended_all(processes: Processes) -> bool:
    """Whether no run trains any more."""
    processes.look()
    return not processes.names()


def play(count: int, seconds: float, places: Sequence[Path]) -> dict[str, float]:
    """One fleet; what the server saw, and what it has."""
    server = WandbServer(free_port())
    server.limits = Limits(STREAM, EACH, BEGIN)
    go, processes = Path("go").absolute(), Processes()
    try:
        for number in range(count):
            env = of_host(places[number % len(places)], server.url)
            processes.start(f"run {number}", lambda n=number, e=env: train(n, e, go, seconds))  # type: ignore[misc]
        with server, agents(places, server.url):
            return watched(server, processes, go, seconds, count, places)
    finally:
        processes.end()


def watched(
    server: WandbServer, processes: Processes, go: Path, seconds: float, count: int, places: Sequence[Path]
) -> dict[str, float]:
    """From the runs' beginning until all is delivered."""
    runs = [RunDirectory(places[n % len(places)] / "runs" / "fleet" / f"run{n:03d}") for n in range(count)]
    first = len(server.asked)
    begin = time.monotonic()
    go.touch()
    wait(lambda: len(server.runs) > count / 4, seconds + READY_S)
    server.fault = Fault("refuse")
    time.sleep(AWAY_S)
    server.fault = None
    back = time.monotonic()
    wait(lambda: ended_all(processes), seconds + 3 * READY_S)
    ended = time.monotonic()
    wait(lambda: all(read_account(run, "wandb").closed == "finished" for run in runs), LAST_S)
    done = time.monotonic()
    asked = server.asked[first:]
    figures = {"seconds": done - ended, "rate": sum(taken for *_, taken in asked) / (done - begin)}
    for name, sign in (("stream", "file_stream"), ("begin", " UpsertBucket"), ("all", "")):
        refused = sum(not taken for _, what, taken in asked if what.endswith(sign))
        figures[name] = refused / max(1, sum(what.endswith(sign) for _, what, _ in asked) - refused)
    seen = collections.Counter(int(2 * (at - back)) for at, _, _ in asked if at >= back)
    figures["first"] = max(seen[number] for number in range(4)) * 2.0
    figures["usual"] = sum(seen[number] for number in range(40)) / 20.0
    figures |= audit(server, runs)
    return figures


def audit(server: WandbServer, runs: Sequence[RunDirectory]) -> dict[str, float]:
    """Rows that the server lacks or has twice; runs that it has whole and ended."""
    wrong = whole = records = 0
    for run in runs:
        lines = (run.streams / "rank-0.1.jsonl").read_text().splitlines()
        steps = sum('"kind":"metrics"' in line for line in lines)
        held = server.runs.get(run.path.name)
        found = [row["global_step"] for row in held.history if "loss" in row] if held else []
        bad = len(set(range(steps)) - set(found)) + len(found) - len(set(found))
        wrong += bad
        records += steps
        whole += not bad and held is not None and held.state == "finished"
    return {"wrong": wrong, "whole": whole, "records": records}


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    count, seconds, hosts = (16, 20.0, 2) if quick else (200, 60.0, HOSTS)
    places = [Path(f"host{number}").absolute() for number in range(hosts)]
    for place in places:
        place.mkdir(mode=0o700)
    found = play(count, seconds, places)
    return [
        Figure("file stream: requests refused / taken", found["stream"], "", at_most=0.25),
        Figure("beginnings: requests refused / taken", found["begin"], "", at_most=0.25),
        Figure("all requests: refused / taken", found["all"], ""),
        Figure("  taken", found["rate"], "/s"),
        Figure("requests a second, most in the first 2 s after an outage", found["first"], "/s", at_most=10 * STREAM),
        Figure("  mean of the first 20 s", found["usual"], "/s"),
        Figure("from the runs' end until all was delivered", found["seconds"], "s"),
        Figure("runs that the server has whole, and ended", found["whole"], f"of {count}", at_least=count),
        Figure("rows lost or doubled", found["wrong"], f"of {found['records']:.0f}", at_most=0),
        Figure("cores", cores()),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
