"""NVIDIA GPUs, through nvidia-ml-py (imports as ``pynvml``), which loads the driver's ``libnvidia-ml.so.1``.

Units as the vendor's reference has them (https://docs.nvidia.com/deploy/nvml-api/): utilisation in percent of the
last sample period (1/6 to 1 s), power in mW, energy in mJ since the driver was loaded, memory in bytes, clocks in MHz,
temperature in °C. ``utilization.memory`` is the share of time that memory was read or written, not how full it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from trackers.hardware.gpus.base import MOST_EVENTS, DriverSource, Gpu, GpuEvent, Reading, SourceLost, one_line

MW_PER_W = 1000.0
NS_PER_S = 1e9
MIB = 1048576.0
MJ_PER_J = 1000.0
HZ_PER_MHZ = 1e6

# NVML's return codes (nvml.h, nvmlReturn_t).
UNSUPPORTED = frozenset({2, 3, 4, 13, 25, 26})  # argument, not supported, no permission, no function, version, old
LOST = frozenset({15, 16, 28})  # GPU is lost, reset required, GPU not found
GONE = frozenset({1, 9, 12, 18})  # uninitialised, driver not loaded, library missing, driver and library differ

REASONS = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
"""nvmlClocksEventReason*; 0x1, an idle GPU, holds nothing down."""

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell",
}  # fmt: skip
"""nvmlDeviceArchitecture_t."""


class GpmMetric(NamedTuple):
    """A metric of NVML's GPM (Hopper and newer): its constant, our name, and what NVML's value is multiplied with."""

    constant: str
    name: str
    factor: float = 1.0


GPM = (
    GpmMetric("NVML_GPM_METRIC_SM_UTIL", "smActive"),
    GpmMetric("NVML_GPM_METRIC_SM_OCCUPANCY", "smOccupancy"),
    GpmMetric("NVML_GPM_METRIC_ANY_TENSOR_UTIL", "pipeTensorActive"),
    GpmMetric("NVML_GPM_METRIC_HMMA_TENSOR_UTIL", "pipeTensorHmmaActive"),
    GpmMetric("NVML_GPM_METRIC_FP64_UTIL", "pipeFp64Active"),
    GpmMetric("NVML_GPM_METRIC_FP32_UTIL", "pipeFp32Active"),
    GpmMetric("NVML_GPM_METRIC_FP16_UTIL", "pipeFp16Active"),
    GpmMetric("NVML_GPM_METRIC_DRAM_BW_UTIL", "dramActive"),
    GpmMetric("NVML_GPM_METRIC_PCIE_TX_PER_SEC", "pcieTxBytes", MIB),
    GpmMetric("NVML_GPM_METRIC_PCIE_RX_PER_SEC", "pcieRxBytes", MIB),
    GpmMetric("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", "nvlinkTxBytes", MIB),
    GpmMetric("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", "nvlinkRxBytes", MIB),
)
"""Means of the time between two samples, in percent; throughput is in MiB/s, packets' headers included."""

