"""A short training with four trackers: by this package, by Accelerate, by the vendors' own clients.

W&B, trackio, TensorBoard and MLflow. Each way in processes of its own, in turn, after one that makes the databases; W&B
offline, MLflow on SQLite. With ``--picture FILE`` (.svg, .png) the medians are drawn, too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, Figure, main
from benchmarks.finishing import agent

TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow")
STEPS = 100
BOUNDS = {"start": 0.25, "log": 0.01, "whole": 0.75}
"""What this package may take of Accelerate's time. The end has none: a client that was waited for at each step has
nothing left to do then."""
KINDS = {"start": "import, start, first log", "log": "one log of ten values", "end": "end of the run",
         "whole": "the whole process"}  # fmt: skip
COLORS = {"trackers": "#2b7a4b", "Accelerate": "#c8792b", "the vendors' clients": "#8a8f98"}

TIMED = """
import json, statistics, sys, time
import torch
VALUES = {f"train/metric_{number}": number / 7 for number in range(10)}

def measure(start, log, end):
    began = time.perf_counter()
    start()
    log(0)
    started = time.perf_counter() - began
    spent = []
    for step in range(1, 100):
        time.sleep(0.005)  # the step
        began = time.perf_counter()
        log(step)
        spent.append(time.perf_counter() - began)
    began = time.perf_counter()
    end()
    ended = time.perf_counter() - began
    print("took:", json.dumps({"start": started, "log": statistics.median(spent), "end": ended}))
"""

WAYS = {
    "trackers": """
def start():
    global run
    import trackers
    run = trackers.init("wandb,trackio,tensorboard,mlflow", project="side", config={"lr": 1e-3})
measure(start, lambda step: run.log(VALUES, step=step), lambda: run.finish())
""",
    "Accelerate": """
def start():
    global accelerator
    from accelerate import Accelerator
    accelerator = Accelerator(log_with=["wandb", "trackio", "tensorboard", "mlflow"], project_dir="side")
    quiet = {"settings": {"silent": True, "console": "off"}}
    accelerator.init_trackers("side", config={"lr": 1e-3}, init_kwargs={"wandb": quiet, "trackio": {"embed": False}})
measure(start, lambda step: accelerator.log(VALUES, step=step), lambda: accelerator.end_training())
""",
    "the vendors' clients": """
def start():
    global online, trackio, mlflow, writer
    import wandb
    online = wandb.init(project="side", config={"lr": 1e-3}, settings=wandb.Settings(silent=True, console="off"))
    import trackio
    trackio.init(project="side", config={"lr": 1e-3}, embed=False)
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter("side-events")
    import mlflow
    mlflow.set_experiment("side")
    mlflow.start_run()
    mlflow.log_params({"lr": 1e-3})

def log(step):
    online.log(VALUES, step=step)
    trackio.log(VALUES, step=step)
    for name, value in VALUES.items():
        writer.add_scalar(name, value, step)
    mlflow.log_metrics(VALUES, step=step)

def end():
    writer.close()
    online.finish()
    mlflow.end_run()
    trackio.finish()
measure(start, log, end)
""",
}


def one(way: str) -> dict[str, float]:
    """Seconds to start, of a call of log (median), at the end, and of the whole process."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    code = TIMED + WAYS[way]
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    whole = time.perf_counter() - began
    for line in done.stdout.splitlines():
        if line.startswith("took:"):
            return {**json.loads(line.removeprefix("took:")), "whole": whole}
    raise RuntimeError(f"no answer from {way}: {done.stderr[-2000:]}")


def medians(rounds: int) -> dict[str, dict[str, float]]:
    """By way and kind, in seconds."""
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with agent(",".join(TRACKERS)):
        for way in WAYS:
            one(way)
        for _ in range(rounds):
            for way in WAYS:
                taken[way].append(one(way))
    return {way: {kind: statistics.median(found[kind] for found in all_of) for kind in KINDS}
            for way, all_of in taken.items()}  # fmt: skip


def draw(found: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """A panel for each kind, from zero, bars by way, with the figures beside them."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(8, 3.6), layout="constrained")
    for axes, (kind, title) in zip(panels.flat, KINDS.items(), strict=True):
        times = [found[way][kind] for way in found]
        bars = axes.barh(list(found), times, 0.7, color=[COLORS[way] for way in found])
        axes.bar_label(bars, [said(seconds) for seconds in times], padding=3, fontsize=9)
        axes.set_title(title, fontsize=10, loc="left", fontweight="bold")
        axes.set(xlim=(0, 1.25 * max(times)), xticks=[])
        axes.invert_yaxis()
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=9)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def said(seconds: float) -> str:
    """A time as people read it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2g} µs"
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"


def measure(quick: bool) -> Sequence[Figure]:
    """Medians of each way, and what this package takes of Accelerate's time."""
    picture = os.environ.get(PICTURE, "")
    found = medians(1 if quick else 7)
    if picture:
        draw(found, Path(picture))
    figures = []
    for kind, text in KINDS.items():
        size, unit = (1e6, "us") if kind == "log" else (1.0, "s")
        figures += [Figure(f"{text}: {way}", times[kind] * size, unit) for way, times in found.items()]
        ratio = found["trackers"][kind] / found["Accelerate"][kind]
        figures.append(Figure("  trackers against Accelerate", ratio, "x", at_most=BOUNDS.get(kind)))
    return figures


PICTURE = "SIDE_BY_SIDE_PICTURE"
"""A variable with the path of the picture to draw."""

if __name__ == "__main__":
    if "--picture" in sys.argv[1:-1]:
        at = sys.argv.index("--picture")
        os.environ[PICTURE] = str(Path(sys.argv[at + 1]).resolve())
        del sys.argv[at : at + 2]
    main(measure, __doc__ or "")
