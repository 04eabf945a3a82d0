"""Norms and zeros against torch's own arithmetic; nothing synchronises; sharded models give the whole model's."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests import forked
from trackers.errors import MissingPackage
from trackers.instruments.norms import Norms
from trackers.values import device_copy
from trackers.values.device_copy import Transfer

WAITING = ("_local_scalar_dense", "item", "_to_copy", "copy_", "nonzero", "is_nonzero", "equal", "_assert_async")


class NothingWaits(TorchDispatchMode):
    """Fails at every operation that, on a GPU, would make the host wait or copy between devices."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen.append(name)
        assert name not in WAITING, f"{name} would wait for the GPU"
        return func(*args, **(kwargs or {}))


class Moved(Transfer):
    """Stands for the copy to the host, which never waits: a test reads it when it likes."""

    def __init__(self, tensor: Any) -> None:
        self.host = tensor

    def ready(self) -> bool:
        return False


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    found = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4, bias=False), nn.LayerNorm(4)).to(dtype)
    found(torch.randn(5, 8, dtype=dtype)).square().sum().backward()
    return found


def grads(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


def values(found: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 1e-3)]
)
def test_norms_are_those_of_all_elements(dtype: torch.dtype, precision: float) -> None:
    """Global norms are of all elements together, whatever their type; each layer's is its own."""
    module = model(dtype)
    norms = Norms(module, per_layer=True)
    found = values({**norms.parameters(), **norms.gradients()})
    for kind, tensors in (("param", list(module.parameters())), ("grad", grads(module))):
        flat = torch.cat([tensor.detach().flatten().double() for tensor in tensors])
        whole = float(flat.norm())
        assert found[f"l2_norm/{kind}/global"] == pytest.approx(whole, rel=precision)
        for (name, _), tensor in zip(module.named_parameters(), tensors, strict=True):
            own = float(tensor.detach().double().norm())
            assert found[f"l2_norm/{kind}/{name}"] == pytest.approx(own, rel=precision)
    assert found["params-norm"] == found["l2_norm/param/global"]
    assert found["grad-norm"] == found["l2_norm/grad/global"]
    if dtype == torch.float32:
        assert found["grad-norm"] == pytest.approx(float(nn.utils.get_total_norm(grads(module))))


def test_zeros_are_counted_exactly() -> None:
    """``num-zeros`` is how many elements of the gradients are zero; NaN and infinities are none."""
    module = model()
    first = grads(module)[0]
    first[0] = 0.0
    first[1, 0], first[1, 1] = math.nan, math.inf
    expected = sum(int((grad == 0).sum()) for grad in grads(module))
    assert expected >= 8
    assert int(Norms(module, zeros=True).gradients()["num-zeros"]) == expected


def test_without_gradients_there_are_no_values() -> None:
    """Before the first backward pass, and for parameters that aren't trained, nothing is invented."""
    module = model()
    module.zero_grad(set_to_none=True)
    assert Norms(module, zeros=True).gradients() == {}
    module[0].weight.grad = torch.full((16, 8), 2.0)
    assert values(Norms(module).gradients()) == {"grad-norm": pytest.approx(2.0 * math.sqrt(128))}


def test_chunks_count_together_and_shared_parameters_once() -> None:
    """Several chunks are one model: names tell them apart, tied and ``shared`` parameters count once."""
    one, two = model(), model()
    two[1].weight = one[1].weight
    two[2].weight.shared = True
    found = values(Norms([one, two], per_layer=True).parameters())
    parts = [*one.parameters(), two[0].weight, two[0].bias, two[2].bias]
    whole = float(torch.cat([part.detach().flatten() for part in parts]).norm())
    assert found["params-norm"] == pytest.approx(whole)
    assert "l2_norm/param/0.1.weight" in found
    assert "l2_norm/param/1.0.weight" in found
    assert "l2_norm/param/1.1.weight" not in found
    assert "l2_norm/param/1.2.weight" not in found


