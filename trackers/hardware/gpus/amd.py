"""AMD GPUs, through amdsmi, or else through what the kernel's amdgpu driver shows in sysfs.

sysfs (https://docs.kernel.org/gpu/amdgpu/): ``gpu_busy_percent`` and ``mem_busy_percent`` in percent,
``mem_info_vram_*`` in bytes; hwmon has temperatures in m°C (``temp1`` is the edge, ``temp2`` the hottest spot), power
in µW, clocks in Hz (``freq1`` shaders, ``freq2`` memory); ``gpu_metrics`` is a structure of which only the throttle
reasons are taken. There is no energy counter.

Throttle reasons, from what the driver calls GPU metrics:

Older GPUs (MI200, Navi) have a word of bits that are the same on all of them, ``indep_throttle_status``
(``SMU_THROTTLER_*_BIT`` in Linux' ``drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h``). MI300 and later count for how
long each limit held instead: what grew since the reading before held the GPU down in between. Both stand in
``amdsmi_gpu_metrics_t``, and in the kernel's file ``gpu_metrics``, whose layouts are ``struct gpu_metrics_v1_*`` of
``drivers/gpu/drm/amd/include/kgd_pp_interface.h``. Other layouts tell neither.

amdsmi is AMD's own Python library over ROCm's ``libamd_smi.so``.

Units as ``amdsmi.h`` and its reference have them (https://rocm.docs.amd.com/projects/amdsmi/): activity in percent,
power in W, power caps in µW, temperature in °C, clocks in MHz, memory in bytes, energy as a count and its resolution
in µJ. What a GPU doesn't have comes as the string "N/A" or as the largest number of its type.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import struct
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.hardware.gpus.base import DriverSource, Gpu, GpuSource, Reading, SourceLost, absent, one_line

DRM = Path("/sys/class/drm")
AMD_VENDOR = 0x1002
UW_PER_W = 1e6
MILLIDEGREES = 1000.0


class SysfsSource(GpuSource):
    """The AMD GPUs that the kernel shows.

    Args:
        say, choose: as for ``NvidiaSource``.
        drm: the kernel's list of graphics cards.

    Raises:
        SourceLost: none here.
    """

    name = "amd sysfs"

    def __init__(
        self, say: Callable[[str], None], choose: Callable[[Sequence[Gpu]], list[Gpu]] = list, drm: Path = DRM
    ) -> None:
        self._say = say
        self._folders: dict[str, Path] = {}
        self._sensors: dict[str, Path | None] = {}
        gpus = self._detect(drm)
        if not gpus:
            raise SourceLost(f"no AMD GPU in {drm}")
        self.gpus: Sequence[Gpu] = choose(gpus)
        self._lost: set[str] = set()
        self._has_reported = False
        self._throttling = Throttling()
        self._silent: set[str] = set()

    def read(self, whole: bool = False) -> list[Reading]:
        """One reading of each GPU whose files are still there."""
        readings = []
        for gpu in self.gpus:
            folder = self._folders[gpu.label]
            if not folder.is_dir():
                if gpu.label not in self._lost:
                    self._lost.add(gpu.label)
                    self._say(f"AMD GPU {gpu.label} is lost ({folder} is gone): it isn't sampled until it is back")
                continue
            self._lost.discard(gpu.label)
            readings.append(self._read(gpu, folder))
        if readings and not self._has_reported:
            self._has_reported = True
            self._report_missing(readings)
        return readings

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, gpu: Gpu, folder: Path) -> Reading:
        busy, memory_busy = _number(folder / "gpu_busy_percent"), _number(folder / "mem_busy_percent")
        used, total = _number(folder / "mem_info_vram_used"), _number(folder / "mem_info_vram_total")
        reading = Reading(
            gpu=gpu,
            compute_frac=None if busy is None else busy / 100,
            memory_busy_frac=None if memory_busy is None else memory_busy / 100,
            memory_used_bytes=used,
            memory_total_bytes=total,
            throttle=self._reasons(gpu, folder),
        )
        sensors = self._sensors[gpu.label]
        if sensors is None:
            return reading
        temperature = _first(sensors, "temp1_input", "temp2_input")
        power = _first(sensors, "power1_average", "power1_input")
        limit = _number(sensors / "power1_cap")
        reading.temp_c = None if temperature is None else temperature / MILLIDEGREES
        reading.power_w = None if power is None else power / UW_PER_W
        reading.power_limit_w = None if limit is None else limit / UW_PER_W
        reading.sm_clock_hz = _number(sensors / "freq1_input")
        reading.memory_clock_hz = _number(sensors / "freq2_input")
        return reading

    def _reasons(self, gpu: Gpu, folder: Path) -> tuple[str, ...] | None:
        try:
            status = from_file(folder / "gpu_metrics")
        except OSError:
            return None
        if status is None:
            self._silent.add(gpu.label)
            return None
        return self._throttling.reasons(gpu.label, status)

    def _report_missing(self, readings: list[Reading]) -> None:
        fields = {
            "activity": "compute_frac",
            "memory activity": "memory_busy_frac",
            "memory": "memory_used_bytes",
            "power": "power_w",
            "power limit": "power_limit_w",
            "temperature": "temp_c",
            "SM clock": "sm_clock_hz",
            "memory clock": "memory_clock_hz",
        }
        why = "the kernel has no file for it"
        missing = {
            (reading.gpu.label, word): why
            for reading in readings
            for word, field in fields.items()
            if getattr(reading, field) is None
        }
        missing |= {(r.gpu.label, "throttle reasons"): why for r in readings if r.gpu.label in self._silent}
        if missing:
            self._say(absent("AMD", missing))

    def _detect(self, drm: Path) -> list[Gpu]:
        folders = []
        for card in drm.glob("card*"):
            folder = card / "device"
            is_card = card.name.removeprefix("card").isdigit() and _hex(folder / "vendor") == AMD_VENDOR
            if is_card and any((folder / name).exists() for name in ("gpu_busy_percent", "mem_info_vram_total")):
                folders.append(folder)
        # By the address on the bus, as ROCm numbers them.
        folders.sort(key=lambda folder: (Path(os.path.realpath(folder)).name, folder.parent.name))
        gpus = []
        for index, folder in enumerate(folders):
            label = str(index)
            serial = _hex(folder / "unique_id", bare=True)
            uuids = (f"GPU-{serial:016x}",) if serial else ()
            self._folders[label] = folder
            self._sensors[label] = next(iter(sorted(folder.glob("hwmon/hwmon*"))), None)
            name = _text(folder / "product_name") or "AMD GPU"
            gpus.append(Gpu(vendor="amd", index=index, label=label, name=name, uuids=uuids))
        return gpus


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    """A file's number; None where it is missing or, as during a reset, can't be read."""
    try:
        return int(_text(path))
    except ValueError:
        return None


def _first(folder: Path, *names: str) -> int | None:
    return next((value for name in names if (value := _number(folder / name)) is not None), None)


def _hex(path: Path, bare: bool = False) -> int | None:
    try:
        return int(_text(path), 16 if bare else 0)
    except ValueError:
        return None


_WORDS: dict[str, range | tuple[int, ...]] = {
    "package power limit": range(0, 4),
    "sustained power limit": (4,),
    "fast power limit": (5,),
    "slow power limit": (6, 7),
    "current limit": range(16, 21),
    "peak current limit": range(21, 24),
    "GPU temperature": (32,),
    "core temperature": (33,),
    "memory temperature": (34,),
    "edge temperature": (35,),
    "hot spot temperature": (36,),
    "SoC temperature": (37,),
    "voltage regulator temperature": (*range(38, 42), 44, 45),
    "liquid temperature": (42, 43),
    "hot signal from outside (PROCHOT)": (46, 47),
    "power management (PPM)": (56,),
    "reliability limit (FIT)": (57,),
}
REASONS: dict[str, int] = {word: sum(1 << bit for bit in bits) for word, bits in _WORDS.items()}
"""The bits of ``indep_throttle_status`` that a word stands for."""
RESIDENCIES: dict[str, str] = {
    "prochot_residency_acc": "hot signal from outside (PROCHOT)",
    "ppt_residency_acc": "package power limit",
    "socket_thm_residency_acc": "GPU temperature",
    "vr_thm_residency_acc": "voltage regulator temperature",
    "hbm_thm_residency_acc": "memory temperature",
}
"""Counters of ``amdsmi_gpu_metrics_t``, in the kernel's order too, and the words for them."""

