"""Detection of slow ranks, as by Megatron's ``StragglerDetector``, without waiting for a GPU or another rank."""

from __future__ import annotations

import dataclasses
import math
from types import TracebackType
from typing import Any

from trackers.errors import UsageError
from trackers.formats.megatron_line import STRAGGLER_ENDS, TRACED
from trackers.instruments.timers import NULL, Interval, NullTimer, Timer, Timers

DATA = "batch-generator"
FORWARD_PART = 3.0
"""Divisor of an iteration's operations if only the forward pass was traced: two thirds belong to the backward pass."""


@dataclasses.dataclass(kw_only=True)
class StragglerDetectionConfig:
    """Configuration of the stragglers' report: fields as in Megatron. The report is on by default.

    Args:
        log_straggler: print the report. straggler_minmax_count: how many ranks are named at the bottom and the top,
            where there are more; 1: the slowest and the quickest alone.
        enable_straggler_on_startup, disable_straggler_on_startup: likewise, as Megatron Bridge and Megatron-LM call it.
        straggler_ctrlr_port: has no effect: nothing listens on a port here.
    """

    log_straggler: bool = True
    straggler_minmax_count: int = STRAGGLER_ENDS
    enable_straggler_on_startup: bool = True
    disable_straggler_on_startup: bool = False
    straggler_ctrlr_port: int = 65535

    @property
    def enabled(self) -> bool:
        """Whether the report is printed."""
        return self.log_straggler and self.enable_straggler_on_startup and not self.disable_straggler_on_startup

    def check(self) -> None:
        """Raise UsageError for a value that makes no sense."""
        for field in ("log_straggler", "enable_straggler_on_startup", "disable_straggler_on_startup"):
            if not isinstance(getattr(self, field), bool):
                raise UsageError(f"{field}={getattr(self, field)!r}: give True or False")
        count = self.straggler_minmax_count
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UsageError(f"straggler_minmax_count={count!r}: give the ranks to name, 1 or more")


class StragglerTimer:
    """Traces what tells ranks apart: ``with log.straggler_timer:`` around the forward pass, and
    ``with log.straggler_timer(bdata=True):`` around getting a batch. Has the calls of Megatron's detector.

    Args:
        enabled: else it measures nothing. timers: where it measures. rank, world_size: this process's.
    """

    def __init__(self, enabled: bool, timers: Timers, rank: int, world_size: int) -> None:
        self.enabled = enabled
        self.my_rank = rank
        self.world_size = world_size
        self._timers = timers
        self._work: Timer | NullTimer = NULL
        self._data: Timer | NullTimer = NULL
        self._now: list[Timer | NullTimer] = []
        self._bdata = False
        self._reading: Interval | None = None

    @property
    def configured(self) -> bool:
        """Always: ``trackers.frameworks.megatron.start`` configures it."""
        return True

    def configure(self, *arguments: Any, **more: Any) -> None:
        """Nothing: ``start(straggler=StragglerDetectionConfig(…))`` says how stragglers are reported."""

    def report(self, total_flops: float = 0.0, log_interval: int = 0) -> bool:
        """False: ``training_log`` prints the report each ``log_interval``."""
        return False

    def reset(self) -> None:
        """Nothing: each report is of its own interval."""

    def elapsed(self) -> tuple[float, float, int, int, int, int]:
        """As Megatron's: milliseconds traced and of data since the last call; temperature, power, utilisation and
        clock are in the report alone, here 0."""
        if self._reading is None:
            self._reading = self._timers.interval()
            return 0.0, 0.0, 0, 0, 0, 0
        spans = self._reading.take()
        ms = [1000 * spans[name].elapsed_s if name in spans else 0.0 for name in (TRACED, DATA)]
        work, data = (value if math.isfinite(value) else 0.0 for value in ms)
        return work, data, 0, 0, 0, 0

    def __call__(self, bdata: bool = False) -> StragglerTimer:
        """The same, for what gets a batch where ``bdata`` is true."""
        self._bdata = bdata
        return self

    def start(self) -> None:
        """Begin to trace."""
        bdata, self._bdata = self._bdata, False
        if not self.enabled:
            return
        if self._work is NULL:
            self._work = self._timers.get(TRACED, 0)
            self._data = self._timers.get(DATA, 0, "cpu")
        timer = self._data if bdata else self._work
        self._now.append(timer)
        timer.__enter__()

    def stop(self) -> None:
        """Stop tracing."""
        if self._now:
            self._now.pop().__exit__(None, None, None)

    def __enter__(self) -> StragglerTimer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._now:
            self._now.pop().__exit__(kind, error, trace)