def test_mixed_types_and_sparse_gradients() -> None:
    """Parameters of several types, and gradients that are sparse, are added up like any others."""
    module = nn.ModuleDict({"words": nn.Embedding(10, 4, sparse=True), "head": nn.Linear(4, 3).to(torch.bfloat16)})
    module["words"](torch.tensor([1, 1, 3])).sum().backward()
    module["head"](torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    dense = [p.grad.to_dense().double().flatten() for p in module.parameters()]
    found = values(Norms(module).gradients())
    assert found["grad-norm"] == pytest.approx(float(torch.cat(dense).norm()), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_waits_for_the_device(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one operation reads a value or copies between devices; layers travel to the host in one copy."""
    module = model(dtype)
    monkeypatch.setattr(device_copy, "TorchTransfer", Moved)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    norms = Norms(module, per_layer=True, zeros=True)
    with NothingWaits() as mode:
        found = {**norms.parameters(), **norms.gradients()}
    assert "_foreach_norm" in mode.seen
    moving = [value for name, value in found.items() if name.endswith("weight") or name.endswith("bias")]
    assert len(moving) == 10
    assert not any(value.ready() for value in moving)


def test_the_dispatch_mode_sees_what_would_wait() -> None:
    """The proof above can fail: reading a value, or moving one, is seen."""
    for wait in (lambda t: t.item(), lambda t: float(t), lambda t: t.to(torch.float64), lambda t: bool(t > 0)):
        with pytest.raises(AssertionError, match="would wait"), NothingWaits():
            wait(torch.ones(()))


def test_norms_without_torch_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch there is one clear error."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackage, match=r"trackers-relay\[torch\]"):
        Norms(object())


SHARDED = """
import json, os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor, Shard, Replicate
from trackers.instruments.norms import Norms

dist.init_process_group("gloo")
rank = dist.get_rank()
def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), nn.Linear(7, 5), nn.Linear(5, 3))   # 7, 5, 3: uneven shards
x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
whole = build()
whole(x).square().sum().backward()
sharded, mixed = build(), build()
both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
for layer in sharded: fully_shard(layer, mesh=both)
fully_shard(sharded, mesh=both)
sharded(x).square().sum().backward()
mesh = init_device_mesh("cpu", (4,))
for number, layer in enumerate(mixed):     # tensor parallel: one layer sharded, one replicated, one plain
    if number < 2:
        place = [Shard(0)] if number == 0 else [Replicate()]
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, place))
    for p, q in zip(layer.parameters(), whole[number].parameters()):
        p.grad = distribute_tensor(q.grad, mesh, p.placements) if hasattr(p, "placements") else q.grad.clone()
own = nn.Linear(rank + 1, 1, bias=False)    # a pipeline's stage: each rank has parameters of its own
nn.init.constant_(own.weight, 1.0)
calls = 0
real = dist.all_reduce
def counting(*a, **k):
    global calls
    calls += 1
    return real(*a, **k)
dist.all_reduce = counting
def of(model, **more):
    n = Norms(model, per_layer=True, zeros=True, **more)
    return {k: float(v) for k, v in {**n.parameters(), **n.gradients()}.items()}
found = {"whole": of(whole), "sharded": of(sharded), "mixed": of(mixed)}
found["calls"] = calls
found["stages"] = {k: float(v) for k, v in Norms(own, group=dist.group.WORLD).parameters().items()}
open(f"{sys.argv[1]}/{rank}.json", "w").write(json.dumps(found))
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort the interpreter's end on a busy machine
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="needs FSDP2 on processors: a newer torch")
def test_sharded_models_give_the_whole_models_norms(tmp_path: Path) -> None:
    """FSDP2 (HSDP, uneven shards), tensor parallel and pipeline stages on 4 processes: each rank has the true norms."""
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    done = forked.run([sys.executable, str(script), str(tmp_path)], preload=forked.TORCH, ranks=4, timeout=150)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        found: dict[str, Any] = json.loads((tmp_path / f"{rank}.json").read_text())
        for kind in ("sharded", "mixed"):
            assert found[kind] == pytest.approx(found["whole"], rel=1e-5), (rank, kind)
        assert found["stages"] == {"params-norm": pytest.approx(math.sqrt(1 + 2 + 3 + 4))}
        assert found["calls"] == 4  # parameters and gradients of two models: one each


FAULTS = """
import json, os, sys, types, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from trackers.instruments.loop import Loop
from trackers.instruments.norms import Norms
from trackers.instruments.options import Measure
from trackers.instruments.plan import LoopPlan
from trackers.instruments.timers import Timers

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 7), nn.Linear(7, 5))
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
logged, said = {}, []
def log(values, step):
    logged[step] = {k: float(v) for k, v in values.items() if "norm" in k or k == "num-zeros"}
measure = Measure(interval=2, norms=True, layer_norms=True, zeros=True, throughput=True)
plan = LoopPlan(model=model, optimizer=optimizer, samples_per_step=4, ranks=2)
loop = Loop(log, said.append, measure, Timers(0), plan)
x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
real = torch._foreach_norm
def failing(*a, **k):
    raise RuntimeError("out of memory")
for step in range(1, 15):
    optimizer.zero_grad()
    model(x).square().sum().backward()
    if rank == 1 and step == 4:                     # gradients can't be measured on one rank
        torch._foreach_norm = failing
    if rank == 1 and step == 6:                     # one rank has no gradient of a layer, or none at all
        model[1].bias.grad = None
    if rank == 1 and step == 8:
        optimizer.zero_grad()
    if not (rank == 1 and step == 10):              # one rank leaves the optimizer's step out
        optimizer.step()
    torch._foreach_norm = real
    if rank == 1 and step == 12:                    # something else fails on one rank, just then
        loop.step(samples="many")
        continue
    loop.step()
loop.close()

# Stages of a pipeline: plain tensors, other names and another number of them on each rank; one has no parameter.
stage = nn.ModuleDict({f"{rank}-{n}": nn.Linear(2, 2, bias=False) for n in range(2 * rank)})
for p in stage.parameters():
    nn.init.constant_(p, 1.0)
    p.grad = torch.tensor([[0.0, 2.0], [2.0, 2.0]])
norms = Norms(stage, per_layer=True, zeros=True, group=dist.group.WORLD)
stages = {k: float(v) for k, v in {**norms.parameters(), **norms.gradients()}.items()}
# Parts of the same tensors (tensor parallel without DTensor, FSDP1).
part = nn.Linear(2, 1 + rank, bias=False)
nn.init.constant_(part.weight, 1.0)
parts = {k: float(v) for k, v in Norms(part, per_layer=True, group=dist.group.WORLD).parameters().items()}
open(f"{sys.argv[1]}/{rank}.json", "w").write(json.dumps([logged, said, stages, parts]))
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort the interpreter's end on a busy machine
"""


