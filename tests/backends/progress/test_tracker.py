"""progress.txt: jobs and checkpoints with true throughputs, exactly once, beside what other jobs wrote."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trackers
from tests import ROOT, forked
from tests.helpers import T0, Driver, run_info, stream
from tests.ranks.support import job, the_run, until
from trackers.backends.progress.tracker import ProgressTracker
from trackers.errors import Unavailable
from trackers.formats.progress_txt import SAVED, STARTING, ProgressLine, entries
from trackers.frameworks.megatron import LoggerConfig, MegatronLog
from trackers.instruments.loop import Consumed
from trackers.instruments.plan import LoopPlan
from trackers.journal.attempts import checkpoint_record
from trackers.journal.run_directory import RunDirectory
from trackers.metrics import checkpoint_keys
from trackers.records import ArtifactRecord, Finish, Metrics, Number, Record, Start
from trackers.testing import Limits, Stored, check_tracker, checks
from trackers.testing.driver import DriverJob, Process
from trackers.tracker import RunInfo, Status
from trackers.training.run import Run

STAMP = datetime.fromtimestamp(T0).strftime("%Y-%m-%d %H:%M:%S")


def at(step: int, time: float, flops: float, job_flops: float, tokens: int = 0) -> Metrics:
    """A checkpoint's record, ``time`` seconds after the run's start."""
    values: dict[str, Number] = {
        checkpoint_keys.ITERATION: step,
        checkpoint_keys.FLOPS: flops,
        checkpoint_keys.JOB_FLOPS: job_flops,
    }
    return Metrics(step=step, time=T0 + time, values={**values, checkpoint_keys.TOKENS: tokens} if tokens else values)


def begin(attempt: int = 1, time: float = 0.0, gpus: int = 1) -> Start:
    return Start(time=T0 + time, attempt=attempt, rank=0, world_size=gpus)


def lines(info: RunInfo) -> list[str]:
    return info.path("progress.txt").read_text().splitlines()


def test_lines_are_the_documents(tmp_path: Path) -> None:
    """Fields, their order and their forms, separated by tabs."""
    info = run_info(tmp_path, attempts=[{"number": 1, "job": "4711"}])
    records = [begin(gpus=8), at(1000, 100.0, 1.6e17, 1.6e17, 12_340_000_000), Finish(time=T0 + 101, status="finished")]
    Driver(ProgressTracker, info).deliver(stream(records))
    later = datetime.fromtimestamp(T0 + 100).strftime("%Y-%m-%d %H:%M:%S")
    assert lines(info) == [
        f"{STAMP}\tJob ID: 4711\t# GPUs: 8\tStarting job",
        f"{later}\tJob ID: 4711\t# GPUs: 8\tSaved checkpoint\tIteration: 1000\tJob throughput: 200.0 TFLOP/s/GPU\t"
        "Cumulative throughput: 200.0 TFLOP/s/GPU\tFloating-point operations: 1.60e+17\tTokens (in billions): 12.34",
    ]


def test_throughputs_are_true_across_restarts_and_world_sizes(tmp_path: Path) -> None:
    """The job's is its own work over its own time; the cumulative one counts each job's GPU-seconds, lost work too."""
    info = run_info(tmp_path)
    records = [
        begin(1, gpus=4),
        at(10, 100.0, 800e12, 800e12),
        Metrics(step=15, time=T0 + 150, values={"loss": 1.0}),  # killed here: 50 s of 4 GPUs for nothing
        begin(2, 1000.0, gpus=2),
        at(20, 1100.0, 1600e12, 800e12),
        begin(3, 5000.0, gpus=8),
        at(30, 5050.0, 2400e12, 800e12),
    ]
    Driver(ProgressTracker, info).deliver(stream(records))
    found = [entry for entry in entries("\n".join(lines(info)) + "\n") if entry.event == SAVED]
    assert [entry.gpus for entry in found] == [4, 2, 8]
    assert [entry.job_tflops for entry in found] == [2.0, 4.0, 2.0]
    used = [4 * 100, 4 * 150 + 2 * 100, 4 * 150 + 2 * 100 + 8 * 50]
    expected = [800 / used[0], 1600 / used[1], 2400 / used[2]]
    assert [entry.cumulative_tflops for entry in found] == pytest.approx(expected, rel=0.05)
    assert "Cumulative throughput: 2.0 TFLOP/s/GPU" in lines(info)[-1]


def test_jobs_of_other_programs_count_where_training_goes_on_from_theirs(tmp_path: Path) -> None:
    """What the file tells of earlier jobs counts if this run began with their operations; else it stands alone."""
    head = f"Job ID: 7\t# GPUs: 2\t{STARTING}"
    theirs = (
        f"2025-01-01 00:00:00\t{head}\n2025-01-01 00:01:40\tJob ID: 7\t# GPUs: 2\t{SAVED}\tIteration: 10\t"
        "Job throughput: 0.0 TFLOP/s/GPU\tCumulative throughput: 9.9 TFLOP/s/GPU\t"
        "Floating-point operations: 1.00e+15\tTokens (in billions): 0.01\n2025-01-01 00:0"
    )
    goes_on = 2e15 / (200 + 100) / 1e12
    for name, before, expected in (("goes-on", 1e15, goes_on), ("anew", 0.0, 10.0), ("from-elsewhere", 9e15, 10.0)):
        info = run_info(tmp_path / name)
        info.path("progress.txt").write_text(theirs)
        Driver(ProgressTracker, info).deliver(stream([begin(), at(20, 100.0, before + 1e15, 1e15)]))
        text = info.path("progress.txt").read_text()
        assert text.startswith(f"{theirs}\n")  # whose last line had lost its end
        last = list(entries(text))[-1]
        assert (last.job_tflops, last.cumulative_tflops) == (10.0, pytest.approx(expected, rel=0.01))


def test_line_is_shorter_where_values_are_missing(tmp_path: Path) -> None:
    """A checkpoint that only an artifact tells of has its iteration, and nothing is made up."""
    info = run_info(tmp_path)
    kept = ArtifactRecord(time=T0 + 9, step=40, name="checkpoint", type="model")
    other = ArtifactRecord(time=T0 + 9, step=40, name="data", type="dataset")
    records = [begin(), kept, other, Metrics(step=41, time=T0 + 10, values={"loss": 1.0}), Finish(time=T0, status="x")]
    Driver(ProgressTracker, info).deliver(stream(records))
    assert [line.split("\t")[3:] for line in lines(info)] == [[STARTING], [SAVED, "Iteration: 40"]]


def test_checkpoint_that_is_also_an_artifact_is_one(tmp_path: Path) -> None:
    """Both records of one checkpoint make one line, and the artifact of the next one, too."""
    info = run_info(tmp_path)
    records: list[Record] = [begin()]
    for step in (10, 20):
        records += [ArtifactRecord(time=T0 + step, step=step, name="c", type="model"), at(step, step + 1.0, 1e12, 1e12)]
    Driver(ProgressTracker, info).deliver(stream(records))
    assert [entry.iteration for entry in entries("\n".join(lines(info)) + "\n")] == [None, 10, 20]


RECORDS = stream([begin(gpus=2), *(at(step, step, step * 1e12, step * 1e12) for step in range(1, 60))])


def whole(tmp_path: Path) -> str:
    info = run_info(tmp_path / "whole")
    Driver(ProgressTracker, info).deliver(RECORDS)
    return info.path("progress.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("die_after", [0, 1, 3])
@pytest.mark.processes
def test_killed_delivery_writes_each_line_once(tmp_path: Path, die_after: int) -> None:
    """A process killed between writing and committing, twice, and a state that was lost, double and lose nothing."""
    info = run_info(tmp_path / "run")
    job = DriverJob(
        tracker="progress", info=info, records=str(info.path("records.jsonl")), file=str(info.path("state.json")),
        batch=7, die_after=die_after,
    )  # fmt: skip
    for _ in range(2):
        Process(job, Path(info.directory), RECORDS).wait_until_dead()
    done = msgspec.structs.replace(job, die_after=None, status=Status("finished", 0))
    Process(done, Path(info.directory), RECORDS).wait()
    assert info.path("progress.txt").read_text() == whole(tmp_path)
    info.path("state.json").unlink()
    Process(done, Path(info.directory), RECORDS).wait()
    assert info.path("progress.txt").read_text() == whole(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["progress.write.before", "progress.write.after"])
@pytest.mark.processes
def test_kill_at_the_write_itself_loses_nothing(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process killed right before or after it appends leaves what the next one makes whole."""
    info = run_info(tmp_path / "run")
    job = DriverJob(
        tracker="progress", info=info, records=str(info.path("records.jsonl")), file=str(info.path("state.json")),
        batch=7, status=Status("finished", 0),
    )  # fmt: skip
    monkeypatch.setenv("TRACKERS_FAILPOINT", f"{point}=kill:3")
    Process(job, Path(info.directory), RECORDS).wait_until_dead()
    monkeypatch.delenv("TRACKERS_FAILPOINT")
    Process(job, Path(info.directory), RECORDS).wait()
    assert info.path("progress.txt").read_text() == whole(tmp_path)


