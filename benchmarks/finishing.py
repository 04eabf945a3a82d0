"""How long `finish` takes after a short run: with a host agent and without, idle and busy, and the vendors' clients."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, busy, cores, main

LIMIT_S = 120.0
OF_VENDORS = 0.5
"""A run with five trackers and an agent may take so much of the time that the vendors' clients take for the same."""
IDLE_S = {"json": 0.1, "five": 1.0}
BUSY_S = {"json": 0.3, "five": 3.0}
"""Seconds that `finish` may take with an agent: on an idle machine, and with loops that keep it busy."""
LOOPS = 4
"""Loops for each core, at ordinary priority."""

CHILD = """
import sys, time
import trackers
run = trackers.init(sys.argv[1], project="bench")
for step in range(100):
    run.log({"loss": step / 7}, step=step)
began = time.perf_counter()
run.finish()
print("took:", time.perf_counter() - began)
"""

USUAL = """
import json, time
import wandb, mlflow, trackio
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

online = wandb.init(project="usual", settings=wandb.Settings(silent=True, console="off"))
trackio.init(project="usual", embed=False)
mlflow.set_experiment("usual")
mlflow.start_run()
events = EventFileWriter("usual-events")
for step in range(100):
    values = {"loss": step / 7}
    online.log(values, step=step)
    trackio.log(values, step=step)
    mlflow.log_metrics(values, step=step)
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    events.add_event(Event(wall_time=time.time(), step=step, summary=summary))
    with open("usual.jsonl", "a") as file:
        file.write(json.dumps({"step": step, **values}) + "\\n")
began = time.perf_counter()
events.close()
online.finish()
mlflow.end_run()
trackio.finish()
print("took:", time.perf_counter() - began)
"""


def run(code: str, trackers: str = "", *, agent: bool = False) -> tuple[float, float]:
    """Seconds of the end of a run, and of its whole process."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_AGENT": "y" if agent else "n"}
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, trackers], env=env, capture_output=True, text=True, check=False)
    whole = time.perf_counter() - began
    for line in done.stdout.splitlines():
        if line.startswith("took:"):
            return float(line.removeprefix("took:")), whole
    raise RuntimeError(f"no answer: {done.stderr[-2000:]}")


@contextlib.contextmanager
def agent(trackers: str) -> Iterator[None]:
    """The agent that one run leaves behind."""
    with no_agent("runtime") as place:
        run(CHILD, trackers, agent=True)
        until = time.monotonic() + LIMIT_S
        while not list(place.glob("trackers/*.sock")):
            if time.monotonic() > until:
                raise TimeoutError(f"no agent after {LIMIT_S:g} s")
            time.sleep(0.1)
        yield


@contextlib.contextmanager
def no_agent(name: str) -> Iterator[Path]:
    """A new directory for agents, none of which runs: those that are started meanwhile are ended."""
    place = Path(name).resolve()
    place.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(place)
    try:
        yield place
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[3:5] == ["agent", str(place / "trackers")]:
                    process.terminate()
                    process.wait(LIMIT_S)


def measure(quick: bool) -> Sequence[Figure]:
    """Medians of runs in fresh processes, taken in turn, and the first run of all."""
    five, rounds = ",".join(TRACKERS), 3 if quick else 11
    first = run(CHILD, five)
    times: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    usual: list[tuple[float, float]] = []
    with agent(five):
        for _ in range(rounds):
            for trackers in ("json", five):
                for forked in (False, True):
                    times.setdefault((trackers, forked), []).append(run(CHILD, trackers, agent=forked))
            usual.append(run(USUAL))
        with busy(LOOPS * cores()):
            loaded = {name: [run(CHILD, name, agent=True) for _ in range(rounds)] for name in ("json", five)}

    def median(found: Sequence[tuple[float, float]], which: int) -> float:
        return statistics.median(pair[which] for pair in found)

    whole = median(times[five, True], 1)
    return [
        Figure("finish, json, with an agent", median(times["json", True], 0), "s", at_most=IDLE_S["json"]),
        Figure("  without", median(times["json", False], 0), "s"),
        Figure(f"  beside {LOOPS} loops a core", median(loaded["json"], 0), "s", at_most=BUSY_S["json"]),
        Figure("finish, five trackers, with an agent", median(times[five, True], 0), "s", at_most=IDLE_S["five"]),
        Figure("  without", median(times[five, False], 0), "s"),
        Figure(f"  beside {LOOPS} loops a core", median(loaded[five], 0), "s", at_most=BUSY_S["five"]),
        Figure("  the first run, which makes the databases", first[0], "s"),
        Figure("the whole run, five trackers, with an agent", whole, "s"),
        Figure("  without", median(times[five, False], 1), "s"),
        Figure("  the vendors' own clients", median(usual, 1), "s"),
        Figure("  with an agent, against these", whole / median(usual, 1), "x", at_most=OF_VENDORS),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
