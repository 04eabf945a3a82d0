"""PyTorch's profiler on demand: valid Chrome traces of the steps that were asked for, kept with the run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trackers
from tests.stores import read_json
from trackers.errors import ConfigError, MissingPackage, UsageError
from trackers.instruments.profiler import Profiler, ProfilerSchedule
from trackers.journal.run_directory import RunDirectory
from trackers.training.run import Run

ON = {"TRACKER_PROFILE": True, "TRACKER_PROFILE_WAIT": 2, "TRACKER_PROFILE_WARMUP": 1, "TRACKER_PROFILE_ACTIVE": 2}
TRACES = Path("profile_logs")


def begin(**options: Any) -> Run:
    """A run that only writes its journal and its JSON log."""
    run = trackers.init("json", project="p", name="n", inline=True, options={**ON, **options})
    assert isinstance(run, Run)
    return run


def train(run: Run, steps: int) -> None:
    """Steps of a small model, driven by the run's loop; each adds a matrix of its own size."""
    loop = run.loop(steps)
    for step in range(1, steps + 1):
        torch.randn(step, 7) @ torch.randn(7, step)
        loop.step()


def shapes(trace: dict[str, Any]) -> int:
    """How many matrix products a trace holds."""
    return sum(event.get("name") == "aten::mm" for event in trace["traceEvents"])


def check_chrome(path: Path) -> dict[str, Any]:
    """The trace, as chrome://tracing takes it: complete events with times and durations in microseconds."""
    trace: dict[str, Any] = json.loads(path.read_text())
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert complete
    for event in complete:
        assert {"name", "ts", "dur", "pid", "tid"} <= set(event)
        assert event["dur"] >= 0
    return trace


@pytest.mark.parametrize("repeat", [1, 2])
def test_loop_traces_the_steps_asked_for(repeat: int) -> None:
    """Two steps of each cycle are in a trace, of ten events at least, in a file of the documented name."""
    run = begin(TRACKER_PROFILE_REPEAT=repeat)
    train(run, 30)
    run.finish()
    paths = sorted(TRACES.iterdir())
    assert [path.name for path in paths] == sorted(
        f"perf_logs_{run.id}_rank0_step{last}.json" for last in (6, 11)[:repeat]
    )
    assert [shapes(check_chrome(path)) for path in paths] == [2] * repeat


def test_trace_arrives_as_an_artifact() -> None:
    """The tracker has the trace as an artifact of type profile, byte for byte; it is linked, not copied."""
    run = begin()
    train(run, 12)
    run.finish()
    (path,) = TRACES.iterdir()
    (log,) = [file for file in Path(run.dir).glob("*.json") if "training_iterations" in file.read_text()]
    (artifact,) = json.loads(log.read_text())["artifacts"]
    assert (artifact["type"], artifact["name"]) == ("profile", path.stem)
    kept = Path(run.dir, artifact["files"][0]["file"])
    assert kept.read_bytes() == path.read_bytes()
    assert kept.samefile(path)
    assert read_json(RunDirectory(Path(run.dir)).read_info()).status == "finished"


def test_off_by_default() -> None:
    """Without the option nothing is traced and nothing made."""
    run = begin(TRACKER_PROFILE=False)
    train(run, 12)
    assert run._profiler is None
    run.finish()
    assert not TRACES.exists()


def test_training_that_ends_within_a_trace_has_what_was_traced() -> None:
    """A run that ends before the last traced step leaves the part that there is."""
    run = begin(TRACKER_PROFILE_ACTIVE=100)
    train(run, 12)
    run.finish()
    (path,) = TRACES.iterdir()
    assert shapes(check_chrome(path)) == 8


