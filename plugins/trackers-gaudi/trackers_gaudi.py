"""Intel Gaudi accelerators, by ``hl-smi``.

Fields and units as its manual has them (https://docs.habana.ai, "System Management Interface Tool"): utilisation in
percent, memory in MiB, temperature in °C, power in W. ``--format=csv,noheader,nounits`` leaves units out since 1.11;
older ones are removed here.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable

from trackers.hardware.gpus.base import Gpu, GpuSource, Opening, Reading, SourceLost, one_line

FIELDS = ("index", "module_id", "uuid", "name", "utilization.aip", "memory.used", "memory.total", "temperature.aip",
          "power.draw")  # fmt: skip
FRESH_S = 2.0
"""A call takes a tenth of a second of a processor: readings are at most this old."""
LONGEST_S = 20.0
MIB = 1 << 20


class GaudiSource(GpuSource):
    """The accelerators that hl-smi lists.

    Args:
        ask: the rows of hl-smi, a list of :data:`FIELDS` each.

    Raises:
        SourceLost: none here, or hl-smi doesn't answer.
    """

    name = "gaudi"

    def __init__(
        self, opening: Opening, ask: Callable[[], list[dict[str, str]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        opening.entering()
        self._ask, self._clock = ask, clock
        self._rows: dict[str, dict[str, str]] = {}
        self._asked = float("-inf")
        self._refresh(True)
        visible = opening.environ.get("HABANA_VISIBLE_MODULES") if opening.scope == "job" else None
        modules = None if visible is None or visible.strip() == "all" else {one.strip() for one in visible.split(",")}
        self.gpus = [
            Gpu(vendor="gaudi", index=int(row["index"]), label=row["index"], name=row["name"], uuids=(row["uuid"],))
            for row in self._rows.values()
            if modules is None or row["module_id"] in modules
        ]
        if not self.gpus:
            raise SourceLost("hl-smi lists no accelerator of the job")

    def read(self, whole: bool = False) -> list[Reading]:
        """One reading of each accelerator. Raises SourceLost when hl-smi is gone."""
        self._refresh(whole)
        readings = []
        for gpu in self.gpus:
            row = self._rows.get(gpu.label, {})
            busy, used, total = (_number(row.get(name, "")) for name in FIELDS[4:7])
            reading = Reading(
                gpu=gpu, temp_c=_number(row.get("temperature.aip", "")), power_w=_number(row.get("power.draw", ""))
            )
            reading.compute_frac = None if busy is None else min(busy / 100, 1.0)
            reading.memory_used_bytes = None if used is None else int(used * MIB)
            reading.memory_total_bytes = None if total is None else int(total * MIB)
            readings.append(reading)
        return readings

    def _refresh(self, now: bool) -> None:
        if now or self._clock() - self._asked >= FRESH_S:
            self._rows = {row["index"]: row for row in self._ask()}
            self._asked = self._clock()


def open_devices(opening: Opening) -> GaudiSource | None:
    """The entry point; None where there is no hl-smi."""
    program = shutil.which("hl-smi")
    return None if program is None else GaudiSource(opening, lambda: ask(program))


def ask(program: str) -> list[dict[str, str]]:
    """The rows of hl-smi.

    Raises:
        SourceLost: it failed, or hangs.
    """
    command = [program, "-Q", ",".join(FIELDS), "-f", "csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise SourceLost(one_line(error)) from error
    if done.returncode:
        raise SourceLost(" ".join((done.stderr or done.stdout).split())[:200] or f"hl-smi: exit code {done.returncode}")
    return parse(done.stdout)


def parse(text: str) -> list[dict[str, str]]:
    """Rows of hl-smi's CSV; other lines, such as a driver's warnings, are left out."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(FIELDS) and cells[0].isdigit():
            rows.append(dict(zip(FIELDS, cells, strict=True)))
    return rows


def _number(text: str) -> float | None:
    words = text.split()
    try:
        return float(words[0].rstrip("%"))
    except (IndexError, ValueError):  # N/A
        return None
