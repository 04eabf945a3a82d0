"""Energy that the job's GPUs used: by the hardware's counter where there is one, else power summed over time."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trackers.hardware.gpus.base import Reading

J_PER_KWH = 3.6e6
LONGEST_GAP_S = 60.0
"""Between two readings further apart, power isn't taken to have stayed the same: that time isn't counted."""
COUNTER, INTEGRATED = "hardware counter", "integrated power"


class _Meter(msgspec.Struct):
    """used_j: up to the last reading of the counter. since_j: power summed over the time since then."""

    used_j: float = 0.0
    since_j: float = 0.0
    counter_j: float | None = None
    power_w: float | None = None
    time: float = 0.0
    method: str = ""


class EnergyCounter:
    """Adds up each GPU's energy from its first reading on.

    Between two readings of a hardware counter, which are seconds apart, power over time fills in.
    """

    def __init__(self) -> None:
        self._meters: dict[str, _Meter] = {}
        self._reported: set[str] = set()

    def add(self, readings: Iterable[Reading], time: float) -> None:
        """Take readings at a time on the monotonic clock."""
        self._reported.clear()
        for reading in readings:
            meter = self._meters.setdefault(_key(reading), _Meter())
            gap_s, power_w = time - meter.time, meter.power_w
            if reading.power_w is not None:
                meter.power_w, meter.time = reading.power_w, time
            if reading.energy_j is not None:
                if meter.counter_j is not None and reading.energy_j >= meter.counter_j:
                    meter.used_j += reading.energy_j - meter.counter_j
                else:  # the first answer, or one that went back, reset with its driver: it counts on from where it is
                    meter.used_j += meter.since_j
                meter.since_j, meter.counter_j, meter.method = 0.0, reading.energy_j, COUNTER
                self._reported.add(_key(reading))
            elif reading.power_w is not None:
                if power_w is not None and 0 < gap_s <= LONGEST_GAP_S:
                    meter.since_j += (power_w + reading.power_w) / 2 * gap_s
                meter.method = meter.method or INTEGRATED
                if meter.counter_j is None or not reading.counted:
                    self._reported.add(_key(reading))

    def used_j(self, reading: Reading) -> float | None:
        """Energy that this reading's GPU used; None where it has no way to tell."""
        meter = self._meters.get(_key(reading))
        return meter.used_j + meter.since_j if meter is not None and meter.method else None

    @property
    def total_j(self) -> float | None:
        """All GPUs' energy; None unless every one of them tells its part."""
        if not self._meters or any(not meter.method for meter in self._meters.values()):
            return None
        return sum(meter.used_j + meter.since_j for meter in self._meters.values())

    @property
    def complete(self) -> bool:
        """Whether the last readings had every GPU's part that there was before."""
        return self._reported == self._meters.keys()

    @property
    def method(self) -> str:
        """How it was measured, in words; "" where it wasn't."""
        return " and ".join(sorted({meter.method for meter in self._meters.values() if meter.method}))


def _key(reading: Reading) -> str:
    return f"{reading.gpu.vendor} {reading.gpu.label}"
