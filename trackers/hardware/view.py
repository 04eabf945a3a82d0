"""What the GPUs and the host do right now: as JSON, and as a table for people."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.host import Host, HostReading
from trackers.hardware.metric_names import GB, MHZ

NONE = "–"


class MachineView:
    """Reads GPUs and host together.

    Args:
        gpus: which GPUs. directory: whose filesystem the host's disk is.
    """

    def __init__(self, gpus: Gpus, directory: str = ".") -> None:
        self._gpus = gpus
        self._host = Host(None, directory)
        self.readings: list[Reading] = []
        self.host = HostReading()
        self.time = 0.0

    def read(self) -> None:
        """Take a reading of everything."""
        self.time = time.time()
        self.readings = self._gpus.read()
        self.host = self._host.read()

    def to_dict(self) -> dict[str, Any]:
        """``time`` (Unix seconds), ``gpus`` and ``host``, in SI units; what can't be had is left out."""
        gpus = []
        for reading in self.readings:
            values = msgspec.structs.asdict(reading)
            gpu = values.pop("gpu")
            known = {name: value for name, value in values.items() if value is not None}
            about = {"vendor": gpu.vendor, "name": gpu.name, "uuid": gpu.uuid}
            gpus.append({"id": self._gpus.label(gpu), **about, **known})
        host = {name: value for name, value in msgspec.structs.asdict(self.host).items() if value is not None}
        return {"time": self.time, "gpus": gpus, "host": host}

    def table(self) -> Any:
        """A rich table, with the host as its caption."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", caption=self._host_line(), caption_justify="left")
        table.add_column("GPU")
        table.add_column("name", overflow="fold")
        for column in ("util", "bandwidth", "memory", "temp", "power", "SM clock", "held down by"):
            table.add_column(column, justify="right" if column != "held down by" else "left")
        for reading in self.readings:
            table.add_row(
                self._gpus.label(reading.gpu),
                Text(reading.gpu.name),
                percent(reading.compute_frac),
                percent(reading.memory_busy_frac),
                memory(reading),
                NONE if reading.temp_c is None else f"{reading.temp_c:.0f} °C",
                power(reading),
                NONE if reading.sm_clock_hz is None else f"{reading.sm_clock_hz / MHZ:.0f} MHz",
                NONE if reading.throttle is None else ", ".join(reading.throttle),
            )
        return table

    def _host_line(self) -> str:
        host = self.host
        used = NONE if host.memory_used_bytes is None else f"{host.memory_used_bytes / GB:.1f} GB"
        memory_text = f"memory {used} ({percent(host.memory_frac)})"
        return f"CPU {percent(host.cpu_frac)}  {memory_text}  disk {percent(host.disk_used_frac)}"


def percent(fraction: float | None) -> str:
    """A fraction as percent."""
    return NONE if fraction is None else f"{fraction * 100:.0f} %"


def memory(reading: Reading) -> str:
    """Memory in use, of how much."""
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    if used is None or not total:
        return NONE
    return f"{used / GB:.1f} of {total / GB:.1f} GB ({percent(used / total)})"


def power(reading: Reading) -> str:
    """Power, and its limit where there is one."""
    if reading.power_w is None:
        return NONE
    return f"{reading.power_w:.0f} W" + ("" if reading.power_limit_w is None else f" of {reading.power_limit_w:.0f}")
