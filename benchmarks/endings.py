"""How soon every tracker says how a run ended: after its death, and after the return of a server that was away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, main
from tests.fakes.wandb_server import Fault, WandbServer
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account

WITHIN_S = 10.0
AWAY_S = 30.0
"""How long the server is away: until the pauses between tries are the longest."""
LIMIT_S = 180.0

CHILD = """
import sys, time
import trackers
run = trackers.init(sys.argv[1], project="bench", id=sys.argv[2])
for step in range(1000):
    run.log({"loss": step / 7}, step=step)
print("logged", flush=True)
time.sleep(600)
"""


class Victim:
    """Training that has logged 1,000 steps and waits to be killed."""

    def __init__(self, names: str, run_id: str, wandb: str) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WANDB_MODE": "online",
            "WANDB_BASE_URL": wandb,
            "WANDB_API_KEY": "k" * 40,
        }
        self.run = RunDirectory(Path("runs/bench") / run_id)
        self.names = names.split(",")
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, names, run_id], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def kill(self) -> float:
        """SIGKILL; when that was."""
        self._process.kill()
        self._process.wait()
        return time.monotonic()

    def delivered(self, name: str) -> bool:
        """Whether a tracker has all that was logged."""
        sizes = self.run.sizes()
        offsets = read_account(self.run, name).offsets
        return all(offsets.get(stream, 0) >= size for stream, size in sizes.items())

    def closed(self, name: str) -> bool:
        """Whether a tracker was told how the run ended."""
        return bool(read_account(self.run, name).closed)


def _wait(what: Callable[[], object]) -> float:
    until = time.monotonic() + LIMIT_S
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return time.monotonic()


def measure(quick: bool) -> Sequence[Figure]:
    """Seconds until each tracker knows; a minute without an answer is a miss like any other."""
    figures = []
    with WandbServer() as server:
        victim = Victim(",".join(TRACKERS), "death", server.url)
        _wait(lambda: all(victim.delivered(name) for name in victim.names))
        died = victim.kill()
        times: dict[str, float] = {}
        until = time.monotonic() + LIMIT_S
        while len(times) < len(victim.names) and time.monotonic() < until:
            times.update({n: time.monotonic() for n in victim.names if n not in times and victim.closed(n)})
            time.sleep(0.02)
        for name in victim.names:
            took = times.get(name, until) - died
            figures.append(Figure(f"status after the death, {name}", took, "s", at_most=WITHIN_S))
        server.fault = Fault("refuse")
        absent = Victim("wandb", "return", server.url)
        absent.kill()
        time.sleep(AWAY_S / 3 if quick else AWAY_S)
        server.fault = None
        back = time.monotonic()
        took = _wait(lambda: absent.closed("wandb")) - back
        figures.append(Figure("status after the server's return, wandb", took, "s", at_most=WITHIN_S))
        _wait(lambda: not (absent.run.path / "relay.lease").exists())
    return figures


if __name__ == "__main__":
    main(measure, "The end of a run: how soon every tracker says it")
