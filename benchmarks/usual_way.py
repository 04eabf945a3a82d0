"""The usual way, for comparison: every vendor's client in the training process, each called in turn.

python benchmarks/usual_way.py CALLS      prints JSON: seconds to start, median microseconds of a call to all
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

VALUES = {f"train/metric_{number}": number / 7 for number in range(10)}


class Clients:
    """wandb, trackio, TensorBoard, MLflow and a JSON file in this process, which write to the current directory."""

    def __init__(self) -> None:
        import wandb

        self._online = wandb.init(project="usual", settings=wandb.Settings(silent=True, console="off"))
        import mlflow
        import trackio
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._mlflow, self._trackio = mlflow, trackio
        trackio.init(project="usual", embed=False)
        mlflow.set_experiment("usual")
        mlflow.start_run()
        self._events = EventFileWriter("usual-events")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log to all, one after the other."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._online.log(values, step=step)
        self._trackio.log(values, step=step)
        self._mlflow.log_metrics(values, step=step)
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._events.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        with Path("usual.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def end(self) -> None:
        """End the run everywhere."""
        self._events.close()
        self._online.finish()
        self._mlflow.end_run()
        self._trackio.finish()


def main(calls: int) -> None:
    """Start all clients in this process, then log to all."""
    began = time.perf_counter()
    clients = Clients()
    started = time.perf_counter() - began
    spent = []
    for step in range(calls):
        began = time.perf_counter()
        clients.log(VALUES, step)
        spent.append((time.perf_counter() - began) * 1e6)
    clients.end()
    print("usual:", json.dumps({"start_s": started, "log_us": statistics.median(spent)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
