"""Watches GPUs while a command runs, or until it is told to stop: what ``scripts/monitor_gpu.py`` does.

What the GPUs and the host do right now: as JSON, and as a table for people.

A recording is a JSON file of snapshots, complete after each, and its summary.

Megabytes are 1e6 bytes, percent 0 to 100. What a GPU doesn't tell is null, and in no average.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import NotFound, UsageError
from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.host import Host, HostReading
from trackers.hardware.metric_names import GB, MB, MHZ
from trackers.metrics.gpu_details import DETAILS

_HEAD = b'{"snapshots": ['


class Thresholds(NamedTuple):
    """When a GPU is worth a warning: utilisation below, memory above, both in percent, temperature above, in °C."""

    utilization: float = 50.0
    memory: float = 90.0
    temperature: float = 80.0


class Recording:
    """Writes snapshots to a file that is complete JSON after each of them, however the program ends.

    Args:
        path: new, or empty. interval_s: between snapshots.

    Raises:
        OSError: it can't be written.
    """

    def __init__(self, path: Path, interval_s: float) -> None:
        self.path = path
        self._interval_s = interval_s
        self._begun = datetime.now()
        self._last = self._begun
        self.count = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        if os.fstat(self._fd).st_size:  # somebody else was quicker
            os.close(self._fd)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._end, self._rest = 0, b""
        try:
            self._write(_HEAD, 0)
        except OSError:
            os.close(self._fd)
            path.unlink(missing_ok=True)
            raise

    def add(self, snapshot: Mapping[str, Any]) -> None:
        """Append a snapshot.

        Raises:
            OSError: there is no space for it; the file is as it was.
        """
        self._last = datetime.now()
        self._write((b",\n" if self.count else b"\n") + json.dumps(snapshot).encode(), self.count + 1)
        self.count += 1

    def close(self) -> None:
        """Write how long it took, and leave the file. Raises OSError where there is no space for that."""
        self._last = datetime.now()
        try:
            self._write(b"", self.count)
        finally:
            os.close(self._fd)

    def _write(self, more: bytes, count: int) -> None:
        config = {
            "log_interval": self._interval_s,
            "start_time": self._begun.isoformat(),
            "total_snapshots": count,
            "duration_seconds": round((self._last - self._begun).total_seconds(), 3),
        }
        rest = b'\n], "monitoring_config": ' + json.dumps(config).encode() + b"}\n"
        try:
            if os.pwrite(self._fd, more + rest, self._end) < len(more + rest):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.pwrite(self._fd, self._rest, self._end)  # in the space that it had
            os.ftruncate(self._fd, self._end + len(self._rest))
            raise
        self._end, self._rest = self._end + len(more), rest
        os.ftruncate(self._fd, self._end + len(rest))


def snapshot(gpus: Gpus, readings: Sequence[Reading], host: HostReading) -> dict[str, Any]:
    """One reading of all GPUs and the host, in the form of a session log, with ``power_w`` added."""
    return {
        "timestamp": datetime.now().isoformat(timespec="milliseconds"),
        "gpus": [_gpu(gpus.label(reading.gpu), reading) for reading in readings],
        "system": {"cpu_percent": _percent(host.cpu_frac), "memory_percent": _percent(host.memory_frac)},
    }


def _gpu(label: str, reading: Reading) -> dict[str, Any]:
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    return {
        "id": int(label) if label.isdigit() else label,
        "name": reading.gpu.name,
        "utilization": _percent(reading.compute_frac),
        "memory_used_mb": None if used is None else round(used / MB, 1),
        "memory_total_mb": None if total is None else round(total / MB, 1),
        "memory_percent": None if used is None or not total else round(used / total * 100, 2),
        "temperature": reading.temp_c,
        "power_w": reading.power_w,
    }


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else round(fraction * 100, 2)


def gpu_warnings(gpus: Sequence[Mapping[str, Any]], limits: Thresholds) -> dict[tuple[Any, str], str]:
    """What is out of bounds in a snapshot's GPUs, by GPU and kind."""
    warnings: dict[tuple[Any, str], str] = {}
    for gpu in gpus:
        name, busy, full, heat = gpu["id"], gpu["utilization"], gpu["memory_percent"], gpu["temperature"]
        if busy is not None and busy < limits.utilization:
            warnings[name, "utilization"] = f"GPU {name} utilization low: {busy:.1f}%"
        if full is not None and full > limits.memory:
            warnings[name, "memory"] = f"GPU {name} memory high: {full:.1f}%"
        if heat is not None and heat > limits.temperature:
            warnings[name, "temperature"] = f"GPU {name} temperature high: {heat:.0f} °C"
    return warnings