@pytest.mark.parametrize("cut", [1, 30, 70, 200])
def test_torn_line_is_completed(tmp_path: Path, cut: int) -> None:
    """A line of ours that a killed process wrote in part is completed, not repeated."""
    info = run_info(tmp_path / "run")
    driver = Driver(ProgressTracker, info)
    driver.open()
    driver.write(RECORDS[:20])
    before = info.path("progress.txt").read_bytes()
    driver.write(RECORDS[20:], commit=False)
    after = info.path("progress.txt").read_bytes()
    info.path("progress.txt").write_bytes(after[: len(before) + cut])
    again = Driver(ProgressTracker, info, driver.state, driver.cursor)
    again.deliver(RECORDS)
    assert info.path("progress.txt").read_text() == whole(tmp_path)


def test_lines_of_others_stay(tmp_path: Path) -> None:
    """What another job appended while a delivery was down is left alone, and ours goes on behind it."""
    info = run_info(tmp_path / "run")
    driver = Driver(ProgressTracker, info)
    driver.open()
    driver.write(RECORDS[:20])
    driver.write(RECORDS[20:30], commit=False)  # killed here
    theirs = ProgressLine(T0 + 500, "other", 1, STARTING).line() + "\n"
    with info.path("progress.txt").open("a") as file:
        file.write(theirs)
    Driver(ProgressTracker, info, driver.state, driver.cursor).deliver(RECORDS)
    found = info.path("progress.txt").read_text().splitlines(keepends=True)
    assert found.index(theirs) == 30
    found.remove(theirs)
    assert "".join(found) == whole(tmp_path)


