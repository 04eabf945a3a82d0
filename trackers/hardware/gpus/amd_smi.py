"""AMD GPUs, through amdsmi, AMD's own Python library over ROCm's ``libamd_smi.so``.

Units as ``amdsmi.h`` and its reference have them (https://rocm.docs.amd.com/projects/amdsmi/): activity in percent,
power in W, power caps in µW, temperature in °C, clocks in MHz, memory in bytes, energy as a count and its resolution
in µJ. What a GPU doesn't have comes as the string "N/A" or as the largest number of its type.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import time
from collections.abc import Callable, Sequence
from typing import Any

from trackers.hardware.gpus import amd_sysfs
from trackers.hardware.gpus.base import Absence, DriverFields, Gpu, GpuLost, Reading, SourceLost, one_line

UW_PER_W = 1e6
UJ_PER_J = 1e6
HZ_PER_MHZ = 1e6

# amdsmi_status_t (amdsmi.h).
UNSUPPORTED = frozenset({1, 2, 3, 5, 10})  # invalid, not supported, not implemented, no symbol, no permission
LOST = frozenset({31})  # device not found
GONE = frozenset({4, 32, 34})  # library can't be loaded, not initialised, driver not loaded
NOTHING = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""Values of 16, 32 and 64 bits that mean "none"; amdsmi translates only some of them to "N/A"."""


