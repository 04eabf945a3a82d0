"""Communication: real collectives between real processes, their bytes and their time; nothing is estimated."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

import trackers
from tests import forked
from tests.fakes.cuda import Cuda
from tests.helpers import Time
from trackers.errors import MissingPackage, UsageError
from trackers.instruments import communication as module
from trackers.instruments.communication import LINKS, Communication, union
from trackers.records import Metrics
from trackers.training.run import Run


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time(10.0)
    monkeypatch.setattr(module, "time", time)
    return time


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A GPU that works when the test says so."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return cuda


def logged(run: Run) -> dict[str, float]:
    return {k: v for r in run._recorder.logged() if isinstance(r, Metrics) for k, v in r.values.items()}


def test_values_are_bytes_by_measured_time(time: Time) -> None:
    """Mean bytes and duration of one; bandwidths of all together, by their time, and not the mean of rates."""
    home = Communication(ranks=4)
    for seconds, size in ((0.5, 100_000_000), (0.25, 20_000_000)):
        with home.timed("gradient_sync", bytes=size):
            time.now += seconds
        time.now += 3.0
    assert home.take() == {
        "communication/gradient_sync/count": 2,
        "communication/gradient_sync/bytes": 60_000_000,
        "communication/gradient_sync/duration_ms": pytest.approx(375.0),
        "communication/gradient_sync/algorithm_bandwidth_mb_per_sec": pytest.approx(160.0),
        "communication/gradient_sync/bandwidth_mb_per_sec": pytest.approx(160.0 * 2 * 3 / 4),
    }
    assert home.take() == {}


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75),
     ("all_to_all", 2, 0.5), ("broadcast", 8, 1.0), ("send", 8, 1.0), ("all_reduce", 1, 0.0)],
)  # fmt: skip
def test_link_bandwidth_is_nccls(kind: str, ranks: int, factor: float, time: Time) -> None:
    """The factors of nccl-tests, by collective and number of ranks."""
    home = Communication(ranks=64)
    with home.timed("x", 50_000_000, kind=kind, ranks=ranks):
        time.now += 1.0
    assert home.take()["communication/x/bandwidth_mb_per_sec"] == pytest.approx(50.0 * factor)


def test_overlapping_collectives_share_their_time(time: Time) -> None:
    """Two buckets under way at once take the time in which any of them was; one that isn't over waits for its log."""
    home = Communication(ranks=2)
    first = home.begin("gradient_sync", 10_000_000, 1.0)
    time.now += 1.0
    second = home.begin("gradient_sync", 10_000_000, 1.0)
    time.now += 1.0
    first.end()
    time.now += 2.0
    late = home.begin("gradient_sync", 30_000_000, 1.0)
    second.end()
    found = home.take()
    assert found["communication/gradient_sync/duration_ms"] == pytest.approx(2000.0)
    assert found["communication/gradient_sync/algorithm_bandwidth_mb_per_sec"] == pytest.approx(5.0)
    time.now += 1.0
    late.end()
    late.end()
    assert home.take()["communication/gradient_sync/duration_ms"] == pytest.approx(1000.0)
    assert union([(0, 1), (5, 6), (5.5, 5.6), (1, 2)]) == 3


def test_failed_collective_is_not_counted(time: Time) -> None:
    """A collective that raises has no bandwidth; the exception goes on."""
    home = Communication(ranks=2)
    with pytest.raises(RuntimeError, match="timed out"), home.timed("x", 1000):
        raise RuntimeError("timed out")
    assert home.take() == {}


