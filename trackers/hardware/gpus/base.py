"""GPUs and their readings, for all vendors: SI units; values that a GPU doesn't report are absent.

Sources (:class:`GpuSource`) give readings; nothing else in the package knows a vendor. A field that a driver doesn't
have is None for good and said once (:class:`DriverFields`); one that fails once is None once, and said where it goes on
failing. It is never 0 instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from trackers.metrics.gpu_details import SLOW

SLOW_S = 10.0
"""Between two readings of what drivers take milliseconds for, or what hardly changes, in seconds."""
MOST_EVENTS = 1000


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG instance of it.

    label: names it in metrics: the driver's index ("0"), or index and instance ("0.mig.1").
    index: the driver's. uuids: all ways to name it, the preferred first. instances: its MIG instances.
    bus: its place on the PCI bus, as numbers that can be compared; () for unknown.
    architecture: "Hopper". cores: CUDA's. cuda: the newest version that its driver has ("12.4"). "" and 0 where the
    driver doesn't tell.
    """

    vendor: str
    index: int
    label: str
    name: str = ""
    uuids: tuple[str, ...] = ()
    instances: tuple[Gpu, ...] = ()
    bus: tuple[int, ...] = ()
    architecture: str = ""
    cores: int = 0
    cuda: str = ""

    @property
    def uuid(self) -> str:
        return self.uuids[0] if self.uuids else ""


class Reading(msgspec.Struct, kw_only=True):
    """One GPU at one moment. Fractions are 0 to 1.

    compute_frac: of the time that a kernel ran. memory_busy_frac: of the time that its memory was read or written.
    power_w: as the driver gives it (NVIDIA: the last second's mean, older ones the moment).
    energy_j: the hardware's counter, from an unknown beginning. counted: the counter was asked for; it isn't each time,
    since drivers take milliseconds for it.
    throttle: why its clocks are held down, () for not at all. details: values by the names of
    :data:`trackers.metrics.gpu_details.DETAILS`. users: memory in bytes of each process that uses the GPU, None where
    the driver doesn't tell, by its pid as the driver knows it; None where it wasn't asked.
    """

    gpu: Gpu
    compute_frac: float | None = None
    memory_busy_frac: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temp_c: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    energy_j: float | None = None
    counted: bool = True
    throttle: tuple[str, ...] | None = None
    details: dict[str, float] = {}
    users: dict[int, int | None] | None = None


class GpuEvent(msgspec.Struct, frozen=True):
    """Something that a driver reported of a GPU. code: NVIDIA's Xid. level: INFO, WARN or ERROR, as alerts have it."""

    gpu: Gpu
    code: int
    text: str
    level: str


class GpuLost(Exception):
    """A GPU doesn't answer any more: it fell off the bus or needs a reset."""


class SourceLost(Exception):
    """A driver is gone: its source gives nothing any more. The message is one line."""


class GpuSource(ABC):
    """The devices of one vendor, opened once; ``read`` alone is required.

    Attributes:
        name: the vendor's, for messages. gpus: the devices, their labels unique.
        events: what happened since the source was opened, the oldest first; only ever appended to.
    """

    name: str = ""
    gpus: Sequence[Gpu] = ()
    events: Sequence[GpuEvent] = ()

    @abstractmethod
    def read(self, whole: bool = False) -> list[Reading]:
        """One reading of each device that answers.

        Args:
            whole: also of what is read only every ``SLOW_S`` seconds otherwise.

        Raises:
            SourceLost: none ever will again.
        """

    def close(self) -> None:
        """Release the driver; may be called twice."""
        return


class Opening(NamedTuple):
    """What a source of devices is opened with.

    say: called with one line for what can't be had. choose: picks those of NVIDIA's and AMD's GPUs that the job sees;
    other vendors' sources choose by themselves. scope: "job" for the devices that the job sees, "node" for all.
    environ: the job's variables that choose devices. entering: called before a driver is asked for the first time: it
    may hang from then on. details: groups of values beyond the usual, of
    :data:`trackers.metrics.gpu_details.GROUPS`. drm: the kernel's list of graphics cards.
    """

    say: Callable[[str], None] = lambda text: None
    choose: Callable[[Sequence[Gpu]], list[Gpu]] = list
    scope: str = "job"
    environ: Mapping[str, str] = MappingProxyType({})
    entering: Callable[[], object] = lambda: None
    details: frozenset[str] = frozenset()
    drm: Path = Path("/sys/class/drm")


OpenSource = Callable[[Opening], GpuSource | None]
"""Opens the devices of one vendor; None, :class:`SourceLost` or ImportError where there are none."""


