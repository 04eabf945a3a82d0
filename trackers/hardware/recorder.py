"""From readings to records: samples folded over time, written when they are due.

What is written: ``gpu/*`` at the newest step that training has logged, each time that there is a newer one (at most
once a sample) and else once an interval; ``system.*`` once an interval, without a step; throttle reasons as text when
they change; the energy's totals as results, at the end. Times are the last sample's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trackers.hardware import metric_names
from trackers.hardware.energy import J_PER_KWH, EnergyCounter
from trackers.hardware.gpus.base import Gpu, GpuEvent, Reading
from trackers.hardware.host import HostReading, JobProcesses
from trackers.hardware.metric_names import Window
from trackers.hardware.plan import SamplingPlan
from trackers.records import Alert, Metrics, Record, Summary, Text

LONGEST_WEIGHT = 5
"""Maximum weight of a sample, in intervals; it covers the time since the previous one."""
NOTHING = "none"
"""Text of the throttle reasons when there are none any more."""


class ReadsGpus(Protocol):
    """The part of :class:`trackers.hardware.gpus.detect.Gpus` that is used here."""

    @property
    def events(self) -> Sequence[GpuEvent]:
        """What happened to them so far."""

    def read(self, whole: bool = False) -> list[Reading]:
        """One reading of each GPU; whole: also of what is read only every few seconds otherwise."""

    def label(self, gpu: Gpu) -> str:
        """What names a GPU in metrics."""


class ReadsHost(Protocol):
    """The part of :class:`trackers.hardware.host.Host` that is used here."""

    def read(self) -> HostReading:
        """The host now."""


class Sampling:
    """Turns readings into records.

    Args:
        gpus, host: what is read.
        write: takes each record.
        step: the newest step that training has logged, None before the first.
        before_j: energy that earlier attempts, or an earlier sampler of this one, counted.
        clock: the monotonic clock. now: Unix seconds.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        gpus: ReadsGpus,
        host: ReadsHost,
        write: Callable[[Record], None],
        step: Callable[[], int | None],
        *,
        before_j: float = 0.0,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._gpus = gpus
        self._host = host
        self._write = write
        self._step = step
        self._before_j = before_j
        self._clock = clock
        self._now = now
        self._energy = EnergyCounter()
        self._machine, self._job = Window(), Window()
        self._prefix = metric_names.node_prefix(plan.node, plan.nodes)
        self._sampled = clock()
        self._machine_since = self._job_since = self._sampled
        self._time = self._written_at = now()
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._whole: tuple[int | None, float] | None = None
        self._job_processes = JobProcesses(plan.pid)
        self._seen = len(gpus.events)
        self._throttle: dict[str, tuple[str, ...]] = {}
        self._throttled: dict[str, set[str]] = {}

    def begin(self) -> None:
        """Note where energy and steps are counted from."""
        self._energy.add(self._gpus.read(whole=True), self._clock())
        self._first_step = self._step()

    def take(self) -> None:
        """Take one sample, and write what is due."""
        self._sample()
        self._write_due(self._sampled)

    def _sample(self, whole: bool = False) -> None:
        readings, host = self._gpus.read(whole), self._host.read()
        now = self._clock()
        weight_s = min(max(now - self._sampled, 1e-3), LONGEST_WEIGHT * self._plan.interval_s)
        self._sampled, self._time = now, self._now()
        self._energy.add(readings, now)
        if self._energy.complete and self._energy.total_j is not None:
            self._whole = self._step(), self._energy.total_j
        self._machine.add(self._machine_values(readings, host), weight_s)
        self._job.add(self._job_values(readings), weight_s)
        for reading in readings:
            if reading.throttle is not None:
                self._throttled.setdefault(self._gpus.label(reading.gpu), set()).update(reading.throttle)
        for event in self._gpus.events[self._seen :]:
            self._seen += 1
            title = f"GPU {self._gpus.label(event.gpu)}: Xid {event.code}"
            self._write_record(
                Alert(time=self._time, step=self._step(), title=title, text=event.text, level=event.level)
            )

    def finish(self, ended: float | None = None) -> None:
        """Write the last interval and the energy's totals.

        Args:
            ended: when training ended: what is written isn't later, where that can be.
        """
        self._sample(whole=True)
        if ended is not None:
            self._time = max(min(self._time, ended - 1e-6), self._written_at)
        step = self._step()
        if self._machine.samples:
            self._write_machine()
        if self._job.samples and step is not None:
            self._write_job(step)
        totals = self._totals()
        if totals:
            self._write_record(Summary(time=self._time, step=step, values=totals))

    def _write_record(self, record: Record) -> None:
        self._written_at = record.time
        self._write(record)

    def _machine_values(self, readings: list[Reading], host: HostReading) -> dict[str, float]:
        values = metric_names.host_values(host, self._prefix)
        for reading in readings:
            prefix = f"{self._prefix}gpu.{self._gpus.label(reading.gpu)}."
            values.update(metric_names.gpu_values(reading, self._energy.used_j(reading), prefix))
            values.update(metric_names.user_values(reading, self._job_processes.has, prefix))
        return values

    def _job_values(self, readings: list[Reading]) -> dict[str, float]:
        used_j = self._energy.total_j
        values = metric_names.job_values(readings, None if used_j is None else self._before_j + used_j)
        if self._plan.nodes > 1:
            return {
                name.replace(metric_names.JOB, f"{metric_names.JOB}node{self._plan.node}/", 1): v
                for name, v in values.items()
            }
        return values

    def _write_due(self, now: float) -> None:
        if now - self._machine_since >= self._plan.record_s:
            self._write_machine()
        step = self._step()
        if step is None:
            return
        self._first_step = step if self._first_step is None else self._first_step
        if step != self._last_step or now - self._job_since >= self._plan.record_s:
            self._write_job(step)

    def _write_machine(self) -> None:
        self._machine_since = self._sampled
        values = metric_names.recorded(self._machine.close())
        if values:
            self._write_record(Metrics(time=self._time, values=values))
        texts = {}
        for label, reasons in self._throttled.items():
            fresh = tuple(sorted(reasons))
            if fresh != self._throttle.get(label, ()):
                texts[f"{self._prefix}gpu.{label}.throttle"] = ", ".join(fresh) or NOTHING
            self._throttle[label] = fresh
        self._throttled = {}
        if texts:
            self._write_record(Text(time=self._time, values=texts))

    def _write_job(self, step: int) -> None:
        self._job_since, self._last_step = self._sampled, step
        values = metric_names.recorded(self._job.close())
        if values:
            self._write_record(Metrics(time=self._time, step=step, values=values))

    def _totals(self) -> dict[str, Any]:
        used_j = self._energy.total_j
        if used_j is None:
            return {}
        name = "energy/" if self._plan.nodes <= 1 else f"energy/node{self._plan.node}/"
        kwh = (self._before_j + used_j) / J_PER_KWH
        last, whole_j = self._whole or (None, 0.0)
        source = self._energy.method
        if not self._energy.complete:  # a GPU, or the driver, went away and didn't come back
            source += "; incomplete" + (f" since step {last}" if last is not None else "")
        totals: dict[str, Any] = {f"{name}total_kwh": kwh, f"{name}source": source}
        if self._first_step is not None and last is not None and last > self._first_step:
            totals[f"{name}per_step_j"] = whole_j / (last - self._first_step)
        if self._plan.co2_g_per_kwh > 0:
            totals[f"{name}co2_g"] = kwh * self._plan.co2_g_per_kwh
        return totals
