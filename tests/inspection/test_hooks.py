"""What is looked at when layers run: each tensor's own numbers, in every way of training, and nothing left behind."""

from __future__ import annotations

import gc
import math
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.inspection.test_statistics import NothingMoves
from trackers.inspection import TensorInspectConfig
from trackers.inspection.features import TENSORS
from trackers.inspection.inspector import Eager, Inspector
from trackers.inspection.statistics import TENSOR_STATS, TextLog
from trackers.values import device_copy
from trackers.values.device_copy import Transfer

Logged = list[tuple[int, dict[str, Any]]]


def features(stats: list[str], tensors: list[str] | None = None, layers: Any = None, **settings: Any) -> dict[str, Any]:
    inner = {"enabled": True, "tensors": tensors or list(TENSORS), "stats": stats, **settings}
    chosen = layers or {"layer_name_regex_pattern": ".*"}
    return {"all": {"enabled": True, "layers": chosen, "transformer_engine": {"LogTensorStats": inner}}}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def logged() -> Logged:
    return []


@pytest.fixture
def inspect(said: list[str], logged: Logged) -> Iterator[Callable[..., Inspector]]:
    made = []

    def inspect(model: Any, wanted: dict[str, Any] | None = None, **more: Any) -> Inspector:
        config = TensorInspectConfig(enabled=True, features=wanted or features(["l2_norm"]))
        inspector = Inspector(lambda values, step: logged.append((step, values)), said.append, config, **more)
        made.append(inspector)
        inspector.attach(model)
        return inspector

    yield inspect
    for inspector in made:
        inspector.close()
    assert not Eager._asking


def hooks_of(model: nn.Module) -> int:
    return sum(
        len(getattr(module, kind) or ())
        for module in model.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    ) + sum(len(parameter._backward_hooks or ()) for parameter in model.parameters())


class Branches(nn.Module):
    """Two layers that share their input."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) * self.right(x)


def test_each_tensor_has_its_own_numbers(inspect: Any, logged: Logged, said: list[str]) -> None:
    """All statistics of all six tensors of two layers are those of autograd's own; dgrad is each layer's part alone."""
    torch.manual_seed(0)
    model = Branches()
    x = torch.randn(7, 6, requires_grad=True)
    left, right = model.left(x), model.right(x)
    ahead = torch.randn(7, 5)
    expected = {}
    for name, own, other in (("left", left, right), ("right", right, left)):
        layer = getattr(model, name)
        gradient = ahead * other
        tensors = (x, gradient, layer.weight, own, gradient.t() @ x, gradient @ layer.weight)
        expected |= {f"model.{name}_{role}": tensor.detach() for role, tensor in zip(TENSORS, tensors, strict=True)}
    inspector = inspect(model, features(list(TENSOR_STATS)))
    model(x).backward(ahead)
    inspector.step()
    ((step, values),) = logged
    assert step == 0
    assert len(values) == len(expected) * len(TENSOR_STATS)
    for name, tensor in expected.items():
        size = tensor.abs()
        own = {
            "min": tensor.min(), "max": tensor.max(), "mean": tensor.mean(), "std": tensor.std(),
            "l1_norm": size.sum(), "l2_norm": tensor.norm(), "cur_amax": size.max(),
            "dynamic_range": size.max().log2() - size[size > 0].min().log2(),
        }  # fmt: skip
        for stat, value in own.items():
            assert values[f"{name}_{stat}"] == pytest.approx(float(value), rel=1e-4, abs=1e-6), (name, stat)
    assert said == []


def test_nothing_is_left_behind(inspect: Any, logged: Logged) -> None:
    """Calls are seen in the iterations that are looked at only; the model is freed without a garbage collector."""
    model = Branches()
    inspector = inspect(model, features(["min"], freq=2))
    assert "__call__" in vars(nn.Linear)
    pickle.dumps(model)
    model(torch.randn(2, 6)).sum().backward()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    inspector.step()
    assert hooks_of(model) == 0
    assert "__call__" not in vars(nn.Linear)
    model(torch.randn(2, 6)).sum().backward()
    inspector.step()
    assert "__call__" in vars(nn.Linear)
    output = model(torch.randn(2, 6))
    pickle.dumps(model)
    inspector.close()
    assert hooks_of(model) == 0
    assert "__call__" not in vars(nn.Linear)
    output.sum().backward()  # a gradient that comes late goes nowhere
    assert [step for step, _ in logged] == [0]
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(model)
        inspector.attach(model)
        model(torch.randn(2, 6)).sum().backward()
        del model, output
        assert gone() is None
        inspector.step()
    finally:
        gc.enable()


def test_schedule_is_that_of_the_format(inspect: Any, logged: Logged) -> None:
    """freq, start and end, a list of spans, and settings of one tensor's own, from a first iteration that isn't 0."""
    struct = [
        {"tensor": "activation", "stats": ["min"], "freq": 3},
        {"tensor": "output", "stats": ["max"], "start_step": 5, "end_step": 6},
        {"tensor": "weight", "stats": ["mean"], "start_end_list": [[4, 5], [8, 8]]},
    ]
    inner = {"enabled": True, "tensors_struct": struct, "freq": 1}
    wanted = {
        "a": {"enabled": True, "layers": {"layer_types": ["left"]}, "transformer_engine": {"LogTensorStats": inner}}
    }
    model = Branches()
    inspector = inspect(model, wanted, done=3)
    for _ in range(7):
        model(torch.randn(2, 6))
        inspector.step()
    seen = {(step, name.split("_")[1]) for step, values in logged for name in values}
    assert seen == {
        (3, "activation"), (6, "activation"), (9, "activation"), (5, "output"), (6, "output"),
        (4, "weight"), (5, "weight"), (8, "weight"),
    }  # fmt: skip


def test_forward_passes_of_a_step_are_taken_together(inspect: Any, logged: Logged) -> None:
    """Micro-batches count as one tensor; the weight counts once."""
    model = nn.Sequential(nn.Linear(4, 3))
    batches = [torch.randn(5, 4), torch.randn(9, 4) + 3]
    inspector = inspect(model, features(["std", "l1_norm"]))
    for batch in batches:
        model(batch).sum().backward()
    inspector.step()
    both, values = torch.cat(batches), logged[0][1]
    assert values["model.0_activation_std"] == pytest.approx(float(both.std()), rel=1e-5)
    assert values["model.0_activation_l1_norm"] == pytest.approx(float(both.abs().sum()), rel=1e-5)
    assert values["model.0_weight_l1_norm"] == pytest.approx(float(model[0].weight.detach().abs().sum()), rel=1e-5)
    assert values["model.0_gradient_l1_norm"] == 3 * 14
    assert values["model.0_wgrad_l1_norm"] == pytest.approx(
        3 * sum(float(batch.sum(0).abs().sum()) for batch in batches), rel=1e-4
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_second_forward_does_not_count(inspect: Any, logged: Logged, reentrant: bool) -> None:
    """With activation checkpointing each tensor has the numbers that it has without."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x = torch.randn(3, 4, requires_grad=True)
    inspector = inspect(model, features(["l1_norm", "l2_norm"]))
    model(x).sum().backward()
    inspector.step()
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    inspector.step()
    assert len(logged[0][1]) == 24
    assert logged[1][1] == pytest.approx(logged[0][1], rel=1e-6)