def test_unknown_collective_is_said_and_too_many_are_bounded(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt kind is said and measured all the same; what nobody logs can't fill the memory."""
    said: list[str] = []
    monkeypatch.setattr(module, "MOST", 3)
    home = Communication(ranks=2, say=said.append)
    with home.timed("x", 1000, kind="allreduce"):
        time.now += 1.0
    assert home.take()["communication/x/bandwidth_mb_per_sec"] == pytest.approx(0.001)
    assert "'allreduce' is no known collective (all_reduce" in said[0]
    for _ in range(5):
        with home.timed("x", 1000):
            time.now += 1.0
    assert home.take()["communication/x/count"] == 3
    assert "more than 3 collectives" in said[-1]


def test_gpu_time_is_read_later(cuda: Cuda) -> None:
    """On a GPU the time is between two events on the stream; it is known when the GPU is there, and nothing waits."""
    home = Communication(ranks=2)
    cuda.work(500.0)
    with home.timed("gradient_sync", 40_000_000):
        cuda.work(20.0)
    found = home.take()
    assert found["communication/gradient_sync/bytes"] == 40_000_000
    duration = found["communication/gradient_sync/duration_ms"]
    assert not duration.ready()
    cuda.run()
    assert duration.value() == pytest.approx(20.0)
    assert found["communication/gradient_sync/bandwidth_mb_per_sec"].value() == pytest.approx(2000.0)
    assert cuda.synchronized == 0


def test_collective_of_the_host_is_timed_by_its_clock(cuda: Cuda, time: Time) -> None:
    """In a process that uses CUDA a gloo collective has the host's time, not that of an idle stream."""
    home = Communication(ranks=2)
    with home.timed("sync", 1_000_000, device="cpu"):
        time.now += 0.5
    assert home.take()["communication/sync/duration_ms"] == pytest.approx(500.0)
    assert cuda.recorded == 0


def test_gpu_time_is_exact_after_days(cuda: Cuda) -> None:
    """CUDA answers in floats of 24 bits: a collective of a millisecond has its time after days, too."""
    home = Communication(ranks=2)
    for hours in (0, 100):
        cuda.work(hours * 3_600_000.0)
        with home.timed("gradient_sync", 1_000_000):
            cuda.work(1.25)
        cuda.run()
        found = home.take()
        assert found["communication/gradient_sync/duration_ms"] == pytest.approx(1.25)


def test_collectives_in_a_captured_graph_are_not_counted(cuda: Cuda) -> None:
    """What is captured hasn't happened: it is said and not counted; so it is with a GPU that has failed."""
    said: list[str] = []
    home = Communication(ranks=2, say=said.append)
    with home.timed("before", 10):
        cuda.capturing = True
    with home.timed("inside", 10):
        pass
    cuda.capturing, cuda.error = False, "CUDA error: an illegal memory access was encountered"
    with home.timed("after", 10):
        pass
    cuda.error = ""
    assert home.take() == {}
    assert {line.partition(":")[2][:13] for line in said} == {" a CUDA graph", " CUDA error: "}


def test_collective_under_way_lets_a_graph_be_captured(cuda: Cuda) -> None:
    """While a CUDA graph is captured nobody asks whether an earlier collective is over: that would end the capture."""
    home = Communication(ranks=2)
    with home.timed("gradient_sync", 1_000_000):
        cuda.work(20.0)
    duration = home.take()["communication/gradient_sync/duration_ms"]
    cuda.run()
    cuda.capturing = True
    assert not duration.ready()
    cuda.capturing = False
    assert duration.ready()


def test_run_logs_what_it_timed(run: Run) -> None:
    """``run.communication`` alone is enough: its values are logged at the end; a loop logs them at its interval."""
    with run.communication("gradient_sync", bytes=1_000_000, ranks=2):
        pass
    loop = run.loop(interval=1)
    loop.step()
    with run.communication("parameter_gather", bytes=2_000_000, kind="all_gather", ranks=2):
        pass
    loop.step()
    assert logged(run)["communication/parameter_gather/bytes"] == 2_000_000
    with run.communication("last", bytes=7):
        pass
    run.finish()
    assert logged(run)["communication/last/bytes"] == 7
    assert set(LINKS) >= {"all_reduce", "all_gather"}


def test_watch_needs_a_wrapped_model_and_torch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without collectives, and a missing torch, are errors that say what to do."""
    with pytest.raises(UsageError, match=r"Linear is wrapped neither .* time its collectives with run\.communication"):
        run.communications.watch(torch.nn.Linear(2, 2))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackage, match="communication needs torch"):
        run.communications.watch(object())


def test_disabled_run_times_nothing() -> None:
    """Where nothing is recorded, the calls do nothing."""
    run = trackers.init("none")
    with run.communication("gradient_sync", bytes=10):
        pass
    assert run.communications.take() == {}


RANKS = """
import json, os, sys, time, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from trackers.errors import UsageError
from trackers.instruments.communication import Communication

dist.init_process_group("gloo")
rank = dist.get_rank()
LATE_S = 0.3
def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 32))
def step(model):
    model(torch.full((4, 64), 1.0 + rank)).square().sum().backward()