def test_file_that_is_deleted_is_written_anew(tmp_path: Path) -> None:
    """A run whose file was deleted has all of its lines again after the next sync."""
    info = run_info(tmp_path / "run")
    driver = Driver(ProgressTracker, info)
    driver.deliver(RECORDS)
    info.path("progress.txt").unlink()
    Driver(ProgressTracker, info, driver.state, driver.cursor).deliver(RECORDS)
    assert info.path("progress.txt").read_text() == whole(tmp_path)


def test_directory_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """A directory that has become a file raises what a delivery retries; afterwards nothing is missing or doubled."""
    place = tmp_path / "checkpoints"
    info = run_info(tmp_path / "run", options={"PROGRESS_DIR": str(place)})
    driver = Driver(ProgressTracker, info)
    driver.open()
    place.write_text("")
    with pytest.raises(Unavailable, match="can't open"):
        driver.write(RECORDS)
    place.unlink()
    driver.write(RECORDS)
    driver.close()
    assert (place / "progress.txt").read_text() == whole(tmp_path)


class Few(Limits):
    """None of a run's numbers by itself is in the file."""

    def number(self, value: Number) -> Number | None:
        """Nothing is kept."""
        return None


@pytest.mark.parametrize("check", checks())
@pytest.mark.processes
def test_progress_keeps_promise(check: str, tmp_path: Path) -> None:
    """Whatever dies and however often it is delivered to, the file has one line for the job and one for its model."""

    def read(info: RunInfo, state: Mapping[str, Any]) -> Stored:
        path = info.path("progress.txt")
        found = list(entries(path.read_text())) if path.exists() else []
        assert [entry.event for entry in found] in ([], [STARTING], [STARTING, SAVED])
        return Stored()

    limits = Few(statuses=None)
    check_tracker("progress", read, directory=tmp_path / "runs", limits=limits, checks=[check])


