"""A training loop where nothing is recorded."""

from __future__ import annotations

import contextlib

from trackers.instruments.timers import NULL, NullTimer, Timers


class NullLoop:
    """A loop that measures nothing: see :class:`trackers.instruments.loop.Loop`."""

    steps = 0

    def __init__(self) -> None:
        self.timers = Timers(-1)

    def timer(self, name: str, level: int = 0, device: str = "auto") -> NullTimer:
        """A timer that measures nothing."""
        return NULL

    def pause(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def checkpoint(self) -> contextlib.AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def step(self, samples: int | None = None, tokens: int | None = None) -> None:
        """Counts, and nothing else."""
        self.steps += 1

    def pace(self) -> None:
        """Unknown."""

    def close(self) -> None:
        """Nothing."""