def test_evaluation_does_not_count(inspect: Any, logged: Logged, said: list[str]) -> None:
    """A pass without gradients in evaluation mode is none of training; one in training mode is."""
    model = nn.Sequential(nn.Linear(4, 3))
    inspector = inspect(model, features(["max"], ["activation", "output", "dgrad"]))
    with torch.no_grad():
        model.train()(torch.full((2, 4), 5.0))
        model.eval()(torch.full((2, 4), 100.0))
    inspector.step()
    with torch.no_grad():
        model(torch.full((2, 4), 100.0))
    inspector.step()
    assert [values["model.0_activation_max"] for _, values in logged] == [5.0]
    (line,) = said
    assert line.startswith("tensor inspection: none of the chosen layers has run in training")


def test_shared_layers_and_weights(inspect: Any, logged: Logged) -> None:
    """A module that is used twice is one layer; a weight that two layers share has all its gradient in both."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Identity())
    model[1].weight = model[0].weight
    model.append(model[0])
    x = torch.randn(2, 3)
    inspector = inspect(model, features(["l1_norm"], ["weight", "wgrad", "activation"]))
    model(x).sum().backward()
    inspector.step()
    values = logged[0][1]
    assert {name.split("_")[0] for name in values} == {"model.0", "model.1"}
    whole = float(model[0].weight.grad.abs().sum())
    assert values["model.0_wgrad_l1_norm"] == values["model.1_wgrad_l1_norm"] == pytest.approx(whole, rel=1e-5)
    inner = [float(t.detach().abs().sum()) for t in (x, model[1](model[0](x)))]
    assert values["model.0_activation_l1_norm"] == pytest.approx(sum(inner), rel=1e-5)


def test_chunks_with_layers_of_the_same_name_are_told_apart(inspect: Any, logged: Logged) -> None:
    """Pipeline chunks: numbered where names are alike; layers in a list go by their layer_number, as Megatron's do."""
    inspector = inspect([Branches(), Branches()], features(["min"], ["weight"]))
    assert {name.rpartition("_weight")[0] for name in planned(inspector)} == {
        "model.0.left", "model.0.right", "model.1.left", "model.1.right",
    }  # fmt: skip
    one, two = nn.Module(), nn.Module()
    for number, chunk in enumerate((one, two)):
        chunk.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        for place, layer in enumerate(chunk.layers):
            layer.layer_number = 2 * number + place + 1
    inspector.attach([one, two])
    assert planned(inspector) == [f"model.layers.{number}_weight" for number in (1, 2, 3, 4)]


