"""One object for a training loop: what it logs, when, and that it neither waits nor stops training."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import trackers
from tests.helpers import Time
from tests.instruments.test_norms import NothingWaits
from trackers.errors import UsageError
from trackers.instruments import clock as clocks
from trackers.instruments import loop as loops
from trackers.instruments import peaks
from trackers.instruments import timers as timer_module
from trackers.instruments.loop import Loop
from trackers.instruments.options import Measure
from trackers.instruments.plan import LoopPlan
from trackers.instruments.timers import NULL, Timers
from trackers.records import Metrics
from trackers.training.run import Run


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time(50.0)
    monkeypatch.setattr(timer_module, "time", time)
    monkeypatch.setattr(loops, "time", time)
    return time


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def logged() -> list[tuple[int, dict[str, Any]]]:
    return []


@pytest.fixture
def make(logged: list[Any], said: list[str]) -> Any:
    def make(timers: Timers | None = None, interval: int = 5, **arguments: Any) -> Loop:
        measure, plan = (
            {
                name: arguments.pop(name)
                for name in [field.name for field in dataclasses.fields(kind)]
                if name in arguments
            }
            for kind in (Measure, LoopPlan)
        )

        def log(values: dict[str, Any], step: int) -> None:
            logged.append((step, values))

        measured = Measure(interval=interval, **measure)
        return Loop(log, said.append, measured, timers or Timers(2), LoopPlan(**plan), **arguments)

    return make


def journal(run: Run) -> list[tuple[int | None, dict[str, Any]]]:
    return [(r.step, r.values) for r in run._recorder.logged() if isinstance(r, Metrics)]


def test_iteration_time_is_that_of_training_steps(make: Any, time: Time, logged: list[Any]) -> None:
    """Each fifth step has the mean time of a step; the first, the evaluation and the rest at the end are apart."""
    loop = make()
    for step in range(1, 13):
        time.now += 30.0 if step == 1 else 0.5
        loop.step()
        if step == 7:
            with loop.pause("evaluation"):
                time.now += 9.0
    loop.close()
    assert logged == [
        (1, {"first-step-time": 30.0}),
        (5, {"iteration-time": 0.5}),
        (7, {"evaluation-time": 9.0}),
        (10, {"iteration-time": 0.5}),
        (12, {"iteration-time": 0.5}),
    ]


def test_timers_are_per_step_of_their_interval(make: Any, time: Time, logged: list[Any]) -> None:
    """A timer used twice a step counts twice in it; the first step is on its own."""
    timers = Timers(1)
    loop = make(timers)
    for _ in range(5):
        for _ in range(2):
            with timers.get("forward", level=1):
                time.now += 0.25
        with timers.get("too-fine", level=2):
            time.now += 0.1
        loop.step()
    assert logged[0][1]["forward-time"] == 0.5
    assert logged[1] == (5, {"iteration-time": pytest.approx(0.6), "forward-time": 0.5})


def test_last_step_is_always_logged_and_level_minus_one_has_no_times(make: Any, time: Time, logged: list[Any]) -> None:
    """Training that ends between two intervals has its last values; without timers there is no iteration time."""
    loop = make(Timers(-1), interval=100, total_steps=3, throughput=True, samples_per_step=4)
    for _ in range(3):
        time.now += 0.5
        loop.step()
    assert [step for step, _ in logged] == [1, 3]
    assert logged[1][1]["throughput/samples_per_sec"] == pytest.approx(8.0)
    assert "iteration-time" not in logged[1][1]


@pytest.mark.parametrize(
    ("interval", "steps"), [(0, [10, 20, 25]), (4, [4, 8, 12, 16, 20, 24, 25]), (15, [15, 25]), (20, [20, 25])]
)
def test_memory_has_an_interval_of_its_own(
    interval: int, steps: list[int], make: Any, time: Time, logged: list[Any], said: list[str]
) -> None:
    """Memory is logged each so many steps, whatever else is measured then, and at the last; 0: with the rest."""
    loop = make(interval=10, memory=True, memory_interval=interval, total_steps=25)
    for _ in range(25):
        time.now += 1.0
        loop.step()
    assert [step for step, values in logged if "memory/process-gigabytes" in values] == steps
    assert [step for step, values in logged if "iteration-time" in values] == [10, 20, 25]
    assert said == []


@pytest.mark.parametrize(("given", "peak"), [(None, 989.4), (500.0, 500.0)])
def test_utilisation_is_of_the_devices_peak(
    given: float | None, peak: float, make: Any, time: Time, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's for the model's precision, unless an option sets it."""
    h100 = SimpleNamespace(get_device_name=lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(peaks, "cuda_in_use", lambda: h100)
    model = nn.Linear(2, 2, dtype=torch.bfloat16)
    loop = make(interval=1, throughput=True, flops_per_step=4e12, model=model, ranks=2, peak_tflops=given)
    for _ in range(2):
        time.now += 1.0
        loop.step()
    assert logged[-1][1]["throughput/device/mfu"] == pytest.approx(2 / peak)


def test_resumed_loop_counts_on(make: Any, time: Time, logged: list[Any]) -> None:
    """Steps, samples and tokens go on from the checkpoint; the remaining time is that of the steps that are left."""
    loop = make(start_step=95, total_steps=105, samples_per_step=8, tokens_per_step=800, runtime=True,
                runtime_unit="seconds")  # fmt: skip
    for step in range(5):
        time.now += 20.0 if step == 0 else 2.0
        loop.step(samples=4 if step == 4 else None)
    assert logged[-1] == (
        100,
        {
            "iteration-time": 2.0,
            "time/remaining_estimate": pytest.approx(10.0),
            "time/total": 28.0,
            "time/batches": 100,
            "time/samples": 99 * 8 + 4,
            "time/tokens": 80_000,
        },
    )


def test_world_size_that_changed_is_counted(make: Any, time: Time, logged: list[Any]) -> None:
    """What went through before a resume is said, not derived from the batch of now; the device's share is of now."""
    loop = make(interval=2, start_step=10, total_steps=20, samples_per_step=64, consumed_samples=160, ranks=4,
                runtime=True, throughput=True)  # fmt: skip
    for _ in range(4):
        time.now += 1.0
        loop.step()
    found = logged[-1][1]
    assert found["time/samples"] == 160 + 4 * 64
    assert found["throughput/device/samples_per_sec"] == pytest.approx(16.0)


def test_ending_alone_asks_no_other_rank(make: Any, logged: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end, which may be one rank's own, the rest is logged without what needs every rank."""
    model = nn.Linear(2, 1)
    loop = make(interval=10, model=model, norms=True)
    for _ in range(3):
        loop.step()

    asked: list[str] = []
    for what in ("parameters", "gradients"):
        monkeypatch.setattr(loop._norms, what, lambda what=what: asked.append(what) or {})
    loop.close()
    assert asked == []
    assert (logged[-1][0], set(logged[-1][1])) == (3, {"iteration-time"})


def test_ranks_of_a_resumed_run_must_be_told_where_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the main rank knows a run's history: with several, the step is asked for; alone, it is known."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    first = trackers.init("json", project="p", id="mine", mode="offline")
    first.log({"loss": 1.0}, step=41)
    first.finish()
    run = trackers.init("json", project="p", id="mine", mode="offline", resume="must")
    assert run.loop().steps == 41
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match=r"goes on after step 41.* give start_step .* on every rank"):
        run.loop()
    assert run.loop(start_step=41).steps == 41
    run.finish()


def test_gradients_are_those_that_the_optimizer_got(make: Any, logged: list[Any]) -> None:
    """Gradient norms are taken at the optimizer's step, though cleared before ``loop.step``."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = make(interval=2, model=model, optimizer=optimizer, norms=True, zeros=True, layer_norms=True)
    expected = {}
    for step in range(1, 5):
        model(torch.randn(2, 4)).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        expected[step] = float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loop.step()
        if step > 1 and step % 2 == 0:
            params = float(nn.utils.get_total_norm([p.detach() for p in model.parameters()]))
            found = logged[-1][1]
            assert logged[-1][0] == step
            assert float(found["grad-norm"]) == pytest.approx(expected[step])
            assert float(found["params-norm"]) == pytest.approx(params)
            assert {"num-zeros", "l2_norm/grad/weight", "l2_norm/grad/global", "l2_norm/param/bias"} <= set(found)
    loop.close()
    assert not optimizer._optimizer_step_pre_hooks


def test_gradients_are_those_before_the_first_of_several_optimizers(make: Any, logged: list[Any]) -> None:
    """What an earlier optimizer's gradients were stays, though they are cleared before the next one steps."""
    one, other = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    optimizers = [torch.optim.SGD(model.parameters()) for model in (one, other)]
    loop = make(interval=1, model=[one, other], optimizer=optimizers, norms=True)
    for _ in range(2):
        one.weight.grad, other.weight.grad = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 12.0]])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        loop.step()
    assert float(logged[-1][1]["grad-norm"]) == pytest.approx(13.0)