NO_BITS = (1 << 64) - 1
NO_COUNT = frozenset({(1 << 32) - 1, (1 << 64) - 1})
_LAYOUT = struct.Struct("<HBB")
_BITS_AT = {(1, 3): 112}
_COUNTS_AT = {(1, 6): 108, (1, 7): 44, (1, 8): 44}
"""Format and content revision, and where the bits (64 bit) or the first counter (32 bit) stands."""


class ReportedValues(NamedTuple):
    """Values that a GPU reports: the word of bits, or the counters by name."""

    bits: int | None
    counts: dict[str, int]


class Throttling:
    """Turns what GPUs tell into reasons; remembers each GPU's counters from one reading to the next."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, int]] = {}

    def reasons(self, label: str, status: ReportedValues) -> tuple[str, ...] | None:
        """Why a GPU is held down, () for not at all; None where it can't be known yet, or the GPU doesn't tell."""
        if status.bits is not None:
            return tuple(word for word, mask in REASONS.items() if status.bits & mask)
        before = self._before.get(label)
        self._before[label] = status.counts
        if before is None or not status.counts:
            return None
        return tuple(word for word, count in status.counts.items() if count > before.get(word, count))


def from_library(metrics: Any) -> ReportedValues | None:
    """From amdsmi's structure; None where it tells nothing."""
    bits = getattr(metrics, "indep_throttle_status", NO_BITS)
    counts = {word: int(getattr(metrics, name, NO_BITS)) for name, word in RESIDENCIES.items()}
    return _told(None if bits == NO_BITS else int(bits), counts)


