"""A run's instruments, created on first use, so that a run without measurements has no cost."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from trackers.errors import UsageError
from trackers.training.inspecting import Inspecting, NotInspecting
from trackers.training.profiling import Profiling

if TYPE_CHECKING:
    from trackers.instruments.communication import Communication
    from trackers.instruments.loop import Loop, NullLoop
    from trackers.instruments.options import Measure
    from trackers.instruments.plan import LoopPlan
    from trackers.instruments.timers import NullTimer, Timer, TimerLog, Timers
    from trackers.training.recorder import Recorder


RARELY_TOLD = (
    "consumed_samples", "consumed_tokens", "consumed_flops", "micro_batch_size", "precision", "group", "device",
)  # fmt: skip
"""Arguments of ``run.loop`` that say something of the training, beside those that it names."""


class Measuring(Inspecting, Profiling):
    """Instruments of a run. Mixed into :class:`trackers.training.run.Run`."""

    _recorder: Recorder
    _timers: Timers | None = None
    _timer_log: TimerLog | None = None
    _loop: Loop | None = None
    _communications: Communication | None = None
    _closing: tuple[Any, ...] = ()

    if TYPE_CHECKING:
        config: Any

        @property
        def resumed(self) -> bool: ...

        def log(self, data: Any, step: int | None = None) -> None: ...

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

    def loop(
        self,
        total_steps: int | None = None,
        *,
        start_step: int | None = None,
        samples_per_step: int | None = None,
        tokens_per_step: int | None = None,
        flops_per_token: float | None = None,
        flops_per_step: float | None = None,
        model: Any = None,
        optimizer: Any = None,
        **more: Any,
    ) -> Loop:
        """Measure a training loop: call the result's ``step()`` at the end of each step.

        What is measured say the options TRACKER_LOG_THROUGHPUT, TRACKER_LOG_MEMORY, TRACKER_LOG_NORMS, … (the
        flags ``--tracker-log-throughput``, …), or arguments: ``throughput=True``, ``norms=True``, ``interval=1``, …
        (:class:`trackers.instruments.options.Measure`).

        Args:
            start_step: steps done before this start; default the run's last step, where it continues an earlier
                attempt alone. Several ranks must be told: only the main one knows the run's history.
            **more: ``precision``, ``micro_batch_size``, ``group``, ``device``; ``consumed_samples``,
                ``consumed_tokens``, ``consumed_flops``: gone through before this start, default what the run's
                checkpoint at start_step was recorded by (``loop.checkpoint()``), else start_step times so many. These
                and the arguments above are explained in :class:`trackers.instruments.plan.LoopPlan`. All others say
                what to measure.

        Raises:
            UsageError: an argument that makes no sense, or a start_step that is missing. MissingPackage: norms
                without torch.
        """
        from trackers.instruments.energy import RunEnergy
        from trackers.instruments.loop import Loop
        from trackers.instruments.options import Measure
        from trackers.instruments.plan import LoopPlan

        asked = LoopPlan(
            total_steps=total_steps, start_step=start_step, samples_per_step=samples_per_step,
            tokens_per_step=tokens_per_step, flops_per_token=flops_per_token, flops_per_step=flops_per_step,
            model=model, optimizer=optimizer, **{name: more.pop(name) for name in RARELY_TOLD if name in more},
        )  # fmt: skip
        asked.check()
        timers = self.timers
        self._leave_earlier_loop()
        chosen = Measure.from_options(self._recorder.info.option).changed(more)
        plan = self._completed(asked)
        self._say_lacking(chosen, model, total_steps)
        if total_steps is not None:
            self._recorder.guard("loop", self._say_total, total_steps)
        energy = None
        if chosen.energy:
            energy = RunEnergy(self._recorder.problem, ranks=plan.ranks if plan.together else 1)
        self._loop = Loop(
            self.log, self._recorder.problem, chosen, timers, plan,
            communication=self.communications, energy=energy, look=self._recorder.look,
        )  # fmt: skip
        self._loop.profiler = self._drive_profiler(self._loop.steps)
        self._note_accelerator(ended=False)
        self.inspect_if_asked(model, self._loop.steps)
        self._loop.inspection = self._inspection
        return self._loop

    def _leave_earlier_loop(self) -> None:
        if self._timer_log is not None:
            self._timer_log.leave()
        if self._loop is not None:
            self._loop.close()

    def _completed(self, asked: LoopPlan) -> LoopPlan:
        """The plan with what the run knows: its ranks, and where it continues an earlier attempt.

        Raises:
            UsageError: the first step isn't known on every rank.
        """
        from trackers.metrics import checkpoint_keys
        from trackers.support import launcher

        ranks = launcher.world_size()
        if asked.start_step is None and ranks > 1 and self.resumed:
            raise UsageError(
                f"loop: the run goes on after step {self._recorder.step}, which the other ranks can't know: give "
                "start_step (the finished steps of the checkpoint) on every rank"
            )
        start = max(self._recorder.step, 0) if asked.start_step is None else asked.start_step
        before = self.saved(start)
        known: dict[str, Any] = {
            "consumed_samples": before.get(checkpoint_keys.SAMPLES),
            "consumed_tokens": before.get(checkpoint_keys.TOKENS),
            "consumed_flops": before.get(checkpoint_keys.FLOPS),
        }
        missing = {name: value for name, value in known.items() if getattr(asked, name) is None}
        return dataclasses.replace(asked, start_step=start, ranks=ranks, together=self.logs_together, **missing)

    @property
    def communications(self) -> Communication:
        """The run's collectives: ``run.communications.watch(model)`` times those of a wrapped model."""
        if self._communications is None:
            from trackers.instruments.communication import Communication
            from trackers.support import launcher

            self._communications = Communication(launcher.world_size(), self._recorder.problem)
        return self._communications

    def communication(
        self, name: str, bytes: int, kind: str = "all_reduce", ranks: int | None = None, device: str = "auto"
    ) -> AbstractContextManager[Any]:
        """Time a collective as it happens: ``with run.communication("gradient_sync", bytes=n): all_reduce(…)``.

        Logged by the loop, or at the end, as ``communication/{name}/bytes``, ``…/duration_ms``,
        ``…/bandwidth_mb_per_sec``, ``…/algorithm_bandwidth_mb_per_sec`` and ``…/count``: this rank's own.
        See :meth:`trackers.instruments.communication.Communication.timed`.
        """
        return self.communications.timed(name, bytes, kind, ranks, device)

    def _say_lacking(self, chosen: Measure, model: Any, total_steps: int | None) -> None:
        """Name what is asked for and can't be done with what the loop was given."""
        lines = []
        if model is None and (chosen.norms or chosen.layer_norms or chosen.zeros):
            lines.append("norms aren't measured: give run.loop model=")
        if total_steps is None and chosen.runtime:
            lines.append("the remaining time isn't known: give run.loop total_steps=")
        if model is None and self._inspection is None and self._recorder.info.option("TRACKER_TENSOR_INSPECT", ""):
            lines.append("TRACKER_TENSOR_INSPECT looks at nothing yet: give run.loop or run.inspect model=")
        for line in lines if self._is_main() else ():
            self._recorder.problem(f"loop: {line}")

    def _say_total(self, steps: int) -> None:
        """Record where training ends, unless the configuration says so already: lines and logs tell it."""
        from trackers.metrics import groups

        if groups.steps(self.config) is None:
            self.config.update({groups.TOTAL: steps})

    def saved(self, step: int) -> dict[str, Any]:
        """What the checkpoint at a step was recorded by, where this run goes on from an earlier attempt of its own."""
        if not step or not self.resumed:
            return {}
        from trackers.journal.attempts import checkpoint_record

        state: dict[str, Any] = checkpoint_record(self._recorder.run, step)
        return state

    @property
    def logs_together(self) -> bool:
        """Whether times are values of all ranks. By a collective they can't be: every rank would have to log the same
        timers in the same calls, and a GPU's times are known only later, on each rank at a moment of its own."""
        return str(self._recorder.info.option("TRACKER_REDUCE", "")) != "torch"

    def _make_timers(self) -> Timers:
        from trackers.instruments.timers import TimerLog, Timers
        from trackers.support import launcher

        option = self._recorder.info.option
        timers = Timers(
            int(option("TRACKER_TIMING_LEVEL", 0)),
            sync=bool(option("TRACKER_TIMING_SYNC", False)),
            say=self._recorder.problem,
        )
        self._timers = timers
        if option("TRACKER_LOG_TIMERS", True):
            self._timer_log = TimerLog(
                timers,
                self.log,
                lambda: self._recorder.step,
                str(option("TRACKER_TIMING_OPTION", "minmax")),
                launcher.world_size() if self.logs_together else 1,
                int(option("TRACKER_MEASURE_INTERVAL", 10)),
            )
        return timers

    def close_with(self, instrument: Any) -> None:
        """Call an instrument's ``close`` when the run ends, before its last record is written."""
        self._closing = (*self._closing, instrument)

    def _close_instruments(self) -> None:
        if self._loop is not None or "benchmark" in self._recorder.info.trackers:
            self._recorder.guard("finish", self._note_accelerator, True)
        for instrument in self._closing:
            self._recorder.guard("finish", instrument.close)
        self._recorder.guard("finish", self._recorder.log_beside)
        if self._timer_log is not None:
            self._timer_log.close()
        if self._loop is not None:
            self._loop.close()
        if self._communications is not None and (totals := self._communications.take()):
            self.log(totals, max(self._recorder.step, 0))


class NotMeasuring(NotInspecting):
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

    def close_with(self, instrument: Any) -> None:
        """Nothing is recorded: nothing needs closing."""

    def loop(self, total_steps: int | None = None, **arguments: Any) -> NullLoop:
        """A loop that measures nothing."""
        from trackers.instruments.loop import NullLoop

        return NullLoop()

    @property
    def communications(self) -> Communication:
        """Collectives that nobody asks for."""
        from trackers.instruments.communication import Communication

        return Communication()

    @property
    def logs_together(self) -> bool:
        """Nothing is logged."""
        return False

    def saved(self, step: int) -> dict[str, Any]:
        """Nothing was recorded."""
        return {}

    def communication(
        self, name: str, bytes: int, kind: str = "all_reduce", ranks: int | None = None, device: str = "auto"
    ) -> AbstractContextManager[Any]:
        """Nothing is timed."""
        return nullcontext()
