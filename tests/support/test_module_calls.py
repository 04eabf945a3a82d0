"""Calls of modules are seen, and the modules stay as they are: whatever is done with a model works all the same."""

from __future__ import annotations

import copy
import gc
import importlib
import io
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from torch import nn

from trackers.support.module_calls import Observer


class Net(nn.Module):
    """Two layers, one of them called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.first(x)))  # type: ignore[no-any-return]


class Calling(nn.Linear):
    """A module with a ``__call__`` of its own."""

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        return super().__call__(*arguments, **more) + 1


X = torch.ones(2, 3)
KINDS: dict[str, Callable[[], Any]] = {
    "linear": lambda: nn.Linear(3, 3),
    "net": Net,
    "calling": lambda: Calling(3, 3),
}


def saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def sent(model: Any) -> Any:

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return pickle.loads(ForkingPickler.dumps(model))


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "save": saved,
    "send": sent,
    "script": torch.jit.script,
    "script of a copy": lambda model: torch.jit.script(copy.deepcopy(model)),
    "trace": lambda model: torch.jit.trace(model, X),
    "fx": torch.fx.symbolic_trace,
}  # fmt: skip
COMPILED: dict[str, Callable[[Any], Any]] = {
    "compile": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "export": lambda model: torch.export.export(model, (X,)).module(),
}


pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:`torch.jit"),
]


@pytest.fixture
def seen() -> Iterator[Callable[[Any], list[Any]]]:
    observers = []

    def see(model: Any) -> list[Any]:
        calls: list[Any] = []

        def around(module: Any, go_on: Callable[..., Any], arguments: Any, more: Any) -> Any:
            answer = go_on(*arguments, **more)
            calls.append(type(module).__name__)
            return answer

        observers.append(Observer(model, around))
        return calls

    yield see
    for observer in observers:
        observer.remove()
        observer.remove()
    for kind in (nn.Module, nn.Linear, nn.Sequential, Net):
        assert ("__call__" in vars(kind)) is (kind is nn.Module), kind
    assert "observers" not in vars(vars(Calling)["__call__"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", COPIES)
def test_copies_of_a_seen_module_work_and_are_not_seen(kind: str, way: str, seen: Any) -> None:
    """Pickled, copied, saved, sent, scripted, traced: as one that nobody looks at, which goes on being looked at."""
    model = KINDS[kind]()
    calls = seen(model)
    wanted = model(X)
    other = COPIES[way](model)
    calls.clear()
    if way not in ("script", "script of a copy", "fx") or kind != "calling":  # those are of forward alone
        assert torch.equal(other(X), wanted)
    assert calls == []
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(model(X), wanted)
    assert calls == [type(model).__name__]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["net", "linear"])
@pytest.mark.parametrize("way", COMPILED)
def test_compiled_modules_are_as_without(kind: str, way: str, seen: Any) -> None:
    """One graph for all calls. Those of the compiled model are seen, whichever came first; an export's aren't."""
    torch._dynamo.reset()
    model = nn.Sequential(KINDS[kind](), nn.ReLU())
    before, inner = seen(model), seen(model[0])
    made = COMPILED[way](model)
    after = seen(made)
    counter = importlib.import_module("torch._dynamo.testing").CompileCounter()
    other = seen(model)
    counted = torch.compile(model, backend=counter, fullgraph=True)
    before.clear()
    inner.clear()
    for _ in range(3):
        made(X)
    assert len(after) == 3
    assert (len(before), len(other)) == ((3, 3) if way == "compile" else (0, 0))
    for _ in range(3):
        counted(X)
    assert counter.frame_count == 1
    assert (len(other), len(inner)) == (6 if way == "compile" else 3, 0)


@pytest.mark.slow
def test_module_that_is_compiled_in_place_is_seen(seen: Any) -> None:
    """``model.compile()``: one call each."""
    torch._dynamo.reset()
    model = Net()
    calls, layer = seen(model), seen(model.first)
    model.compile(backend="eager", fullgraph=True)
    for _ in range(3):
        model(X)
    assert (calls, layer) == (["Net"] * 3, [])


@pytest.mark.slow
def test_compiled_after_it_was_seen(seen: Any) -> None:
    """An observer asks again when there may be a compiled model; parts that run as written count once."""

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return x + 1

    torch._dynamo.reset()
    model = nn.Sequential(Broken(), nn.Linear(3, 3))
    calls: list[int] = []

    def around(module: Any, go_on: Callable[..., Any], arguments: Any, more: Any) -> Any:
        calls.append(1)
        return go_on(*arguments, **more)

    observer = Observer(model, around)
    compiled = torch.compile(model, backend="eager")
    observer.see_compiled()
    observer.see_compiled()
    compiled(X)
    compiled(X)
    assert len(calls) == 2
    observer.remove()
    observer.see_compiled()
    compiled(X)
    assert len(calls) == 2


def test_several_observers_and_instances(seen: Any) -> None:
    """Each sees its own module; the last one is called around the others; removing one leaves the rest."""
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    first, second, of_two = seen(one), seen(one), seen(two)
    order: list[str] = []

    def changed(module: Any, go_on: Callable[..., Any], arguments: Any, more: Any) -> Any:
        order.append("in")
        answer = go_on(arguments[0] * 2, **more)
        order.append("out")
        return answer

    observer = Observer(one, changed)
    assert torch.equal(one(X), one.forward(X * 2))
    observer.remove()
    assert torch.equal(one(input=X), one.forward(X))
    two(X)
    assert (len(first), len(second), len(of_two), order) == (2, 2, 1, ["in", "out"])


def test_module_that_has_ended_is_forgotten(seen: Any) -> None:
    """Without a garbage collection; the class is as before, and a new module of the same address isn't looked at."""
    gc.disable()
    try:
        model = nn.Linear(3, 3)
        gone = weakref.ref(model)
        calls = seen(model)
        del model
        assert gone() is None
        assert "__call__" not in vars(nn.Linear)
        for _ in range(20):
            nn.Linear(3, 3)(X)
        assert calls == []
    finally:
        gc.enable()


def test_call_of_a_class_that_somebody_else_replaced_stays_theirs() -> None:
    """What was put over ours is left where it is."""

    class Own(nn.Linear):
        pass

    model = Own(3, 3)
    observer = Observer(model, lambda module, go_on, arguments, more: go_on(*arguments, **more))
    ours = vars(Own)["__call__"]
    theirs = lambda self, *arguments: ours(self, *arguments)  # noqa: E731
    Own.__call__ = theirs
    observer.remove()
    assert vars(Own)["__call__"] is theirs
    model(X)


def test_exception_of_a_module_goes_on(seen: Any) -> None:
    """To the caller; the call isn't counted by who counts what came back."""
    model = nn.Linear(3, 3)
    calls = seen(model)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 4))
    assert calls == []


def test_class_that_is_pickled_by_its_value_leaves_observers_out(seen: Any) -> None:
    """As Ray, joblib and submitit send classes of ``__main__``."""
    cloudpickle = pytest.importorskip("cloudpickle")
    names: dict[str, Any] = {"nn": nn, "__name__": "__main__"}
    exec("class Mine(nn.Linear):\n    def forward(self, x):\n        return super().forward(x) * 2", names)
    model = names["Mine"](3, 3)
    calls = seen(model)
    calls.append(lock := threading.Lock())  # which can't be pickled
    sent_bytes = cloudpickle.dumps(model)
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()  # as in another process
    other = cloudpickle.loads(sent_bytes)
    assert type(other) is not type(model)
    assert torch.equal(other(X), model(X))
    assert calls == [lock, "Mine"]
