"""Sweeps: points of a space of parameters, each trained by a process of its own, on one machine or by workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackers_sweeps.python import SweepResults, Trained, sweep

__all__ = ["SweepResults", "Trained", "sweep"]


def __getattr__(name: str) -> Any:
    """What is named above, loaded when it is used: the command's help needs none of it."""
    if name in __all__:
        from trackers_sweeps import python

        return getattr(python, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
