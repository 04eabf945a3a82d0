"""Snapshots of GPUs and host in a session log, made from the sampler's records, and the warnings about them.

A snapshot holds the means of the sampler's interval and the highest utilisation in it. MB are 1e6 bytes, percent 0 to
100; what a GPU doesn't tell is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from trackers.records import Number

UTILIZATION, MEMORY, TEMPERATURE = 50.0, 90.0, 80.0
"""Warnings: utilisation below, memory above (percent), temperature above (°C)."""
SLACK_S = 0.5
"""Tolerance for an early snapshot, in seconds: the sampler's interval isn't exact."""
MB = 1e6
_NAME = re.compile(r"system\.(?:(?P<node>node\d+)\.)?(?P<rest>.+)")
_GPU_FIELDS = {
    "gpu": "utilization",
    "memoryAllocatedBytes": "memory_used_mb",
    "memoryAllocated": "memory_percent",
    "temp": "temperature",
    "powerWatts": "power_w",
    "gpu.max": "utilization_peak",
}
_FIELDS = ("name", "utilization", "memory_used_mb", "memory_total_mb", "memory_percent", "temperature")
_HOST = {"cpu": "cpu_percent", "memory_percent": "memory_percent"}


class GpuTotals(msgspec.Struct):
    """One GPU over a session: sums over snapshots, in percent, and the highest utilisation."""

    snapshots: int = 0
    utilization: float = 0.0
    memory: float = 0.0
    memories: int = 0
    peak: float = 0.0


class Snapshots(msgspec.Struct):
    """State of the snapshots. taken: time of the last one, by machine ("" where there is but one)."""

    taken: dict[str, float] = {}
    count: int = 0
    use: dict[str, GpuTotals] = {}

    def take(
        self, time: float, values: Mapping[str, Number], gpus: Mapping[str, Mapping[str, Any]], every_s: float
    ) -> dict[str, Any] | None:
        """A sampler's record as a snapshot; None where it is none, or the last was too short a while ago.

        Args:
            gpus: by label, what is known of each. every_s: between two snapshots of one machine.
        """
        node, found, host = _parts(values)
        if not found and not host:
            return None
        last = self.taken.get(node)
        if last is not None and time - last < every_s - min(SLACK_S, every_s / 2):
            return None
        self.taken[node] = time
        self.count += 1
        entries = []
        for label, fields in found.items():
            name = f"{node}.{label}" if node else label
            entry = _entry(name, fields, gpus.get(name, {}))
            self._count(name, entry)
            entries.append(entry)
        return {"gpus": entries, "system": {field: host.get(field) for field in ("cpu_percent", "memory_percent")}}

    def _count(self, label: str, entry: Mapping[str, Any]) -> None:
        use = self.use.setdefault(label, GpuTotals())
        busy, full = entry["utilization"], entry["memory_percent"]
        if busy is not None:
            use.snapshots += 1
            use.utilization += busy
            use.peak = max(use.peak, entry.get("utilization_peak", busy))
        if full is not None:
            use.memories += 1
            use.memory += full


def warnings(snapshot: Mapping[str, Any]) -> list[str]:
    """What is out of bounds in a snapshot."""
    found = []
    for gpu in snapshot["gpus"]:
        label, busy, full, heat = gpu["id"], gpu["utilization"], gpu["memory_percent"], gpu["temperature"]
        if busy is not None and busy < UTILIZATION:
            found.append(f"GPU {label} utilization low: {busy:.1f}%")
        if full is not None and full > MEMORY:
            found.append(f"GPU {label} memory high: {full:.1f}%")
        if heat is not None and heat > TEMPERATURE:
            found.append(f"GPU {label} temperature high: {heat:.0f} °C")
    return found


def _parts(values: Mapping[str, Number]) -> tuple[str, dict[str, dict[str, Number]], dict[str, Number]]:
    """The machine, its GPUs' values by label and field, and the host's."""
    node = ""
    gpus: dict[str, dict[str, Number]] = {}
    host: dict[str, Number] = {}
    for name, value in values.items():
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        rest = match["rest"]
        if rest.startswith("gpu."):
            label, _, field = rest[len("gpu.") :].rpartition(".")
            if field in ("min", "max"):
                label, _, first = label.rpartition(".")
                field = f"{first}.{field}"
            if label and field in _GPU_FIELDS:
                gpus.setdefault(label, {})[_GPU_FIELDS[field]] = value
                node = match["node"] or ""
        elif rest in _HOST:
            host[_HOST[rest]] = value
            node = match["node"] or ""
    return node, gpus, host


def _entry(label: str, fields: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": int(label) if label.isdigit() else label, **dict.fromkeys(_FIELDS)}
    entry.update(fields)
    used, share, total = fields.get("memory_used_mb"), fields.get("memory_percent"), known.get("memory_total_bytes")
    entry["name"] = known.get("name") or None
    if used is not None:
        entry["memory_used_mb"] = round(used / MB, 3)
    if total:
        entry["memory_total_mb"] = round(total / MB, 3)
    elif used and share:
        entry["memory_total_mb"] = round(used / share * 100 / MB, 3)
    return entry
