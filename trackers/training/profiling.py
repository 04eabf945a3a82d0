"""A run's profiler, and the detection of its accelerator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackers.instruments.profiler import Profiler
    from trackers.training.recorder import Recorder


class Profiling:
    """Mixed into :class:`trackers.training.run.Run` beside what it measures with."""

    _recorder: Recorder
    _profiler: Profiler | None = None
    _accelerator: dict[str, Any] | None = None

    if TYPE_CHECKING:
        log_artifact: Any

        def close_with(self, instrument: Any) -> None: ...

    def _drive_profiler(self, start_step: int) -> Profiler | None:
        """The run's profiler, for whoever tells it of steps: None where TRACKER_PROFILE is off, on ranks other than
        the main one, and for all but the first who asks.

        Raises:
            MissingPackage: no torch. UsageError: its directory can't be made.
        """
        if self._profiler is not None or not self._is_main():
            return None
        from trackers.instruments.profiler import Profiler, ProfilerSchedule
        from trackers.support import launcher

        info = self._recorder.info
        schedule = ProfilerSchedule.from_options(info.option)
        if schedule is None:
            return None
        self._profiler = Profiler(
            schedule,
            home=info.cwd,
            name=info.id,
            rank=launcher.rank(),
            keep=self._keep_trace,
            say=self._recorder.problem,
            start_step=start_step,
        )
        self.close_with(self._profiler)
        return self._profiler

    def _keep_trace(self, path: Path) -> None:
        # A trace is written once, under a name of its own: a link keeps it as it is.
        self.log_artifact(path, name=path.stem, type="profile", policy="link")

    def _note_accelerator(self, ended: bool) -> None:
        """Record what training runs on, if that isn't known yet. Before its end only what is in use is sure."""
        if not self._is_main():
            return
        from trackers.instruments.clock import accelerator
        from trackers.records import Environment

        device = accelerator()
        if device and device != self._accelerator and (ended or device.get("accelerator") != "cpu"):
            self._accelerator = device
            self._recorder.record(Environment(time=self._recorder.now(), values=device))

    def _is_main(self) -> bool:
        return bool(self._recorder.is_main)
