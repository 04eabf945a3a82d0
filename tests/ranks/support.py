"""A job of several real processes, each a rank, that log values across ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests import forked

LOOP = """
import os, sys, time
from pathlib import Path
import trackers
from trackers import All, Max, Mean, MinMax, Sum

def held(step):
    try:
        return step >= int(Path("hold").read_text())
    except (OSError, ValueError):  # it isn't there, or goes just now
        return False

rank, steps = int(os.environ["RANK"]), int(sys.argv[1])
more = eval(sys.argv[2]) if len(sys.argv) > 2 else {}
run = trackers.init("json", project="p", name="job", **more)
first = run.step + 1 if run.resumed else more.get("step", -1) + 1
for step in range(first, first + steps):
    run.log({"loss": Mean(rank + step, 2), "who": Sum(2**rank), "lr": 0.1}, step=step)
    Path(f"at-{rank}").write_text(str(step))
    while held(step):
        time.sleep(0.005)
run.finish()
print(run.id or "-", flush=True)
"""
"""Each step's values; stops where the file ``hold`` says, until it goes."""


class Job:
    """Ranks as plain processes.

    Args:
        script: Python text, run with ``arguments`` by each rank.
        environ: of all ranks, beside RANK and WORLD_SIZE.
    """

    def __init__(self, script: str, arguments: Sequence[str], ranks: int, **environ: str) -> None:
        self.environ = {
            **os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": "29555", **environ,
        }  # fmt: skip
        self.command = [sys.executable, "-c", script, *arguments]
        self.ranks: dict[int, subprocess.Popen[str]] = {}
        self.said: dict[int, str] = {}

    def start(self, *ranks: int) -> None:
        for rank in ranks:
            self.ranks[rank] = forked.Program(
                self.command, preload=forked.HELPERS, env={**self.environ, "RANK": str(rank)}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip

    def wait(self, *ranks: int) -> None:
        for rank in ranks or list(self.ranks):
            out, err = self.ranks[rank].communicate(timeout=120)
            self.said[rank] = out + err
            assert self.ranks[rank].returncode == 0, err

    def at(self, rank: int) -> int:
        """The step that a rank has logged last."""
        with contextlib.suppress(OSError, ValueError):
            return int(Path(f"at-{rank}").read_text())
        return -1

    def kill(self, rank: int) -> None:
        self.ranks[rank].kill()
        self.ranks[rank].communicate()

    def signal(self, rank: int, number: int) -> None:
        self.ranks[rank].send_signal(number)


@contextlib.contextmanager
def job(script: str, arguments: Sequence[str], ranks: int, **environ: str) -> Iterator[Job]:
    """A job none of whose processes outlives the test."""
    made = Job(script, arguments, ranks, **environ)
    try:
        yield made
    finally:
        for process in made.ranks.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.communicate()


def until(condition: Callable[[], Any], what: str, limit_s: float = 60.0) -> None:
    """Wait for something that other processes bring about."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def the_run(root: Path = Path("runs")) -> Path:
    """The directory of the only run."""
    (identity,) = root.glob("*/*/run.json")
    return identity.parent


def reduced(run: Path, attempt: int = 1) -> list[tuple[int, dict[str, float]]]:
    """What the reducer recorded: step and values, in order."""
    found = []
    with contextlib.suppress(OSError):
        for line in (run / f"streams/reducer-0.{attempt}.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "metrics":
                found.append((record["step"], record["values"]))
    return found


def expected(step: int, ranks: Sequence[int]) -> dict[str, float]:
    """LOOP's values of these ranks."""
    return {
        "loss": sum(rank + step for rank in ranks) / (2 * len(ranks)),
        "who": float(sum(2**rank for rank in ranks)),
    }
