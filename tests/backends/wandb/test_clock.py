"""W&B's clocks are training's: a row's ``_runtime`` is the training before it, to the time of its record."""

from __future__ import annotations

import datetime
import os
import socket
import time as clock_of_this_test
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.wandb.support import CLIENT, driver, offline_rows, server, sync
from tests.fakes.wandb_server import WandbServer
from tests.helpers import T0, Driver
from tests.stores import wandb_files, wandb_records
from trackers.backends.wandb import client, datastore_writer
from trackers.backends.wandb.clock import AttemptClock
from trackers.copying import copy
from trackers.copying.destinations import parse
from trackers.copying.staging import stage
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.readers.wandb.rows import Decoder
from trackers.records import Finish, Metrics, Record, Start, encode
from trackers.support.machines import boot_id
from trackers.support.processes import process_start
from trackers.tracker import RunInfo, Status

__all__ = ["server"]

ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 1000), st.lists(st.integers(0, 50), max_size=5)),  # a pause, then times between rows
    min_size=1,
    max_size=5,
)


def records_of(
    attempts: list[tuple[int, list[int]]], begin: float = T0, loading: int = 0
) -> tuple[list[Record], list[tuple[float, float]]]:
    """A run's records, with samples before, within and after its attempts, and the time and runtime of each row.

    loading: seconds before an attempt's first value, with a sample in each.
    """
    found: list[tuple[str, Record]] = []
    rows: list[tuple[float, float]] = []
    time, runtime, step = begin, 0.0, 0
    for number, (pause, gaps) in enumerate(attempts, 1):
        if number > 1:
            found.append((f"sampler-0.{number - 1}", Metrics(time=time + pause / 2, values={"system.cpu": 1.0})))
            found.append((f"node-0.{number - 1}", Finish(time=time + pause / 2, status="crashed")))
            time += pause
        found.append((f"rank-0.{number}", Start(time=time, attempt=number, rank=0)))
        for _ in range(loading):
            time, runtime = time + 1, runtime + 1
            for values in ({"system.cpu": 1.0}, {"input/queue": time}):  # the second one isn't for the system tab
                found.append((f"sampler-0.{number}", Metrics(time=time, values=values)))
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


@pytest.mark.processes
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


class Shown(NamedTuple):
    """What W&B has of a run: its start in Unix seconds, its rows, and the seconds in its summary; None: not told."""

    start: float | None
    rows: list[dict[str, Any]]
    runtime_s: int | None


def shown(info: RunInfo, server: WandbServer, mode: str) -> Shown:
    """Of a run that was delivered online, into offline files, or into these and uploaded by W&B's client."""
    if mode == "offline":
        records = [record for path in wandb_files(info) for record in wandb_records(path)]
        starts = [record.run.start_time for record in records if record.WhichOneof("record_type") == "run"]
        updates = [update for record in records for update in record.summary.update]
        runtimes = [update.value_json for update in updates if list(update.nested_key) == ["_wandb", "runtime"]]
        start = min(stamp.ToNanoseconds() for stamp in starts) / 1e9
        rows = [row for path in wandb_files(info) for row in datastore_writer.history(path)]
        return Shown(start, rows, int(runtimes[-1]))
    run = server.runs[info.id]
    if mode == "uploaded" and CLIENT < (0, 28):  # whose `wandb sync` tells neither
        return Shown(None, run.history, None)
    sessions = run.config["_wandb"]["value"]["e"].values()
    moments = [datetime.datetime.fromisoformat(one["startedAt"][:26] + "+00:00").timestamp() for one in sessions]
    summary = run.summary_sent if mode == "online" else run.summary
    return Shown(min(moments), run.history, summary["_wandb"]["runtime"])