entry_values = st.builds(
    ProgressLine,
    time=st.integers(86_400, 4_000_000_000).map(float),
    job_id=st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=12),
    gpus=st.integers(0, 100_000),
    event=st.just(SAVED),
    iteration=st.none() | st.integers(0, 10**12),
    job_tflops=st.none() | st.integers(0, 20_000).map(lambda tenths: tenths / 10),
    cumulative_tflops=st.none() | st.integers(0, 20_000).map(lambda tenths: tenths / 10),
    flops=st.none() | st.integers(1, 999).map(lambda digits: digits * 1e20),
    tokens=st.none() | st.integers(0, 10**6).map(lambda hundredths: hundredths * 1e7),
)


@pytest.mark.slow
@given(st.lists(entry_values, max_size=6))
def test_what_is_written_is_read(told: list[ProgressLine]) -> None:
    """Each line reads back as it was written, to the digits that the file has."""
    found = list(entries("".join(f"{entry.line()}\n" for entry in told)))
    assert [(e.job_id, e.gpus, e.event, e.iteration) for e in found] == [
        (e.job_id, e.gpus, e.event, e.iteration) for e in told
    ]
    for one, other in zip(found, told, strict=True):
        assert one.line() == other.line()
        for name in ("job_tflops", "cumulative_tflops", "flops", "tokens"):
            wanted, got = getattr(other, name), getattr(one, name)
            assert (wanted is None) == (got is None)
            assert wanted is None or got == pytest.approx(wanted, rel=0.006, abs=1e6 if name == "tokens" else 0.06)


@pytest.mark.slow
@given(st.lists(entry_values, min_size=1, max_size=4), st.data())
def test_truncated_line_loses_no_other(told: list[ProgressLine], data: st.DataObject) -> None:
    """A line cut anywhere, and the next one right behind it: all others read as before, and no cut number is told."""
    cut = told[0].line()
    cut = cut[: data.draw(st.integers(0, len(cut)))]
    found = list(entries(cut + "".join(f"{entry.line()}\n" for entry in told)))
    rest = found[-len(told) :]
    assert [entry.line() for entry in rest] == [entry.line() for entry in told]
    for entry in found[: -len(told)]:
        for name in ("iteration", "job_tflops", "cumulative_tflops", "flops", "tokens"):
            value = getattr(entry, name)
            assert value is None or ProgressLine(0, "", 1, "", **{name: value}).line() == told_alone(told[0], name)


def test_number_that_was_cut_is_none() -> None:
    """Wherever a line ends and the next job's follows, a value that is told is the whole one."""
    whole = ProgressLine(
        T0, "1", 8, SAVED, iteration=1000, job_tflops=212.5, cumulative_tflops=212.5, flops=1e17, tokens=1.25e9
    )
    for cut in range(len(whole.line())):
        *found, following = entries(f"{whole.line()[:cut]}{ProgressLine(T0, '2', 8, STARTING).line()}\n")
        assert following.job_id == "2"
        for entry in found:
            for name in ("iteration", "job_tflops", "cumulative_tflops", "flops", "tokens"):
                assert getattr(entry, name) in (None, getattr(whole, name)), (cut, name)


def told_alone(entry: ProgressLine, name: str) -> str:
    return ProgressLine(0, "", 1, "", **{name: getattr(entry, name)}).line()


@pytest.mark.slow
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    """Whatever stands in the file, reading it never raises."""
    for entry in entries(text + f"\n{text}\tJob ID: {text}\t# GPUs: {text}\n"):
        assert entry.gpus >= 0


def test_counts_go_on_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is resumed with another world size counts on from what its checkpoint had, by itself."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    first = trackers.init("json", project="p", id="mine", mode="offline")
    loop = first.loop(samples_per_step=64, tokens_per_step=6400, flops_per_token=10.0, interval=100)
    for step in range(1, 7):
        loop.step()
        if step in (2, 4):
            with loop.checkpoint():
                pass
    with pytest.raises(OSError, match="full"), loop.checkpoint():
        raise OSError("the disk is full")
    first.finish()
    run = trackers.init("json", project="p", id="mine", mode="offline", resume="must", step=4)
    assert isinstance(run, Run)
    assert checkpoint_record(RunDirectory(run.dir), 4)[checkpoint_keys.TOKENS] == 4 * 6400
    assert checkpoint_record(RunDirectory(run.dir), 6) == {}
    loop = run.loop(samples_per_step=16, tokens_per_step=1600, flops_per_token=10.0, start_step=4)
    loop.step()
    with loop.checkpoint():
        pass
    found = checkpoint_record(RunDirectory(run.dir), 5)
    run.finish()
    tokens = 4 * 6400 + 1600
    assert found == {
        checkpoint_keys.ITERATION: 5, checkpoint_keys.SAMPLES: 4 * 64 + 16, checkpoint_keys.TOKENS: tokens,
        checkpoint_keys.FLOPS: 10.0 * tokens, checkpoint_keys.JOB_FLOPS: 16_000.0,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["loop", "megatron"])