def from_file(path: Path) -> ReportedValues | None:
    """From the kernel's file; None where it is missing, or tells nothing.

    Raises:
        OSError: it can't be read now, as during a reset.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _LAYOUT.size:
        return None
    _, *revision = _LAYOUT.unpack_from(content)
    layout = tuple(revision)
    try:
        if layout in _BITS_AT:
            (bits,) = struct.unpack_from("<Q", content, _BITS_AT[layout])
            return _told(None if bits == NO_BITS else bits, {})
        if layout in _COUNTS_AT:
            counts = struct.unpack_from(f"<{len(RESIDENCIES)}I", content, _COUNTS_AT[layout])
            return _told(None, dict(zip(RESIDENCIES.values(), counts, strict=True)))
    except struct.error:  # shorter than its revision says
        pass
    return None


def _told(bits: int | None, counts: dict[str, int]) -> ReportedValues | None:
    known = {word: count for word, count in counts.items() if count not in NO_COUNT}
    return None if bits is None and not known else ReportedValues(bits, known)


UJ_PER_J = 1e6
HZ_PER_MHZ = 1e6

# amdsmi_status_t (amdsmi.h).
UNSUPPORTED = frozenset({1, 2, 3, 5, 10})  # invalid, not supported, not implemented, no symbol, no permission
LOST = frozenset({31})  # device not found
GONE = frozenset({4, 32, 34})  # library can't be loaded, not initialised, driver not loaded
NOTHING = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""Values of 16, 32 and 64 bits that mean "none"; amdsmi translates only some of them to "N/A"."""


