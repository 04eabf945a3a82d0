"""W&B's clocks are training's: a row's ``_runtime`` is the training before it, to the time of its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.wandb.support import driver, offline_rows
from tests.helpers import T0
from trackers.backends.wandb import client
from trackers.backends.wandb.clock import AttemptClock
from trackers.copying.destinations import parse
from trackers.copying.staging import stage
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.readers.wandb.rows import Decoder
from trackers.records import Finish, Metrics, Record, Start, encode
from trackers.tracker import RunInfo, Status

ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 1000), st.lists(st.integers(0, 50), max_size=5)),  # a pause, then times between rows
    min_size=1,
    max_size=5,
)


def records_of(attempts: list[tuple[int, list[int]]]) -> tuple[list[Record], list[tuple[float, float]]]:
    """A run's records, with samples before, within and after its attempts, and the time and runtime of each row."""
    found: list[tuple[str, Record]] = []
    rows: list[tuple[float, float]] = []
    time, runtime, step = T0, 0.0, 0
    for number, (pause, gaps) in enumerate(attempts, 1):
        if number > 1:
            found.append((f"sampler-0.{number - 1}", Metrics(time=time + pause / 2, values={"system.cpu": 1.0})))
            found.append((f"node-0.{number - 1}", Finish(time=time + pause / 2, status="crashed")))
            time += pause
        found.append((f"rank-0.{number}", Start(time=time, attempt=number, rank=0)))
        for gap in gaps:
            time, runtime = time + gap, runtime + gap
            found.append((f"rank-0.{number}", Metrics(step=step, time=time, values={"loss": 1.0})))
            rows.append((time, runtime))
            step += 1
    for seq, (stream, record) in enumerate(found, 1):
        record.seq, record.id = seq, f"{stream}:{seq * 100}"
    return [record for _, record in found], rows


@given(ATTEMPTS)
def test_clock_stands_still_between_attempts(attempts: list[tuple[int, list[int]]]) -> None:
    """Whatever its state is stored by, and also where the attempts are one stream whose pauses are known."""
    records, rows = records_of(attempts)
    clock = AttemptClock(T0)
    at: list[float] = []
    for record in records:
        clock = AttemptClock(T0, [(int(number), begin, end) for number, begin, end in clock.spans])
        if isinstance(record, Start):
            clock.begin(record.attempt, record.time)
        elif record.id.startswith("rank-"):
            clock.see(record.time)
            at.append(clock.at(record.time))
    assert at == pytest.approx([runtime for _, runtime in rows])
    ends = {record.id.partition(":")[0]: record.time for record in records if record.id.startswith("rank-")}
    starts = [record.time for record in records if isinstance(record, Start)]
    whole = AttemptClock(T0, pauses=list(zip(list(ends.values()), starts[1:], strict=False)))
    for time, _ in rows:
        whole.see(time)
    if not any(before == after for before, after in zip(list(ends.values()), starts[1:], strict=False)):
        assert [whole.at(time) for time, _ in rows] == pytest.approx([runtime for _, runtime in rows])


THREE = [(0, [1, 2, 3]), (500, [1, 1]), (7, []), (40, [5])]


@pytest.mark.parametrize("ended", [True, False])
def test_runtime_of_a_resumed_run_is_training_alone(ended: bool, tmp_path: Path) -> None:
    """In the rows, and in the summary, also where the delivery was killed in between."""
    records, rows = records_of(THREE)
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    run.open()
    run.write(records[:4])
    run.write(records[:7], commit=False)
    client.abandon()
    again = driver(tmp_path, options={"WANDB_MODE": "offline"})
    again.state, again.cursor = run.state, run.cursor
    again.deliver(records, status=Status("finished" if ended else "running", 0, T0 + 9))
    times = [(row["_timestamp"], pytest.approx(row["_runtime"], abs=1e-6)) for row in offline_rows(tmp_path)]
    assert times == (rows if ended else rows[: len(times)])
    assert len(times) >= len(rows) - 1


def test_copy_of_a_resumed_run_keeps_its_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the journal's attempts, or the clock that W&B's rows have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    from trackers.readers.journal import JournalReader

    records, rows = records_of(THREE)
    source = RunDirectory(tmp_path / "runs" / "p" / "r")
    source.make()
    source.write_info(RunInfo(id="r", name="r", project="p", created=T0, directory=str(source.path)))
    for record in records:
        stream = record.id.partition(":")[0]
        if stream.startswith("rank-"):
            writer = StreamWriter(source.stream(StreamName.parse(stream)))  # type: ignore[arg-type]
            writer.write(encode(record))
            writer.close()
    reader = JournalReader()
    (run,) = reader.runs(str(source.path))
    pauses = stage(reader, run, parse("wandb:p")).read_info().pauses
    clock = AttemptClock(T0, pauses=pauses)
    clock.begin(1, T0)
    assert [clock.at(time) for time, _ in rows] == pytest.approx([runtime for _, runtime in rows])
    decoder = Decoder(ours=True)
    for step, (time, runtime) in enumerate(rows):
        values: dict[str, Any] = {"_step": step, "_timestamp": time, "_runtime": runtime, "loss": 1.0}
        assert list(decoder.row(values))
    clock = AttemptClock(T0, pauses=decoder.pauses)
    clock.begin(1, T0)
    assert [clock.at(time) for time, _ in rows] == pytest.approx([runtime for _, runtime in rows])