def planned(inspector: Inspector) -> list[str]:
    return sorted(f"{one.layer}_{one.request.tensor}" for each in inspector._plan.values() for one in each)


def test_other_modules_are_looked_at_when_named(inspect: Any, logged: Logged, said: list[str]) -> None:
    """Not only linear layers: by the class's name or the layer's own; what has no weight has no numbers of one."""
    model = nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    layers = {"layer_types": ["LayerNorm", "GELU"]}
    inspector = inspect(model, features(["max"], layers=layers))
    model(torch.tensor([[1, 2]])).sum().backward()
    inspector.step()
    names = set(logged[0][1])
    weightless = [tensor for tensor in TENSORS if tensor not in ("weight", "wgrad")]
    assert names == {
        *(f"model.1_{tensor}_max" for tensor in TENSORS),
        *(f"model.2_{tensor}_max" for tensor in weightless),
    }
    inspector.attach(model)
    assert planned(inspect(model, features(["max"], ["output"], {"exact_layer_names": ["model.0"]}))) == [
        "model.0_output"
    ]
    assert said == []


def test_input_that_is_changed_in_place_and_outputs_that_are(inspect: Any, logged: Logged, said: list[str]) -> None:
    """Code that writes into a layer's input or output goes on as without hooks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ELU(inplace=True))
    x = torch.randn(3, 4)
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    layers = {"layer_name_regex_pattern": ".*", "layer_types": ["ReLU", "ELU"]}
    inspector = inspect(model, features(["min"], layers=layers))
    model(x).sum().backward()
    inspector.step()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)
    # The gradient of an input that is overwritten isn't there to see; of the model's own input there is none.
    assert {name.removesuffix("_min") for name in logged[0][1]} == {
        *(f"model.{place}_{tensor}" for place in (0, 2) for tensor in TENSORS),
        *(f"model.{place}_{tensor}" for place in (1, 3) for tensor in ("activation", "output", "gradient")),
    } - {"model.0_dgrad"}
    first = model[0](x).detach()
    assert logged[0][1]["model.1_activation_min"] == float(first.min()) < 0 == logged[0][1]["model.1_output_min"]
    assert said == []


def test_autocast_does_not_round_statistics(inspect: Any, logged: Logged) -> None:
    """In mixed precision each tensor is measured as it is, in its own type, exactly."""
    model = nn.Sequential(nn.Linear(64, 64))
    x = torch.randn(512, 64)
    inspector = inspect(model, features(["mean", "l2_norm"]))
    with torch.autocast("cpu", torch.bfloat16):
        output = model(x)
        output.float().square().sum().backward()
        inspector.step()
    values = logged[0][1]
    assert output.dtype == torch.bfloat16
    assert values["model.0_activation_l2_norm"] == pytest.approx(float(x.double().norm()), rel=1e-5)
    assert values["model.0_output_mean"] == pytest.approx(float(output.detach().double().mean()), rel=1e-4)
    assert values["model.0_wgrad_l2_norm"] == pytest.approx(float(model[0].weight.grad.double().norm()), rel=1e-2)


@pytest.mark.slow
def test_compiled_models_run_as_written_while_they_are_looked_at(inspect: Any, logged: Logged) -> None:
    """torch.compile: compiled steps stay compiled; those looked at give the numbers of the model itself."""
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*arguments: Any) -> Any:
            compiled.append(1)
            return graph.forward(*arguments)

        return run

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    model = torch.compile(plain, backend=backend, fullgraph=True)
    x = torch.randn(3, 4)
    inspector = inspect(model, features(["max"], freq=2))
    runs = []
    for _ in range(4):
        model(x).sum().backward()
        runs.append(len(compiled))
        inspector.step()
    assert runs == [0, 1, 1, 2]
    assert [step for step, _ in logged] == [0, 2]
    assert set(logged[0][1]) == {f"model.{place}_{tensor}_max" for place in (0, 2) for tensor in TENSORS} - {
        "model.0_dgrad_max"
    }
    assert logged[1][1]["model.0_activation_max"] == float(x.max())


def test_exception_in_the_forward_leaves_training_as_it_was(inspect: Any, logged: Logged) -> None:
    """A step that fails halfway, and is skipped, costs nothing but its own numbers."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    inspector = inspect(model, features(["max"], freq=2))
    with pytest.raises(RuntimeError, match="shape"):
        model[1](torch.randn(2, 3))
    inspector.step()
    assert hooks_of(model) == 0
    inspector.step()
    model(torch.ones(2, 4)).sum().backward()
    inspector.step()
    assert logged[-1][0] == 2
    assert logged[-1][1]["model.0_activation_max"] == 1.0


