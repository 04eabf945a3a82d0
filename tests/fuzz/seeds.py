"""The files that are mutated: one run, written by the real writers of every format, and logs of training programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

LOGS = Path(__file__).parents[1] / "logs"

PROGRAM = """
import math
import numpy as np
import trackers

run = trackers.init(
    trackers="json,csv,tensorboard,trackio,mlflow,wandb,session,benchmark,progress", project="digits", name="seed",
    id="seedrun1", config={"lr": 0.1, "model": {"width": 3}}, tags=["a"], group="g", notes="n",
)
for step in range(12):
    run.log({"train_loss": 2.0 / (step + 1), "learning_rate": 1e-3, "count": step}, step=step)
run.log({"val_loss": math.nan, "note": "text"}, step=11)
table = trackers.Table(columns=["a"], data=[[1]])
pictures = {"picture": trackers.Image(np.zeros((4, 4, 3), np.uint8)), "spread": trackers.Histogram([1, 2, 3])}
run.log({**pictures, "table": table}, step=11)
run.log({"final/best": 0.5})
run.alert("watch", "out")
with open("weights.bin", "wb") as file:
    file.write(b"weights")
run.log_artifact("weights.bin", name="weights", type="model")
run.finish()
"""


def make(place: Path) -> None:
    """Write them below a directory, each format in a folder of its own; about seven seconds.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    work = place / "work"
    work.mkdir(parents=True)
    home = {"HOME": str(work), "XDG_CACHE_HOME": str(work / "cache"), "XDG_DATA_HOME": str(work / "data")}
    away = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(work / "trackio"), "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    code = Path(__file__).parents[2]
    environment = {**os.environ, **home, **away, "PYTHONPATH": str(code), "TRACKER_FINISH_TIMEOUT": "120"}
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=work, env=environment, check=True, capture_output=True)
    run = work / "runs" / "digits" / "seedrun1"
    _copy(run.glob("*.json"), place / "json", lambda path: path.name.startswith("seed"))
    _copy((work / "benchmark_results").glob("*.json"), place / "benchmark")
    _copy([*run.glob("*.csv")], place / "csv")
    _copy((run / "tensorboard").rglob("*tfevents*"), place / "tb")
    _copy(work.glob("trackio/*.db"), place / "trackio")
    _copy(work.glob("mlflow.db"), place / "mlflow")
    shutil.copytree(work / "mlruns", place / "mlflow-files" / "mlruns")
    _copy(work.glob("mlflow.db"), place / "mlflow-files")
    _copy(run.glob("wandb/*/*.wandb"), place / "wandb-file")
    _copy(work.glob("logs/*/*_summary.json"), place / "session")
    (place / "hf").mkdir()
    state = {"global_step": 2, "max_steps": 2, "epoch": 1.0, "best_metric": 0.5, "is_local_process_zero": True,
             "log_history": [{"loss": 2.5, "step": 1, "epoch": 0.5}, {"eval_loss": 2.0, "step": 2},
                             {"train_runtime": 1.5, "step": 2}]}  # fmt: skip
    (place / "hf" / "trainer_state.json").write_text(json.dumps(state, indent=2))
    for log in sorted(LOGS.glob("*.log")):
        (place / "log").mkdir(exist_ok=True)
        lines = log.read_bytes().splitlines(keepends=True)
        (place / "log" / log.name).write_bytes(b"".join([*lines[:60], *lines[-20:]]))
    own = place / "run" / "runs" / "digits" / "seedrun1"
    shutil.copytree(run, own, ignore=shutil.ignore_patterns("wandb", "tensorboard"))
    _pack(own, place / "packed" / "runs" / "digits" / "seedrun1")
    shutil.rmtree(work)


def _pack(run: Path, target: Path) -> None:
    """The run, its streams packed as ``trackers archive`` packs them."""
    from trackers.support.seekable_zstd import pack, packed_path

    shutil.copytree(run, target)
    for stream in (target / "streams").glob("*.jsonl"):
        pack(stream, packed_path(stream))
        stream.unlink()


def _copy(files, target, wanted=lambda path: True) -> None:  # type: ignore[no-untyped-def]
    target.mkdir(exist_ok=True)
    for file in files:
        if wanted(file):
            shutil.copyfile(file, target / file.name)