def read_recording(path: Path) -> dict[str, Any]:
    """A recording from its file.

    Raises:
        NotFound: it isn't there, or isn't a recording.
    """
    try:
        content = json.loads(path.read_text())
        content["monitoring_config"]["total_snapshots"], content["snapshots"]
        sums(content), float(content["monitoring_config"]["duration_seconds"])
        content["monitoring_config"]["log_interval"] + 0.0, content["monitoring_config"]["start_time"]
        _mean([shot["system"] for shot in content["snapshots"]], "cpu_percent")
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise NotFound(f"{path} is no whole recording of monitor_gpu.py ({type(error).__name__}: {error})") from None
    return dict(content)


class Sums(NamedTuple):
    """One GPU over a recording: means, and the highest utilisation; None where nothing was told."""

    utilization: float | None
    peak: float | None
    memory: float | None
    temperature: float | None
    power_w: float | None


def sums(recording: Mapping[str, Any]) -> dict[Any, Sums]:
    """Each GPU's averages."""
    rows: dict[Any, list[Mapping[str, Any]]] = {}
    for shot in recording["snapshots"]:
        for gpu in shot["gpus"]:
            rows.setdefault(gpu["id"], []).append(gpu)
    return {
        name: Sums(
            _mean(readings, "utilization"),
            max((row["utilization"] for row in readings if row.get("utilization") is not None), default=None),
            _mean(readings, "memory_percent"),
            _mean(readings, "temperature"),
            _mean(readings, "power_w"),
        )
        for name, readings in rows.items()
    }


def _mean(rows: Sequence[Mapping[str, Any]], field: str) -> float | None:
    known = [row[field] for row in rows if row.get(field) is not None]
    return sum(known) / len(known) if known else None


def recording_summary(recording: Mapping[str, Any], title: str) -> str:
    """Summary of a recording as text, a line for each GPU, in the form of a session's summary."""
    config = recording["monitoring_config"]
    seconds = float(config["duration_seconds"])
    lines = [
        f"{title}: {config['total_snapshots']} snapshots in {seconds:.1f}s ({seconds / 60:.1f}min), "
        f"one each {config['log_interval']:g}s, from {config['start_time']}"
    ]
    for name, gpu in sums(recording).items():
        words = [
            _word(gpu.utilization, "{:.1f}% avg util"),
            _word(gpu.peak, "{:.1f}% peak"),
            _word(gpu.memory, "{:.1f}% avg memory"),
            _word(gpu.temperature, "{:.0f} °C avg"),
            _word(gpu.power_w, "{:.0f} W avg"),
        ]
        lines.append(f"  GPU {name}: " + (", ".join(filter(None, words)) or "nothing told"))
    if not any(shot["gpus"] for shot in recording["snapshots"]):
        lines.append("  no GPU was seen")
    hosts = [shot["system"] for shot in recording["snapshots"]]
    cpu, memory = _mean(hosts, "cpu_percent"), _mean(hosts, "memory_percent")
    if cpu is not None and memory is not None:
        lines.append(f"  CPU: {cpu:.1f}% avg, memory {memory:.1f}% avg")
    return "\n".join(lines)


def _word(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


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
        output: the recording's file. show: called with a line for each snapshot. say: with a line when a GPU
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
        say: Callable[[str], None],
    ) -> None:
        self._interval_s = interval_s
        self._limits = limits
        self._show = show
        self._say = say
        self._scope = scope
        self._gpus: Gpus | None = None
        self._host = Host(None, ".", say)
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
            self._say(f"a driver hasn't answered for {LAST_S:.0f} s: the last snapshot is missing")
        else:
            self.close()

    def close(self) -> None:
        """Close the recording."""
        if self.recording is not None:
            self._record(self.recording.close)

    def take(self) -> dict[str, Any]:
        """One snapshot; it is recorded, shown, and looked at for warnings."""
        if self._gpus is None:  # not before: a driver may hang when it is opened, too
            self._gpus = Gpus(self._say, scope=self._scope)
        taken_now = snapshot(self._gpus, self._gpus.read(), self._host.read())
        if self.recording is not None:
            self._record(self.recording.add, taken_now)
        self._show(line(taken_now))
        crossed = gpu_warnings(taken_now["gpus"], self._limits)
        for key in crossed.keys() - self._crossed:
            self._say(crossed[key])
        self._crossed = set(crossed)
        return taken_now

    def _record(self, write: Callable[..., None], *arguments: Any) -> None:
        """A disk that is full costs snapshots, not the command."""
        try:
            write(*arguments)
        except OSError as error:
            if self.complete and self.recording is not None:
                self._say(f"{self.recording.path} can't be written ({error}): snapshots are missing until it can")
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


