"""Intel's data center GPUs, by ``xpu-smi``.

``xpu-smi discovery -j`` lists them; ``xpu-smi dump`` prints a line of CSV each second and GPU until it is ended
(https://intel.github.io/xpumanager/smi_user_guide.html, "Dump the device statistics in CSV format"): utilisation in
percent, power in W, frequency in MHz, temperatures in °C, memory in MiB, energy in J. Columns are found by their heads,
of which releases have had several.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from trackers.hardware.gpus.base import Gpu, GpuSource, Opening, Reading, SourceLost, one_line

METRICS = "0,1,2,3,4,8,18"
HEADS = {
    "GPU Utilization (%)": "busy",
    "Average % utilization of all GPU Engines": "busy",
    "GPU Power (W)": "power",
    "GPU Frequency (MHz)": "clock",
    "GPU Core Temperature (Celsius Degree)": "temperature",
    "GPU Memory Temperature (Celsius Degree)": "memory temperature",
    "GPU Energy Consumed (J)": "energy",
    "GPU Memory Used (MiB)": "used",
}
MIB = 1 << 20
LONGEST_S = 20.0
LONGEST_LINE = 1 << 16


class IntelSource(GpuSource):
    """The GPUs that xpu-smi lists.

    Args:
        devices: rows of ``device_list`` of ``xpu-smi discovery -j``. dump: started once; its standard output is read.

    Raises:
        SourceLost: none here.
    """

    name = "intel"

    def __init__(
        self, opening: Opening, devices: Sequence[dict[str, object]], dump: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        opening.entering()
        chosen = _visible(opening.environ.get("ZE_AFFINITY_MASK")) if opening.scope == "job" else None
        self.gpus: list[Gpu] = []
        self._total: dict[str, int] = {}
        for place, row in enumerate(devices):
            index = int(str(row.get("device_id", place)))
            if chosen is not None and index not in chosen:
                continue
            name, uuid = str(row.get("device_name") or "Intel GPU"), str(row.get("uuid") or "")
            self.gpus.append(
                Gpu(vendor="intel", index=index, label=str(index), name=name, uuids=(uuid,) if uuid else ())
            )
            total = str(row.get("memory_physical_size_byte") or "")
            if total.isdigit():
                self._total[str(index)] = int(total)
        if not self.gpus:
            raise SourceLost("xpu-smi lists no GPU of the job")
        self._dump = dump()
        assert self._dump.stdout is not None
        os.set_blocking(self._dump.stdout.fileno(), False)
        self._rest, self._heads = b"", [""]
        self._waits_s = LONGEST_S
        self._rows: dict[str, dict[str, float]] = {}

    def read(self, whole: bool = False) -> list[Reading]:
        """The newest line of each GPU; the first reading waits for one. Raises SourceLost when xpu-smi has ended."""
        until = time.monotonic() + self._waits_s
        self._waits_s = 0.0  # a GPU that has no line by then holds up nobody's later samples
        self._take()
        while not {gpu.label for gpu in self.gpus} <= self._rows.keys() and self._wait(until):
            self._take()
        return [self._reading(gpu, self._rows.get(gpu.label, {})) for gpu in self.gpus]

    def close(self) -> None:
        """End xpu-smi."""
        if self._dump.poll() is None:
            self._dump.kill()
        self._dump.wait()
        if self._dump.stdout is not None:
            self._dump.stdout.close()

    def _reading(self, gpu: Gpu, row: dict[str, float]) -> Reading:
        reading = Reading(gpu=gpu, temp_c=row.get("temperature"), power_w=row.get("power"), energy_j=row.get("energy"))
        reading.compute_frac = min(row["busy"] / 100, 1.0) if "busy" in row else None
        reading.sm_clock_hz = row["clock"] * 1e6 if "clock" in row else None
        reading.memory_used_bytes = int(row["used"] * MIB) if "used" in row else None
        reading.memory_total_bytes = self._total.get(gpu.label)
        if "memory temperature" in row:
            reading.details["memoryTemp"] = row["memory temperature"]
        return reading

    def _wait(self, until: float) -> bool:
        assert self._dump.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._dump.stdout, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, until - time.monotonic())))

    def _take(self) -> bool:
        """Read what has been printed; whether there was anything."""
        assert self._dump.stdout is not None
        try:
            text = os.read(self._dump.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            if self._dump.poll() is None:
                return False
            text = b""  # it has ended, though a process that it started holds its output open
        if not text:
            raise SourceLost(f"xpu-smi ended with exit code {self._dump.wait()}")
        *lines, rest = (self._rest + text).split(b"\n")
        self._rest = rest[-LONGEST_LINE:]
        for line in lines:
            cells = [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]
            if "DeviceId" in cells:
                self._heads = cells
            elif len(cells) == len(self._heads) and len(cells) > 2:
                row = dict(zip(self._heads, cells, strict=True))
                values = {HEADS[head]: value for head, cell in row.items() if head in HEADS for value in _numbers(cell)}
                self._rows[row.get("DeviceId", "")] = values
        return True


def open_devices(opening: Opening) -> IntelSource | None:
    """The entry point; None where there is no xpu-smi."""
    program = shutil.which("xpu-smi")
    if program is None:
        return None
    opening.entering()
    return IntelSource(opening, discover(program), lambda: _start(program))


def discover(program: str) -> list[dict[str, object]]:
    """The GPUs, as xpu-smi lists them.

    Raises:
        SourceLost: it failed, hangs, or prints something else.
    """
    try:
        done = subprocess.run(
            [program, "discovery", "-j"], capture_output=True, text=True, timeout=LONGEST_S, stdin=subprocess.DEVNULL
        )
        devices = json.loads(done.stdout)["device_list"]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        raise SourceLost(f"xpu-smi discovery: {one_line(error)}") from error
    return [row for row in devices if isinstance(row, dict)]


def _start(program: str) -> subprocess.Popen[bytes]:
    command = [program, "dump", "-d", "-1", "-m", METRICS, "-i", "1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def _visible(mask: str | None) -> set[int] | None:
    """The devices of a mask such as "0,2.1": a tile counts as its device; None for all."""
    if not mask:
        return None
    return {int(entry.split(".")[0]) for entry in mask.split(",") if entry.split(".")[0].strip().isdigit()}


def _numbers(cell: str) -> Iterator[float]:
    try:
        yield float(cell)
    except ValueError:  # N/A, or empty
        return
