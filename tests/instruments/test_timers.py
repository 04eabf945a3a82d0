"""Timers: what they measure, for whom, and that neither misuse nor a GPU makes anybody wait."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import trackers
from tests.fakes.cuda import Cuda
from tests.helpers import Time
from trackers.errors import MissingPackage, UsageError
from trackers.formats.megatron_line import report
from trackers.instruments import timers
from trackers.instruments.timers import NULL, Timer, Timers
from trackers.records import Metrics
from trackers.support.optional import torch_for
from trackers.training.run import Run
from trackers.values.device_copy import DeferredNumber


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time(100.0)
    monkeypatch.setattr(timers, "time", clock)
    return clock


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def all_levels(said: list[str]) -> Timers:
    return Timers(2, say=said.append)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A GPU that works when the test says so; waiting for it is an error."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return cuda


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run that only writes its journal."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_TIMING_LEVEL": 2})
    assert isinstance(run, Run)
    yield run
    run.finish()


def logged(run: Run) -> list[tuple[int | None, dict[str, Any]]]:
    return [(r.step, r.values) for r in run._recorder.logged() if isinstance(r, Metrics)]


def cpu(found: Any) -> Timer:
    assert type(found) is Timer
    return found


def test_seconds_and_times_add_up(all_levels: Timers, clock: Time) -> None:
    """With, start and stop, and a decorator measure alike, into one sum."""
    timer = cpu(all_levels.get("forward", level=1))
    with timer:
        clock.now += 2.0
    timer.start()
    clock.now += 0.5
    timer.stop()

    @timer
    def work(x: int) -> int:
        """Doubles."""
        clock.now += 0.25
        return 2 * x

    assert work(4) == 8
    assert work.__doc__ == "Doubles."
    clock.now += 50.0
    assert (timer.total_s, timer.count) == (2.75, 3)
    assert all_levels.get("forward", level=1) is timer


def test_generator_is_measured_while_it_works(all_levels: Timers, clock: Time) -> None:
    """What a decorated generator does for each item is measured, not what its user does; it stays a generator."""
    ended: list[object] = []

    @all_levels.get("batches")
    def batches(count: int) -> Any:
        sent: object = None
        try:
            for number in range(count):
                clock.now += 2.0
                try:
                    sent = yield number, sent
                except KeyError:
                    sent = "caught"
            return "end"
        finally:
            ended.append(sent)

    made = batches(3)
    clock.now += 100.0
    assert next(made) == (0, None)
    clock.now += 100.0
    assert made.send("hello") == (1, "hello")
    assert made.throw(KeyError()) == (2, "caught")
    with pytest.raises(StopIteration) as stopped:
        next(made)
    assert stopped.value.value == "end"
    assert all_levels.get("batches").total_s == 6.0
    left = batches(3)
    next(left)
    left.close()
    assert len(ended) == 2
    assert all_levels.get("batches").total_s == 8.0


def test_coroutine_is_measured_until_it_ends(all_levels: Timers, clock: Time) -> None:
    """A decorated coroutine function is measured while it runs, not while it is made."""
    timer = cpu(all_levels.get("fetch"))

    @timer
    async def fetch() -> int:
        await asyncio.sleep(0)
        clock.now += 3.0
        return 7

    assert asyncio.run(fetch()) == 7
    assert (timer.total_s, timer.count) == (3.0, 1)


@pytest.mark.parametrize("level", [-1, 0, 1, 2])
def test_timer_above_the_level_measures_nothing(level: int, cuda: Cuda) -> None:
    """Levels up to the chosen one measure; above it the answer is one object that does nothing, on a GPU too."""
    found = Timers(level)
    for own in (0, 1, 2):
        timer = found.get(f"level {own}", level=own)
        assert (timer is NULL) == (own > level)
        with timer as inside:
            assert inside is timer
    assert len(list(found)) == level + 1
    assert cuda.recorded == 2 * (level + 1)


def test_null_timer_lets_everything_through() -> None:
    """A timer that measures nothing swallows no exception, decorates to the function itself and never complains."""
    with pytest.raises(KeyError), NULL:
        raise KeyError
    assert NULL(len) is len
    NULL.stop()
    NULL.start()
    assert (NULL.total_s, NULL.count, NULL.running) == (0.0, 0, False)


def test_intervals_do_not_disturb_each_other(all_levels: Timers, clock: Time) -> None:
    """Console, trackers and user each get all of what was measured since they read last."""
    timer = cpu(all_levels.get("step"))
    console, tracker = all_levels.interval(), all_levels.interval()
    seen: dict[str, list[float]] = {"console": [], "tracker": [], "user": []}
    user = None
    for step in range(1, 13):
        with timer:
            clock.now += step
        if step == 4:
            user = all_levels.interval()
        if step % 2 == 0:
            seen["tracker"].append(tracker.take()["step"].elapsed_s)
        if step % 6 == 0:
            seen["console"].append(console.take()["step"].elapsed_s)
    assert user is not None
    seen["user"].append(user.take()["step"].elapsed_s)
    assert seen["tracker"] == [3.0, 7.0, 11.0, 15.0, 19.0, 23.0]
    assert seen["console"] == [21.0, 57.0]
    assert seen["user"] == [sum(range(5, 13))]
    assert user.take() == {}


def test_timer_that_runs_is_counted_up_to_the_reading(all_levels: Timers, clock: Time) -> None:
    """Time is in the interval in which it passed, though the timer stops in a later one."""
    timer = cpu(all_levels.get("interval-time"))
    interval = all_levels.interval()
    timer.start()
    clock.now += 2.0
    first = interval.take()["interval-time"]
    clock.now += 3.0
    timer.stop()
    second = interval.take()["interval-time"]
    assert (first.elapsed_s, first.count) == (2.0, 0)
    assert (second.elapsed_s, second.count) == (3.0, 1)


def test_misuse_is_said_once_and_harms_nothing(all_levels: Timers, clock: Time, said: list[str]) -> None:
    """A stop without a start, a start without a stop and a timer inside itself are named; the rest is measured."""
    timer = cpu(all_levels.get("forward"))
    timer.stop()
    with timer:
        clock.now += 1.0
        with timer:
            clock.now += 1.0
        clock.now += 1.0
    assert timer.total_s == 3.0
    timer.start()
    clock.now += 100.0
    timer.start()
    clock.now += 1.0
    timer.stop()
    assert (timer.total_s, timer.count, timer.running) == (4.0, 2, False)
    assert ["without being started" in said[0], "inside itself" in said[1], "started again" in said[2]] == [True] * 3
    assert all("'forward'" in line for line in said)


def test_exception_inside_stops_and_marks(all_levels: Timers, clock: Time, said: list[str]) -> None:
    """What an exception cut short is counted as interrupted, and no part of the time; the exception goes on."""
    timer = cpu(all_levels.get("backward"))
    interval, before = all_levels.interval(), all_levels.interval()

    def fail() -> None:
        clock.now += 5.0
        raise ValueError("nan")

    with pytest.raises(ValueError, match="nan"), timer:
        fail()
    assert timers.values(all_levels.interval().take(), 2) == {}
    assert timers.values(before.take(), 2) == {"backward-interrupted": 1}
    with timer:
        clock.now += 1.0
    assert (timer.total_s, timer.count, timer.interrupted, timer.running) == (1.0, 1, 1, False)
    found = timers.values(interval.take(), 2)
    assert found == {"backward-time": 0.5, "backward-interrupted": 1}
    assert said == []


def test_unknown_words_are_errors_before_training_and_said_after(all_levels: Timers, said: list[str]) -> None:
    """A wrong level is an error where timers are made; a wrong device is said where one is used, in training."""
    with pytest.raises(UsageError, match="timing level 3"):
        Timers(3)
    cpu(all_levels.get("a", device="tpu"))
    assert "'tpu' is unknown" in said[0]
    for name, level in (("b", "high"), ("b", None), (["b"], 0)):
        assert all_levels.get(name, level) is NULL  # type: ignore[arg-type]
    assert ["give a name, and a level of 0, 1 or 2" in line for line in said[1:]] == [True] * 3


def test_device_cuda_without_cuda_says_why(
    all_levels: Timers, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU time where no GPU is in use, or no torch installed, is said, and the processor's clock measures."""
    cpu(all_levels.get("a", device="cuda"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cpu(all_levels.get("b", device="cuda"))
    assert "once the model is on the GPU" in said[0]
    assert "pip install 'trackers-relay[torch]'" in said[1]


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instrument that needs torch says which extra brings it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackage, match=r"norms needs torch: pip install 'trackers-relay\[torch\]'"):
        torch_for("norms")


def test_gpu_time_is_read_later_and_nothing_waits(all_levels: Timers, cuda: Cuda) -> None:
    """On a GPU the time between two events is taken when the GPU has passed them; ``synchronize`` is never called."""
    timer = all_levels.get("forward", level=1)
    interval = all_levels.interval()
    for milliseconds in (10.0, 20.0):
        with timer:
            cuda.work(milliseconds)
    span = interval.take()["forward"]
    found = timers.values({"forward": span}, 2)
    later = found["forward-time"]
    assert isinstance(later, DeferredNumber)
    assert not later.ready()
    with timer:  # belongs to the next interval
        cuda.work(70.0)
    cuda.run(15.0)
    assert not later.ready()
    cuda.run()
    assert later.ready()
    assert later.value() == pytest.approx(0.015)
    assert interval.take()["forward"].elapsed_s == pytest.approx(0.070)
    assert cuda.synchronized == 0


def test_gpu_timer_that_runs_is_split_at_the_reading(all_levels: Timers, cuda: Cuda) -> None:
    """A GPU timer read while it runs has what the GPU did so far in this interval and the rest in the next."""
    timer = all_levels.get("interval-time")
    assert not isinstance(timer, timers.NullTimer)
    interval = all_levels.interval()
    timer.start()
    cuda.work(30.0)
    first = interval.take()
    cuda.work(12.0)
    timer.stop()
    second = interval.take()
    cuda.run()
    assert first["interval-time"].elapsed_s == pytest.approx(0.030)
    assert second["interval-time"].elapsed_s == pytest.approx(0.012)
    assert (first["interval-time"].count, second["interval-time"].count) == (0, 1)


def test_gpu_timer_is_bounded_and_reuses_its_events(
    all_levels: Timers, cuda: Cuda, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that never answers costs no more than so many events; one that answers has its events used again."""
    monkeypatch.setattr(timers, "MAX_PENDING", 8)
    timer = all_levels.get("forward")
    for _ in range(100):
        with timer:
            cuda.work(1.0)
    assert "8 measurements wait" in said[0]
    assert cuda.made <= 18
    cuda.run()
    made = cuda.made
    for _ in range(100):
        with timer:
            cuda.work(1.0)
        cuda.run()
        timer.drain()  # type: ignore[union-attr]
    assert cuda.made == made
    assert timer.count == 108


def test_gpu_timer_stands_back_while_a_graph_is_captured(all_levels: Timers, cuda: Cuda, said: list[str]) -> None:
    """No event goes into a CUDA graph; it is said, and later measurements count."""
    timer = all_levels.get("forward")
    interval = all_levels.interval()
    with timer:
        cuda.work(3.0)
    cuda.capturing = True
    with timer:
        pass
    assert not interval.take()["forward"].ready  # asks nothing: that would end the capture
    cuda.capturing = False
    with timer:
        cuda.work(5.0)
    cuda.run()
    timer.drain()  # type: ignore[union-attr]
    assert "CUDA graph" in said[0]
    assert (timer.count, timer.total_s) == (2, pytest.approx(0.008))


def test_interrupted_gpu_timer_is_marked(all_levels: Timers, cuda: Cuda) -> None:
    """An exception inside stops a GPU timer too: no time is added, and the next measurement is right."""
    timer = all_levels.get("forward")
    with pytest.raises(ValueError, match="nan"), timer:
        raise ValueError("nan")
    with timer:
        cuda.work(5.0)
    cuda.run()
    timer.drain()  # type: ignore[union-attr]
    assert (timer.count, timer.interrupted, timer.total_s) == (1, 1, pytest.approx(0.005))


def test_sync_waits_as_megatron_does(cuda: Cuda, clock: Time, said: list[str]) -> None:
    """With ``sync`` the GPU is waited for at the start and the stop, and the processor's clock measures; a graph that
    is captured is left alone, for waiting would end the capture."""
    timer = Timers(2, sync=True, say=said.append).get("forward")
    with timer:
        clock.now += 4.0
    assert (timer.total_s, cuda.synchronized) == (4.0, 2)
    cuda.capturing = True
    with timer:
        clock.now += 1.0
    assert (timer.total_s, cuda.synchronized) == (5.0, 2)
    assert said[0] == "timer 'forward' doesn't wait for the GPU: a CUDA graph is captured"


def test_gpu_timer_may_be_used_on_several_gpus(all_levels: Timers, cuda: Cuda, said: list[str]) -> None:
    """Events belong to their GPU: one that is free again serves on its own alone; between two GPUs there is no time."""
    timer = all_levels.get("stage")
    for device in (0, 1, 0, 1):
        cuda.device = device
        with timer:
            cuda.work(5.0)
        cuda.run()
        timer.drain()  # type: ignore[union-attr]
    assert (timer.count, timer.total_s, said) == (4, pytest.approx(0.020), [])
    with timer:
        cuda.device = 0
    cuda.run()
    timer.drain()  # type: ignore[union-attr]
    assert (timer.count, said) == (4, ["timer 'stage' couldn't be read: Events are of different devices."])


@pytest.mark.parametrize("sync", [False, True])
def test_forked_worker_and_failed_gpu_do_not_reach_training(sync: bool, cuda: Cuda, said: list[str]) -> None:
    """Where CUDA can't be asked (a data loader's worker, a failed GPU) a timer says so and raises nothing."""
    found = Timers(2, sync=sync, say=said.append)
    timer, interval = found.get("collate"), found.interval()
    cuda.error = "Cannot re-initialize CUDA in forked subprocess."
    with timer:
        pass
    timer.start()
    timer.stop()
    interval.take()
    assert said
    assert all("Cannot re-initialize CUDA" in line for line in said)


def test_gpu_timer_that_was_not_used_has_no_value(all_levels: Timers, cuda: Cuda) -> None:
    """A GPU that is behind gives no zero for an interval in which the timer wasn't used at all."""
    interval = all_levels.interval()
    with all_levels.get("checkpoint"):
        cuda.work(5.0)
    assert list(interval.take()) == ["checkpoint"]
    assert interval.take() == {}


TIMES = {"forward-backward": [1.234, None, 10.0], "optimizer": [None, None, None], "all-grads-sync": [0.0, 5.5, 2.0]}


def test_report_has_megatrons_words() -> None:
    """Header, padding with dots to 48, two decimals; a rank that measured nothing is left out, a zero isn't."""
    assert report(TIMES, "max").splitlines() == [
        "max time across ranks (ms):",
        "    forward-backward ...............................: 10.00",
        "    all-grads-sync .................................: 5.50",
    ]
    assert report(TIMES, "minmax").splitlines() == [
        "(min, max) time across ranks (ms):",
        "    forward-backward ...............................: (1.23, 10.00)",
        "    all-grads-sync .................................: (0.00, 5.50)",
    ]
    assert report(TIMES, "all").splitlines() == [
        "times across ranks (ms):",
        "  forward-backward:",
        "     rank  0: 1.23",
        "     rank  2: 10.00",
        "  all-grads-sync:",
        "     rank  0: 0.00",
        "     rank  1: 5.50",
        "     rank  2: 2.00",
    ]
    assert report({"optimizer": [None]}) == ""
    with pytest.raises(UsageError, match="known are max, minmax and all"):
        report(TIMES, "mean")


@pytest.mark.parametrize("first", [0, 1])
def test_run_logs_its_timers_in_seconds_per_step(first: int, run: Run, clock: Time) -> None:
    """A run's timers reach the trackers by themselves: what was measured, divided by the steps, nothing twice."""
    for step in range(first, first + 10):
        with run.timer("forward", level=1):
            clock.now += 0.5
        with run.timer("batch-generator", level=2):
            clock.now += 0.125
        run.log({"loss": 1.0}, step=step)
    run.finish()
    found = [(step, values) for step, values in logged(run) if "loss" not in values]
    steps, total = first - 1, 0.0
    for step, values in found:
        assert step is not None
        total += values["forward-time"] * (step - steps)
        steps = step
    assert (found[0][0], steps) == (first, first + 9)
    assert total == pytest.approx(5.0)
    assert all(values["batch-generator-time"] == pytest.approx(0.125) for _, values in found)
    assert len(found) < 10


def test_run_logs_a_gpus_times_at_the_step_they_belong_to(run: Run, cuda: Cuda) -> None:
    """A time that the GPU hasn't reached yet is recorded when it is known, at the step it was measured in."""
    run.log({"loss": 1.0}, step=0)
    timer = run.timer("forward")
    interval = run.timers.interval()
    with timer:
        cuda.work(8.0)
    run.log(timers.values(interval.take(), 1), step=5)
    run.log({"loss": 2.0}, step=6)
    assert [step for step, _ in logged(run)] == [0]
    cuda.run()
    run.log({"loss": 3.0}, step=7)
    assert logged(run)[1] == (5, {"forward-time": pytest.approx(0.008)})
    assert [step for step, _ in logged(run)] == [0, 5, 6, 7]


@pytest.mark.parametrize(("option", "extra"), [("max", []), ("minmax", ["-min"]), ("all", ["-ranks"])])
def test_ranks_log_their_timers_at_the_same_steps(option: str, extra: list[str], clock: Time) -> None:
    """With several ranks the steps decide when, not the clock, so that all ranks' values meet; each option's values."""
    logs: list[list[tuple[int, dict[str, Any]]]] = []
    for pace_s in (0.001, 7.0):
        own: list[tuple[int, dict[str, Any]]] = []
        found, step = Timers(2), [-1]
        log = timers.TimerLog(
            found, lambda values, step, own=own: own.append((step, values)), lambda step=step: step[0], option, 2, 4
        )  # fmt: skip
        for number in range(1, 11):
            with found.get("forward"):
                clock.now += pace_s
            step[0] = number
        log.close()
        logs.append(own)
    quick, slow = logs
    assert [step for step, _ in quick] == [step for step, _ in slow] == [1, 4, 8, 10]
    for (_, one), (_, other) in zip(quick, slow, strict=True):
        assert set(one) == set(other) == {"forward-time", *(f"forward-time{end}" for end in extra)}
        into: dict[str, Any] = {}
        for name in one:
            kind = type(one[name])
            kind.reduce(into, name, [0, 1], list(zip(one[name].parts, other[name].parts, strict=True)))
        assert into["forward-time"] == pytest.approx(7.0)
        if option == "minmax":
            assert into["forward-time-min"] == pytest.approx(0.001)
        if option == "all":
            ranks = [into[f"forward-time-ranks/rank_{rank}"] for rank in (0, 1)]
            assert ranks == [pytest.approx(0.001), pytest.approx(7.0)]


def test_log_timers_off_leaves_them_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TRACKER_LOG_TIMERS=n timers measure and nobody logs them."""
    options = {"TRACKER_LOG_TIMERS": False, "TRACKER_RELAY": False}
    run = trackers.init("json", project="p", mode="offline", options=options)
    assert isinstance(run, Run)
    interval = run.timers.interval()
    with run.timer("forward"):
        run.log({"loss": 1.0}, step=1)
    assert interval.take()["forward"].count == 1
    run.finish()
    assert [values for _, values in logged(run)] == [{"loss": 1.0}]


def test_disabled_run_has_timers_that_measure_nothing() -> None:
    """A run that records nothing takes the same calls."""
    run = trackers.init("none")
    with run.timer("forward", level=0):
        pass
    assert run.timer("forward") is NULL
    assert list(run.timers) == []