@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="needs FSDP2 on processors: a newer torch")
def test_rank_that_fails_leaves_no_other_in_a_collective(tmp_path: Path) -> None:
    """On one rank norms fail, gradients are missing, the optimizer doesn't step or the loop has a fault: the others go
    on, have NaN where the whole can't be known, and the true norms again at the next time. Stages of a pipeline with
    other parameters than each other give the whole model's norm."""
    script = tmp_path / "faults.py"
    script.write_text(FAULTS)
    done = forked.run([sys.executable, str(script), str(tmp_path)], preload=forked.TORCH, ranks=2, timeout=100)
    assert done.returncode == 0, done.stderr
    (zero, said_zero, *plain), (one, said_one, *plain_one) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)
    )
    right = zero["2"]
    assert set(right) == {
        "grad-norm", "params-norm", "num-zeros", "l2_norm/grad/global", "l2_norm/param/global",
        *(f"l2_norm/{kind}/{layer}.{name}" for kind in ("grad", "param") for layer in "01"
          for name in ("weight", "bias")),
    }  # fmt: skip
    assert all(math.isfinite(value) for value in right.values())
    for step in ("2", "10", "12", "14"):
        assert zero[step] == right
        assert one.get(step) == (None if step == "12" else right)
    assert {name for name, value in zero["4"].items() if math.isnan(value)} == {
        name for name in right if "grad" in name or name == "num-zeros"
    }
    assert zero["4"]["params-norm"] == one["4"]["params-norm"] == right["params-norm"]
    assert "grad-norm" not in one["4"]
    for step in ("6", "8"):  # what is there is measured
        assert 0 < zero[step]["l2_norm/grad/0.weight"] <= right["l2_norm/grad/0.weight"]
        assert zero[step]["grad-norm"] < right["grad-norm"]
        assert zero[step] == one[step]
    assert said_zero == []
    assert said_one[0] == "loop: norms can't be measured (RuntimeError: out of memory); all ranks have NaN meanwhile"
    assert "TypeError" in said_one[1]
    for rank, (stages, parts) in enumerate((plain, plain_one)):
        assert stages["params-norm"] == pytest.approx(math.sqrt(8))
        assert stages["grad-norm"] == stages["l2_norm/grad/global"] == pytest.approx(math.sqrt(24))
        assert stages["num-zeros"] == 2
        own = {name: value for name, value in stages.items() if "global" not in name and name.startswith("l2_norm/g")}
        assert own == {f"l2_norm/grad/1-{n}.weight": pytest.approx(math.sqrt(12)) for n in range(2 * rank)}
        assert parts["l2_norm/param/weight"] == parts["params-norm"] == pytest.approx(math.sqrt(6))


class NothingIndexes(NothingWaits):
    """The same for what is done with norms of sharded tensors: numbers of the host as an index wait, casts don't."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("index", "index_put_", "_index_put_impl_"), f"{name} would wait for the GPU"
        cast = name in ("copy_", "_to_copy") and "device" not in (kwargs or {})
        return func(*args, **(kwargs or {})) if cast else super().__torch_dispatch__(func, types, args, kwargs)


def test_nothing_waits_where_the_model_is_sharded() -> None:
    """Of a model of which some layers are sharded, and some have no gradient, no value is read either."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        module = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
        fully_shard(module[0], mesh=init_device_mesh("cpu", (2,)))
        for parameter in list(module.parameters())[1:]:
            parameter.grad = torch.ones_like(parameter)
        norms = Norms(module, zeros=True)
        with NothingIndexes() as mode:
            norms.parameters()
            norms.gradients()
        assert {"_foreach_norm", "index_select"} <= set(mode.seen)
    finally:
        torch.distributed.destroy_process_group()
