"""``watch(model)``: histograms of gradients and parameters, as W&B's ``watch`` counts them.

Backward passes are counted by hooks of the parameters, forward passes by :mod:`trackers.support.module_calls`, so that
the model can be pickled, copied, scripted and compiled as before. Nothing else is done but at every ``log_freq``-th
pass; what is counted there goes along with the next call of ``log``, under ``gradients/NAME`` and ``parameters/NAME``.
Where the values lie on a GPU, such a pass waits for it once a tensor.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trackers.errors import UsageError
from trackers.media import Histogram
from trackers.support.module_calls import Around, Observer, unserializable

BINS = 64
"""Bins of a histogram, as in W&B."""
WHAT = ("gradients", "parameters", "all", None)


class Watcher:
    """What is watched for one run.

    Args:
        give: takes values that go along with the next call of ``log``.
        text: takes a name and a text, and records it.
        guard: calls a function; what it raises is named once.
    """

    def __init__(
        self, give: Callable[[Mapping[str, Any]], None], text: Callable[[str, str], None], guard: Callable[..., None]
    ) -> None:
        self._give, self._text, self._guard = give, text, guard
        self._handles: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._graphs: list[ModuleGraph] = []
        self._count = 0

    def watch(
        self,
        models: Any,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> None:
        """Begin to watch one model, or several.

        Args:
            models: modules. log: "gradients", "parameters", "all" or None.
            log_freq: how many backward passes (gradients) or forward passes (parameters) lie between two histograms.
            idx: number of the first model; from 1 on its names begin with ``graph_1``. None: models watched before.
            log_graph: record the model's layers as JSON text ``graph_0`` when all of them have run.
            criterion: taken for W&B's sake.

        Raises:
            UsageError: what is no module, an unknown word for log, or a model that is watched already.
        """
        import torch

        if log not in WHAT:
            raise UsageError(f"watch: log={log!r}: known are gradients, parameters, all and None")
        modules = list(models) if isinstance(models, (tuple, list)) else [models]
        for model in modules:
            if not isinstance(model, torch.nn.Module):
                raise UsageError(f"watch takes modules of PyTorch, not {type(model).__name__}")
            if model in self._handles:
                raise UsageError("watch: this model is watched already; unwatch(model) ends that")
        first = self._count if idx is None else int(idx)
        for number, model in enumerate(modules, first):
            prefix = f"graph_{number}" if number > 0 else ""
            handles = self._handles[model] = []
            trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
            if log in ("parameters", "all"):
                observer = Observer(model, self._on_forward(prefix, log_freq))
                handles.append(observer)
                if trained:  # the model may be compiled later
                    handles.append(trained[0][1].register_hook(_see_compiled(observer)))
            if log in ("gradients", "all"):
                for name, parameter in trained:
                    hook = self._on_gradient(f"gradients/{prefix}{name}", log_freq)
                    handles.append(parameter.register_hook(hook))
            if log_graph:
                graph = ModuleGraph(model, f"graph_{number}", self._text, self._guard)
                self._graphs.append(graph)
                handles.extend(graph.handles)
        self._count += len(modules)

    def unwatch(self, models: Any = None) -> None:
        """End watching these models, or all."""
        selected = None if models is None else models if isinstance(models, (tuple, list)) else [models]
        for model in list(self._handles) if selected is None else selected:
            for handle in self._handles.pop(model, ()):
                handle.remove()

    def close(self) -> None:
        """End watching; record the graphs of models that haven't run whole."""
        self.unwatch()
        for graph in self._graphs:
            self._guard("watch", graph.finish)

    def _on_gradient(self, name: str, every: int) -> Callable[[Any], None]:
        calls = 0

        def hook(gradient: Any) -> None:
            nonlocal calls
            calls += 1
            if calls >= every:
                calls = 0
                self._guard("watch", self._look, name, gradient)

        return unserializable(hook)

    def _on_forward(self, prefix: str, every: int) -> Around:
        calls = 0

        def around(module: Any, go_on: Callable[..., Any], arguments: Any, more: Any) -> Any:
            nonlocal calls
            answer = go_on(*arguments, **more)
            if not _is_traced():
                calls += 1
                if calls >= every:
                    calls = 0
                    for name, parameter in module.named_parameters():
                        self._guard("watch", self._look, f"parameters/{prefix}{name}", parameter)
            return answer

        return around

    def _look(self, name: str, tensor: Any) -> None:
        counted = histogram(tensor)
        if counted is not None:
            self._give({name: Histogram(np_histogram=counted)})


