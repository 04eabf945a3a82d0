"""How a run comes by its instruments: made at the first call, so that a run that measures nothing pays nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackers.instruments.timer_values import TimerLog
    from trackers.instruments.timers import NullTimer, Timer, Timers
    from trackers.recorder import Recorder


class Measuring:
    """What a run measures with. Mixed into :class:`trackers.runs.Run`."""

    _recorder: Recorder
    _timers: Timers | None = None
    _timer_log: TimerLog | None = None

    if TYPE_CHECKING:

        def log(self, values: Any, step: int | None = None) -> None: ...

    @property
    def timers(self) -> Timers:
        """The run's timers, by TRACKER_TIMING_LEVEL; ``timers.interval()`` reads them for yourself."""
        return self._make_timers() if self._timers is None else self._timers

    def timer(self, name: str, level: int = 0, device: str = "auto") -> Timer | NullTimer:
        """A timer: ``with run.timer("forward", level=1):``, ``start()`` and ``stop()``, or a decorator.

        Args:
            name: logged as ``{name}-time``, seconds per step.
            level: 0 the iteration, 1 once in each, 2 often; above TRACKER_TIMING_LEVEL it measures nothing.
            device: "cuda": GPU time, by events that are read later, without any synchronisation (unless
                TRACKER_TIMING_SYNC); "cpu": the processor's clock; "auto": the GPU's where CUDA is in use.
        """
        timers = self.timers
        object.__setattr__(self, "timer", timers.get)  # so that the next call is a call of that
        return timers.get(name, level, device)

    def _make_timers(self) -> Timers:
        from trackers.instruments.timer_values import TimerLog
        from trackers.instruments.timers import Timers

        option = self._recorder.info.option
        timers = Timers(
            int(option("TRACKER_TIMING_LEVEL", 0)),
            sync=bool(option("TRACKER_TIMING_SYNC", False)),
            say=self._recorder.problem,
        )
        self._timers = timers
        if option("TRACKER_LOG_TIMERS", True):
            self._timer_log = TimerLog(timers, self.log, lambda: self._recorder.step)
        return timers

    def _close_instruments(self) -> None:
        if self._timer_log is not None:
            self._timer_log.close()


class NotMeasuring:
    """The same where nothing is recorded."""

    @property
    def timers(self) -> Timers:
        """No timers."""
        from trackers.instruments.timers import Timers

        return Timers(-1)

    def timer(self, name: str, level: int = 0, device: str = "auto") -> NullTimer:
        """A timer that measures nothing."""
        from trackers.instruments.timers import NULL

        return NULL