@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_gradients_are_those_of_the_loss_that_a_scaler_scales(
    fused: bool, unscaled: bool, make: Any, logged: list[Any]
) -> None:
    """With torch's GradScaler norms are of the gradients themselves, where a fused optimizer gets scaled ones, too."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loop = make(interval=1, model=model, optimizer=optimizer, norms=True, layer_norms=True, zeros=True)
    for _ in range(2):
        inputs = torch.ones(2, 4)
        optimizer.zero_grad()
        expected = torch.autograd.grad(model(inputs).square().mean(), list(model.parameters()))
        scaler.scale(model(inputs).square().mean()).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        loop.step()
    found = logged[-1][1]
    assert float(found["grad-norm"]) == pytest.approx(float(nn.utils.get_total_norm(expected)))
    assert found["l2_norm/grad/bias"] == pytest.approx(float(expected[1].norm()))
    assert found["num-zeros"] == 0


def test_without_an_optimizer_gradients_are_those_at_the_step(make: Any, logged: list[Any]) -> None:
    """A loop that isn't told of the optimizer looks when it is told of the step."""
    model = nn.Linear(2, 1, bias=False)
    loop = make(interval=1, model=model, norms=True)
    for _ in range(2):
        model.weight.grad = torch.tensor([[3.0, 4.0]])
        loop.step()
    assert float(logged[-1][1]["grad-norm"]) == pytest.approx(5.0)


