"""The host beside the GPUs, through psutil: processor, memory, disk, network, and the training process itself."""

from __future__ import annotations

from typing import Any

import msgspec


class HostReading(msgspec.Struct, kw_only=True):
    """The host at one moment. Fractions are 0 to 1; process_cpu_frac is 1.0 for each core kept busy.

    The process is training's own, without its children. disk_used_*: of the filesystem that holds the run.
    disk_read_bytes, disk_written_bytes, network_*_bytes: of the whole machine, since sampling began.
    """

    cpu_frac: float | None = None
    memory_frac: float | None = None
    memory_used_bytes: int | None = None
    process_cpu_frac: float | None = None
    process_rss_bytes: int | None = None
    disk_used_frac: float | None = None
    disk_used_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    network_sent_bytes: int | None = None
    network_received_bytes: int | None = None


class Host:
    """Reads the machine this runs on.

    Args:
        pid: the training process; None for none.
        directory: whose filesystem is looked at.
    """

    def __init__(self, pid: int | None, directory: str) -> None:
        import psutil

        self._psutil: Any = psutil
        self._directory = directory
        self._process: Any = None
        if pid is not None:
            try:
                self._process = psutil.Process(pid)
                self._process.cpu_percent(None)  # counted from here on
            except psutil.Error:
                self._process = None
        psutil.cpu_percent(None)
        self._disk = self._try(psutil.disk_io_counters)
        self._network = self._try(psutil.net_io_counters)

    def read(self) -> HostReading:
        """The host now; what can't be had is None."""
        psutil = self._psutil
        reading = HostReading()
        cpu = self._try(psutil.cpu_percent, None)
        memory = self._try(psutil.virtual_memory)
        usage = self._try(psutil.disk_usage, self._directory)
        disk, network = self._try(psutil.disk_io_counters), self._try(psutil.net_io_counters)
        reading.cpu_frac = None if cpu is None else cpu / 100
        if memory is not None:
            reading.memory_frac, reading.memory_used_bytes = memory.percent / 100, memory.total - memory.available
        if usage is not None:
            reading.disk_used_frac, reading.disk_used_bytes = usage.percent / 100, usage.used
        if disk is not None and self._disk is not None:
            reading.disk_read_bytes = disk.read_bytes - self._disk.read_bytes
            reading.disk_written_bytes = disk.write_bytes - self._disk.write_bytes
        if network is not None and self._network is not None:
            reading.network_sent_bytes = network.bytes_sent - self._network.bytes_sent
            reading.network_received_bytes = network.bytes_recv - self._network.bytes_recv
        self._of_process(reading)
        return reading

    def _of_process(self, reading: HostReading) -> None:
        if self._process is None:
            return
        try:
            with self._process.oneshot():
                reading.process_cpu_frac = self._process.cpu_percent(None) / 100
                reading.process_rss_bytes = self._process.memory_info().rss
        except self._psutil.Error:
            self._process = None

    def _try(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (self._psutil.Error, OSError, RuntimeError, NotImplementedError):
            return None