def test_fault_in_a_statistic_is_said_and_stops_nothing(
    inspect: Any, logged: Logged, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong in a hook: training has its gradients, the rest is logged, one line says what is missing."""
    real = torch.aminmax

    def failing(tensor: torch.Tensor) -> Any:
        if tensor.numel() == 6:
            raise RuntimeError("no memory")
        return real(tensor)

    monkeypatch.setattr(torch, "aminmax", failing)
    model = nn.Sequential(nn.Linear(2, 4))
    inspector = inspect(model, features(["max"]))
    model(torch.ones(3, 2)).sum().backward()
    inspector.step()
    assert model[0].weight.grad is not None
    assert said == ["tensor inspection: model.0_activation can't be looked at (RuntimeError: no memory)"]
    assert set(logged[0][1]) == {f"model.0_{tensor}_max" for tensor in ("weight", "output", "gradient", "wgrad")}


def test_fault_in_a_hook_is_said_and_stops_nothing(
    inspect: Any, logged: Logged, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs and outputs of a kind that no hook knows go through the layer as they were."""

    class Odd(torch.Tensor):
        def view_as(self, other: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no views")

    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    inspector = inspect(model, features(["max"], ["dgrad", "output"]))
    model(torch.ones(3, 2, requires_grad=True).as_subclass(Odd)).sum().backward()
    inspector.step()
    assert model[0].weight.grad is not None
    assert said[0] == "tensor inspection: model.0 can't be looked at (RuntimeError: no views)"
    assert {"model.0_output_max", "model.1_output_max"} <= set(logged[0][1])


class Moved(Transfer):
    """Stands for the copy to the host, which never waits: a test reads it when it likes."""

    def __init__(self, tensor: Any) -> None:
        self.host = tensor
        self.arrived = False
        moved.append(self)

    def ready(self) -> bool:
        return self.arrived


moved: list[Moved] = []


def test_a_step_waits_for_no_device(inspect: Any, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the hooks to the log, no operation reads a value; all values travel in one copy and are known later."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    stats = ["underflows%", "mxfp8_mse", "fp8_block_scaling_scale_inv_max"]
    fp8 = {"enabled": True, "tensors": ["activation", "gradient", "weight"], "stats": stats}
    wanted = features(list(TENSOR_STATS))
    wanted["all"]["transformer_engine"]["LogFp8TensorStats"] = fp8
    inspector = inspect(model, wanted)
    moved.clear()
    monkeypatch.setattr(device_copy, "TorchTransfer", Moved)
    x = torch.randn(5, 4)
    with NothingMoves() as mode:
        model(x).sum().backward()
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "is_cuda", True, raising=False)
            inspector.step()
    assert "aminmax" in mode.seen
    (copy,) = moved
    values = logged[0][1]
    assert len(values) == 11 * len(TENSOR_STATS) + 6 * len(stats)
    assert not any(value.ready() for value in values.values())
    copy.arrived = True
    assert values["model.0_activation_max"].value() == float(x.max())
    assert math.isfinite(values["model.1_gradient_mxfp8_mse"].value())


def test_text_log_waits_for_no_device_and_keeps_order(tmp_path: Any, said: list[str]) -> None:
    """Lines whose numbers are on their way are written when these are there, and none overtakes them."""
    moved.clear()
    log = TextLog(tmp_path, 3, said.append)
    copy = Moved(torch.tensor(2.5))
    log.log({"a": device_copy.DeferredNumber([Arrival(copy)], lambda: float(copy.host))}, 0)
    log.log({"b": 1.0}, 1)
    assert log.path.read_text() == ""
    copy.arrived = True
    log.drain()
    lines = log.path.read_text().splitlines()
    log.close()
    assert [(line.split()[5], line.split()[-1]) for line in lines] == [("a", "value=2.5000"), ("b", "value=1.0000")]
    assert log.path.name == "nvdlfw_inspect_globalrank-3.log"
    assert said == []


class Arrival:
    """A copy as what a number waits for."""

    def __init__(self, copy: Moved) -> None:
        self._copy = copy

    @property
    def ready(self) -> bool:
        return self._copy.ready()