def measured(wrap, hook=None, again=lambda model: None):
    home = Communication(dist.get_world_size())
    model = wrap(build())
    home.watch(model, hook)
    step(model)                                   # DDP rebuilds its buckets after the first
    home.take()
    model.zero_grad()
    loss = model(torch.full((4, 64), 1.0 + rank)).square().sum()
    if rank == 1:
        time.sleep(LATE_S)                        # the others' collectives can't end before this rank takes part
    loss.backward()
    values = home.take()
    if isinstance(model, FullyShardedDataParallel):   # each rank has a piece of each
        return values, None
    grads = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in model.parameters()]
    return values, [float(g.sum()) for g in grads]
found = {}
for name, wrap, hook in (
    ("ddp", nn.parallel.DistributedDataParallel, None),
    ("compressed", nn.parallel.DistributedDataParallel, fp16_compress_hook),
    ("fsdp", lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True), None),
    ("fully_shard", lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))), None),
):
    try:
        found[name] = measured(wrap, hook)
    except UsageError as error:
        found[name] = str(error)
plain = nn.parallel.DistributedDataParallel(build())
step(plain)
found["expected"] = [float(p.grad.sum()) for p in plain.parameters()]
open(f"{sys.argv[1]}/{rank}.json", "w").write(json.dumps(found))
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort the interpreter's end on a busy machine
"""


def test_wrapped_models_collectives_are_timed_as_they_happen(tmp_path: Path) -> None:
    """DDP, a hook of one's own, FSDP and fully_shard on 2 processes: true bytes, gradients as without, real time.

    A rank's time includes its waiting for another one that is late: no estimate could know that.
    """
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    done = forked.run([sys.executable, str(script), str(tmp_path)], preload=forked.TORCH, ranks=2, timeout=150)
    assert done.returncode == 0, done.stderr
    zero, one = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    elements = 64 * 128 + 128 + 128 * 32 + 32
    names = ["ddp", "compressed", "fsdp", "fully_shard"]
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        assert "watching fully_shard needs torch 2.8 or later" in zero[names.pop()]
    for found in (zero, one):
        for name in names:
            values, grads = found[name]
            prefix = "communication/gradient_sync"
            total: Any = values[f"{prefix}/bytes"] * values[f"{prefix}/count"]
            assert total == 4 * elements, name
            rate = total / 1e6 / (values[f"{prefix}/duration_ms"] * values[f"{prefix}/count"] / 1000)
            assert values[f"{prefix}/algorithm_bandwidth_mb_per_sec"] == pytest.approx(rate)
            factor = 0.5 if name in ("fsdp", "fully_shard") else 1.0
            assert values[f"{prefix}/bandwidth_mb_per_sec"] == pytest.approx(factor * rate)
            assert grads is None or grads == pytest.approx(
                found["expected"], rel=1e-2 if name == "compressed" else 1e-5
            )
        if "fully_shard" in names:
            assert found["fully_shard"][0]["communication/parameter_gather/bytes"] == 4 * elements
    for name in [name for name in names if name != "fsdp"]:
        waited_s, own_s = (
            found[name][0]["communication/gradient_sync/duration_ms"]
            * found[name][0]["communication/gradient_sync/count"]
            / 1000
            for found in (zero, one)
        )
        assert waited_s > own_s
        assert waited_s > 0.2
