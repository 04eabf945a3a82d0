"""Watches GPUs while a command runs, or until it is told to stop: what ``scripts/monitor_gpu.py`` does.

What the GPUs and the host do right now: as JSON, and as a table for people.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UsageError
from trackers.hardware import snapshot_file
from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.host import Host, HostReading
from trackers.hardware.metric_names import GB, MHZ
from trackers.hardware.snapshot_file import Recording, Thresholds

POLL_S = 0.05
FIRST_S = 0.1
"""Before the first snapshot: processor load is measured between two readings."""
LAST_S = 5.0
"""Maximum wait at the end for a snapshot that is being taken, in seconds: a driver may hang."""
NOT_STARTED = 127
"""The exit code of a command that can't be started, as shells have it."""


class Monitor:
    """Takes snapshots in a thread of its own, so that a driver that hangs holds up nothing else.

    Args:
        output: the recording's file. show: called with a line for each snapshot. warn: with a line when a GPU
            crosses a threshold, or the file can't be written.

    Attributes:
        complete: every snapshot is in the file.
    """

    def __init__(
        self,
        output: Path | None,
        interval_s: float,
        limits: Thresholds,
        *,
        scope: str,
        show: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._interval_s = interval_s
        self._limits = limits
        self._show = show
        self._warn = warn
        self._scope = scope
        self._gpus: Gpus | None = None
        self._host = Host(None, ".", warn)
        self.recording = Recording(output, interval_s) if output is not None else None
        self._over = threading.Event()
        self._crossed: set[tuple[Any, str]] = set()
        self.complete = True
        self._thread = threading.Thread(target=self._work, name="monitor", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Take a last snapshot and close the recording; gives up a driver that doesn't answer."""
        self._over.set()
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._warn(f"a driver hasn't answered for {LAST_S:.0f} s: the last snapshot is missing")
        else:
            self.close()

    def close(self) -> None:
        """Close the recording."""
        if self.recording is not None:
            self._record(self.recording.close)

    def take(self) -> dict[str, Any]:
        """One snapshot; it is recorded, shown, and looked at for warnings."""
        if self._gpus is None:  # not before: a driver may hang when it is opened, too
            self._gpus = Gpus(self._warn, scope=self._scope)
        found = snapshot_file.snapshot(self._gpus, self._gpus.read(), self._host.read())
        if self.recording is not None:
            self._record(self.recording.add, found)
        self._show(line(found))
        crossed = snapshot_file.warnings(found["gpus"], self._limits)
        for key in crossed.keys() - self._crossed:
            self._warn(crossed[key])
        self._crossed = set(crossed)
        return found

    def _record(self, write: Callable[..., None], *arguments: Any) -> None:
        """A disk that is full costs snapshots, not the command."""
        try:
            write(*arguments)
        except OSError as error:
            if self.complete and self.recording is not None:
                self._warn(f"{self.recording.path} can't be written ({error}): snapshots are missing until it can")
            self.complete = False

    def _work(self) -> None:
        self._over.wait(FIRST_S)
        due = time.monotonic()
        while True:
            over = self._over.is_set()
            self.take()
            if over:
                return
            due = max(due + self._interval_s, time.monotonic())
            self._over.wait(max(0.0, due - time.monotonic()))


def line(found: dict[str, Any]) -> str:
    """A snapshot on one line."""
    parts = []
    for gpu in found["gpus"]:
        words = [
            f"{gpu['utilization']:.0f}%" if gpu["utilization"] is not None else "",
            f"{gpu['memory_percent']:.0f}% memory" if gpu["memory_percent"] is not None else "",
            f"{gpu['temperature']:.0f} °C" if gpu["temperature"] is not None else "",
            f"{gpu['power_w']:.0f} W" if gpu["power_w"] is not None else "",
        ]
        parts.append(f"GPU {gpu['id']}: " + ", ".join(filter(None, words)))
    cpu = found["system"]["cpu_percent"]
    parts.append(f"CPU: {cpu:.0f}%" if cpu is not None else "CPU: –")
    return f"{datetime.now():%H:%M:%S} | " + " | ".join(parts)


def watch(monitor: Monitor, command: str | None) -> int:
    """Monitor until a command ends, or without one until SIGINT or SIGTERM. Returns the exit code.

    The command's own: 128 + n where signal n ended it, 127 where it can't be started. It is started without a
    shell. A SIGTERM is passed on to it; Ctrl-C reaches it by itself.

    Raises:
        UsageError: the command can't be split into words.
    """
    arguments = words(command) if command is not None else None
    asked: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: object) -> None:
        asked.append(number)
        if child and number == signal.SIGTERM and child[0].poll() is None:
            child[0].terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    code = 0
    monitor.start()
    try:
        if arguments is None:
            while not asked:
                time.sleep(POLL_S)
        else:
            try:
                child.append(subprocess.Popen(arguments))
            except OSError as error:
                print(f"monitor_gpu: {arguments[0]} can't be started: {error}", file=sys.stderr)
                return NOT_STARTED
            if asked and asked[-1] == signal.SIGTERM:  # it came while the command was started
                child[0].terminate()
            while (ended := child[0].poll()) is None:
                time.sleep(POLL_S)
            code = 128 - ended if ended < 0 else ended
    finally:
        monitor.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return code


def words(command: str) -> list[str]:
    """A command line as a list.

    Raises:
        UsageError: it can't be split, or is empty.
    """
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command {command!r} can't be split into words: {error}") from None
    if not found:
        raise UsageError("--monitor-training needs a command, as in 'accelerate launch train.py'")
    return found


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