class AmdSource:
    """The AMD GPUs of this machine; the library is initialised once. Arguments as for ``NvidiaSource``.

    Raises:
        SourceLost: ROCm's library or the driver isn't there, or doesn't work.
        ImportError: amdsmi isn't installed.
    """

    name = "amd"

    def __init__(
        self,
        say: Callable[[str], None],
        choose: Callable[[Sequence[Gpu]], list[Gpu]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._smi = _load()
        self._fields = DriverFields("AMD", say, _classify)
        self._absence = Absence("AMD", say, clock)
        self._handles: dict[str, Any] = {}
        self._no_edge: set[str] = set()
        self._throttling = amd_sysfs.Throttling()
        try:
            self._smi.amdsmi_init(self._smi.AmdSmiInitFlags.INIT_AMD_GPUS)
            self.gpus: Sequence[Gpu] = choose(self._found())
        except Exception as error:
            raise SourceLost(one_line(error)) from error

    def read(self) -> list[Reading]:
        """One reading of each GPU that answers. Raises SourceLost when the driver is gone."""
        found = []
        for gpu in self.gpus:
            if self._absence.skips(gpu):
                continue
            try:
                found.append(self._read(gpu))
                self._absence.answered(gpu)
            except GpuLost as error:
                self._absence.lost(gpu, error)
        self._fields.tell()
        return found

    def close(self) -> None:
        """Release the library."""
        with contextlib.suppress(Exception):
            self._smi.amdsmi_shut_down()

    def _read(self, gpu: Gpu) -> Reading:
        smi, handle, ask = self._smi, self._handles[gpu.label], self._ask
        activity = ask(gpu, "activity", smi.amdsmi_get_gpu_activity, handle) or {}
        busy, memory_busy = number(activity.get("gfx_activity")), number(activity.get("umc_activity"))
        used, total = self._memory(gpu, handle)
        power = ask(gpu, "power", self._power, handle)
        limit_uw = ask(gpu, "power limit", lambda: smi.amdsmi_get_power_cap_info(handle)["power_cap"])
        clocks = smi.AmdSmiClkType
        core = ask(gpu, "SM clock", lambda: smi.amdsmi_get_clock_info(handle, clocks.GFX))
        memory = ask(gpu, "memory clock", lambda: smi.amdsmi_get_clock_info(handle, clocks.MEM))
        energy = ask(gpu, "energy counter", self._energy, handle)
        limit, core_mhz, memory_mhz = number(limit_uw), _clock(core), _clock(memory)
        return Reading(
            gpu=gpu,
            compute_frac=None if busy is None else busy / 100,
            memory_busy_frac=None if memory_busy is None else memory_busy / 100,
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_w=power,
            power_limit_w=None if limit is None else limit / UW_PER_W,
            temp_c=ask(gpu, "temperature", self._temperature, gpu, handle),
            sm_clock_hz=None if core_mhz is None else core_mhz * HZ_PER_MHZ,
            memory_clock_hz=None if memory_mhz is None else memory_mhz * HZ_PER_MHZ,
            energy_j=energy,
            throttle=ask(gpu, "throttle reasons", self._reasons, gpu, handle),
        )

    def _ask(self, gpu: Gpu, field: str, call: Callable[..., Any], *arguments: Any) -> Any:
        return self._fields.ask(gpu, field, call, *arguments)

    def _memory(self, gpu: Gpu, handle: Any) -> tuple[int | None, int | None]:
        smi = self._smi
        kind = smi.AmdSmiMemoryType.VRAM
        used = number(self._ask(gpu, "memory used", smi.amdsmi_get_gpu_memory_usage, handle, kind))
        total = number(self._ask(gpu, "memory total", smi.amdsmi_get_gpu_memory_total, handle, kind))
        return None if used is None else int(used), None if total is None else int(total)

    def _power(self, handle: Any) -> float | None:
        """MI300 and later have the current power, earlier ones a short average: whichever is there."""
        info = self._smi.amdsmi_get_power_info(handle)
        current = number(info.get("current_socket_power"))
        return number(info.get("average_socket_power")) if current in (None, 0) else current

    def _temperature(self, gpu: Gpu, handle: Any) -> float:
        """At the edge, as other GPUs tell it; the hottest spot where there is no such sensor (MI300)."""
        smi = self._smi
        now, kinds = smi.AmdSmiTemperatureMetric.CURRENT, smi.AmdSmiTemperatureType
        if gpu.label not in self._no_edge:
            try:
                return float(smi.amdsmi_get_temp_metric(handle, kinds.EDGE, now))
            except smi.AmdSmiLibraryException as error:
                if _classify(error) != "unsupported":
                    raise
                self._no_edge.add(gpu.label)
        return float(smi.amdsmi_get_temp_metric(handle, kinds.JUNCTION, now))

    def _energy(self, handle: Any) -> float:
        count = self._smi.amdsmi_get_energy_count(handle)
        ticks = count["energy_accumulator"] if "energy_accumulator" in count else count["power"]  # before ROCm 6.2
        return float(ticks * count["counter_resolution"]) / UJ_PER_J

    def _reasons(self, gpu: Gpu, handle: Any) -> tuple[str, ...] | None:
        """From the library's structure: its Python function makes one truth value of all the bits."""
        wrapper = self._smi.amdsmi_interface.amdsmi_wrapper
        metrics = wrapper.amdsmi_gpu_metrics_t()
        code = wrapper.amdsmi_get_gpu_metrics_info(handle, ctypes.byref(metrics))
        if code:
            raise self._smi.AmdSmiLibraryException(code)
        told = amd_sysfs.from_library(metrics)
        if told is None:
            self._fields.refuse(gpu, "throttle reasons", "its GPU metrics have none")
            return None
        return self._throttling.reasons(gpu.label, told)

    def _found(self) -> list[Gpu]:
        smi = self._smi
        found = []
        for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
            name, uuids = "", []
            with contextlib.suppress(Exception):
                about = smi.amdsmi_get_gpu_asic_info(handle)
                name = str(about["market_name"])
                if about["asic_serial"] != "N/A":  # what ROCR_VISIBLE_DEVICES calls it
                    uuids.append(f"GPU-{int(about['asic_serial'], 16):016x}")
            with contextlib.suppress(Exception):
                uuids.append(str(smi.amdsmi_get_gpu_enumeration_info(handle)["hip_uuid"]))
            with contextlib.suppress(Exception):
                uuids.append(f"GPU-{smi.amdsmi_get_gpu_device_uuid(handle)}")
            label = str(index)
            self._handles[label] = handle
            known = tuple(dict.fromkeys(uuid for uuid in uuids if len(uuid) > len("GPU-")))
            found.append(Gpu(vendor="amd", index=index, label=label, name=name, uuids=known))
        return found


def _load() -> Any:
    """The amdsmi module. Without ROCm its import prints to stdout and fails with whatever comes first."""
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            import amdsmi
    except ImportError:
        raise
    except Exception as error:
        raise SourceLost(" ".join(said.getvalue().split()) or one_line(error)) from error
    return amdsmi


def number(value: Any) -> float | None:
    """A number of amdsmi's; None for its ways to say that there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value in NOTHING:
        return None
    return float(value)


def _clock(info: Any) -> float | None:
    return None if info is None else number(info.get("clk", info.get("cur_clk")))


def _classify(error: Exception) -> str:
    code = getattr(error, "err_code", None)
    if code in GONE:
        return "gone"
    if code in LOST:
        return "lost"
    return "unsupported" if code in UNSUPPORTED or isinstance(error, (AttributeError, KeyError, TypeError)) else ""
