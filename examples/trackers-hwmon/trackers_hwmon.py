"""Accelerators by Linux's hwmon: temperature in 1/1000 °C, power in µW.

https://docs.kernel.org/hwmon/sysfs-interface.html
"""

from __future__ import annotations

import os
from pathlib import Path

from trackers.hardware.gpus.base import Gpu, GpuSource, Opening, Reading, SourceLost

HWMON = Path("/sys/class/hwmon")
VARIABLE = "HWMON_DRIVERS"


class HwmonSource(GpuSource):
    """What the kernel shows of the drivers named."""

    name = "hwmon"

    def __init__(self, opening: Opening, homes: list[Path]) -> None:
        opening.entering()
        self._homes = {str(index): home for index, home in enumerate(homes)}
        self.gpus = [
            Gpu(vendor="hwmon", index=int(label), label=label, name=_text(home / "name") or "?")
            for label, home in self._homes.items()
        ]

    def read(self, whole: bool = False) -> list[Reading]:
        """Temperature and power of each."""
        readings = []
        for gpu in self.gpus:
            home = self._homes[gpu.label]
            if _text(home / "name") is None:
                raise SourceLost(f"{home} has gone")
            temperature = _number(home / "temp1_input")
            power = _number(home / "power1_average", home / "power1_input")
            readings.append(
                Reading(
                    gpu=gpu,
                    temp_c=None if temperature is None else temperature / 1e3,
                    power_w=None if power is None or power < 0 else power / 1e6,
                )
            )
        return readings


def open_devices(opening: Opening) -> HwmonSource | None:
    """The entry point; None where no driver of these names shows anything."""
    drivers = {*filter(None, os.environ.get(VARIABLE, "").replace(",", " ").split())}
    homes = [home for home in sorted(HWMON.glob("hwmon*")) if _text(home / "name") in drivers]
    return HwmonSource(opening, homes) if homes else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None


def _number(*paths: Path) -> int | None:
    """The first of these that is there; a driver that doesn't know a value refuses to give it."""
    for path in paths:
        text = _text(path)
        if text is not None and text.lstrip("-").isdigit():
            return int(text)
    return None
