"""Settings of a loop's measurements: the options of the Kconfig menu "Measuring", or the caller's arguments."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from trackers.errors import UsageError
from trackers.formats.megatron_line import check_option
from trackers.instruments.peaks import given_tflops, peak_tflops
from trackers.instruments.throughput import UNITS

FRACTIONS = frozenset({"flops_per_token", "flops_per_step", "consumed_flops"})
"""Arguments of a loop that needn't be whole."""


def check_numbers(precision: str | None, what: str = "loop", **values: Any) -> None:
    """Raise UsageError for an argument of a loop that is no number, below 0, infinite or no whole number where it
    counts something, or for an unknown precision.

    Args:
        what: whose arguments they are, for the message.
    """
    for name, value in values.items():
        if value is None:
            continue
        known = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not known or not math.isfinite(value) or value < 0:
            raise UsageError(f"{what}: {name}={value!r}: give a number, 0 or more")
        if name not in FRACTIONS and value != int(value):
            raise UsageError(f"{what}: {name}={value!r}: give a whole number")
    if precision is not None:
        peak_tflops("", precision)


@dataclasses.dataclass(kw_only=True)
class Measure:
    """Selection of instruments. Each is an option of its own (see ``from_options``); arguments of the caller win.

    Attributes:
        interval: steps between two measurements.
        throughput: rates; window: steps they are taken over; peak_tflops: one device's, None for the table's.
        runtime: the remaining time; runtime_unit: seconds, minutes, hours or days.
        memory: every memory_interval steps (0: as the others); memory_keys: the allocator's statistics, "" for
            Megatron's.
        norms, layer_norms, zeros: of parameters and gradients, each parameter's, zeros in gradients.
        energy: of the GPUs, per iteration.
        world_size: log how many ranks train. counts: log samples and tokens that went through so far.
        timers: log the timers; timing_option: max, minmax or all.
    """

    interval: int = 10
    throughput: bool = False
    window: int = 100
    peak_tflops: float | None = None
    runtime: bool = False
    runtime_unit: str = "hours"
    memory: bool = False
    memory_interval: int = 0
    memory_keys: Any = ""
    norms: bool = False
    layer_norms: bool = False
    zeros: bool = False
    energy: bool = False
    world_size: bool = False
    counts: bool = False
    timers: bool = True
    timing_option: str = "minmax"

    @classmethod
    def from_options(cls, option: Callable[[str, Any], Any]) -> Measure:
        """As the run's options say.

        Args:
            option: asks for one, by its Kconfig symbol and its default.

        Raises:
            UsageError: an option that makes no sense.
        """
        return cls(
            interval=int(option("TRACKER_MEASURE_INTERVAL", 10)),
            throughput=bool(option("TRACKER_LOG_THROUGHPUT", False)),
            window=int(option("TRACKER_THROUGHPUT_WINDOW", 100)),
            peak_tflops=given_tflops(option("TRACKER_PEAK_TFLOPS", "")),
            runtime=bool(option("TRACKER_LOG_RUNTIME", False)),
            runtime_unit=str(option("TRACKER_RUNTIME_UNIT", "hours")),
            memory=bool(option("TRACKER_LOG_MEMORY", False)),
            memory_interval=int(option("TRACKER_MEMORY_INTERVAL", 0)),
            memory_keys=str(option("TRACKER_MEMORY_STATISTICS", "")),
            norms=bool(option("TRACKER_LOG_NORMS", False)),
            layer_norms=bool(option("TRACKER_LOG_LAYER_NORMS", False)),
            zeros=bool(option("TRACKER_LOG_ZEROS", False)),
            energy=bool(option("TRACKER_LOG_ENERGY", False)),
            world_size=bool(option("TRACKER_LOG_WORLD_SIZE", False)),
            counts=True,
            timers=bool(option("TRACKER_LOG_TIMERS", True)),
            timing_option=str(option("TRACKER_TIMING_OPTION", "minmax")),
        )

    def changed(self, changes: Mapping[str, Any]) -> Measure:
        """The same with a caller's words; what is None there is left as it is.

        Raises:
            UsageError: a word that isn't known, or a value that makes no sense.
        """
        known = {field.name for field in dataclasses.fields(self)}
        strange = sorted(set(changes) - known)
        if strange:
            raise UsageError(f"loop: {', '.join(strange)} can't be measured; known are {', '.join(sorted(known))}")
        measure = dataclasses.replace(self, **{name: value for name, value in changes.items() if value is not None})
        check_option(measure.timing_option)
        if not isinstance(measure.interval, int) or measure.interval < 1:
            raise UsageError(f"loop: interval={measure.interval!r}: give the steps between measurements, 1 or more")
        if measure.runtime_unit not in UNITS:
            raise UsageError(f"loop: runtime unit {measure.runtime_unit!r}: known are {', '.join(UNITS)}")
        return measure
