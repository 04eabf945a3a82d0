"""A PyTorch profiler's schedule over a loop's steps: Chrome traces in ``profile_logs/``, each kept with the run.

The first step, which compiles, is never in a trace. Then ``wait`` steps pass, ``warmup`` steps are traced and dropped,
``active`` steps are traced and written; that is done ``repeat`` times, after which the profiler is gone. Traced steps
are slower, and the step that writes a trace takes as long as that takes: docs/benchmark.md has figures.
https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.instruments.timers import cuda_in_use
from trackers.support.interruption import pass_on
from trackers.support.optional import torch_for

DIRECTORY = "profile_logs"
PREFIX = "perf_logs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfilerSchedule:
    """Schedule of traces, in steps; ``directory``: where traces are written."""

    wait: int = 10
    warmup: int = 2
    active: int = 3
    repeat: int = 1
    directory: str = DIRECTORY

    def __post_init__(self) -> None:
        """Refuse what is no schedule.

        Raises:
            UsageError: a number that is out of range.
        """
        for name, least in (("wait", 0), ("warmup", 0), ("active", 1), ("repeat", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"profile: {name}={value!r}: give a whole number of steps, {least} or more")

    @classmethod
    def from_options(cls, option: Callable[[str, Any], Any]) -> ProfilerSchedule | None:
        """As the options say; None where TRACKER_PROFILE is off.

        Args:
            option: asks for one, by its Kconfig symbol and its default.
        """
        if not option("TRACKER_PROFILE", False):
            return None
        numbers = {
            name: int(option(f"TRACKER_PROFILE_{name.upper()}", getattr(cls, name)))
            for name in ("wait", "warmup", "active", "repeat")
        }
        return cls(**numbers, directory=str(option("TRACKER_PROFILE_DIR", DIRECTORY)))


class Profiler:
    """Follows a loop's steps. No fault of its own stops training: it is said once, and profiling ends.

    Args:
        schedule: which steps. home: what its directory is relative to.
        name: tells its traces from others', in their files' names. rank: this process's.
        keep: called with each trace's file. say: called with a line that says what went wrong.
        start_step: steps done before this start.

    Attributes:
        traces: the files that were written.

    Raises:
        MissingPackage: no torch. UsageError: the directory can't be made.
    """

    def __init__(
        self,
        schedule: ProfilerSchedule,
        *,
        home: str | Path = ".",
        name: str = "",
        rank: int = 0,
        keep: Callable[[Path], Any] = lambda path: None,
        say: Callable[[str], None] = lambda line: None,
        start_step: int = 0,
    ) -> None:
        self._torch = torch_for("TRACKER_PROFILE")
        self._schedule = schedule
        self._directory = Path(home, Path(schedule.directory).expanduser())
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            pass_on(error)
            raise UsageError(f"TRACKER_PROFILE_DIR={schedule.directory}: it can't be made ({error.strerror})") from None
        stamp = time.strftime("%Y%m%d_%H%M%S")
        self._stem = "_".join(filter(None, (PREFIX, re.sub(r"[^\w.\-]", "_", name) or stamp, f"rank{rank}")))
        self._keep = keep
        self._say = say
        self._profile: Any = None
        self._over = False
        self._steps = start_step
        self._left = 0
        self._cycles = 0
        self.traces: list[Path] = []

    def step(self) -> None:
        """A step has ended; never raises."""
        self._steps += 1
        if self._over:
            return
        try:
            if self._profile is None:
                self._start()
                return
            self._left -= 1
            if self._left >= self._schedule.active and self._others():
                self._profile = None  # not stopped: that would end the other one
                raise RuntimeError("another profiler is at work")
            if self._left > 0:
                self._profile.step()
                return
            self._stop()
            self._cycles += 1
            if self._cycles < self._schedule.repeat:
                self._start()
            else:
                self._over = True
        except Exception as error:
            pass_on(error)
            self._fail(error)

    def close(self) -> None:
        """End: what was traced of an unfinished cycle is written; never raises."""
        if self._profile is not None and not self._over:
            try:
                self._stop()
            except Exception as error:
                pass_on(error)
                self._fail(error)
        self._over = True

    def _start(self) -> None:
        profiler, plan = self._torch.profiler, self._schedule
        if self._others():
            raise RuntimeError("another profiler is at work")
        activities = [profiler.ProfilerActivity.CPU]
        if cuda_in_use() is not None:
            activities.append(profiler.ProfilerActivity.CUDA)
        self._left = plan.wait + plan.warmup + plan.active
        self._profile = profiler.profile(
            activities=activities,
            schedule=profiler.schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=1),
            on_trace_ready=self._write,
        )
        self._profile.start()

    def _others(self) -> bool:
        """Whether somebody else traces in this process, asked while we don't: two would disturb each other."""
        enabled = getattr(self._torch.autograd, "_profiler_enabled", None)
        return bool(enabled is not None and enabled())

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        profile.stop()

    def _write(self, profile: Any) -> None:
        path = self._directory / f"{self._stem}_step{self._steps}.json"
        temporary = path.with_name(f".{path.name}.tmp.json")
        try:
            profile.export_chrome_trace(str(temporary))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        self.traces.append(path)
        self._keep(path)

    def _fail(self, error: Exception) -> None:
        self._over = True
        profile, self._profile = self._profile, None
        self._say(f"profiler: {type(error).__name__}: {error}; no trace is written from now on, training goes on")
        try:
            if profile is not None:
                profile.on_trace_ready = None
                profile.stop()
        except Exception as again:
            pass_on(again)
            self._say(f"profiler: it can't be stopped either: {again}")