def test_callback_drives_it_with_a_run_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """BenchmarkCallback's steps are traced too; of a loop and a callback in one run the first one counts."""
    run = begin()
    loop = run.loop(20)
    callback = trackers.BenchmarkCallback()
    for with_run in (True, False):
        if not with_run:
            run.finish()
            for name, value in ON.items():
                monkeypatch.setenv(name, "y" if value is True else str(value))
        callback.on_train_start()
        for _ in range(12):
            torch.randn(3, 3) @ torch.randn(3, 3)
            if with_run:
                loop.step()
            callback.on_train_batch_end(loss=1.0)
        callback.on_train_end()
        assert len(list(TRACES.iterdir())) == (1 if with_run else 2)
    assert [shapes(check_chrome(path)) for path in TRACES.iterdir()] == [2, 2]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("TRACKER_PROFILE_ACTIVE", 0, "TRACKER_PROFILE_ACTIVE"),
        ("TRACKER_PROFILE_WAIT", -1, "TRACKER_PROFILE_WAIT"),
        ("TRACKER_PROFILE_REPEAT", "often", "TRACKER_PROFILE_REPEAT"),
        ("TRACKER_PROFILE", "maybe", "TRACKER_PROFILE"),
    ],
)
def test_bad_options_are_one_line(option: str, value: Any, said: str) -> None:
    """A number out of range, a word that is none: one clear line in init, before the first step."""
    with pytest.raises(ConfigError, match=said) as error:
        begin(**{option: value})
    assert "\n" not in str(error.value)


def test_bad_schedules_are_one_line() -> None:
    """So for a schedule of one's own."""
    with pytest.raises(UsageError, match="profile: active=0: give a whole number of steps, 1 or more"):
        ProfilerSchedule(active=0)
    with pytest.raises(UsageError, match="profile: wait=True"):
        ProfilerSchedule(wait=True)


def test_place_that_cannot_be_made_is_an_error_before_training() -> None:
    """A file where the directory of traces belongs is said when the loop is made."""
    Path("profile_logs").write_text("")
    run = begin()
    with pytest.raises(UsageError, match="TRACKER_PROFILE_DIR=profile_logs: it can't be made"):
        run.loop(3)
    run.finish()


def test_missing_torch_is_an_error_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch the option can't be carried out: one line names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingPackage, match="TRACKER_PROFILE needs torch: pip install"):
        Profiler(ProfilerSchedule())


def test_profiler_that_fails_is_said_once_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A trace that can't be written ends the profiling, with one line; every step is still counted."""
    run = begin(TRACKER_PROFILE_REPEAT=5)
    loop = run.loop(40)
    TRACES.rmdir()
    TRACES.write_text("")
    for _ in range(40):
        loop.step()
    assert loop.steps == 40
    run.finish()
    said = [line for line in capsys.readouterr().err.splitlines() if "profiler" in line.lower() and "USDT" not in line]
    assert len(said) == 1
    assert "no trace is written from now on, training goes on" in said[0]


# With torch 2.6 no profiler can start while another one warms up, whoever has begun either.
@pytest.mark.parametrize("begins", [0, 1, 3] if not torch.__version__.startswith("2.6.") else [0, 1])
def test_another_profiler_is_left_alone(begins: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the user profiles before ours records, ours stands back and theirs has its events."""
    run = begin()
    loop = run.loop(12)
    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    for step in range(12):
        if step == begins:
            theirs.start()
        torch.randn(3, 3) @ torch.randn(3, 3)
        loop.step()
    theirs.stop()
    run.finish()
    assert sum(event.count for event in theirs.key_averages() if event.key == "aten::mm") == 12 - begins
    assert "another profiler is at work; no trace is written" in capsys.readouterr().err
    assert not list(TRACES.iterdir())


@pytest.mark.parametrize("cuda", [False, True])
def test_trace_has_the_gpu_where_there_is_one(cuda: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels are asked for where CUDA is in use, and only there."""
    asked: list[set[Any]] = []

    def profile(activities: list[Any], **more: Any) -> Any:
        asked.append(set(activities))
        return SimpleNamespace(start=lambda: None, stop=lambda: None)

    monkeypatch.setattr("trackers.instruments.profiler.cuda_in_use", lambda: torch.cuda if cuda else None)
    monkeypatch.setattr(torch.profiler, "profile", profile)
    profiler = Profiler(ProfilerSchedule(), home=tmp_path)
    profiler.step()
    profiler.close()
    kinds = torch.profiler.ProfilerActivity
    assert asked == [{kinds.CPU, kinds.CUDA} if cuda else {kinds.CPU}]