FIELD_VALUES: dict[str, tuple[tuple[str, str, float], ...]] = {
    "health": (
        ("NVML_FI_DEV_ECC_SBE_AGG_TOTAL", "correctedMemoryErrors", 1.0),
        ("NVML_FI_DEV_ECC_DBE_AGG_TOTAL", "uncorrectedMemoryErrors", 1.0),
        ("NVML_FI_DEV_ECC_SBE_VOL_TOTAL", "correctedMemoryErrorsVolatile", 1.0),
        ("NVML_FI_DEV_ECC_DBE_VOL_TOTAL", "uncorrectedMemoryErrorsVolatile", 1.0),
        ("NVML_FI_DEV_REMAPPED_COR", "remappedRowsCorrectable", 1.0),
        ("NVML_FI_DEV_REMAPPED_UNC", "remappedRowsUncorrectable", 1.0),
        ("NVML_FI_DEV_REMAPPED_PENDING", "remappedRowsPending", 1.0),
        ("NVML_FI_DEV_REMAPPED_FAILURE", "remappedRowsFailed", 1.0),
        ("NVML_FI_DEV_RETIRED_SBE", "retiredPages", 1.0),
        ("NVML_FI_DEV_RETIRED_DBE", "retiredPages", 1.0),
        ("NVML_FI_DEV_MEMORY_TEMP", "memoryTemp", 1.0),
        ("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP", "heldByPowerSeconds", 1 / NS_PER_S),
        ("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", "heldByHeatSeconds", 1 / NS_PER_S),
        ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", "heldByHeatSeconds", 1 / NS_PER_S),
        ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", "heldByBrakeSeconds", 1 / NS_PER_S),
    ),
    "links": (
        ("NVML_FI_DEV_PCIE_REPLAY_COUNTER", "pcieReplays", 1.0),
        ("NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "nvlinkCrcErrors", 1.0),
        ("NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "nvlinkCrcErrors", 1.0),
        ("NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "nvlinkReplays", 1.0),
        ("NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "nvlinkRecoveries", 1.0),
    ),
}
"""NVML's fields (nvml.h, NVML_FI_*), our names, and factors; fields of one name are added up."""
VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t, by nvmlValueType_t."""
NO_MEMORY = (1 << 64) - 1
"""NVML's memory of a process where it isn't known."""

XID_OF_APPLICATION = frozenset({13, 31, 43, 45, 68, 69, 94, 109, 137})
"""Xids that a program can cause on a sound GPU."""
XIDS = {
    8: "the GPU stopped processing",
    13: "exception of the graphics engine: often an address out of bounds in a kernel",
    31: "page fault of the GPU's memory: an illegal address",
    32: "invalid or corrupted push buffer",
    38: "error of the driver's firmware",
    43: "the GPU stopped processing the program's work",
    45: "the program's channels were removed, after an error or its end",
    48: "double-bit ECC error",
    61: "breakpoint of an internal microcontroller",
    62: "halt of an internal microcontroller",
    63: "a memory row or page is to be replaced",
    64: "a memory row or page couldn't be replaced",
    68: "exception of the video decoder",
    69: "class error of the graphics engine",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error: the program that used the memory ends",
    95: "uncontained ECC error: the GPU must be reset",
    109: "time-out of a context switch",
    119: "the GPU's system processor (GSP) doesn't answer",
    120: "error of the GPU's system processor (GSP)",
    121: "corrected error of a chip-to-chip link",
    137: "NVLink memory fault",
    140: "unrecovered ECC error",
    143: "the GPU can't be initialised",
    149: "NVLink error",
    154: "the GPU needs a recovery: see nvidia-smi -q",
}
"""What codes mean (https://docs.nvidia.com/deploy/xid-errors/)."""


class NvidiaSource(DriverSource):
    """The NVIDIA GPUs of this machine; NVML is initialised once.

    Args:
        say: called with one line for what can't be had.
        choose: picks those to read.
        entering: called before the driver is asked for the first time.
        details: groups of further values, of :data:`trackers.metrics.gpu_details.GROUPS`.

    Raises:
        SourceLost: no driver here, or it doesn't work.
        ImportError: nvidia-ml-py isn't installed.
    """

    name = "nvidia"

    def __init__(
        self,
        say: Callable[[str], None],
        choose: Callable[[Sequence[Gpu]], list[Gpu]] = list,
        clock: Callable[[], float] = time.monotonic,
        entering: Callable[[], object] = lambda: None,
        details: Collection[str] = (),
    ) -> None:
        import pynvml

        entering()
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise SourceLost(one_line(error)) from error
        super().__init__("NVIDIA", say, _classify, clock, details)
        self._parents: dict[str, Any] = {}
        self._gpm: dict[str, tuple[Any, Any]] = {}
        self._event_sets: dict[str, Any] = {}
        try:
            self.gpus = choose(self._detect())
        except pynvml.NVMLError as error:
            self.close()
            raise SourceLost(one_line(error)) from error
        if "health" in self._groups:
            self._watch_events()

    def close(self) -> None:
        """Release NVML."""
        nvml = self._nvml
        for event_set in self._event_sets.values():
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(event_set)
        for samples in self._gpm.values():
            for sample in samples:
                with contextlib.suppress(nvml.NVMLError):
                    nvml.nvmlGpmSampleFree(sample)
        self._event_sets, self._gpm = {}, {}
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def _read(self, gpu: Gpu) -> Reading:
        return self._instance(gpu) if gpu.label in self._parents else self._read_gpu(gpu)

    def _read_gpu(self, gpu: Gpu) -> Reading:
        nvml, handle, ask = self._nvml, self._handles[gpu.label], self._fields.ask
        reading = Reading(gpu=gpu)
        rates = ask(gpu, "utilisation", nvml.nvmlDeviceGetUtilizationRates, handle)
        if rates is not None:
            reading.compute_frac, reading.memory_busy_frac = rates.gpu / 100, rates.memory / 100
        self._memory(reading, handle)
        power_mw = ask(gpu, "power", nvml.nvmlDeviceGetPowerUsage, handle)
        limit_mw = ask(gpu, "power limit", nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        reading.power_w = None if power_mw is None else power_mw / MW_PER_W
        reading.power_limit_w = None if limit_mw is None else limit_mw / MW_PER_W
        reading.counted = self._slow or not self._fields.has(gpu, "energy counter")
        if self._slow:
            energy_mj = ask(gpu, "energy counter", nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
            reading.energy_j = None if energy_mj is None else energy_mj / MJ_PER_J
        self._temperature_and_clocks(reading, handle)
        self._read_details(reading, handle)
        bits = ask(gpu, "throttle reasons", self._reasons, handle)
        if bits is not None:
            reading.throttle = tuple(text for bit, text in REASONS.items() if bits & bit)
        return reading

    def _instance(self, gpu: Gpu) -> Reading:
        """A MIG instance: memory is its own. Power, energy and utilisation are only measured for the whole GPU."""
        reading = Reading(gpu=gpu)
        self._memory(reading, self._handles[gpu.label])
        self._temperature_and_clocks(reading, self._parents[gpu.label])
        for field in ("utilisation", "power", "energy counter"):
            self._fields.refuse(gpu, field, "MIG instances have none of their own")
        if "activity" in self._groups:
            reading.details = self._activity(gpu) or {}
        if "processes" in self._groups and self._slow:
            reading.users = self._fields.ask(gpu, "processes", self._processes, self._handles[gpu.label], quiet=True)
        return reading

    def _read_details(self, reading: Reading, handle: Any) -> None:
        gpu, groups, details = reading.gpu, self._groups, reading.details
        nvml, ask = self._nvml, self._fields.ask
        if "activity" in groups:
            details.update(self._activity(gpu) or {})
        if "engines" in groups:
            fan = ask(gpu, "fan", nvml.nvmlDeviceGetFanSpeed, handle, quiet=True)
            encoder = ask(gpu, "encoder", nvml.nvmlDeviceGetEncoderUtilization, handle, quiet=True)
            decoder = ask(gpu, "decoder", nvml.nvmlDeviceGetDecoderUtilization, handle, quiet=True)
            clock = ask(
                gpu, "graphics clock", nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_GRAPHICS, quiet=True
            )
            found = {
                "fanSpeed": fan,
                "encoderUtilization": encoder and encoder[0],
                "decoderUtilization": decoder and decoder[0],
                "graphicsClock": clock,
            }
            details.update({name: float(value) for name, value in found.items() if value is not None})
        if not self._slow:
            return
        for group, fields in FIELD_VALUES.items():
            if group in groups:
                details.update(ask(gpu, group, self._field_values, handle, fields, quiet=True) or {})
        if "links" in groups:
            generation = ask(gpu, "PCIe generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle, quiet=True)
            width = ask(gpu, "PCIe width", nvml.nvmlDeviceGetCurrPcieLinkWidth, handle, quiet=True)
            found = {"pcieLinkGen": generation, "pcieLinkWidth": width}
            details.update({name: float(value) for name, value in found.items() if value is not None})
        if "processes" in groups:
            reading.users = ask(gpu, "processes", self._processes, handle, quiet=True)

    def _field_values(self, handle: Any, fields: Sequence[tuple[str, str, float]]) -> dict[str, float]:
        """Several of NVML's fields in one call; what the GPU doesn't have, or only a part of, is left out."""
        nvml = self._nvml
        known = [
            (getattr(nvml, constant), name, factor) for constant, name, factor in fields if hasattr(nvml, constant)
        ]
        found: dict[str, float] = {}
        partial = {name for constant, name, _ in fields if not hasattr(nvml, constant)}
        for answer, (_, name, factor) in zip(
            nvml.nvmlDeviceGetFieldValues(handle, [field for field, _, _ in known]), known, strict=True
        ):
            if answer.nvmlReturn == 0 and answer.valueType < len(VALUE_FIELDS):
                value = float(getattr(answer.value, VALUE_FIELDS[answer.valueType]))
                found[name] = found.get(name, 0.0) + value * factor
            else:
                partial.add(name)
        return {name: value for name, value in found.items() if name not in partial}

    def _activity(self, gpu: Gpu) -> dict[str, float] | None:
        """What GPM says of the time since the sample before; None at first, and where the GPU has no GPM."""
        return self._fields.ask(gpu, "activity", self._gpm_values, gpu)  # type: ignore[no-any-return]

    def _gpm_values(self, gpu: Gpu) -> dict[str, float] | None:
        nvml = self._nvml
        whole = self._parents.get(gpu.label, self._handles[gpu.label])
        if gpu.label not in self._gpm:
            if not nvml.nvmlGpmQueryDeviceSupport(whole).isSupportedDevice:
                self._fields.refuse(gpu, "activity", "needs Hopper or a newer GPU")
                return None
            first, second = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
            try:
                self._gpm_sample(gpu, whole, first)
            except nvml.NVMLError:  # nothing to compare the next one with
                nvml.nvmlGpmSampleFree(first)
                nvml.nvmlGpmSampleFree(second)
                raise
            self._gpm[gpu.label] = first, second
            return None
        before, now = self._gpm[gpu.label]
        self._gpm_sample(gpu, whole, now)
        self._gpm[gpu.label] = now, before
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.sample1, asked.sample2 = nvml.NVML_GPM_METRICS_GET_VERSION, before, now
        metrics = [metric for metric in GPM if hasattr(nvml, metric.constant)]
        asked.numMetrics = len(metrics)
        for place, metric in enumerate(metrics):
            asked.metrics[place].metricId = getattr(nvml, metric.constant)
        nvml.nvmlGpmMetricsGet(asked)
        answers = [(asked.metrics[place], metric) for place, metric in enumerate(metrics)]
        return {
            metric.name: float(answer.value) * metric.factor
            for answer, metric in answers
            if answer.nvmlReturn == 0 and 0 <= answer.value < float("inf")
        }

    def _gpm_sample(self, gpu: Gpu, whole: Any, sample: Any) -> None:
        if gpu.label in self._parents:
            instance = self._nvml.nvmlDeviceGetGpuInstanceId(self._handles[gpu.label])
            self._nvml.nvmlGpmMigSampleGet(whole, instance, sample)
        else:
            self._nvml.nvmlGpmSampleGet(whole, sample)

    def _processes(self, handle: Any) -> dict[int, int | None]:
        used = {int(user.pid): user.usedGpuMemory for user in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        return {pid: None if memory in (None, NO_MEMORY) else int(memory) for pid, memory in used.items()}

    def _watch_events(self) -> None:
        nvml = self._nvml
        for gpu in self.gpus:
            if gpu.label not in self._handles or gpu.label in self._parents:
                continue
            with contextlib.suppress(nvml.NVMLError, AttributeError):
                event_set = nvml.nvmlEventSetCreate()
                try:
                    nvml.nvmlDeviceRegisterEvents(
                        self._handles[gpu.label], nvml.nvmlEventTypeXidCriticalError, event_set
                    )
                except nvml.NVMLError:
                    nvml.nvmlEventSetFree(event_set)
                    raise
                self._event_sets[gpu.label] = event_set

    def _poll_events(self) -> None:
        for gpu in [gpu for gpu in self.gpus if gpu.label in self._event_sets]:
            self._poll(gpu)

    def _poll(self, gpu: Gpu) -> None:
        nvml, event_set = self._nvml, self._event_sets.get(gpu.label)
        while event_set is not None and len(self.events) < MOST_EVENTS:
            try:
                event = nvml.nvmlEventSetWait_v2(event_set, 0)
            except nvml.NVMLError as error:
                if error.value not in (nvml.NVML_ERROR_TIMEOUT, *LOST):
                    del self._event_sets[gpu.label]
                return
            code = int(event.eventData)
            level = "WARN" if code in XID_OF_APPLICATION else "ERROR"
            self.events.append(GpuEvent(gpu, code, XIDS.get(code, ""), level))

    def _memory(self, reading: Reading, handle: Any) -> None:
        memory = self._fields.ask(reading.gpu, "memory", self._memory_info, handle)
        if memory is not None:
            reading.memory_used_bytes, reading.memory_total_bytes = int(memory.used), int(memory.total)

    def _memory_info(self, handle: Any) -> Any:
        nvml = self._nvml
        try:  # as nvidia-smi: what the driver reserves for itself isn't used
            return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except (nvml.NVMLError, AttributeError, TypeError) as error:
            if isinstance(error, nvml.NVMLError) and error.value not in UNSUPPORTED:
                raise
            return nvml.nvmlDeviceGetMemoryInfo(handle)

    def _temperature_and_clocks(self, reading: Reading, handle: Any) -> None:
        nvml, gpu, ask = self._nvml, reading.gpu, self._fields.ask
        reading.temp_c = ask(gpu, "temperature", self._temperature, handle)
        sm = ask(gpu, "SM clock", nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        memory = ask(gpu, "memory clock", nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM)
        reading.sm_clock_hz = None if sm is None else sm * HZ_PER_MHZ
        reading.memory_clock_hz = None if memory is None else memory * HZ_PER_MHZ

    def _temperature(self, handle: Any) -> float:
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        return float(self._either("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", handle, sensor))

    def _reasons(self, handle: Any) -> int:
        return int(
            self._either("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        )

    def _either(self, newer: str, older: str, *arguments: Any) -> Any:
        """A function of newer drivers and bindings, or what was there before it."""
        nvml = self._nvml
        if hasattr(nvml, newer):
            try:
                return getattr(nvml, newer)(*arguments)
            except nvml.NVMLError as error:
                if error.value not in UNSUPPORTED or not hasattr(nvml, older):
                    raise
        return getattr(nvml, older)(*arguments)

    def _detect(self) -> list[Gpu]:
        nvml = self._nvml
        gpus = []
        cuda = self._told("nvmlSystemGetCudaDriverVersion_v2")
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
            except nvml.NVMLError as error:
                self._say(f"NVIDIA GPU {index} can't be opened ({one_line(error)}): it isn't sampled")
                # Its index counts: CUDA_VISIBLE_DEVICES numbers all of them.
                gpus.append(Gpu(vendor="nvidia", index=index, label=str(index)))
                continue
            self._handles[str(index)] = handle
            gpus.append(
                Gpu(
                    vendor="nvidia",
                    index=index,
                    label=str(index),
                    name=name,
                    uuids=(uuid,),
                    instances=tuple(self._instances(index, handle)),
                    bus=self._bus(handle),
                    architecture=ARCHITECTURES.get(self._told("nvmlDeviceGetArchitecture", handle), ""),
                    cores=self._told("nvmlDeviceGetNumGpuCores", handle),
                    cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
                )
            )
        return gpus

    def _told(self, function: str, *arguments: Any) -> int:
        """What the driver answers; 0 where it, or the bindings, don't have that."""
        try:
            return int(getattr(self._nvml, function)(*arguments))
        except (self._nvml.NVMLError, AttributeError):  # AttributeError: older bindings lack it
            return 0

    def _bus(self, handle: Any) -> tuple[int, ...]:
        try:
            address = self._nvml.nvmlDeviceGetPciInfo(handle)
        except (self._nvml.NVMLError, AttributeError):
            return ()
        return int(address.domain), int(address.bus), int(address.device)

    def _instances(self, index: int, handle: Any) -> list[Gpu]:
        nvml = self._nvml
        try:
            current, _pending = nvml.nvmlDeviceGetMigMode(handle)
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
        except nvml.NVMLError:
            return []
        instances = []
        for slot in range(most):
            try:
                instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
                name, uuid = nvml.nvmlDeviceGetName(instance), nvml.nvmlDeviceGetUUID(instance)
            except nvml.NVMLError:  # slots may be empty
                continue
            label = f"{index}.mig.{slot}"
            self._handles[label], self._parents[label] = instance, handle
            instances.append(Gpu(vendor="nvidia", index=index, label=label, name=name, uuids=(uuid,)))
        return instances


def _classify(error: Exception) -> str:
    code = getattr(error, "value", None)
    if code in GONE:
        return "gone"
    if code in LOST:
        return "lost"
    return "unsupported" if code in UNSUPPORTED or isinstance(error, AttributeError) else ""