class DriverFields:
    """Asks a driver for single values, and remembers which it doesn't have.

    Args:
        say: called once, with a line that names what is left out.
        classify: what an exception of the driver means: "unsupported", "lost", "gone", or "" (just this time).
    """

    FAILS = 10
    """Consecutive failures of a value after which a message reports it; the value is still requested."""

    def __init__(self, vendor: str, say: Callable[[str], None], classify: Callable[[Exception], str]) -> None:
        self._vendor = vendor
        self._say = say
        self._classify = classify
        self._never: dict[tuple[str, str], str] = {}
        self._failed: dict[tuple[str, str], int] = {}
        self._failing: dict[tuple[str, str], str] = {}
        self._reported: set[tuple[str, str]] = set()

    def ask(self, gpu: Gpu, field: str, call: Callable[..., Any], *arguments: Any, quiet: bool = False) -> Any:
        """What the call answers; None where the GPU doesn't have this or fails to tell.

        Args:
            quiet: a detail, of which few GPUs have all: what is missing isn't said.

        Raises:
            GpuLost, SourceLost: the GPU, or the whole driver, is gone.
        """
        key = gpu.label, field
        if quiet:
            self._reported.add(key)
        if key in self._never:
            return None
        try:
            answer = call(*arguments)
            self._failed.pop(key, None)
            return answer
        except (GpuLost, SourceLost):
            raise
        except Exception as error:
            kind = self._classify(error)
            text = one_line(error)
            if kind == "gone":
                raise SourceLost(text) from error
            if kind == "lost":
                raise GpuLost(text) from error
            if kind == "unsupported":
                self._never[key] = text
                return None
            self._failed[key] = self._failed.get(key, 0) + 1
            if self._failed[key] >= self.FAILS:
                self._failing[key] = text
            return None

    def has(self, gpu: Gpu, field: str) -> bool:
        """Whether a field may be there: it wasn't refused."""
        return (gpu.label, field) not in self._never

    def refuse(self, gpu: Gpu, field: str, why: str) -> None:
        """Take a field for unsupported."""
        self._never[gpu.label, field] = why

    def report(self) -> None:
        """Report what isn't supported, each field once."""
        fresh = {key: why for key, why in (self._failing | self._never).items() if key not in self._reported}
        if not fresh:
            return
        self._reported.update(fresh)
        self._say(absent(self._vendor, fresh))


class DriverSource(GpuSource):
    """The GPUs of one vendor, by its driver's library: lost ones are reported once and retried later.

    Args:
        vendor: its name in messages.
        say: called with one line for what can't be had.
        classify: see :class:`DriverFields`.
        details: the groups of values to read, of :data:`trackers.metrics.gpu_details.GROUPS`.
    """

    AGAIN_S = 30.0

    def __init__(
        self,
        vendor: str,
        say: Callable[[str], None],
        classify: Callable[[Exception], str],
        clock: Callable[[], float],
        details: Collection[str] = (),
    ) -> None:
        self._vendor, self._say, self._clock = vendor, say, clock
        self._groups = frozenset(details)
        self.events: list[GpuEvent] = []
        self._slow = True
        self._slow_at = float("-inf")
        self._kept: dict[str, tuple[dict[str, float], dict[int, int | None] | None]] = {}
        self._fields = DriverFields(vendor, say, classify)
        self._handles: dict[str, Any] = {}
        self._until: dict[str, float] = {}

    def read(self, whole: bool = False) -> list[Reading]:
        """One reading of each GPU that answers. Raises SourceLost when the driver is gone."""
        readings = []
        self._slow = whole or self._clock() - self._slow_at >= SLOW_S
        if self._slow:
            self._slow_at = self._clock()
        self._poll_events()  # first: a GPU that has fallen off the bus answers nothing else
        for gpu in self.gpus:
            if gpu.label not in self._handles or self._until.get(gpu.label, 0.0) > self._clock():
                continue
            try:
                readings.append(self._with_slow(self._read(gpu)))
                self._until.pop(gpu.label, None)
            except GpuLost as error:
                self._kept.pop(gpu.label, None)
                if gpu.label not in self._until:
                    again = "it isn't sampled until it answers again"
                    self._say(f"{self._vendor} GPU {gpu.label} is lost ({error}): {again}")
                self._until[gpu.label] = self._clock() + self.AGAIN_S
        self._fields.report()
        return readings

    def _with_slow(self, reading: Reading) -> Reading:
        """With the last answers for what wasn't asked now: several runs share readings, each at times of its own."""
        if self._slow:
            slow = {name: value for name, value in reading.details.items() if name in SLOW}
            self._kept[reading.gpu.label] = slow, reading.users
        else:
            slow, reading.users = self._kept.get(reading.gpu.label, ({}, None))
            reading.details = slow | reading.details
        return reading

    def _poll_events(self) -> None:
        """Append what the driver reports meanwhile; a vendor that reports nothing has nothing to do."""

    def _read(self, gpu: Gpu) -> Reading:
        raise NotImplementedError


def absent(vendor: str, missing: Mapping[tuple[str, str], str]) -> str:
    """What GPUs don't have, on one line: those that lack the same together.

    Args:
        missing: why it isn't there, by a GPU's label and the field.
    """
    lacks: dict[str, list[str]] = {}
    for label in sorted(
        {label for label, _ in missing}, key=lambda label: [_number(part) for part in label.split(".")]
    ):
        fields: dict[str, list[str]] = {}
        for (other, field), why in sorted(missing.items()):
            if other == label:
                fields.setdefault(why, []).append(field)
        what = ", ".join(f"no {', '.join(names)} ({why})" for why, names in fields.items())
        lacks.setdefault(what, []).append(label)
    text = "; ".join(f"GPU {', '.join(labels)}: {what}" for what, labels in lacks.items())
    return f"{vendor} {text}; left out"


def one_line(error: BaseException) -> str:
    """An exception's text on one line, never empty."""
    return " ".join(str(error).split()) or type(error).__name__


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (-1, text)
