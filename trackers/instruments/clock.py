"""The time that training steps take, without evaluation, checkpoints and the first step, which compiles; the device."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from trackers.instruments.timers import Timer, TimerReading, Timers, TimerSpan, cuda_in_use

FIRST_STEP = "first-step"


class TrainingClock:
    """Runs while training does, from when it is made. On a GPU it is the GPU's own clock, read later.

    Attributes:
        steps: how many steps ended.
    """

    def __init__(self, device: str = "auto", say: Callable[[str], None] = lambda line: None) -> None:
        self._timers = Timers(0, say=say)
        timer = self._timers.get("interval", device=device)
        assert isinstance(timer, Timer)
        self._timer = timer
        self._origin = timer.reading()
        self._paused = 0
        self._device = device
        self._apart: dict[str, list[TimerSpan]] = {}
        self.steps = 0
        timer.start()

    def step(self) -> TimerReading:
        """A step ended: the clock's reading."""
        reading = self._timer.reading()
        self.steps += 1
        if self.steps == 1:
            self._apart[FIRST_STEP] = [TimerSpan(self._timer, self._origin, reading)]
        return reading

    def reading(self) -> TimerReading:
        """The clock's reading now."""
        return self._timer.reading()

    def span(self, first: TimerReading, last: TimerReading) -> TimerSpan:
        """What passed between two readings."""
        return TimerSpan(self._timer, first, last)

    @contextlib.contextmanager
    def pause(self, what: str) -> Iterator[None]:
        """Stop the clock for the body, whose own time is kept under its name. A pause within a pause is part of it."""
        if self._paused:
            yield
            return
        own = self._timers.get(f"pause {what}", device=self._device)
        assert isinstance(own, Timer)
        first = own.reading()
        self._paused += 1
        self._timer.stop()
        own.start()
        try:
            yield
        finally:
            own.stop()
            self._timer.start()
            self._paused -= 1
            self._apart.setdefault(what, []).append(TimerSpan(own, first, own.reading()))

    def take_apart(self) -> dict[str, list[TimerSpan]]:
        """What was kept apart since the last call, by name: ``first-step`` and the pauses."""
        spans, self._apart = self._apart, {}
        return spans


GIB = 1024**3


def accelerator() -> dict[str, Any]:
    """``accelerator`` (cuda, rocm or cpu), ``gpu``, ``gpu_memory_gib``, ``gpu_count`` and versions; {} without torch.

    ``cpu`` is said where torch is loaded and has used no CUDA so far: ask when training has begun, or ended.
    """
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    if torch is None or version is None:
        return {}
    details: dict[str, Any] = {"pytorch_version": str(version)}
    cuda = cuda_in_use()
    if cuda is None:
        others = (getattr(torch, "xpu", None), getattr(torch, "mps", None))
        asked = [getattr(other, "is_initialized", getattr(other, "is_available", bool)) for other in others]
        return details if any(ask() for ask in asked) else {**details, "accelerator": "cpu"}
    hip = getattr(torch.version, "hip", None)
    details["accelerator"] = "rocm" if hip else "cuda"
    if hip:
        details["rocm_version"] = str(hip).split("-")[0]
    elif torch.version.cuda:
        details["cuda_version"] = str(torch.version.cuda)
    properties = cuda.get_device_properties(cuda.current_device())
    details |= {"gpu": str(properties.name), "gpu_memory_gib": properties.total_memory / GIB}
    return {**details, "gpu_count": int(cuda.device_count())}
