"""The usual way, for comparison: every vendor's client in the training process, each called in turn.

python benchmarks/usual_way.py CALLS      prints JSON: seconds to start, median microseconds of a call to all
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

VALUES = {f"train/metric_{number}": number / 7 for number in range(10)}


def main(calls: int) -> None:
    """Start wandb, trackio, TensorBoard, MLflow and a JSON file in this process, then log to all."""
    began = time.perf_counter()
    import wandb

    online = wandb.init(project="usual", settings=wandb.Settings(silent=True, console="off"))
    import mlflow
    import trackio
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    trackio.init(project="usual", embed=False)
    mlflow.set_experiment("usual")
    mlflow.start_run()
    events = EventFileWriter("usual-events")
    started = time.perf_counter() - began
    spent = []
    for step in range(calls):
        began = time.perf_counter()
        online.log(VALUES, step=step)
        trackio.log(VALUES, step=step)
        mlflow.log_metrics(VALUES, step=step)
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in VALUES.items()])
        events.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        with Path("usual.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **VALUES}) + "\n")
        spent.append((time.perf_counter() - began) * 1e6)
    events.close()
    online.finish()
    mlflow.end_run()
    trackio.finish()
    print("usual:", json.dumps({"start_s": started, "log_us": statistics.median(spent)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
