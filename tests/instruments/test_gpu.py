"""Instruments on a real GPU: ``make gpu-check``. Nothing waits for it, by torch's own check and by the profiler's word.

Skipped where there is none. What can be shown without a GPU is shown in the instruments' other tests, above stand-ins
for torch's events and below a dispatch mode that fails at whatever would wait.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers import Max, Mean
from trackers.instruments.energy import own_gpu
from trackers.instruments.memory import KEYS, MemoryReader
from trackers.instruments.norms import Norms
from trackers.instruments.timers import Timers
from trackers.training.run import Run

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

WAITS = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaStreamWaitValue32",
)
"""The driver's calls that make the host wait, as the profiler names them (on ROCm: hip…)."""
EVERYTHING: dict[str, Any] = {
    "throughput": True, "runtime": True, "memory": True, "norms": True, "layer_norms": True, "zeros": True,
    "world_size": True, "energy": True, "interval": 1,
}  # fmt: skip
STEPS = 20


@pytest.fixture(autouse=True)
def _errors_off() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def run() -> Iterator[Run]:
    """A run that only writes its journal, with every timer on."""
    run = trackers.init(
        "json", project="p", mode="offline", options={"TRACKER_RELAY": False, "TRACKER_TIMING_LEVEL": 2}
    )
    assert isinstance(run, Run)
    yield run
    torch.cuda.set_sync_debug_mode("default")
    run.finish()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of NCCL's of this process alone: its collectives run as any."""
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def logged(run: Run) -> dict[str, dict[int, float]]:
    """Values by name and step, as the journal has them after the end."""
    found: dict[str, dict[int, float]] = {}
    for line in Path(run.dir, "streams/rank-0.1.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "metrics":
            for name, value in record["values"].items():
                found.setdefault(name, {})[record["step"]] = value
    return found


def training() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, device="cuda") for _ in range(8)))
    return model, torch.optim.AdamW(model.parameters(), fused=True), torch.randn(256, 512, device="cuda")


def measured_steps(run: Run | None) -> Callable[[int], None]:
    """A training of so many steps; with a run it measures and logs everything each step."""
    model, optimizer, batch = training()
    loop = None
    if run is not None:
        loop = run.loop(10**6, samples_per_step=256, tokens_per_step=256, flops_per_step=1e9, model=model,
                        optimizer=optimizer, **EVERYTHING)  # fmt: skip

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if run is not None and loop is not None:
            loop.step()
            run.log({"loss": loss, "half": loss.bfloat16(), "norm": Max(norm), "mean": Mean(loss, 1)}, step=loop.steps)

    def steps(count: int) -> None:
        for _ in range(count):
            if run is None:
                step()
                continue
            with run.timer("step", level=1), run.communication("gradient_sync", bytes=1024):
                step()

    return steps


def waits(steps: Callable[[int], None]) -> Counter[str]:
    """How often each waiting call of the driver was made, as the profiler saw it."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        steps(STEPS)
    names = (event.name.replace("hip", "cuda", 1) for event in profile.events())
    return Counter(name for name in names if name in WAITS)


Record = Callable[[str, object], None]
"""Keeps a figure by its name: ``make gpu-check`` prints it and puts it into its capture."""


def test_everything_on_synchronises_nothing(run: Run, record_property: Record) -> None:
    """Training with every instrument on, each step, under torch's own error for whatever waits for the device."""
    steps = measured_steps(run)
    steps(5)  # allocations, and whatever libraries do at first
    torch.cuda.set_sync_debug_mode("error")
    begun = time.perf_counter()
    steps(STEPS)
    on_s = time.perf_counter() - begun
    torch.cuda.set_sync_debug_mode("default")
    run.finish()
    alone = measured_steps(None)
    alone(5)
    begun = time.perf_counter()
    alone(STEPS)
    alone_s = time.perf_counter() - begun
    record_property("a step's host time without and with every instrument, ms",
                    f"{alone_s / STEPS * 1e3:.3f} and {on_s / STEPS * 1e3:.3f}")  # fmt: skip
    found = logged(run)
    last = max(found["loss"])
    assert last == 5 + STEPS
    for name in ("loss", "half", "norm", "mean", "grad-norm", "params-norm", "num-zeros", "l2_norm/grad/global",
                 "l2_norm/grad/0.weight", "iteration-time", "step-time", "throughput/batches_per_sec",
                 "throughput/tflops/device", "time/remaining_estimate", "memory/mem-allocated-gigabytes",
                 "communication/gradient_sync/duration_ms", "world-size"):  # fmt: skip
        assert found[name][last] is not None, name
    assert found["half"][last] == pytest.approx(found["loss"][last], rel=1e-2)
    assert found["grad-norm"][last] == pytest.approx(min(1.0, found["norm"][last]), rel=1e-3)
    assert 0 < found["iteration-time"][last] < 10