def line(sample: dict[str, Any]) -> str:
    """A snapshot on one line."""
    parts = []
    for gpu in sample["gpus"]:
        words = [
            f"{gpu['utilization']:.0f}%" if gpu["utilization"] is not None else "",
            f"{gpu['memory_percent']:.0f}% memory" if gpu["memory_percent"] is not None else "",
            f"{gpu['temperature']:.0f} °C" if gpu["temperature"] is not None else "",
            f"{gpu['power_w']:.0f} W" if gpu["power_w"] is not None else "",
        ]
        parts.append(f"GPU {gpu['id']}: " + ", ".join(filter(None, words)))
    cpu = sample["system"]["cpu_percent"]
    parts.append(f"CPU: {cpu:.0f}%" if cpu is not None else "CPU: –")
    return f"{datetime.now():%H:%M:%S} | " + " | ".join(parts)


def watch(monitor: Monitor, command: str | None) -> int:
    """Monitor until a command ends, or without one until SIGINT or SIGTERM. Returns the exit code.

    The command's own: 128 + n where signal n ended it, 127 where it can't be started. It is started without a
    shell. A SIGTERM is passed on to it; Ctrl-C reaches it by itself.

    Raises:
        UsageError: the command can't be split into words.
    """
    arguments = split_command(command) if command is not None else None
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


def split_command(command: str) -> list[str]:
    """A command line as a list.

    Raises:
        UsageError: it can't be split, or is empty.
    """
    try:
        split = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command {command!r} can't be split into words: {error}") from None
    if not split:
        raise UsageError("--monitor-training needs a command, as in 'accelerate launch train.py'")
    return split


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
            counted, users = values.pop("counted"), values.pop("users")
            assert counted or values["energy_j"] is None
            if users is not None:
                values["users"] = [{"pid": pid, "memory_bytes": used} for pid, used in users.items()]
            known = {name: value for name, value in values.items() if value is not None and value != {}}
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

    def details_table(self) -> Any:
        """A rich table of the details and the processes, a column for each GPU; None where nothing was asked."""
        from rich.table import Table
        from rich.text import Text

        rows = [detail for detail in DETAILS if any(detail.name in reading.details for reading in self.readings)]
        users = [(reading, pid, used) for reading in self.readings for pid, used in (reading.users or {}).items()]
        if not rows and not users:
            return None
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("detail")
        for reading in self.readings:
            table.add_column(f"GPU {self._gpus.label(reading.gpu)}", justify="right")
        table.add_column("")
        for detail in rows:
            values = [reading.details.get(detail.name) for reading in self.readings]
            shown = [NONE if value is None else f"{value:,.6g} {detail.unit}".rstrip() for value in values]
            table.add_row(detail.name, *shown, detail.text)
        for reading, pid, used in users:
            memory_text = NONE if used is None else f"{used / GB:.2f} GB"
            shown = [memory_text if reading is other else "" for other in self.readings]
            table.add_row(f"process {pid}", *shown, Text(program_of(pid)))
        return table

    def _host_line(self) -> str:
        host = self.host
        used = NONE if host.memory_used_bytes is None else f"{host.memory_used_bytes / GB:.1f} GB"
        memory_text = f"memory {used} ({percent(host.memory_frac)})"
        return f"CPU {percent(host.cpu_frac)}  {memory_text}  disk {percent(host.disk_used_frac)}"


def program_of(pid: int) -> str:
    """A process's name; "" where it can't be seen."""
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except (psutil.Error, OSError, OverflowError, ValueError):
        return ""


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
