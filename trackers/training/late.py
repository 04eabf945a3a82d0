"""Calls of a run while the interpreter ends (``__del__``), when nothing can be imported: nothing is done, and
one line says that."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any


class Late:
    """What such a call gives: false, a context manager and a decorator that change nothing."""

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Late:
        return self

    def __exit__(self, *of: object) -> None:
        """Nothing."""

    def __iter__(self) -> Any:
        return iter(())

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        return arguments[0] if arguments and callable(arguments[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy and pickle ask for must be missing
            raise AttributeError(name)
        return self


def say(what: str, said: list[str] = []) -> None:  # noqa: B006
    """Say, once in this process, that a call came too late."""
    if not said:
        said.append(what)
        with contextlib.suppress(OSError):  # by the descriptor: sys.stderr may be gone
            os.write(2, f"trackers: {what}: Python is ending (a __del__ called): it isn't recorded\n".encode())


def quiet(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that does nothing, and gives :class:`Late`, once the interpreter ends."""

    @functools.wraps(method)
    def call(*arguments: Any, **more: Any) -> Any:
        try:
            return method(*arguments, **more)
        except Exception:
            if sys.is_finalizing():  # what it needs is gone
                say(method.__name__)
                return Late()
            raise

    return call


def quiet_at_the_end(kind: type, names: Iterable[str]) -> None:
    """Have methods of a class be :func:`quiet`."""
    for name in names:
        setattr(kind, name, quiet(getattr(kind, name)))