class AmdSource(DriverSource):
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
        entering: Callable[[], object] = lambda: None,
        details: Collection[str] = (),
    ) -> None:
        self._smi = _load()
        entering()
        super().__init__("AMD", say, _classify, clock, details)
        self._no_edge: set[str] = set()
        self._moved: dict[str, tuple[float, int, int]] = {}
        self._throttling = Throttling()
        try:
            self._smi.amdsmi_init(self._smi.AmdSmiInitFlags.INIT_AMD_GPUS)
            self.gpus = choose(self._detect())
        except Exception as error:
            raise SourceLost(one_line(error)) from error

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
        details, users = self._details(gpu, handle)
        return Reading(
            gpu=gpu,
            details=details,
            users=users,
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

    def _details(self, gpu: Gpu, handle: Any) -> tuple[dict[str, float], dict[int, int | None] | None]:
        """The values of the groups that are due, and the processes."""
        found: dict[str, Any] = {}

        def ask(field: str, call: Callable[[], dict[str, Any]]) -> None:
            found.update(self._fields.ask(gpu, field, call, quiet=True) or {})

        smi, groups = self._smi, self._groups
        if "activity" in groups:
            ask("xGMI traffic", lambda: self._traffic(gpu, handle))
        if "engines" in groups:
            ask("fan", lambda: {"fanSpeed": self._fan(handle)})
        if not self._slow:
            return _numbers(found), None
        if "health" in groups:
            kinds, now = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric.CURRENT
            ask("ECC errors", lambda: self._errors(handle))
            pages = smi.amdsmi_get_gpu_bad_page_info  # a text where there are none
            ask("bad pages", lambda: {"retiredPages": len(s) if isinstance(s := pages(handle), (list, tuple)) else 0})
            ask("memory temperature", lambda: {"memoryTemp": smi.amdsmi_get_temp_metric(handle, kinds.VRAM, now)})
        if "links" in groups:
            ask("PCIe", lambda: self._pcie(handle))
            ask("xGMI errors", lambda: {"xgmiErrors": int(smi.amdsmi_gpu_xgmi_error_status(handle))})
        users = self._fields.ask(gpu, "processes", self._users, handle, quiet=True) if "processes" in groups else None
        return _numbers(found), users

    def _errors(self, handle: Any) -> dict[str, Any]:
        count = self._smi.amdsmi_get_gpu_total_ecc_count(handle)
        return {
            "correctedMemoryErrors": count["correctable_count"],
            "uncorrectedMemoryErrors": count["uncorrectable_count"],
        }

    def _pcie(self, handle: Any) -> dict[str, Any]:
        about = self._smi.amdsmi_get_pcie_info(handle)
        now = about["pcie_metric"]
        mts = number(now.get("pcie_speed"))  # MT/s: 32000 is the fifth generation
        generation = None if mts is None else _GENERATIONS.get(int(mts))
        return {"pcieLinkGen": generation, "pcieLinkWidth": now["pcie_width"], "pcieReplays": now["pcie_replay_count"]}

    def _fan(self, handle: Any) -> float:
        most = number(self._smi.amdsmi_get_gpu_fan_speed_max(handle, 0)) or 255.0
        return float(self._smi.amdsmi_get_gpu_fan_speed(handle, 0)) / most * 100

    def _traffic(self, gpu: Gpu, handle: Any) -> dict[str, Any]:
        """Bytes a second over all xGMI links since the reading before; the library counts kilobytes."""
        metrics = self._smi.amdsmi_get_link_metrics(handle)
        links = [link for link in metrics["links"][: metrics["num_links"]] if number(link["read"]) is not None]
        now = self._clock(), sum(int(link["read"]) for link in links), sum(int(link["write"]) for link in links)
        before = self._moved.get(gpu.label)
        self._moved[gpu.label] = now
        if before is None or not links or now[0] <= before[0]:
            return {}
        seconds = now[0] - before[0]
        received, sent = ((now[k] - before[k]) * 1000 / seconds for k in (1, 2))
        return {"xgmiRxBytes": received, "xgmiTxBytes": sent} if received >= 0 and sent >= 0 else {}

    def _users(self, handle: Any) -> dict[int, int | None]:
        used = {int(user["pid"]): user["memory_usage"] for user in self._smi.amdsmi_get_gpu_process_list(handle)}
        known = {pid: number(memory["vram_mem"]) for pid, memory in used.items()}
        return {pid: None if memory is None else int(memory) for pid, memory in known.items()}

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
        status = from_library(metrics)
        if status is None:
            self._fields.refuse(gpu, "throttle reasons", "its GPU metrics have none")
            return None
        return self._throttling.reasons(gpu.label, status)

    def _detect(self) -> list[Gpu]:
        smi = self._smi
        gpus = []
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
            gpus.append(Gpu(vendor="amd", index=index, label=label, name=name, uuids=known))
        return gpus


def _load() -> Any:
    """The amdsmi module. Without ROCm its import prints to stdout and fails with whatever comes first."""
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            import amdsmi
    except ImportError:
        raise
    except Exception as error:
        raise SourceLost(" ".join(output.getvalue().split()) or one_line(error)) from error
    return amdsmi


def number(value: Any) -> float | None:
    """A number of amdsmi's; None for its ways to say that there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value in NOTHING:
        return None
    return float(value)


_GENERATIONS = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}
"""PCIe's generations by MT/s."""


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: known for name, value in values.items() if (known := number(value)) is not None}


def _clock(info: Any) -> float | None:
    return None if info is None else number(info.get("clk", info.get("cur_clk")))


def _classify(error: Exception) -> str:
    code = getattr(error, "err_code", None)
    if code in GONE:
        return "gone"
    if code in LOST:
        return "lost"
    return "unsupported" if code in UNSUPPORTED or isinstance(error, (AttributeError, KeyError, TypeError)) else ""