def test_profiler_sees_no_wait_more_than_without(run: Run, record_property: Record) -> None:
    """The driver's waiting calls in twenty steps with everything on are those of twenty steps alone."""
    alone, on = measured_steps(None), measured_steps(run)
    alone(5)
    on(5)
    with_us, without = waits(on), waits(alone)
    record_property(f"waits in {STEPS} steps without and with every instrument", f"{dict(without)} and {dict(with_us)}")
    assert with_us == without


def test_the_checks_see_a_wait() -> None:
    """The proofs above can fail: a value that is read is an error of torch's and a call in the profile."""
    steps = measured_steps(None)
    value = torch.ones((), device="cuda")

    def reading(count: int) -> None:
        for _ in range(count):
            value.item()

    steps(5)
    more = waits(reading)
    more.subtract(waits(lambda count: None))
    assert sum(more.values()) >= STEPS
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="synchron"):
        value.item()


def test_timer_is_the_gpus_time(record_property: Record) -> None:
    """A timer's seconds lie between those of events just inside and just outside of it."""
    timer = Timers(2).get("work")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    matrix = torch.randn(4096, 4096, device="cuda")
    events[0].record()
    with timer:
        events[1].record()
        for _ in range(20):
            matrix @ matrix
        events[2].record()
    events[3].record()
    assert timer.total_s == 0.0  # not read yet
    torch.cuda.synchronize()
    timer.drain()  # type: ignore[union-attr]
    inside, outside = (events[first].elapsed_time(events[last]) / 1000 for first, last in ((1, 2), (0, 3)))
    record_property("a timer, between events just inside and outside of it, ms",
                    f"{timer.total_s * 1e3:.4f}, {inside * 1e3:.4f} and {outside * 1e3:.4f}")  # fmt: skip
    assert inside <= timer.total_s * 1.0001
    assert timer.total_s <= outside * 1.0001


def test_capture_of_a_graph_goes_on(run: Run) -> None:
    """Timers, collectives and ``log`` in code that is captured into a CUDA graph harm neither capture nor replay."""
    value, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    run.log({"before": value.sum()}, step=0)
    with run.timer("captured"):
        value.sum()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), run.timer("captured"), run.communication("sync", bytes=8):
        out.copy_(value * 2)
        run.log({"inside": out.sum(), "plain": 1.0, "worst": Max(out.sum())}, step=1)
    value.fill_(3.0)
    graph.replay()
    run.log({"after": out.sum()}, step=2)
    run.finish()
    found = logged(run)
    assert (found["before"], found["plain"], found["after"]) == ({0: 8.0}, {1: 1.0}, {2: 48.0})
    assert "inside" not in found
    assert "communication/sync/count" not in found


def test_values_of_other_streams_are_those_of_the_call(run: Run) -> None:
    """Logged on a stream of its own, behind work that isn't done, and changed in place right after the call."""
    for device in range(torch.cuda.device_count()):
        stream, value = torch.cuda.Stream(device), torch.zeros((), device=f"cuda:{device}")
        torch.cuda.synchronize(device)
        with torch.cuda.stream(stream):
            for step in range(10):
                torch.cuda._sleep(2_000_000)
                value += 1
                run.log({f"stream_{device}": value, f"half_{device}": value.half() / 2}, step=step)
    run.finish()
    found = logged(run)
    for device in range(torch.cuda.device_count()):
        assert found[f"stream_{device}"] == {step: step + 1.0 for step in range(10)}
        assert found[f"half_{device}"] == {step: (step + 1) / 2 for step in range(10)}


def test_values_of_a_replayed_graph_are_each_replays(run: Run) -> None:
    """A captured graph writes to one place each time: what is logged after a replay is that replay's."""
    value, out = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value.add_(1)
        out.copy_(value * 3)
    for step in range(20):
        graph.replay()
        run.log({"out": out}, step=step)
    run.finish()
    first = logged(run)["out"][0]
    assert logged(run)["out"] == {step: first + 3.0 * step for step in range(20)}


def test_utilisation_is_that_of_a_known_product(run: Run, record_property: Record) -> None:
    """throughput/device/mfu of matrix products is their operations over the time between CUDA's events."""
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    flops, peak = 20 * 2.0 * 8192**3, 1000.0
    loop = run.loop(40, flops_per_step=flops, throughput=True, interval=10, peak_tflops=peak)
    for _ in range(10):
        for _ in range(20):
            matrix @ matrix
        loop.step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    for _ in range(10):
        for _ in range(20):
            matrix @ matrix
        loop.step()
    events[1].record()
    torch.cuda.synchronize()
    run.finish()
    found = logged(run)["throughput/device/mfu"]
    by_events = flops * 10 / (events[0].elapsed_time(events[1]) / 1000) / (peak * 1e12)
    record_property("MFU by the loop and by events", f"{found[max(found)]:.4f} and {by_events:.4f}")
    assert found[max(found)] == pytest.approx(by_events, rel=0.03)