@pytest.mark.parametrize("mode", ["online", "offline", pytest.param("uploaded", marks=pytest.mark.slow)])
@pytest.mark.parametrize("when", ["late", "live"])
@pytest.mark.parametrize("attempts", [[(0, [0, 1, 2, 3, 4])], [(0, [0, 1, 2]), (500, [1, 2])]], ids=["once", "resumed"])
def test_clocks_and_steps_are_trainings_whenever_it_is_delivered(
    attempts: list[tuple[int, list[int]]], when: str, mode: str, server: WandbServer, tmp_path: Path
) -> None:
    """Of a training that loads for 40 s, with samples in each: ``_step`` is the training step, ``_runtime`` the time
    of training, the run's start and runtime are its own, for what is delivered as it is logged, or much later."""
    begin = clock_of_this_test.time() - 3600 if when == "live" else T0
    records, rows = records_of(attempts, begin, loading=40)
    ended = Finish(time=records[-1].time, status="finished", exit_code=0, id="rank-0.9:1", seq=len(records) + 1)
    here = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": os.getpid(),
            "pid_start": process_start(os.getpid())} if when == "live" else {}  # fmt: skip
    started = [record for record in records if isinstance(record, Start)]
    options = {"WANDB_MODE": "online" if mode == "online" else "offline", "TRACKER_SAMPLE": False}

    def opened(number: int, before: Driver | None = None) -> Driver:
        known = [{"number": one.attempt, "time": one.time} for one in started[:number]]
        run = driver(tmp_path, created=begin, options=options, attempts=known, **here)
        if before is not None:
            run.state, run.cursor = before.state, before.cursor
        run.open()
        return run

    run = opened(1 if when == "live" else len(started))
    if when == "live":
        for record in records:
            if isinstance(record, Start) and record.attempt > 1:
                run.close(Status("running", time=record.time))
                run = opened(record.attempt, run)
            run.write(records[: record.seq])
            assert run.tracker is not None
            run.tracker.tick()
    run.write([*records, ended])
    run.close(Status("finished", 0, ended.time))
    if mode == "uploaded":
        sync(tmp_path)
    found = shown(run.info, server, mode)
    assert found.start is None or found.start == pytest.approx(begin, abs=1e-3)
    assert found.runtime_s in (None, int(rows[-1][1]))
    logged = [row for row in found.rows if "loss" in row]
    assert [(row["_step"], row["global_step"]) for row in logged] == [(step, step) for step in range(len(rows))]
    assert [(row["_timestamp"], row["_runtime"]) for row in logged] == close_to(rows)
    # Samples ride in training's rows; those behind the last one have rows, and those of the system tab none.
    names = {"_step", "_timestamp", "_runtime", "global_step", "loss", "input/queue"}
    assert {name for row in found.rows for name in row} == names
    assert [row["_step"] for row in found.rows] == list(range(len(found.rows)))
    assert found.rows[: len(rows)] == logged
    queued = sorted(value for row in found.rows for name, value in row.items() if name == "input/queue")
    assert queued[-1] > begin


def close_to(rows: Iterable[tuple[float, float]]) -> list[Any]:
    """Times and runtimes, to the microsecond."""
    return [pytest.approx(row, rel=0, abs=1e-5) for row in rows]


def journal_of(records: list[Record], place: Path) -> RunDirectory:
    """A run that training left."""
    source = RunDirectory(place)
    source.make()
    source.write_info(RunInfo(id="r", name="r", project="p", created=T0, directory=str(source.path)))
    for record in records:
        stream = record.id.partition(":")[0]
        if stream.startswith("rank-"):
            writer = StreamWriter(source.stream(StreamName.parse(stream)))  # type: ignore[arg-type]
            writer.write(encode(record))
            writer.close()
    return source


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_copy_has_the_clocks_of_training(
    mode: str, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a resumed run, by ``trackers copy … wandb:``."""
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    records, rows = records_of(THREE)
    (report,) = copy(str(journal_of(records, tmp_path / "runs" / "p" / "r").path), "wandb:p")
    assert report.agrees, str(report)
    if mode == "online":
        (id,) = server.runs
    else:
        (id,) = {path.stem.removeprefix("run-") for path in (tmp_path / "cache").rglob("*.wandb")}
    found = shown(RunInfo(id=id, name="r", project="p", directory=str(tmp_path / "cache")), server, mode)
    assert found.start == pytest.approx(T0, abs=1e-3)
    assert found.runtime_s == int(rows[-1][1])
    assert [(row["_timestamp"], row["_runtime"]) for row in found.rows] == close_to(rows)
    assert [row["_step"] for row in found.rows] == list(range(len(rows)))


def test_copy_of_a_resumed_run_keeps_its_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the journal's attempts, or the clock that W&B's rows have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    from trackers.readers.journal import JournalReader

    records, rows = records_of(THREE)
    source = journal_of(records, tmp_path / "runs" / "p" / "r")
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
