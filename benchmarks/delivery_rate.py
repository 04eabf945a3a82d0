"""Whether deliveries keep up with 1,000 records/s of ten values, and MLflow's with its own store."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import NAMES, TRACKERS, Figure, audit, helpers, main, rows

RATE = 1000
"""Records/s that every tracker but MLflow must take."""
LAG_S = 2.0
"""How far a delivery may be behind at the end: what it gathers on purpose, and the client's own buffer."""
STORE_SHARE = 0.9
"""MLflow: values/s of the delivery against the store's own, in batches of the largest size it takes."""
BATCH = 1000
FINISH_S = 600.0


def paced(run: Any, values: Sequence[dict[str, float]], first: int) -> float:
    """Log at RATE, in steps of 10 ms; returns the seconds it took."""
    began = time.monotonic()
    for place, row in enumerate(values):
        run.log(row, first + place)
        if place % 10 == 9:
            time.sleep(max(0.0, began + (place + 1) / RATE - time.monotonic()))
    return time.monotonic() - began


def processor_s(trackers: Sequence[str]) -> dict[str, float]:
    """Processor seconds that each tracker's delivery has used, its own helpers included."""
    spent = dict.fromkeys(trackers, 0.0)
    for process in helpers():
        with contextlib.suppress(psutil.Error, ValueError, KeyError):  # KeyError: of another run
            words = process.cmdline()
            name = words[words.index("delivery") + 2]
            family = [process, *process.children(recursive=True)]
            spent[name] += sum(sum(one.cpu_times()[:2]) for one in family)
    return spent


def live(trackers: Sequence[str], seconds: float) -> list[Figure]:
    """All trackers at once, while records come at RATE."""
    import trackers as package

    run = package.init(list(trackers), project="bench", name="delivery_rate")
    values = rows(int(seconds * RATE))
    run.log(values[0], 0)
    if not run.flush(120.0):
        raise RuntimeError("the deliveries didn't begin within 120 s: see relay.log")
    before = processor_s(trackers)
    took = paced(run, values, 1)
    status = run.status()
    run.flush(FINISH_S)
    spent = {name: seconds - before[name] for name, seconds in processor_s(trackers).items()}
    figures = [Figure("records logged a second", len(values) / took, "/s")]
    for name in trackers:
        behind = max(0, len(values) - status[name]["delivered"])
        bound, needed = (None, None) if name == "mlflow" else (LAG_S, 1.0)
        figures.append(Figure(f"  {name}: behind at the end", behind / RATE, "s", at_most=bound))
        figures.append(Figure("    cores that it needs", spent[name] / len(values) * RATE, "", at_most=needed))
    run.finish(timeout=FINISH_S)
    logged = {0: values[0], **dict(enumerate(values, 1))}
    wrong = audit(run, logged, trackers)
    figures.append(Figure("values lost, doubled or wrong", wrong, f"of {len(logged) * 10 * len(trackers)}", at_most=0))
    return figures


def mlflow_store(turns: int) -> Figure:
    """The delivery's values/s against ``log_batch`` with 1,000 metrics, in one process, taking turns.

    Args:
        turns: of ten batches each; the first, in which the delivery opens the run, isn't counted.
    """
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    import trackers as package
    from trackers.journal.run_directory import RunDirectory
    from trackers.relay.delivery.delivery import Delivery

    run = package.init("mlflow", project="bench", name="mlflow_rate", mode="offline", options={"TRACKER_RELAY": False})
    values = rows((turns + 2) * BATCH)
    for step, row in enumerate(values):
        run.log(row, step)
    run.finish()
    said: list[str] = []
    delivery = Delivery(RunDirectory(Path(run.dir)), "mlflow", say=said.append, alone=False)
    delivery.step()
    client = MlflowClient()
    raw = client.create_run(client.create_experiment("raw")).info.run_id
    ours, theirs = [], []
    size = BATCH // len(NAMES)
    for turn in range(turns):
        done = delivery.account.delivered
        began = time.perf_counter()
        delivery.step()
        ours.append((delivery.account.delivered - done) * len(NAMES) / (time.perf_counter() - began))
        began = time.perf_counter()
        for first in range(turn * BATCH, (turn + 1) * BATCH, size):
            moment = run.start_time * 1000
            metrics = [Metric(name, value, int(moment + step), step) for step in range(first, first + size)
                       for name, value in values[step].items()]  # fmt: skip
            client.log_batch(raw, metrics=metrics)
        theirs.append(BATCH * len(NAMES) / (time.perf_counter() - began))
    while delivery.step() is not None:
        pass
    if said:
        raise RuntimeError(said[0])
    share = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    name = f"mlflow: values/s, of the {statistics.median(theirs):,.0f} its store takes"
    return Figure(name, share, "x", at_least=STORE_SHARE)


def measure(quick: bool, trackers: Sequence[str] = TRACKERS) -> list[Figure]:
    """The figures: first all trackers live, then MLflow alone against its store."""
    return [*live(trackers, 3 if quick else 20), mlflow_store(2 if quick else 15)]


if __name__ == "__main__":
    main(measure, __doc__ or "")