def _see_compiled(observer: Observer) -> Callable[[Any], None]:
    return unserializable(lambda gradient: observer.see_compiled())


def _is_traced() -> bool:
    """Whether the model's call is recorded by ``torch.jit.trace``: what is done meanwhile gets into the recording."""
    import torch

    return bool(torch.jit.is_tracing())


def histogram(tensor: Any) -> tuple[list[float], list[float]] | None:
    """Counts and edges of a tensor's finite values: 64 bins, or one where all are equal; None where there are none.

    The implicit zeros of a sparse tensor count.
    """
    import torch

    tensor = tensor.detach()
    zeros = 0
    if tensor.is_sparse:
        values = tensor.coalesce().values()
        zeros, tensor = tensor.numel() - values.numel(), values
    flat = tensor.reshape(-1)
    if flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    finite = torch.isfinite(flat)
    if not bool(finite.all()):
        flat = flat[finite]
    if not flat.numel():
        return None
    least, greatest = torch.stack(torch.aminmax(flat)).tolist()
    if zeros:
        least, greatest = min(least, 0.0), max(greatest, 0.0)
    if least == greatest:
        return [float(flat.numel() + zeros)], [least, greatest]
    counts = torch.histc(flat, BINS, least, greatest).tolist()
    edges = torch.linspace(least, greatest, steps=BINS + 1).tolist()
    if zeros:
        counts[next((n for n in range(BINS) if edges[n] <= 0 < edges[n + 1]), BINS - 1)] += zeros
    return counts, edges


class ModuleGraph:
    """The layers of a model, recorded as JSON text when each has run once: name, class, shape of the output, shapes of
    the parameters."""

    def __init__(self, model: Any, name: str, record: Callable[[str, str], None], guard: Callable[..., None]) -> None:
        self._name, self._record, self._guard = name, record, guard
        self._nodes: list[dict[str, Any]] = []
        self._waiting: dict[str, Observer] = {}
        for layer, module in _layers(model):
            self._waiting[layer] = Observer(module, self._on_forward(layer))
        self.handles = list(self._waiting.values())

    def finish(self) -> None:
        """Record what has run so far, unless it was recorded."""
        if self._nodes:
            nodes, self._nodes = self._nodes, []
            self._record(self._name, json.dumps({"format": "torch", "nodes": nodes, "edges": []}))

    def _on_forward(self, layer: str) -> Around:
        def around(module: Any, go_on: Callable[..., Any], arguments: Any, more: Any) -> Any:
            answer = go_on(*arguments, **more)
            observer = None if _is_traced() else self._waiting.pop(layer, None)
            if observer is not None:
                observer.remove()
                self._guard("watch", self._add, layer, module, answer)
            return answer

        return around

    def _add(self, layer: str, module: Any, answer: Any) -> None:
        sizes = [[name, list(parameter.shape)] for name, parameter in module.named_parameters()]
        self._nodes.append(
            {
                "name": layer,
                "class_name": str(module),
                "output_shape": _shape(answer),
                "parameters": sizes,
                "num_parameters": [math.prod(size) for _, size in sizes],
            }
        )
        if not self._waiting:
            self.finish()


def _layers(module: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The layers below a module by name: its children, and for containers theirs."""
    import torch

    containers = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
    for name, child in module.named_children():
        whole = f"{prefix}.{name}" if prefix else name
        if isinstance(child, containers):
            yield from _layers(child, whole)
        else:
            yield whole, child


def _shape(answer: Any) -> Any:
    if hasattr(answer, "shape"):
        return list(answer.shape)
    if isinstance(answer, (tuple, list)):
        return [_shape(item) for item in answer]
    return []
