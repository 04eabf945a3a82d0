"""How fast ``trackers copy`` fills each local tracker, against that vendor's own bulk call, and in how much memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import NAMES, Figure, main, rows

SHARE = 0.8
"""Values/s of a copy against the vendor's own bulk call in the same process, taking turns."""
MEMORY_MB = 200.0
"""The most that a copy may need above what it imported."""
TURNS = 3
DESTINATIONS = {"tensorboard": "tb:events", "trackio": "trackio:copied", "mlflow": "mlflow:copied.db#copied"}

T0_MS = 1_700_000_000_000


def source(steps: int, name: str) -> str:
    """A finished run of ours with ten values a step: its directory."""
    import trackers

    run = trackers.init("json", project="bench", name=name, mode="offline", options={"TRACKER_RELAY": False})
    kept = rows(10_000)
    for step in range(steps):
        run.log(kept[step % len(kept)], step)
    run.finish()
    return str(run.dir)


def tensorboard_bulk(values: list[dict[str, float]], name: str) -> None:
    """One event a step, through TensorBoard's own writer."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(f"bulk/{name}")
    for step, row in enumerate(values):
        event = Event(wall_time=T0_MS / 1000 + step, step=step)
        for tag, value in row.items():
            event.summary.value.add(tag=tag, simple_value=value)
        writer.add_event(event)
    writer.close()


def trackio_bulk(values: list[dict[str, float]], name: str) -> None:
    """``SQLiteStorage.bulk_log`` with 5,000 rows a call."""
    from trackio.sqlite_storage import SQLiteStorage

    for first in range(0, len(values), 5000):
        part = values[first : first + 5000]
        steps = list(range(first, first + len(part)))
        SQLiteStorage.bulk_log("bulk", name, part, steps=steps, timestamps=["2026-01-01T00:00:00+00:00"] * len(part),
                               log_ids=[f"{name}:{step}" for step in steps], run_id=name)  # fmt: skip


def mlflow_bulk(values: list[dict[str, float]], name: str) -> None:
    """``log_batch`` with the 1,000 metrics that it takes at most."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=f"sqlite:///{Path('copied.db').absolute()}")
    experiment = client.get_experiment_by_name("bulk")
    number = experiment.experiment_id if experiment else client.create_experiment("bulk")
    run_id = client.create_run(number, run_name=name).info.run_id
    size = 1000 // len(NAMES)
    for first in range(0, len(values), size):
        part = enumerate(values[first : first + size], first)
        metrics = [Metric(tag, value, T0_MS + step, step) for step, row in part for tag, value in row.items()]
        client.log_batch(run_id, metrics=metrics)
    client.set_terminated(run_id)


BULK: dict[str, Callable[[list[dict[str, float]], str], None]] = {
    "tensorboard": tensorboard_bulk,
    "trackio": trackio_bulk,
    "mlflow": mlflow_bulk,
}


def copied(directory: str, destination: str) -> tuple[float, float]:
    """Seconds until a run was read and written, and until it was also read back and compared."""
    from trackers.copying import copy

    written: list[float] = []

    def say(what: str, done: int, total: int) -> None:
        if what == "comparing":
            written.append(time.perf_counter())

    began = time.perf_counter()
    (report,) = copy(directory, destination, say=say)
    ended = time.perf_counter()
    if not report.agrees:
        raise RuntimeError(str(report))
    return written[0] - began, ended - began


def rate(tracker: str, steps: int, turns: int) -> list[Figure]:
    """A copy's share of the vendor's own rate: the median over turns, without the first, in which all is imported."""
    shares, whole, theirs = [], [], []
    values = rows(steps)
    for turn in range(turns + 1):
        size = steps if turn else 100
        directory = source(size, f"{tracker}-{turn}")
        began = time.perf_counter()
        BULK[tracker](values[:size], f"bulk-{turn}")
        bulk = time.perf_counter() - began
        ours, compared = copied(directory, DESTINATIONS[tracker])
        if turn:
            shares.append(bulk / ours)
            whole.append(bulk / compared)
            theirs.append(size * len(NAMES) / bulk)
    name = f"{tracker}: values/s, of the {statistics.median(theirs):,.0f} that its own bulk call takes"
    return [
        Figure(name, statistics.median(shares), "x", at_least=SHARE),
        Figure("  with reading back and comparing", statistics.median(whole), "x"),
    ]


MEASURED = """
import sys
from pathlib import Path
import numpy, pyarrow.parquet, trackers.copying, trackers.relay.delivery.delivery
from trackers.backends import registry
from trackers.readers import registry as readers
from trackers.copying.transfer import copy
if sys.argv[2].startswith("trackio"):
    import trackio.sqlite_storage
if sys.argv[2].startswith("tb"):
    import tensorboard.compat.proto.event_pb2, tensorboard.plugins.hparams.plugin_data_pb2, tensorboard.util.tensor_util

def peak():  # getrusage's is the parent's, where that was larger when it started this process
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

(_,) = copy(sys.argv[3], sys.argv[2])
before = peak()
(report,) = copy(sys.argv[1], sys.argv[2])
assert report.agrees, report
print(peak() - before)
"""


def memory(steps: int, destination: str) -> Figure:
    """The peak of a copy above that of a small one, in a process of its own, in MB."""
    arguments = [source(steps, "large"), destination, source(100, "small")]
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    name = f"{destination.partition(':')[0]}: memory for {steps * len(NAMES):,} values"
    return Figure(name, float(done.stdout), "MB", at_most=MEMORY_MB)


def measure(quick: bool, trackers: tuple[str, ...] = tuple(DESTINATIONS), steps: int | None = None) -> list[Figure]:
    """The figures, for 100,000 steps, and memory for a million; a fiftieth of both in a quick try."""
    figures: list[Figure] = []
    for tracker in trackers:
        size = steps or (2_000 if quick else 100_000)
        # MLflow takes minutes for what the others take seconds for.
        figures += rate(tracker, size // 10 if tracker == "mlflow" and not quick else size, 1 if quick else TURNS)
    large = 10 * (steps or 2_000) if quick else 1_000_000
    figures += [memory(large, DESTINATIONS[tracker]) for tracker in trackers if tracker != "mlflow"]
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
