"""What is attached to a user's object, or kept in one, never keeps it from being copied, pickled or saved."""

from __future__ import annotations

import copy
import importlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trackers
from trackers.inspection import TensorInspectConfig
from trackers.instruments.communication import Communication
from trackers.instruments.loop import NullLoop
from trackers.instruments.timers import NullTimer
from trackers.records import Media, Metrics, Text, decode

pytestmark = pytest.mark.heavy

FEATURES = {"all": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "transformer_engine": {
    "LogTensorStats": {"enabled": True, "tensors": ["activation", "wgrad", "output"], "stats": ["max"], "freq": 1},
}}}  # fmt: skip


class Net(nn.Module):
    """A small model."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))  # type: ignore[no-any-return]


class Training:
    """What a script has: a model, its optimizer, a schedule, and a trainer that keeps all it works with."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.kept: list[Any] = [run.config, run.summary]

    def step(self) -> None:
        self.model(torch.ones(2, 3)).sum().backward()
        self.optimizer.step()
        self.schedule.step()
        self.run.log({"loss": 1.0})


def saved(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "deepcopy": copy.deepcopy,
    "save": saved,
}


def watch_all(training: Training) -> None:
    training.run.watch(training.model, log="all", log_freq=1, log_graph=True)


def watch_parameters(training: Training) -> None:
    training.run.watch((training.model, Net()), log="parameters", log_freq=1)


def inspect(training: Training) -> None:
    config = TensorInspectConfig(enabled=True, features=FEATURES)
    training.kept.append(training.run.inspect(config, training.model))


def loop(training: Training) -> None:
    options: dict[str, Any] = {"model": training.model, "optimizer": training.optimizer}
    training.kept.append(training.run.loop(interval=1, norms=True, memory=True, **options))


def timers(training: Training) -> None:
    timer = training.run.timer("forward")
    with timer:
        pass
    training.kept += [timer, training.run.timer("backward", 2), training.run.communications]


def graph_of_a_part(training: Training) -> None:
    training.run.watch(nn.ModuleList([training.model.fc1, nn.Linear(2, 2)]), log=None, log_graph=True)


ATTACHED = [watch_all, watch_parameters, inspect, loop, timers, graph_of_a_part]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    yield made
    made.finish()


def logged(run: Any) -> set[str]:
    names: set[str] = set()
    for line in Path(run.path, "streams/rank-0.1.jsonl").read_bytes().splitlines():
        record = decode(line)
        names.update({record.name} if isinstance(record, Media) else set())
        names.update(record.values if isinstance(record, (Metrics, Text)) else ())
    return names


@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("attach", ATTACHED, ids=lambda attach: attach.__name__)
def test_objects_can_be_copied_pickled_and_saved(
    attach: Callable[[Training], None], way: str, run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before the first step, in between and afterwards; the copy trains, and the original is still looked at."""
    training = Training(run)
    attach(training)
    for _ in range(2):
        for thing in (training.model, training.optimizer, training.schedule, training):
            other = WAYS[way](thing)
            if isinstance(other, Training):
                assert other.run is run
                other.run = trackers.NullRun()
                other.step()
        if attach is not inspect:
            assert not any(module._forward_hooks or module._forward_pre_hooks for module in training.model.modules())
        training.step()
        for kept in training.kept:
            getattr(kept, "step", int)()
        run.log({"loss": 2.0})
    run.finish()
    names = logged(run)
    wanted = {
        "watch_all": {"gradients/fc1.weight", "parameters/fc1.weight", "graph_0"},
        "watch_parameters": {"parameters/fc1.weight"},
        "inspect": {"model.fc1_activation_max", "model.fc2_wgrad_max", "model.fc2_output_max"},
        "loop": {"grad-norm"},
    }
    assert wanted.get(attach.__name__, set()) <= names, names
    assert "training goes on" not in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:`torch.jit", "error::torch.jit.TracerWarning")
@pytest.mark.parametrize("attach", [watch_all, watch_parameters, inspect, loop], ids=lambda attach: attach.__name__)
def test_models_can_be_scripted_and_traced(attach: Callable[[Training], None], run: Any) -> None:
    """While they are looked at, and their copies."""
    training = Training(run)
    attach(training)
    x = torch.ones(2, 3)
    for model in (training.model, copy.deepcopy(training.model)):
        assert torch.equal(torch.jit.script(model)(x), model(x))
        traced = torch.jit.trace(model, x)
        assert torch.equal(traced(x), model(x))
        assert "histc" not in str(traced.inlined_graph)
        assert "amax" not in str(traced.inlined_graph)
    training.step()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["watch", "compile"])
def test_watched_model_is_compiled_whole(first: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``fullgraph``, once; gradients and parameters are recorded, whichever came first."""
    testing = importlib.import_module("torch._dynamo.testing")
    torch._dynamo.reset()
    training = Training(run)
    counter = testing.CompileCounter()
    if first == "watch":
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "torch._dynamo.eval_frame")  # as before the first use of torch.compile
            watch_all(training)
    compiled = torch.compile(training.model, backend=counter, fullgraph=True)
    if first == "compile":
        watch_all(training)
    for _ in range(4):
        compiled(torch.ones(2, 3)).sum().backward()
        run.log({"loss": 1.0})
    assert counter.frame_count == 1
    run.finish()
    assert {"gradients/fc1.weight", "parameters/fc1.weight"} <= logged(run)


def test_what_measures_does_nothing_in_another_process(run: Any) -> None:
    """Pickled alone: a loop, timers and collectives that measure nothing; a copied summary is a mapping of its own."""
    loop = run.loop(total_steps=3)
    other = pickle.loads(pickle.dumps(loop))
    assert isinstance(other, NullLoop)
    other.step()
    assert copy.deepcopy(loop) is loop
    assert isinstance(pickle.loads(pickle.dumps(run.timer("x"))), NullTimer)
    assert isinstance(pickle.loads(pickle.dumps(run.communications)), Communication)
    run.summary["best"] = 1
    summary = copy.deepcopy(run.summary)
    summary["best"] = 2
    summary.update(more=3)
    assert (dict(summary), dict(run.summary)) == ({"best": 2, "more": 3}, {"best": 1})


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch.distributed")
def test_model_whose_collectives_are_timed(run: Any, tmp_path: Path) -> None:
    """DDP: the copy has torch's own hook."""
    store = torch.distributed.FileStore(os.fspath(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Net())
        run.communications.watch(model)
        for way in WAYS.values():
            other = way(model)
            other(torch.ones(2, 3)).sum().backward()
        model(torch.ones(2, 3)).sum().backward()
        assert run.communications.take()["communication/gradient_sync/count"] == 1
    finally:
        torch.distributed.destroy_process_group()
