"""NVIDIA GPUs, through nvidia-ml-py (imports as ``pynvml``), which loads the driver's ``libnvidia-ml.so.1``.

Units as the vendor's reference has them (https://docs.nvidia.com/deploy/nvml-api/): utilisation in percent of the
last sample period (1/6 to 1 s), power in mW, energy in mJ since the driver was loaded, memory in bytes, clocks in MHz,
temperature in °C. ``utilization.memory`` is the share of time that memory was read or written, not how full it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from trackers.hardware.gpus.base import DriverSource, Gpu, Reading, SourceLost, one_line

MW_PER_W = 1000.0
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


class NvidiaSource(DriverSource):
    """The NVIDIA GPUs of this machine; NVML is initialised once.

    Args:
        say: called with one line for what can't be had.
        choose: picks those to read.
        entering: called before the driver is asked for the first time.

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
    ) -> None:
        import pynvml

        entering()
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise SourceLost(one_line(error)) from error
        super().__init__("NVIDIA", say, _classify, clock)
        self._parents: dict[str, Any] = {}
        try:
            self.gpus = choose(self._detect())
        except pynvml.NVMLError as error:
            self.close()
            raise SourceLost(one_line(error)) from error

    def close(self) -> None:
        """Release NVML."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

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
        energy_mj = ask(gpu, "energy counter", nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        reading.power_w = None if power_mw is None else power_mw / MW_PER_W
        reading.power_limit_w = None if limit_mw is None else limit_mw / MW_PER_W
        reading.energy_j = None if energy_mj is None else energy_mj / MJ_PER_J
        self._temperature_and_clocks(reading, handle)
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
        return reading

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
                )
            )
        return gpus

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