def test_optimizer_without_hooks_is_said(make: Any, logged: list[Any], said: list[str]) -> None:
    """A wrapper that takes no hooks, or steps without them, costs no norm: gradients are those at the step."""

    class Wrapper:
        pass

    model = nn.Linear(2, 1, bias=False)
    loop = make(interval=1, model=model, optimizer=[Wrapper(), torch.optim.SGD(model.parameters())], norms=True)
    for _ in range(2):
        model.weight.grad = torch.tensor([[3.0, 4.0]])
        loop.step()
    assert float(logged[-1][1]["grad-norm"]) == pytest.approx(5.0)
    assert said == ["loop: Wrapper takes no hooks: gradients are looked at in loop.step()"]


def test_everything_on_adds_no_wait(make: Any, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """Training with every instrument on: not one operation of ours reads a value or copies between devices."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
    timers = Timers(2)
    loop = make(
        timers, interval=1, total_steps=4, samples_per_step=2, tokens_per_step=8, flops_per_token=10.0, model=model,
        optimizer=optimizer, throughput=True, runtime=True, memory=True, norms=True, zeros=True,
    )  # fmt: skip
    hooks = list(optimizer._optimizer_step_pre_hooks.values())
    for _ in range(4):
        with timers.get("forward", level=1):
            loss = model(torch.randn(2, 4)).sum()
        loss.backward()
        with NothingWaits():
            for hook in hooks:
                hook(optimizer, (), {})
        optimizer.step()
        with NothingWaits():
            loop.step()
    assert said == []


def test_fault_of_an_instrument_is_said_once_and_it_is_left_out(
    make: Any, time: Time, logged: list[Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instrument that fails stops neither training nor the others, and isn't tried for ever."""

    def fail() -> None:
        raise RuntimeError("driver gone")

    loop = make(interval=1, memory=True)
    monkeypatch.setattr(loop, "_memory", SimpleNamespace(values=fail))
    for _ in range(4):
        time.now += 1.0
        loop.step()
    assert said == ["loop: memory can't be measured (RuntimeError: driver gone); left out from now on"]
    assert [values.get("iteration-time") for _, values in logged] == [None, 1.0, 1.0, 1.0]


def test_log_that_fails_does_not_stop_training(said: list[str], time: Time) -> None:
    """Whatever happens in ``step`` is said; training goes on."""

    def log(values: dict[str, Any], step: int) -> None:
        raise OSError("disk full")

    loop = Loop(log, said.append, Measure(interval=1), Timers(0))
    loop.step()
    loop.step()
    assert said == ["loop: OSError: disk full"] * 2


def test_run_makes_a_loop_from_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags switch instruments on, arguments are stronger; the rest is logged at finish."""
    options = {"TRACKER_LOG_THROUGHPUT": True, "TRACKER_LOG_MEMORY": True, "TRACKER_MEASURE_INTERVAL": 2,
               "TRACKER_RELAY": False, "TRACKER_TIMING_LEVEL": 1}  # fmt: skip
    run = trackers.init("json", project="p", mode="offline", options=options)
    assert isinstance(run, Run)
    loop = run.loop(total_steps=10, tokens_per_step=64, memory=False, runtime=True)
    for step in range(1, 6):
        with run.timer("forward", level=1):
            run.log({"train_loss": 1.0 / step}, step=step)
        loop.step()
    run.finish()
    found = [(step, values) for step, values in journal(run) if "train_loss" not in values]
    assert [step for step, _ in found] == [1, 2, 4, 5]
    assert {"first-step-time", "forward-time"} == set(found[0][1])
    for _, values in found[1:]:
        assert {"iteration-time", "forward-time", "throughput/tokens_per_sec", "time/remaining_estimate"} <= set(values)
        assert not any(name.startswith("memory/") for name in values)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"TRACKER_LOG_NORMS": True}, "loop: norms aren't measured: give run.loop model="),
        ({"TRACKER_LOG_ZEROS": True}, "loop: norms aren't measured: give run.loop model="),
        ({"TRACKER_LOG_RUNTIME": True}, "loop: the remaining time isn't known: give run.loop total_steps="),
        ({"TRACKER_TENSOR_INSPECT": "a.yaml"},
         "loop: TRACKER_TENSOR_INSPECT looks at nothing yet: give run.loop or run.inspect model="),
        ({}, None),
    ],
)  # fmt: skip
def test_measurement_that_lacks_what_it_needs_is_said(
    options: dict[str, Any], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an option asks for and the loop wasn't given the means for is one line, with what to give."""
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False, **options})
    capsys.readouterr()
    run.loop().step()
    found = [line for line in capsys.readouterr().err.splitlines() if "loop: " in line]
    assert [line.partition("trackers: ")[2] for line in found] == ([] if said is None else [said])
    run.finish()