def test_operations_of_steps_go_on_from_the_checkpoint(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step's operations are told, those before a resume are the checkpoint's: steps took others then."""
    monkeypatch.setenv("TRACKER_RELAY", "n")

    def train(run: Any, first: int, last: int, flops: float) -> dict[str, Any]:
        if kind == "loop":
            made: Any = run.loop(start_step=first, flops_per_step=flops)
            step = made.step
        else:
            made = MegatronLog(run, LoggerConfig(), train_iters=9, global_batch_size=4, start_iteration=first,
                               flops_per_step=flops, write=lambda text: None)  # fmt: skip

            def step() -> None:
                made.training_log({}, {}, 0.1, None, made._loop.steps + 1, 1.0, False, 0, None, None, None)

        for _ in range(first, last):
            step()
        with made.checkpoint():
            pass
        found = checkpoint_record(RunDirectory(run.dir), last)
        run.finish()
        return found

    begun = trackers.init("json", project="p", id="mine", mode="offline")
    assert train(begun, 0, 4, 1000.0)[checkpoint_keys.FLOPS] == 4000.0
    resumed = trackers.init("json", project="p", id="mine", mode="offline", resume="must", step=4)
    found = train(resumed, 4, 6, 250.0)
    assert (found[checkpoint_keys.FLOPS], found[checkpoint_keys.JOB_FLOPS]) == (4500.0, 500.0)


def test_unknown_counts_are_left_out() -> None:
    """A step whose samples aren't said makes the sums unknown; a loop without sizes records the iteration alone."""
    assert Consumed(LoopPlan(start_step=3)).at_checkpoint(4) == {checkpoint_keys.ITERATION: 4}
    counted = Consumed(LoopPlan(start_step=2, samples_per_step=8, flops_per_step=5.0))
    counted.step(None, None)
    assert counted.at_checkpoint(3) == {
        checkpoint_keys.ITERATION: 3, checkpoint_keys.FLOPS: 15.0, checkpoint_keys.JOB_FLOPS: 5.0,
    }  # fmt: skip


def test_megatron_log_records_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """``log.checkpoint()`` records what the iterations took, and its time as a pause."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_LOG_TIMERS": False})
    log = MegatronLog(run, LoggerConfig(), train_iters=9, global_batch_size=4, seq_length=8, flops_per_token=2.0,
                      start_iteration=5, write=lambda text: None)  # fmt: skip
    for iteration in (6, 7):
        log.training_log({"lm loss": 1.0}, {}, 0.1, None, iteration, 1.0, False, 0, None, None, None)
    with log.checkpoint():
        pass
    found = checkpoint_record(RunDirectory(run.dir), 7)
    last = run._recorder.last_logged()
    run.finish()
    assert found == {
        checkpoint_keys.ITERATION: 7, checkpoint_keys.SAMPLES: 28, checkpoint_keys.TOKENS: 224,
        checkpoint_keys.FLOPS: 448.0,
        checkpoint_keys.JOB_FLOPS: 128.0,
    }  # fmt: skip
    assert last["checkpoint-time"] >= 0.0


LOOP = """
import os, sys, time
from pathlib import Path
import trackers
start, last = int(sys.argv[1]), int(sys.argv[2])
ranks = int(os.environ["WORLD_SIZE"])
run = trackers.init("progress", project="p", id="mine", resume="allow", **({"step": start} if start else {}))
loop = run.loop(start_step=start, samples_per_step=8 * ranks, tokens_per_step=80 * ranks, flops_per_token=1e9)
for step in range(start + 1, last + 1):
    time.sleep(0.01)
    loop.step()
    run.log({"loss": 1.0 / step}, step=step)
    if step % 5 == 0:
        with loop.checkpoint():
            pass
Path(f"at-{os.environ['RANK']}").write_text(str(step))
if len(sys.argv) > 3:
    while True: time.sleep(0.01)
run.finish()
"""


@pytest.mark.slow
def test_killed_job_goes_on_with_another_world_size() -> None:
    """Four ranks, killed; two go on from their checkpoint: lines, FLOPs, tokens and throughputs are the journal's."""
    with job(LOOP, ["0", "12", "hold"], 4, SLURM_JOB_ID="41", MASTER_PORT="29601") as four:
        four.start(0, 1, 2, 3)
        until(lambda: all(four.at(rank) == 12 for rank in range(4)), "step 12")
        for rank in range(4):
            four.kill(rank)
    run = the_run()
    until(lambda: '"closed":"crashed"' in state(run), "the relay's end of the killed job")
    with job(LOOP, ["10", "20"], 2, SLURM_JOB_ID="42", MASTER_PORT="29602") as two:
        two.start(0, 1)
        two.wait()
    found = list(entries((run / "progress.txt").read_text()))
    assert [(e.event, e.job_id, e.gpus, e.iteration) for e in found] == [
        (STARTING, "41", 4, None), (SAVED, "41", 4, 5), (SAVED, "41", 4, 10),
        (STARTING, "42", 2, None), (SAVED, "42", 2, 15), (SAVED, "42", 2, 20),
    ]  # fmt: skip
    tokens = [5 * 320, 10 * 320, 10 * 320 + 5 * 160, 10 * 320 + 10 * 160]
    logged = [json.loads(line) for a in (1, 2) for line in (run / f"streams/rank-0.{a}.jsonl").read_text().splitlines()]
    starts = [record["time"] for record in logged if record["kind"] == "start"]
    ends = max(record["time"] for record in logged if record["time"] < starts[1])
    marks = [record for record in logged if checkpoint_keys.ITERATION in record.get("values", {})]
    assert [mark["values"][checkpoint_keys.TOKENS] for mark in marks] == tokens
    saves = [entry for entry in found if entry.event == SAVED]
    assert [entry.flops for entry in saves] == pytest.approx([1e9 * count for count in tokens], rel=0.006)
    for mark, entry in zip(marks, saves, strict=True):
        second = entry.gpus == 2
        own_s = mark["time"] - starts[second]
        assert entry.job_tflops == pytest.approx(
            mark["values"][checkpoint_keys.JOB_FLOPS] / own_s / entry.gpus / 1e12, rel=0.06
        )
        assert entry.job_tflops > 0
        if not second:
            assert entry.cumulative_tflops == entry.job_tflops
        else:  # the relay saw the first job's end a little after its last record
            most = mark["values"][checkpoint_keys.FLOPS] / (2 * own_s + 4 * (ends - starts[0])) / 1e12
            assert 0 < entry.cumulative_tflops <= most * 1.06


def state(run: Path) -> str:
    try:
        return (run / "delivery/progress.json").read_text()
    except OSError:
        return ""


def test_example_keeps_its_progress() -> None:
    """The example's checkpoints stand in progress.txt with the tokens and operations that its journal has."""
    script = ROOT / "examples/gpt2/megatron_log.py"
    small = ["--n-layer", "1", "--n-head", "2", "--n-embd", "32", "--block-size", "32", "--batch-size", "8",
             "--eval-iters", "1", "--device", "cpu", "--max-iters", "6", "--eval-interval", "3",
             "--log-interval", "6"]  # fmt: skip
    more = ["--tracker", "progress,console", "--tracker-progress-dir", "checkpoints"]
    done = forked.run([sys.executable, str(script), *small, *more], preload=forked.TORCH)
    assert done.returncode == 0, done.stderr
    found = [entry for entry in entries(Path("checkpoints/progress.txt").read_text()) if entry.event == SAVED]
    run = RunDirectory(the_run())
    for step, entry in zip((3, 6), found, strict=True):
        told = checkpoint_record(run, step)
        assert told[checkpoint_keys.TOKENS] == step * 8 * 32
        assert entry.flops == pytest.approx(told[checkpoint_keys.FLOPS], rel=0.006)
        assert entry.job_tflops == entry.cumulative_tflops
        assert entry.job_tflops is not None
    assert len(re.findall("iteration +6/ +6", done.stdout + done.stderr)) == 1  # Megatron's log prints by itself
