"""A JSON file of GPU snapshots, complete after each snapshot, and its summary.

Megabytes are 1e6 bytes, percent 0 to 100. What a GPU doesn't tell is null, and in no average.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from trackers.errors import NotFound
from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.host import HostReading
from trackers.hardware.metric_names import MB

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


def warnings(gpus: Sequence[Mapping[str, Any]], limits: Thresholds) -> dict[tuple[Any, str], str]:
    """What is out of bounds in a snapshot's GPUs, by GPU and kind."""
    found: dict[tuple[Any, str], str] = {}
    for gpu in gpus:
        name, busy, full, heat = gpu["id"], gpu["utilization"], gpu["memory_percent"], gpu["temperature"]
        if busy is not None and busy < limits.utilization:
            found[name, "utilization"] = f"GPU {name} utilization low: {busy:.1f}%"
        if full is not None and full > limits.memory:
            found[name, "memory"] = f"GPU {name} memory high: {full:.1f}%"
        if heat is not None and heat > limits.temperature:
            found[name, "temperature"] = f"GPU {name} temperature high: {heat:.0f} °C"
    return found


def read(path: Path) -> dict[str, Any]:
    """A recording from its file.

    Raises:
        NotFound: it isn't there, or isn't a recording.
    """
    try:
        content = json.loads(path.read_text())
        content["monitoring_config"]["total_snapshots"], content["snapshots"]
        sums(content), float(content["monitoring_config"]["duration_seconds"])
        content["monitoring_config"]["log_interval"] + 0.0, content["monitoring_config"]["start_time"]
        _mean([taken["system"] for taken in content["snapshots"]], "cpu_percent")
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
    for taken in recording["snapshots"]:
        for gpu in taken["gpus"]:
            rows.setdefault(gpu["id"], []).append(gpu)
    return {
        name: Sums(
            _mean(found, "utilization"),
            max((row["utilization"] for row in found if row.get("utilization") is not None), default=None),
            _mean(found, "memory_percent"),
            _mean(found, "temperature"),
            _mean(found, "power_w"),
        )
        for name, found in rows.items()
    }


def _mean(rows: Sequence[Mapping[str, Any]], field: str) -> float | None:
    known = [row[field] for row in rows if row.get(field) is not None]
    return sum(known) / len(known) if known else None


def summary(recording: Mapping[str, Any], title: str) -> str:
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
    if not any(taken["gpus"] for taken in recording["snapshots"]):
        lines.append("  no GPU was seen")
    hosts = [taken["system"] for taken in recording["snapshots"]]
    cpu, memory = _mean(hosts, "cpu_percent"), _mean(hosts, "memory_percent")
    if cpu is not None and memory is not None:
        lines.append(f"  CPU: {cpu:.1f}% avg, memory {memory:.1f}% avg")
    return "\n".join(lines)


def _word(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