def test_unknown_measurement_is_an_error(run: Run) -> None:
    """A misspelt instrument, a bad interval, option or unit is an error where the loop is made."""
    with pytest.raises(UsageError, match=r"loop: throughputs can't be measured; known are counts, energy, interval"):
        run.loop(throughputs=True)
    with pytest.raises(UsageError, match="interval=0"):
        run.loop(interval=0)
    with pytest.raises(UsageError, match="timing option 'mean'"):
        run.loop(timing_option="mean")
    with pytest.raises(UsageError, match="runtime unit 'weeks'"):
        run.loop(runtime_unit="weeks")
    with pytest.raises(UsageError, match="interval='2'"):
        run.loop(interval="2")
    with pytest.raises(UsageError, match="total_steps='10': give a number, 0 or more"):
        run.loop("10")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="samples_per_step=-1: give a number"):
        run.loop(samples_per_step=-1)
    with pytest.raises(UsageError, match="precision 'int3': known are"):
        run.loop(precision="int3")
    with pytest.raises(UsageError, match=r"chunk 1 of the model is NoneType: give a torch\.nn\.Module"):
        run.loop(norms=True, model=[nn.Linear(2, 2), None])


def test_second_loop_ends_the_first(run: Run) -> None:
    """A run has one loop at a time: the former's last values are logged."""
    first = run.loop(interval=10)
    for _ in range(3):
        first.step()
    run.loop(interval=10, start_step=3)
    assert [step for step, _ in journal(run)] == [1, 3]


def test_disabled_run_has_a_loop_that_measures_nothing() -> None:
    """Where nothing is recorded, the same calls do nothing."""
    loop = trackers.init("none").loop(total_steps=10, model=object(), norms=True)
    with loop.pause("evaluation"), loop.timer("forward"):
        loop.step()
    assert loop.steps == 1
    assert loop.timer("forward") is NULL
    loop.close()


def test_clock_is_the_timers() -> None:
    """The training clock measures as timers do: by the same code, on the GPU or not."""
    assert type(clocks.TrainingClock("cpu")._timer) is timer_module.Timer