def test_cost_of_each_instrument(run: Run, record_property: Record) -> None:
    """A step's host time with each instrument alone, measured at every step: printed."""
    model, optimizer, batch = training()

    def step() -> Any:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def timed(after: Callable[[Any], object]) -> float:
        for _ in range(5):
            after(step())
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(30):
            after(step())
        return (time.perf_counter() - begun) / 30 * 1e3

    figures = {"nothing": timed(lambda loss: None)}
    figures["log of one value"] = timed(lambda loss: run.log({"loss": loss}))
    for name in ("throughput", "runtime", "memory", "norms", "layer_norms", "zeros", "energy"):
        loop = run.loop(10**6, samples_per_step=1, flops_per_step=1e9, model=model, optimizer=optimizer, interval=1,
                        **{name: True})  # fmt: skip
        figures[name] = timed(lambda loss, loop=loop: loop.step())
    record_property(
        "a step's host time with one instrument each, ms", {name: f"{ms:.3f}" for name, ms in figures.items()}
    )


def test_timer_on_several_gpus() -> None:
    """A timer that is used on one GPU and then on another measures on each."""
    timer = Timers(2).get("stage")
    devices = [*range(torch.cuda.device_count())] * 2
    for device in devices:
        with torch.cuda.device(device), timer:
            torch.ones(8, device="cuda").sum()
        torch.cuda.synchronize(device)
        timer.drain()  # type: ignore[union-attr]
    assert timer.count == len(devices)


def test_sharded_norms_synchronise_nothing(group: None) -> None:
    """FSDP2's shards and plain layers together: one all_reduce on the GPU, whatever gradient is missing."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(16, 32, device="cuda"), torch.nn.Linear(32, 8, device="cuda"))
    fully_shard(model[0], mesh=init_device_mesh("cuda", (1,)))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    norms = Norms(model, per_layer=True, zeros=True)
    norms.gradients()  # NCCL and the indices are made at first
    model[1].bias.grad = None
    norms.gradients()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    found = {**norms.parameters(), **norms.gradients()}
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert float(found["grad-norm"]) == pytest.approx((16 * 32 + 32 + 32 * 8) ** 0.5)


def test_a_collectives_time_is_nccls(group: None, run: Run, record_property: Record) -> None:
    """The duration of an all_reduce lies between those of events just inside and just outside of the block."""
    buffer = torch.ones(1 << 26, device="cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    torch.distributed.all_reduce(buffer)  # NCCL is made at first
    events[0].record()
    with run.communication("sum", bytes=buffer.nbytes):
        events[1].record()
        torch.distributed.all_reduce(buffer)
        events[2].record()
    events[3].record()
    torch.cuda.synchronize()
    found = run.communications.take()["communication/sum/duration_ms"]
    duration = found.value() if hasattr(found, "value") else found
    inside, outside = (events[first].elapsed_time(events[last]) for first, last in ((1, 2), (0, 3)))
    record_property("an all_reduce of 256 MiB, between events just inside and outside of it, ms",
                    f"{duration:.4f}, {inside:.4f} and {outside:.4f}")  # fmt: skip
    assert inside <= duration * 1.0001
    assert duration <= outside * 1.0001


def test_collectives_of_ddp_are_timed_on_the_gpu(group: None, run: Run) -> None:
    """DDP's buckets have their bytes and a duration that is known once the GPU is there; nothing waits for it."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256, device="cuda"))
    run.communications.watch(model)
    batch = torch.randn(8, 256, device="cuda")
    for _ in range(2):  # DDP makes its buckets anew before the second
        model(batch).sum().backward()
    run.communications.take()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    model(batch).sum().backward()
    found = run.communications.take()
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    name = "communication/gradient_sync"
    assert found[f"{name}/bytes"] * found[f"{name}/count"] == 4 * (256 * 256 + 256)
    duration = found[f"{name}/duration_ms"]
    assert (duration.value() if hasattr(duration, "value") else duration) > 0


def test_memory_and_energy_are_those_of_this_gpu() -> None:
    """The allocator's ten statistics, and the GPU that torch uses, by its UUID, whatever the environment numbers it."""
    tensor = torch.empty(50_000_000, dtype=torch.uint8, device="cuda")
    found = MemoryReader().values()
    assert len(found) == len(KEYS)
    assert found["memory/mem-allocated-gigabytes"] >= tensor.numel() / 1e9
    said: list[str] = []
    source = own_gpu(said.append)
    readings = source.read()
    source.close()
    if torch.version.hip is None and "MIG" not in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        assert [uuid in " ".join(reading.gpu.uuids) for reading in readings] == [True], said
