"""A sweep: many short runs in a row. Time of each besides training, also with the vendors' clients; what is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, Figure, main
from benchmarks.finishing import agent
from trackers.journal.run_directory import find_runs
from trackers.relay.delivery.cursor_file import delivery_report

TRACKERS = "json,tensorboard,mlflow"
RUNS = 1000
BESIDES_S = 0.3
"""Seconds that a run may take besides training."""
LIMIT_S = 60.0
USUAL_RUNS = 20
"""Runs with the vendors' own clients."""

CHILD = """
import sys, time
import trackers
count, trains_s = int(sys.argv[2]), float(sys.argv[3])
took = []
for number in range(count):
    began = time.perf_counter()
    run = trackers.init(sys.argv[1], project="sweep", name=f"n{number}", config={"number": number})
    until = time.perf_counter() + trains_s
    step = 0
    while (now := time.perf_counter()) < until:
        run.log({"loss": 1 / (step + 1)}, step=step)
        step += 1
        time.sleep(0.01)
    run.finish()
    took.append(time.perf_counter() - began - trains_s)
print(*took)
"""


USUAL = """
import json, sys, time
import mlflow
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
count, trains_s = int(sys.argv[2]), float(sys.argv[3])
mlflow.set_experiment("usual")
took = []
for number in range(count):
    began = time.perf_counter()
    mlflow.start_run(run_name=f"n{number}")
    mlflow.log_params({"number": number})
    events = EventFileWriter(f"usual/n{number}")
    file = open(f"usual/n{number}/log.jsonl", "w")
    until = time.perf_counter() + trains_s
    step = 0
    while (now := time.perf_counter()) < until:
        loss = 1 / (step + 1)
        mlflow.log_metric("loss", loss, step=step)
        value = Summary(value=[Summary.Value(tag="loss", simple_value=loss)])
        events.add_event(Event(wall_time=time.time(), step=step, summary=value))
        file.write(json.dumps({"step": step, "loss": loss}) + "\\n")
        step += 1
        time.sleep(0.01)
    file.close()
    events.close()
    mlflow.end_run()
    took.append(time.perf_counter() - began - trains_s)
print(*took)
"""


def helpers() -> list[psutil.Process]:
    """Processes of the runs here that live, besides training and what the agent keeps for later runs."""
    place = str(Path.cwd() / "runs")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if any(word.startswith(place) for word in words[4:5]) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def sweep(count: int, trains_s: float, child: str = CHILD) -> list[float]:
    """Seconds of each run besides training; imports aren't counted. child: CHILD, or USUAL."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_AGENT": "y"}
    done = subprocess.run([sys.executable, "-c", child, TRACKERS, str(count), str(trains_s)], env=env,
                          capture_output=True, text=True, check=True)  # fmt: skip
    return [float(word) for word in done.stdout.split()]


def left() -> tuple[int, int, int]:
    """Processes and leases that are left of the runs, and runs that aren't delivered."""
    until = time.monotonic() + LIMIT_S
    while (processes := helpers()) and time.monotonic() < until:
        time.sleep(0.1)
    runs = list(find_runs(Path("runs/sweep")))
    leases = sum(len(list(run.path.rglob("*.lease"))) for run in runs)
    names = TRACKERS.split(",")
    states = [entry["state"] for run in runs for entry in delivery_report(run, names).values()]
    return len(processes), leases, sum(state != "delivered" for state in states)


def measure(quick: bool, runs: int = RUNS) -> Sequence[Figure]:
    """So many runs of two seconds."""
    count, trains_s = (5, 0.5) if quick else (runs, 2.0)
    with agent(TRACKERS):
        took = sweep(count, trains_s)
        processes, leases, lacking = left()
        usual = sweep(min(count, USUAL_RUNS), trains_s, USUAL)
    ours, theirs = sum(took) / len(took), sum(usual) / len(usual)
    return [
        Figure(f"a run besides training, mean of {count}", ours, "s", at_most=BESIDES_S),
        Figure(f"  the vendors' own clients, mean of {len(usual)}", theirs, "s"),
        Figure("  against these", ours / theirs, "x"),
        Figure("  the last tenth", sum(took[-(len(took) // 10 or 1) :]) / (len(took) // 10 or 1), "s"),
        Figure("  the longest", max(took), "s"),
        Figure("processes left", processes, at_most=0),
        Figure("leases left", leases, at_most=0),
        Figure("deliveries that lack something", lacking, at_most=0),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "", runs=RUNS)
