"""Calls of PyTorch's modules, seen without attaching anything to a module.

A hook of PyTorch's is a part of its module: it is pickled and copied with it, and ``torch.jit.script`` compiles it.
Here the module's class has another ``__call__`` while somebody looks at one of its instances. Copies of the module
aren't looked at. What ``torch.compile`` and ``torch.export`` make has nothing of it: a compiled model is seen where it
is called.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

Around = Callable[[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called in the place of a call: with the module, the call itself and its arguments; gives the module's output."""


class _Observers(dict[int, list["Observer"]]):
    """Who looks at instances of a class, by their ``id``. A class that is pickled by its value leaves them out."""

    def __reduce__(self) -> Any:
        return dict, ()


class Observer:
    """Has a function called in the place of a module's calls, until ``remove`` or the module's end."""

    def __init__(self, module: Any, around: Around) -> None:
        self._around = around
        self._module = weakref.ref(module, lambda ended: self.remove())
        self._key = id(module)
        self._places: dict[Any, _Observers] = {}
        self._within = 0
        self._look_at(type(module))
        self.see_compiled()

    def see_compiled(self) -> None:
        """See calls of what ``torch.compile`` made of the module, too, as soon as there is such a thing."""
        loaded = sys.modules.get("torch._dynamo.eval_frame")
        if loaded is not None and self._places:
            self._look_at(loaded.OptimizedModule)

    def remove(self) -> None:
        """See no call any more."""
        places, self._places = self._places, {}
        for kind, observers in places.items():
            others = [other for other in observers.pop(self._key, ()) if other is not self]
            if others:
                observers[self._key] = others
            if not observers:
                _restore(kind, observers)

    def _look_at(self, kind: Any) -> None:
        if kind not in self._places:
            here = self._places[kind] = getattr(kind.__dict__.get("__call__"), "observers", None) or _replace(kind)
            here[self._key] = [*here.get(self._key, ()), self]

    def _call(self, module: Any, compiled: bool, go_on: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        if self._within:  # of a compiled model, torch.compile runs a part as it is
            return go_on(*arguments, **more)
        self._within += compiled
        try:
            return self._around(module, go_on, arguments, more)
        finally:
            self._within -= compiled


def unserializable(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """The hook of a tensor: torch leaves it out without a warning when it sends the tensor to another process."""
    hook.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return hook


def _replace(kind: Any) -> _Observers:
    """Give a class a ``__call__`` that asks the observers of its instances."""
    import torch

    own, observers = kind.__dict__.get("__call__"), _Observers()
    is_compiling = torch.compiler.is_compiling
    wraps = kind.__module__ == "torch._dynamo.eval_frame"

    def call(self: Any, *arguments: Any, **more: Any) -> Any:
        go_on = super(kind, self).__call__ if own is None else functools.partial(own, self)
        if is_compiling():
            return go_on(*arguments, **more)
        for module in (self, self._modules["_orig_mod"]) if wraps else (self,):
            for observer in observers.get(id(module), ()):
                go_on = functools.partial(observer._call, module, module is not self, go_on)
        return go_on(*arguments, **more)

    functools.update_wrapper(call, kind.__call__)
    vars(call).update(observers=observers, own=own)
    kind.__call__ = call
    return observers


def _restore(kind: Any, observers: _Observers) -> None:
    ours: Any = kind.__dict__.get("__call__")
    if getattr(ours, "observers", None) is not observers:  # somebody else has replaced it meanwhile
        return
    if ours.own is None:
        del kind.__call__
    else:
        kind.__call__ = ours.own
