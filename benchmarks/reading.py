"""How fast a journal is read into columns, first and from the cache, against TensorBoard's reader on the same run."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import NAMES, Figure, main, rows

FIRST = 40.0
"""A first read must be so many times as fast as EventAccumulator."""
SECOND = 400.0
"""And one from the cache."""
AGAIN = 0.02
"""The part of a running run that may be read once more when it has grown by a hundredth."""
TIMES = 5


def logged(steps: int) -> tuple[Any, list[dict[str, float]]]:
    """A run of ours with ten values a step, still running, and the rows that were logged."""
    import trackers

    run = trackers.init(
        "tensorboard", project="bench", name="reading", mode="offline", options={"TRACKER_RELAY": False}
    )
    values = rows(steps)
    for step, row in enumerate(values):
        run.log(row, step)
    return run, values


def as_events(values: list[dict[str, float]], place: Path, each: bool) -> Path:
    """The run as an event file.

    Args:
        each: an event for each value, as ``SummaryWriter.add_scalar`` writes them; else one for each step, as ours.
    """
    from tensorboard.compat.proto.event_pb2 import Event

    from trackers.formats.tensorboard_event import TFRecordFramer

    place.mkdir()
    frame = TFRecordFramer().frame
    with (place / "events.out.tfevents.1700000000.bench").open("wb") as file:
        file.write(frame(Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString()))
        for step, row in enumerate(values):
            for part in [{name: value} for name, value in row.items()] if each else [row]:
                event = Event(wall_time=1.7e9 + step, step=step)
                for name, value in part.items():
                    event.summary.value.add(tag=name, simple_value=value)
                file.write(frame(event.SerializeToString()))
    return place


def accumulate(directory: Path) -> float:
    """Seconds that TensorBoard's reader needs for all points, and a look at each value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    began = time.perf_counter()
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    total = sum(event.value for name in NAMES for event in events.Scalars(name))
    assert total == total
    return time.perf_counter() - began


def read(directory: str, wanted: float) -> float:
    """Seconds that a run's columns need, and a checksum over every value of them."""
    import trackers

    began = time.perf_counter()
    table = trackers.load(directory).metrics()
    total = sum(float(table[name].to_numpy().sum()) for name in NAMES)
    took = time.perf_counter() - began
    if abs(total - wanted) > 1e-6:
        raise RuntimeError(f"the values read add up to {total!r} instead of {wanted!r}")
    return took


def counted(work: Callable[[], Any]) -> int:
    """How many bytes of streams are read meanwhile."""
    from trackers.readers import journal

    real, seen = journal.blocks, 0

    def counting(path: Path, offset: int = 0, *more: Any) -> Any:
        nonlocal seen
        for found, end in real(path, offset, *more):
            seen += end - offset
            offset = end
            yield found, end

    journal.blocks = counting
    try:
        work()
    finally:
        journal.blocks = real
    return seen


def measure(quick: bool, steps: int | None = None) -> list[Figure]:
    """The figures, for 100,000 steps; 5,000 in a quick try."""
    import pyarrow.parquet

    import trackers

    assert pyarrow.parquet
    steps = steps or (5_000 if quick else 100_000)
    trackers.load(str(small())).metrics().column(0).to_numpy()  # what is imported late is imported
    run, values = logged(steps)
    wanted = sum(sum(row[name] for row in values) for name in NAMES)
    first = read(run.dir, wanted)
    second = statistics.median(read(run.dir, wanted) for _ in range(TIMES))
    for step, row in enumerate(rows(max(steps // 100, 200), seed=1), steps):
        run.log(row, step)
    size = sum(path.stat().st_size for path in Path(run.dir, "streams").iterdir())
    again = counted(lambda: trackers.load(run.dir))
    run.finish()
    theirs = accumulate(as_events(values, Path("each"), each=True))
    ours = accumulate(as_events(values, Path("together"), each=False))
    points = f"{steps * len(NAMES):,} values"
    return [
        Figure(f"EventAccumulator, {points} as SummaryWriter writes them", theirs, "s"),
        Figure("  as our tracker writes them, an event for each step", ours, "s"),
        Figure("journal into columns, first read", first, "s"),
        Figure("  EventAccumulator / that", theirs / first, "x", at_least=FIRST),
        Figure("second read, with a checksum over every value", second, "s"),
        Figure("  EventAccumulator / that", theirs / second, "x", at_least=SECOND),
        Figure("read once more of a run that grew", again / size, "of all", at_most=AGAIN if steps > 50_000 else None),
    ]


def small() -> Path:
    """A small finished run."""
    import trackers

    run = trackers.init("tensorboard", project="bench", name="small", mode="offline", options={"TRACKER_RELAY": False})
    run.log({"loss": 1.0}, 0)
    run.finish()
    return Path(run.dir)


if __name__ == "__main__":
    main(measure, __doc__ or "")
