"""Compares what is read here with what ``nvidia-smi`` says of the same GPUs: ``make gpu-check``.

    python -m tests.hardware.gpu_check [--seconds S] [--capture FILE]

Without an NVIDIA GPU nothing is checked, and that is said; the exit code is then 0. It is 1 when a value is off.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus

MIB = float(1 << 20)


class Field(NamedTuple):
    """How a value compares with nvidia-smi's: within ``off`` of it, or within the share ``share`` of it."""

    smi: str
    of: Any
    off: float
    share: float = 0.0


FIELDS = (
    Field("utilization.gpu", lambda r: _times(r.compute_frac, 100), 30),
    Field("utilization.memory", lambda r: _times(r.memory_busy_frac, 100), 30),
    Field("memory.used", lambda r: _times(r.memory_used_bytes, 1 / MIB), 64, 0.05),
    Field("memory.total", lambda r: _times(r.memory_total_bytes, 1 / MIB), 1),
    Field("temperature.gpu", lambda r: r.temp_c, 3),
    Field("power.draw", lambda r: r.power_w, 20, 0.15),
    Field("enforced.power.limit", lambda r: r.power_limit_w, 1),
    Field("clocks.sm", lambda r: _times(r.sm_clock_hz, 1e-6), 100, 0.15),
    Field("clocks.mem", lambda r: _times(r.memory_clock_hz, 1e-6), 100, 0.15),
)
"""nvidia-smi --help-query-gpu has the units: percent, MiB, °C, W, MHz."""


def ask_smi() -> list[dict[str, str]]:
    """nvidia-smi's own words, by field, a GPU each; [] without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    names = ["uuid", *(field.smi for field in FIELDS)]
    command = [program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        return []
    return [dict(zip(names, map(str.strip, row.split(",")), strict=True)) for row in done.stdout.splitlines() if row]


def compare(readings: Sequence[Reading], smi: Sequence[dict[str, str]]) -> Iterator[tuple[str, bool]]:
    """A line for each value, and whether it agrees. What neither tells agrees."""
    ours = {reading.gpu.uuid: reading for reading in readings}
    for theirs in smi:
        reading = ours.get(theirs["uuid"])
        if reading is None:
            yield f"{theirs['uuid']}: not read", False
            continue
        for field in FIELDS:
            wanted, found = _number(theirs[field.smi]), field.of(reading)
            agrees = (wanted is None) == (found is None)
            if wanted is not None and found is not None:
                agrees = abs(found - wanted) <= max(field.off, field.share * abs(wanted))
            shown = "absent" if found is None else f"{found:.1f}"
            yield f"GPU {reading.gpu.label} {field.smi}: {shown}, nvidia-smi says {theirs[field.smi]}", agrees


def check_energy(before: Sequence[Reading], after: Sequence[Reading], seconds: float) -> Iterator[tuple[str, bool]]:
    """The energy counter's difference over a time, against the power at both ends."""
    for first, last in zip(before, after, strict=True):
        if first.energy_j is None or last.energy_j is None or first.power_w is None or last.power_w is None:
            continue
        by_counter, by_power = (last.energy_j - first.energy_j) / seconds, (first.power_w + last.power_w) / 2
        agrees = abs(by_counter - by_power) <= max(25.0, 0.35 * by_power)
        yield f"GPU {first.gpu.label} energy counter: {by_counter:.1f} W on average, power {by_power:.1f} W", agrees


def check_sense(readings: Sequence[Reading]) -> Iterator[tuple[str, bool]]:
    """What no GPU can be."""
    for reading in readings:
        label = f"GPU {reading.gpu.label}"
        fractions = [f for f in (reading.compute_frac, reading.memory_busy_frac) if f is not None]
        yield f"{label} fractions lie between 0 and 1: {fractions}", all(0 <= fraction <= 1 for fraction in fractions)
        if reading.memory_used_bytes is not None and reading.memory_total_bytes is not None:
            yield f"{label} uses no more memory than it has", reading.memory_used_bytes <= reading.memory_total_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print a line for each value, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="over which energy is measured (3)")
    parser.add_argument("--capture", type=Path, help="write the readings and nvidia-smi's words to this file")
    given = parser.parse_args(arguments)
    said: list[str] = []
    gpus = Gpus(said.append, scope="node")
    nvidia = [gpu for gpu in gpus.gpus if gpu.vendor == "nvidia"]
    if not nvidia:
        print("gpu-check: no NVIDIA GPU at hand: nothing was checked" + "".join(f"; {text}" for text in said))
        return 0
    begun = time.monotonic()
    before = _read(gpus)
    time.sleep(given.seconds)
    spent = time.process_time()
    readings, smi = _read(gpus), ask_smi()
    spent = time.process_time() - spent
    lines = [
        *compare(readings, smi),
        *check_energy(before, readings, time.monotonic() - begun),
        *check_sense(readings),
        (f"nvidia-smi tells of {len(smi)} GPUs", bool(smi)),
    ]
    for text, agrees in lines:
        print(f"{'ok ' if agrees else 'OFF'}  {text}")
    for text in said:
        print(f"     said: {text}")
    print(f"     one reading of {len(readings)} GPUs took {spent * 1e3:.2f} ms of processor time")
    if given.capture is not None:
        given.capture.write_text(json.dumps({"readings": msgspec.to_builtins(readings), "nvidia_smi": smi}, indent=1))
    gpus.close()
    return 0 if all(agrees for _, agrees in lines) else 1


def _read(gpus: Gpus) -> list[Reading]:
    return [reading for reading in gpus.read() if reading.gpu.vendor == "nvidia"]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


if __name__ == "__main__":
    sys.exit(main())
