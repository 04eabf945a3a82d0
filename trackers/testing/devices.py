"""The conformance kit for sources of devices (entry points of the group ``trackers.devices``).

from trackers.testing import check_devices

def test_my_devices(tmp_path):
    check_devices(open_devices, lose=lambda: driver.kill())
"""

from __future__ import annotations

from collections.abc import Callable

from trackers.hardware.gpus.base import GpuSource, Opening, OpenSource, Reading, SourceLost
from trackers.metrics.gpu_details import DETAILS, GROUPS

FRACTIONS = ("compute_frac", "memory_busy_frac")
AMOUNTS = ("memory_used_bytes", "memory_total_bytes", "power_w", "power_limit_w", "sm_clock_hz", "memory_clock_hz",
           "energy_j")  # fmt: skip


class DeviceError(AssertionError):
    """A source of devices doesn't hold to the contract; the message says in what."""


def check_devices(
    open_source: OpenSource, *, absent: Callable[[], object] | None = None, lose: Callable[[], object] | None = None
) -> list[Reading]:
    """Open a source in which there are devices, and read it as a sampler does.

    Args:
        open_source: what the entry point names.
        absent: takes the driver away before the source is opened again.
        lose: takes the driver away while it is read; after ``absent`` it is not called.

    Returns:
        the first readings.

    Raises:
        DeviceError: at the first promise that isn't kept.
    """
    __tracebackhide__ = True
    said: list[str] = []
    entered: list[bool] = []
    opening = Opening(said.append, scope="node", entering=lambda: entered.append(True), details=frozenset(GROUPS))
    source = open_source(opening)
    _require(source is not None, "there are devices, and it opened none")
    assert source is not None
    _require(bool(entered), "it asked its driver without calling entering() before: a driver that hangs isn't noticed")
    _require(isinstance(source.name, str) and source.name != "", "its name is no text")
    gpus = list(source.gpus)
    labels = [gpu.label for gpu in gpus]
    _require(bool(gpus) and len(labels) == len(set(labels)), f"its devices' labels aren't unique: {labels}")
    _require(all(gpu.vendor and gpu.name for gpu in gpus), "a device has no vendor or no name")
    first, second, third = source.read(whole=True), source.read(), source.read(whole=True)
    known = {detail.name for detail in DETAILS}
    for readings in (first, second, third):
        _require(
            [reading.gpu.label for reading in readings] == labels, "a reading lacks a device, or their order changes"
        )
        for reading in readings:
            _check(reading, known)
    for one, two in zip(first, third, strict=True):
        if one.energy_j is not None and two.energy_j is not None:
            _require(two.energy_j >= one.energy_j, f"device {one.gpu.label}: the energy counter went back")
    _require(len(source.events) >= 0, "it has no events")
    _check_losses(open_source, opening, source, absent, lose)
    _require(all("\n" not in line and line for line in said), f"it said more than one line at once: {said}")
    return first


def _check(reading: Reading, known: set[str]) -> None:
    label = reading.gpu.label
    for name in FRACTIONS:
        value = getattr(reading, name)
        _require(value is None or 0 <= value <= 1, f"device {label}: {name} is {value}: a share from 0 to 1, or None")
    for name in AMOUNTS:
        value = getattr(reading, name)
        _require(value is None or value >= 0, f"device {label}: {name} is {value}: SI units, or None where unknown")
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    _require(used is None or total is None or used <= total, f"device {label}: it uses {used} of {total} bytes")
    _require(total is None or total >= 1 << 27, f"device {label}: {total} bytes of memory in all: the unit is bytes")
    clock = reading.sm_clock_hz
    _require(clock is None or clock == 0 or clock >= 1e6, f"device {label}: a clock of {clock} Hz: the unit is Hz")
    unknown = reading.details.keys() - known
    _require(not unknown, f"device {label}: details that aren't in the table: {sorted(unknown)}")


def _check_losses(
    open_source: OpenSource,
    opening: Opening,
    source: GpuSource,
    absent: Callable[[], object] | None,
    lose: Callable[[], object] | None,
) -> None:
    if lose is not None and absent is None:
        lose()
        try:
            for _ in range(3):
                source.read(whole=True)
        except SourceLost:
            pass
        except Exception as error:
            raise DeviceError(
                f"its driver went away, and read raised {type(error).__name__}: SourceLost is due"
            ) from error
        else:
            raise DeviceError("its driver went away, and read went on: SourceLost is due")
    source.close()
    source.close()
    if absent is not None:
        absent()
        try:
            again = open_source(opening)
        except (SourceLost, ImportError):
            return
        except Exception as error:
            raise DeviceError(f"without its driver it raised {type(error).__name__} when it was opened") from error
        _require(again is None, "without its driver it opened devices")


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise DeviceError(promise)
